//! Counts the requests to the API server, as client-go does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

/// What client-go says of a request that got no answer.
const NO_ANSWER: &str = "<error>";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Host {
    host: String,
}

/// Number of requests by status code, method and host of the API server, and of those that were sent again. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    answers: Family<Labels, Counter>,
    repetitions: Family<Host, Counter>,
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by code, method and host",
            self.answers.clone(),
        );
        registry.register(
            "rest_client_request_retries",
            "Requests to the API server that were sent again",
            self.repetitions.clone(),
        );
    }

    /// Returns a layer that counts the requests to a host. A request that the client sends several times counts once.
    pub fn layer(&self, host: String) -> CountRequests {
        CountRequests {
            requests: self.clone(),
            host,
        }
    }

    /// Returns the number of requests to a host that were sent again.
    pub fn repetitions(&self, host: String) -> Counter {
        self.repetitions.get_or_create_owned(&Host { host })
    }

    fn count(&self, code: String, method: &http::Method, host: &str) {
        let labels = Labels {
            code,
            method: method.as_str().to_owned(),
            host: host.to_owned(),
        };
        self.answers.get_or_create(&labels).inc();
    }
}

/// Counts the requests that pass.
#[derive(Clone, Debug)]
pub struct CountRequests {
    requests: Requests,
    host: String,
}

impl<S> Layer<S> for CountRequests {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting {
            inner,
            counter: self.clone(),
        }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counting<S> {
    inner: S,
    counter: CountRequests,
}

impl<S, In, Out> Service<Request<In>> for Counting<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let CountRequests { requests, host } = self.counter.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(answer) => answer.status().as_u16().to_string(),
                Err(_) => NO_ANSWER.to_owned(),
            };
            requests.count(code, &method, &host);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use prometheus_client::encoding::text::encode;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn answers_and_failures_are_counted_by_code_method_and_host() {
        let requests = Requests::default();
        let mut registry = Registry::default();
        requests.register(&mut registry);
        let layer = requests.layer("api.example.com:6443".to_owned());
        let answers = layer.layer(tower::service_fn(async |request: Request<()>| {
            let code = if request.uri().path() == "/gone" {
                410
            } else {
                200
            };
            let answer = Response::builder().status(code).body(());
            Ok::<_, Infallible>(answer.expect("an answer"))
        }));
        let silence = layer.layer(tower::service_fn(async |_: Request<()>| {
            Err::<Response<()>, _>("no answer")
        }));
        let get = |path| Request::get(path).body(()).expect("a request");
        for path in ["/api", "/api", "/gone"] {
            answers.clone().oneshot(get(path)).await.expect("an answer");
        }
        assert!(silence.oneshot(get("/api")).await.is_err());
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        for (code, count) in [("200", 2), ("410", 1), ("<error>", 1)] {
            let line = format!(
                "rest_client_requests_total{{code=\"{code}\",method=\"GET\",host=\"api.example.com:6443\"}} {count}"
            );
            assert!(
                text.lines().any(|found| found == line),
                "{line} not in\n{text}"
            );
        }
    }
}

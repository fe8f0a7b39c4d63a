//! Counts the requests to the API server, as client-go does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::Config;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::{Layer, Service};

/// What client-go says of a request that got no answer.
const NO_ANSWER: &str = "<error>";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: String,
}

/// Number of requests by status code, method and host of the API server. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Requests(Family<Labels, Counter>);

impl Requests {
    pub(super) fn family(&self) -> impl prometheus_client::registry::Metric + use<> {
        self.0.clone()
    }

    /// Returns a layer that counts the requests of a client for `config`. A request that the client tries several times counts once.
    pub fn layer(&self, config: &Config) -> CountRequests {
        let host = config.cluster_url.authority();
        CountRequests {
            requests: self.clone(),
            host: host.map(ToString::to_string).unwrap_or_default(),
        }
    }

    fn count(&self, code: String, method: &http::Method, host: &str) {
        let labels = Labels {
            code,
            method: method.as_str().to_owned(),
            host: host.to_owned(),
        };
        self.0.get_or_create(&labels).inc();
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
    use prometheus_client::registry::Registry;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn answers_and_failures_are_counted_by_code_method_and_host() {
        let requests = Requests::default();
        let mut registry = Registry::default();
        registry.register("rest_client_requests", "Requests", requests.family());
        let config = Config::new("https://api.example.com:6443/base".parse().expect("a URL"));
        let layer = requests.layer(&config);
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

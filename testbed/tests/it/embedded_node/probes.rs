//! Probes over gRPC. The test takes the part of the server in the pod.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::harness::{self, TestNode};

const PORT: u16 = 50051;
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct Question {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// A health service that knows only the service `db`.
#[derive(Clone)]
struct Health(Arc<AtomicI32>);

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Question> for Health {
    type Response = Answer;
    type Future = Answering<Response<Answer>, Status>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let status = self.0.load(Ordering::Relaxed);
        let answer = if request.get_ref().service == "db" {
            Ok(Response::new(Answer { status }))
        } else {
            Err(Status::not_found("unknown service"))
        };
        Box::pin(std::future::ready(answer))
    }
}

impl NamedService for Health {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<http::Request<tonic::body::Body>> for Health {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let health = self.clone();
        Box::pin(async move {
            let codec: ProstCodec<Answer, Question> = ProstCodec::default();
            Ok(Grpc::new(codec).unary(health, request).await)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_by_grpc_is_what_the_server_says() {
    let setup = TestNode::up().await;
    let probe = |service: &str| json!({"grpc": {"port": PORT, "service": service}, "periodSeconds": 1, "failureThreshold": 1});
    let container = |name: &str, service: &str| json!({"name": name, "command": ["/bin/sleep", "1000"], "readinessProbe": probe(service)});
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [container("known", "db"), container("unknown", "cache")],
            },
        }))
        .await;
    let pod = setup
        .until("p", "has an address", |pod| {
            let status = pod.status.as_ref();
            status.is_some_and(|status| status.pod_ip.is_some())
        })
        .await;
    let address: SocketAddr = format!("{}:{PORT}", pod.status.unwrap().pod_ip.unwrap())
        .parse()
        .unwrap();
    let missing = format!(
        "Readiness probe failed: timeout: failed to connect service \"{address}\" within 1s: context deadline exceeded"
    );
    setup.event("Unhealthy", &missing).await;

    let health = Health(Arc::new(AtomicI32::new(SERVING)));
    let server = tonic::transport::Server::builder().add_service(health.clone());
    let _serving = tokio::spawn(server.serve(address));
    let is_ready = |pod: &k8s_openapi::api::core::v1::Pod, name: &str| {
        let statuses = pod.status.clone().unwrap_or_default().container_statuses;
        let mut statuses = statuses.into_iter().flatten();
        statuses.any(|status| status.name == name && status.ready)
    };
    let pod = setup
        .until("p", "has a ready container", |pod| is_ready(pod, "known"))
        .await;
    assert!(!is_ready(&pod, "unknown"));
    assert_eq!(harness::condition(&pod, "Ready"), "False");
    let unknown = "Readiness probe failed: error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
    setup.event("Unhealthy", unknown).await;

    health.0.store(NOT_SERVING, Ordering::Relaxed);
    setup
        .until("p", "is not ready any more", |pod| !is_ready(pod, "known"))
        .await;
    let unhealthy = r#"Readiness probe failed: service unhealthy (responded with "NOT_SERVING")"#;
    setup.event("Unhealthy", unhealthy).await;
}

//! Probes over gRPC: the health protocol `grpc.health.v1`.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use k8s_openapi::api::core::v1::GRPCAction;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::{AGENT, user_agent};

const CHECK: &str = "/grpc.health.v1.Health/Check";

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// Asks a pod's server for its health within `limit`; returns the problem in the kubelet's words.
pub(super) async fn check(
    address: Ipv4Addr,
    action: &GRPCAction,
    limit: Duration,
) -> Result<(), String> {
    let service = action.service.clone().unwrap_or_default();
    let server = format!("{address}:{}", action.port);
    let end = Instant::now() + limit;
    let within = format!("{}s", limit.as_secs());
    // Kubelets keep trying an unreachable server until the time limit and then report the same text.
    let missing = || {
        format!(
            "timeout: failed to connect service {server:?} within {within}: context deadline exceeded"
        )
    };
    let endpoint = Endpoint::from_shared(format!("http://{server}"))
        .and_then(|endpoint| endpoint.user_agent(user_agent(AGENT)))
        .map_err(|error| format!("error: failed to connect service at {server:?}: {error}"))?;
    let connected = tokio::time::timeout_at(end.into(), endpoint.connect()).await;
    let channel = connected.map_err(|_| missing())?.map_err(|_| missing())?;
    let asked = tokio::time::timeout_at(end.into(), call(channel, service)).await;
    let late = || format!("timeout: health rpc did not complete within {within}");
    let status = match asked.map_err(|_| late())? {
        Ok(answer) => answer.status,
        Err(status) => {
            let text = status.message();
            return Err(match status.code() {
                Code::Unimplemented => format!(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {text}"
                ),
                Code::DeadlineExceeded => late(),
                code => format!(
                    "error: health rpc probe failed: rpc error: code = {code:?} desc = {text}"
                ),
            });
        }
    };
    let name = match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => return Ok(()),
        Ok(ServingStatus::Unknown) => "UNKNOWN".to_owned(),
        Ok(ServingStatus::NotServing) => "NOT_SERVING".to_owned(),
        Ok(ServingStatus::ServiceUnknown) => "SERVICE_UNKNOWN".to_owned(),
        Err(_) => status.to_string(),
    };
    Err(format!("service unhealthy (responded with {name:?})"))
}

async fn call(channel: Channel, service: String) -> Result<HealthCheckResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(CHECK);
    let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
    let answer = client.unary(Request::new(HealthCheckRequest { service }), path, codec);
    answer.await.map(tonic::Response::into_inner)
}

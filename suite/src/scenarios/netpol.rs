//! Which parts of the stack may connect to which (scenarios-serial.md 9.8).
//!
//! Prometheus is the client that reads metrics. If the cluster has none, a pod of the scenario takes its place.

use std::net::IpAddr;

use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::context::Context;
use crate::needs::Need;
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::NetworkPolicies];
/// Ports of the operator's metrics and health endpoints (operator.md 6.7).
const OPERATOR_METRICS: u16 = 8080;
const OPERATOR_HEALTH: u16 = 8081;
/// Port of an exporter's metrics.
const EXPORTER_METRICS: u16 = 2112;
/// Seconds after which a connection counts as blocked.
const LIMIT: &str = "5";

struct Row {
    id: &'static str,
    connection: Connection,
}

/// Who connects to whom, and what must become of it.
enum Connection {
    ReachesApiServer(Part),
    Reaches(Part, Part, u16),
    IsBlocked(Part, Part, u16),
}

static ROWS: &[Row] = &[
    Row {
        id: "netpol/operator-api",
        connection: Connection::ReachesApiServer(Part::Operator),
    },
    Row {
        id: "netpol/sched-api",
        connection: Connection::ReachesApiServer(Part::Scheduler),
    },
    Row {
        id: "netpol/rte-api",
        connection: Connection::ReachesApiServer(Part::Exporter),
    },
    Row {
        id: "netpol/prom-operator-metrics",
        connection: Connection::Reaches(Part::Prometheus, Part::Operator, OPERATOR_METRICS),
    },
    Row {
        id: "netpol/prom-rte-metrics",
        connection: Connection::Reaches(Part::Prometheus, Part::Exporter, EXPORTER_METRICS),
    },
    Row {
        id: "netpol/sched-operator",
        connection: Connection::IsBlocked(Part::Scheduler, Part::Operator, OPERATOR_HEALTH),
    },
    Row {
        id: "netpol/operator-prom",
        connection: Connection::IsBlocked(Part::Operator, Part::Prometheus, OPERATOR_HEALTH),
    },
    Row {
        id: "netpol/prom-operator-health",
        connection: Connection::IsBlocked(Part::Prometheus, Part::Operator, OPERATOR_HEALTH),
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| run(ctx, &row.connection));
        scenario(row.id, NEEDS, run)
    };
    ROWS.iter().map(build).collect()
}

fn run<'a>(ctx: &'a Context, connection: &Connection) -> LocalBoxFuture<'a, Result<(), StepError>> {
    match *connection {
        Connection::ReachesApiServer(from) => Box::pin(reaches_api_server(ctx, from)),
        Connection::Reaches(from, to, port) => Box::pin(reaches(ctx, from, to, port)),
        Connection::IsBlocked(from, to, port) => Box::pin(is_blocked(ctx, from, to, port)),
    }
}

/// A source or target of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Operator,
    Scheduler,
    Exporter,
    Prometheus,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Operator => "the operator",
            Self::Scheduler => "the scheduler",
            Self::Exporter => "an exporter",
            Self::Prometheus => "Prometheus",
        }
    }

    async fn pod(self, ctx: &Context) -> Result<Pod, StepError> {
        let pods = match self {
            Self::Operator => ctx.operator_pods().await?,
            Self::Scheduler => ctx.scheduler_pods().await?,
            Self::Exporter => ctx.exporters().await?,
            Self::Prometheus => return prometheus(ctx).await,
        };
        let pod = pods.into_iter().next();
        pod.ok_or_else(|| StepError::fail(format!("{} has no pod", self.name())))
    }
}

/// Returns the pod that reads metrics. It runs no server.
async fn prometheus(ctx: &Context) -> Result<Pod, StepError> {
    let real = Api::<Pod>::namespaced(ctx.client(), "openshift-monitoring");
    let its = ListParams::default().labels("app.kubernetes.io/name=prometheus");
    if let Some(pod) = real.list(&its).await?.items.into_iter().next() {
        return Ok(pod);
    }
    let plan = PodPlan::new(
        "prometheus",
        "default-scheduler",
        [ResourceRequest::Nothing],
    );
    if let Some(pod) = ctx.api::<Pod>().get_opt(plan.name()).await? {
        return Ok(pod);
    }
    ctx.create(plan.pod()).await?;
    Ok(ctx.pods_running(&[plan.name().to_owned()]).await?.remove(0))
}

fn address(pod: &Pod) -> Result<IpAddr, StepError> {
    let text = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_deref());
    let address = text.and_then(|text| text.parse().ok());
    address.ok_or_else(|| StepError::fail(format!("pod {} has no address", pod.name_any())))
}

/// Returns whether a pod can open a connection.
async fn connects(ctx: &Context, from: &Pod, host: &str, port: &str) -> Result<bool, StepError> {
    let container = from.spec.as_ref().and_then(|spec| spec.containers.first());
    let container = container.map_or("", |container| container.name.as_str());
    let command = ["/bin/connect", host, port, LIMIT];
    let output = ctx.exec(from, container, &command).await?;
    if output.succeeded || output.stderr.contains("cannot connect") {
        return Ok(output.succeeded);
    }
    let reason = format!(
        "{} has no program to open a connection: {}",
        from.name_any(),
        output.stderr
    );
    Err(StepError::Skip(reason))
}

async fn reaches_api_server(ctx: &Context, part: Part) -> Result<(), StepError> {
    ctx.step(format!("{} reaches the API server", part.name()), async {
        let pod = part.pod(ctx).await?;
        // the kubelet sets these two in every container, for the address of the API server
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let container = container.map_or("", |container| container.name.as_str());
        let variable = async |name: &str| {
            let command = ["/bin/cat", "/proc/self/environ"];
            let output = ctx.exec(&pod, container, &command).await?;
            let mut variables = output.stdout.split('\0');
            let value = variables.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            let value = value.map(str::to_owned);
            value.ok_or_else(|| StepError::fail(format!("its container has no variable {name}")))
        };
        let host = variable("KUBERNETES_SERVICE_HOST").await?;
        let port = variable("KUBERNETES_SERVICE_PORT").await?;
        if connects(ctx, &pod, &host, &port).await? {
            return Ok(());
        }
        Err(StepError::fail(format!(
            "{} does not reach {host}:{port}",
            pod.name_any()
        )))
    })
    .await
}

async fn reaches(ctx: &Context, from: Part, to: Part, port: u16) -> Result<(), StepError> {
    ctx.step(
        format!("{} reaches {} at {port}", from.name(), to.name()),
        async {
            let (source, target) = (from.pod(ctx).await?, to.pod(ctx).await?);
            let host = address(&target)?.to_string();
            if connects(ctx, &source, &host, &port.to_string()).await? {
                return Ok(());
            }
            Err(StepError::fail(format!(
                "{} does not reach {host}:{port}",
                source.name_any()
            )))
        },
    )
    .await?;
    ctx.step(format!("{} answers without TLS, too", to.name()), async {
        answers_plainly(ctx, &to.pod(ctx).await?, port).await
    })
    .await
}

/// Checks that a server answers a request without TLS with HTTP, be it a refusal, as Go's servers do at their TLS ports. A client such as `curl`
/// counts a closed connection as out of reach.
async fn answers_plainly(ctx: &Context, pod: &Pod, port: u16) -> Result<(), StepError> {
    let name = pod.name_any();
    let failed = |error: std::io::Error| StepError::fail(format!("port {port} of {name}: {error}"));
    let mut stream = ctx.connect(pod, port).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    // a reset after the answer takes nothing away from it
    let read = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let first = answer.lines().next().unwrap_or_default();
    ctx.recorder.saw(first);
    if first.starts_with("HTTP/1.") {
        return Ok(());
    }
    let end = read.err().map(|error| format!(" ({error})"));
    let seen = format!("{first:?}{}", end.unwrap_or_default());
    Err(StepError::mismatch("answer", "a line of HTTP", seen))
}

/// Checks that a policy keeps the two apart, which must select at least one of them. If it selects only the source, a pod without a policy
/// must get through to the target.
async fn is_blocked(ctx: &Context, from: Part, to: Part, port: u16) -> Result<(), StepError> {
    let (source, target) = (from.pod(ctx).await?, to.pod(ctx).await?);
    let (host, port) = (address(&target)?.to_string(), port.to_string());
    if !is_selected(ctx, &target).await? {
        if !is_selected(ctx, &source).await? {
            let reason = format!("no policy selects {} or {}", from.name(), to.name());
            return Err(StepError::Skip(reason));
        }
        ctx.step(
            format!("a pod without a policy reaches {host}:{port}"),
            async {
                let witness = Part::Prometheus.pod(ctx).await?;
                if connects(ctx, &witness, &host, &port).await? {
                    return Ok(());
                }
                Err(StepError::fail(format!("nothing answers at {host}:{port}")))
            },
        )
        .await?;
    }
    ctx.step(format!("{} does not", from.name()), async {
        let what = format!("{host}:{port} is out of reach");
        let limit = ctx.deadlines().settled;
        ctx.until(&what, limit, async || {
            Ok(if connects(ctx, &source, &host, &port).await? {
                PollResult::NotYet(format!("{} reaches it", source.name_any()))
            } else {
                PollResult::Ready(())
            })
        })
        .await
    })
    .await
}

/// Returns whether a policy selects the pod.
async fn is_selected(ctx: &Context, pod: &Pod) -> Result<bool, StepError> {
    let namespace = pod.namespace().unwrap_or_default();
    let policies = Api::<NetworkPolicy>::namespaced(ctx.client(), &namespace);
    let policies = policies.list(&ListParams::default()).await?.items;
    Ok(policies.iter().any(|policy| {
        let selector = policy
            .spec
            .as_ref()
            .and_then(|spec| spec.pod_selector.clone());
        let selector = kube::core::Selector::try_from(selector.unwrap_or_default());
        selector.is_ok_and(|selector| kube::core::SelectorExt::matches(&selector, pod.labels()))
    }))
}

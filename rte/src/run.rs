//! The daemon: assembles all parts, in the order in which they start, and lets them run until the end (rte.md 3).
//!
//! `cycle` is what they do then, over and over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::admin::Checks;
use daemon::guard::Guard;
use daemon::log::chain;
use daemon::metrics::requests::Requests;
use daemon::rate::Bucket;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::cycle::Exporter;
use crate::config::{Config, MetricsMode, TopologyExporter};
use crate::kubelet::answers::Kubelet;
use crate::kubelet::configuration::{self, TopologyManager};
use crate::kubelet::demand::Demands;
use crate::kubelet::terminal_pods::TerminalPods;
use crate::metrics::{Metrics, server};
use crate::publish::publisher::{Options, Publisher};
use crate::publish::readiness::Reporter;
use crate::publish::status_dump::StatusDump;
use crate::scan::filter::Filter;
use crate::scan::observation::Settings;
use crate::scan::{MachineSource, PodInfo, Scanner};
use crate::triggers::events::Events;
use crate::triggers::limiter::limiter;
use crate::triggers::notify;
use crate::triggers::watch::{self, Subject};

mod cycle;

/// Time limit of one call to the kubelet.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a cycle may take before the exporter counts as hanging. The calls of a cycle have limits of their own, which add up to less.
const CYCLE_LIMIT: Duration = Duration::from_mins(5);

/// Identity of this exporter, from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `NODE_NAME` if it is set, even if empty; otherwise the host name.
    pub(crate) node: String,
    /// `REFERENCE_NAMESPACE`: namespace of the own pod.
    pub(crate) namespace: Option<String>,
    /// `REFERENCE_POD_NAME`: name of the own pod.
    pub(crate) pod: Option<String>,
    /// `PFP_STATUS_DUMP`: directory for fingerprint records.
    pub(crate) status_dump: Option<PathBuf>,
}

/// Runs until `stop` is cancelled, or for one cycle if the configuration says so. An error ends the process: at start any problem that only
/// an administrator can fix, later only a failed `--oneshot`.
pub(crate) async fn run(
    config: Config,
    identity: Identity,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&identity.node, &mut registry);
    let shared = daemon::metrics::Shared::default();
    shared.register(&mut registry);
    let exclude_terminal = config.resource_monitor.exclude_terminal_pods;
    let pods = PodInfo {
        terminal: exclude_terminal.then(TerminalPods::default),
        demands: Demands::default(),
    };
    let scanner = scanner(&config, &identity, &pods, &metrics)?;
    let Writers {
        publisher,
        reporter,
        client,
    } = writers(&config, &identity, &metrics, &shared.requests).await?;
    let notifications = notifications(&config.topology_exporter)?;
    let mut checks = Checks::new();
    let ready = checks.ready("published");
    let watchdog = checks.watch("cycle", CYCLE_LIMIT);
    let guard = guard(&config, &shared.requests).await?;
    let exporter = &config.topology_exporter;
    let serving = server::start(exporter, registry, checks, guard, stop.clone())
        .await
        .map_err(|error| fatal("failed to setup metrics server", &error))?;

    let exporter = Exporter {
        scanner,
        publisher,
        reporter,
        status: status_dump(&config, &identity),
        metrics,
        node: identity.node.clone(),
        expose_timing: config.resource_monitor.expose_timing,
        last_event: Instant::now(),
        published: None,
        ready,
        watchdog,
    };
    let changes = Arc::new(Notify::new());
    let watches = client.map(|client| watches(&config, &identity.node, pods, &client, &changes));
    let period = config.topology_exporter.sleep_interval;
    let limiter = limit(&config.topology_exporter);
    let events = Events::new(period, notifications, changes, limiter, identity.node);
    let one_shot = config.nrt_updater.one_shot;
    let running = Box::pin(exporter.run(events, period, one_shot, &stop));
    let outcome = running.await;
    stop.cancel();
    for watch in watches.unwrap_or_default() {
        watch.abort();
    }
    if let Some(serving) = serving {
        serving.await?;
    }
    outcome
}

/// Creates what reads the node, and reads it for the first time as far as it does not change.
fn scanner(
    config: &Config,
    identity: &Identity,
    pods: &PodInfo,
    metrics: &Metrics,
) -> anyhow::Result<Scanner> {
    let exporter = &config.topology_exporter;
    let topology_manager = configuration::topology_manager(exporter)
        .map_err(|error| fatal("error getting topology Manager Policy", &error))?;
    let kubelet = Kubelet::new(&exporter.pod_resources_socket_path, KUBELET_TIMEOUT)
        .map_err(|error| fatal("failed to get podresources client", &error))?;
    let settings = settings(config, identity, topology_manager);
    let source = MachineSource {
        sysfs: PathBuf::from(&config.resource_monitor.sysfs_root),
        refresh: config.resource_monitor.refresh_node_resources,
    };
    Scanner::new(kubelet, settings, source, pods.clone(), metrics.clone())
        .map_err(|error| fatal("error while updating node capacity", &error))
}

fn settings(config: &Config, identity: &Identity, topology_manager: TopologyManager) -> Settings {
    let monitor = &config.resource_monitor;
    let hidden = ["*", identity.node.as_str()]
        .into_iter()
        .filter_map(|node| monitor.resource_exclude.get(node));
    let mut filter = Filter {
        namespace: monitor.namespace.clone(),
        hidden_resources: hidden.flatten().cloned().collect(),
        shared: config.topology_exporter.reference_container.clone(),
        exact: monitor.exact_accounting,
        ..Filter::default()
    };
    for error in filter.hide_pods(&monitor.pod_exclude) {
        tracing::warn!(%error, "Pod exclude pattern never matches");
    }
    Settings {
        filter,
        fingerprint: monitor
            .pod_set_fingerprint
            .then_some(monitor.pod_set_fingerprint_method),
        topology_manager,
    }
}

/// Parts that communicate with the API server.
#[derive(Default)]
struct Writers {
    publisher: Option<Publisher>,
    reporter: Option<Reporter>,
    /// Client for the watches; `None` if nothing is published.
    client: Option<kube::Client>,
}

/// Creates the writers that the configuration enables.
async fn writers(
    config: &Config,
    identity: &Identity,
    metrics: &Metrics,
    requests: &Requests,
) -> anyhow::Result<Writers> {
    let own_pod = if config.topology_exporter.pod_readiness_enable {
        let given = |value: &Option<String>, name: &str| {
            value
                .clone()
                .ok_or_else(|| anyhow::anyhow!("the env {name} doesn't exist"))
        };
        Some((
            given(&identity.namespace, "REFERENCE_NAMESPACE")?,
            given(&identity.pod, "REFERENCE_POD_NAME")?,
        ))
    } else {
        None
    };
    let publishing = !config.nrt_updater.no_publish;
    if !publishing && own_pod.is_none() {
        return Ok(Writers::default());
    }
    let client_config = client_config(config).await?;
    let options = daemon::client::Options {
        requests: requests.clone(),
        // each cycle retries failures itself, and counts the retries
        retried_by_caller: true,
        ..daemon::client::Options::default()
    };
    let client =
        daemon::client::build(client_config, options).map_err(|error| no_client(&error))?;
    let publisher = publishing.then(|| {
        let options = Options {
            name: config.nrt_updater.hostname.clone(),
            patch_mode: config.nrt_updater.patch_mode,
            patch_resync: config.nrt_updater.patch_resync,
            set_owner: config.topology_exporter.add_nrt_owner_enable,
        };
        Publisher::new(client.clone(), options, metrics.clone())
    });
    let reporter = own_pod.map(|(namespace, pod)| Reporter::new(client.clone(), &namespace, &pod));
    Ok(Writers {
        publisher,
        reporter,
        client: publishing.then_some(client),
    })
}

/// Creates what says who may read the metrics, if not everybody may.
async fn guard(config: &Config, requests: &Requests) -> anyhow::Result<Option<Guard>> {
    let exporter = &config.topology_exporter;
    if !exporter.metrics_auth || exporter.metrics_mode == MetricsMode::Disabled {
        return Ok(None);
    }
    let guard = Guard::of_metrics(client_config(config).await?, requests.clone());
    guard.map(Some).map_err(|error| no_client(&error))
}

async fn client_config(config: &Config) -> anyhow::Result<kube::Config> {
    let kubeconfig = Path::new(&config.global.kubeconfig);
    let read = daemon::client::config(Some(kubeconfig)).await;
    read.map_err(|error| no_client(&error))
}

fn no_client(error: &dyn std::error::Error) -> anyhow::Error {
    fatal("failed to get a kubernetes core client", error)
}

/// Prepares the file that causes scans, if there is one.
fn notifications(exporter: &TopologyExporter) -> anyhow::Result<Option<PathBuf>> {
    if exporter.notify_file_path.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(&exporter.notify_file_path);
    notify::prepare(&path).map_err(|error| fatal("failed to set up notifications", &error))?;
    Ok(Some(path))
}

fn status_dump(config: &Config, identity: &Identity) -> StatusDump {
    let file = &config.resource_monitor.pod_set_fingerprint_status_file;
    let file = (!file.is_empty()).then(|| PathBuf::from(file));
    StatusDump::new(file, identity.status_dump.as_deref(), &identity.node)
}

/// Starts the watches on the API server.
fn watches(
    config: &Config,
    node: &str,
    pods: PodInfo,
    client: &kube::Client,
    changes: &Arc<Notify>,
) -> Vec<JoinHandle<()>> {
    let mut subjects = Vec::new();
    if config.topology_exporter.watch_pods && !config.nrt_updater.one_shot {
        subjects.extend([Subject::pods(node, pods.demands), Subject::node(node)]);
    }
    let terminal = pods.terminal;
    subjects.extend(terminal.map(|terminal| Subject::terminal_pods(node, terminal)));
    subjects
        .into_iter()
        .map(|subject| watch::follow(client.clone(), subject, Arc::clone(changes)))
        .map(tokio::spawn)
        .collect()
}

fn limit(exporter: &TopologyExporter) -> Option<Bucket> {
    let unit = u64::try_from(exporter.time_unit_to_limit_events.as_nanos()).unwrap_or(0);
    limiter(exporter.max_event_per_time_unit, Duration::from_nanos(unit))
}

fn fatal(what: &str, error: &dyn std::error::Error) -> anyhow::Error {
    anyhow::anyhow!("{what}: {}", chain(error))
}

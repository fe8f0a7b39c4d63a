//! The daemon: assembles the parts and runs the event loop (rte.md 3).
//!
//! A cycle is one scan and one publication; a failed scan publishes nothing. Events that arrive during a cycle, or while the rate limit
//! holds them, are merged into one for the next cycle. A failed cycle is retried after growing pauses.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::duration::GoDuration;
use api::nrt::{AttributeInfo, Zone};
use daemon::admin::{Checks, Gate};
use daemon::log::distinct_chain;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::demand::Demands;
use crate::events::{Event, Events};
use crate::kubelet::Kubelet;
use crate::kubelet_config::{self, TopologyManager};
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::metrics_server;
use crate::monitor::Filter;
use crate::notify;
use crate::observation::{Observation, Settings};
use crate::publish::{self, Content, Options, Publisher, Timing, Trigger};
use crate::readiness::{Report, Reporter};
use crate::scan::{MachineSource, PodInfo, Scanner};
use crate::status_dump::{PodName, Record, StatusDump};
use crate::watch::{self, Subject, TerminalPods};

/// Time limit of one call to the kubelet.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(10);

/// Identity of this exporter, from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `NODE_NAME` if it is set, even if empty; otherwise the host name.
    pub node: String,
    /// `REFERENCE_NAMESPACE`: namespace of the own pod.
    pub namespace: Option<String>,
    /// `REFERENCE_POD_NAME`: name of the own pod.
    pub pod: Option<String>,
    /// `PFP_STATUS_DUMP`: directory for fingerprint records.
    pub status_dump: Option<PathBuf>,
}

/// Runs until `stop` is cancelled, or for one cycle if the configuration says so. An error ends the process: at start any problem that only
/// an administrator can fix, later only a failed `--oneshot`.
pub async fn run(
    config: Config,
    identity: Identity,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let exporter = &config.topology_exporter;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&identity.node, &mut registry);
    let topology_manager = kubelet_config::topology_manager(exporter)
        .map_err(|error| fatal("error getting topology Manager Policy", &error))?;

    let kubelet = Kubelet::new(&exporter.pod_resources_socket_path, KUBELET_TIMEOUT)
        .map_err(|error| fatal("failed to get podresources client", &error))?;
    let exclude_terminal = config.resource_monitor.exclude_terminal_pods;
    let pod_info = PodInfo {
        terminal: exclude_terminal.then(TerminalPods::default),
        demands: Demands::default(),
    };
    let scanner = Scanner::new(
        kubelet,
        settings(&config, &identity, topology_manager),
        MachineSource {
            sysfs: PathBuf::from(&config.resource_monitor.sysfs_root),
            refresh: config.resource_monitor.refresh_node_resources,
        },
        pod_info.clone(),
        metrics.clone(),
    )
    .map_err(|error| fatal("error while updating node capacity", &error))?;

    let Writers {
        publisher,
        reporter,
        client,
    } = writers(&config, &identity, &metrics).await?;
    let notifications = match exporter.notify_file_path.as_str() {
        "" => None,
        path => {
            notify::prepare(Path::new(path))
                .map_err(|error| fatal("failed to set up notifications", &error))?;
            Some(PathBuf::from(path))
        }
    };
    let mut checks = Checks::new();
    let ready = checks.ready("published");
    let serving = metrics_server::start(exporter, registry, checks, stop.clone())
        .await
        .map_err(|error| fatal("failed to setup metrics server", &error))?;

    let unit = u64::try_from(exporter.time_unit_to_limit_events.as_nanos()).unwrap_or(0);
    let status_file = &config.resource_monitor.pod_set_fingerprint_status_file;
    let status_file = (!status_file.is_empty()).then(|| PathBuf::from(status_file));
    let exporter = Exporter {
        scanner,
        publisher,
        reporter,
        status: StatusDump::new(status_file, identity.status_dump.as_deref(), &identity.node),
        metrics,
        node: identity.node.clone(),
        expose_timing: config.resource_monitor.expose_timing,
        last_event: Instant::now(),
        published: None,
        ready,
    };
    let period = config.topology_exporter.sleep_interval;
    let limiter = Limiter::new(
        config.topology_exporter.max_event_per_time_unit,
        Duration::from_nanos(unit),
    );
    let one_shot = config.nrt_updater.one_shot;
    let changes = Arc::new(Notify::new());
    let mut subjects = Vec::new();
    if config.topology_exporter.watch_pods && !one_shot {
        let node = &identity.node;
        subjects.extend([Subject::pods(node, pod_info.demands), Subject::node(node)]);
    }
    let terminal = pod_info.terminal;
    subjects.extend(terminal.map(|terminal| Subject::terminal_pods(&identity.node, terminal)));
    let follow = |client: kube::Client| {
        subjects
            .into_iter()
            .map(|subject| watch::follow(client.clone(), subject, Arc::clone(&changes)))
            .map(tokio::spawn)
            .collect()
    };
    let watches: Vec<JoinHandle<()>> = client.map(follow).unwrap_or_default();
    let events = Events::new(period, notifications, changes, limiter, identity.node);
    let running = Box::pin(exporter.run(events, period, one_shot, &stop));
    let outcome = running.await;
    stop.cancel();
    for watch in watches {
        watch.abort();
    }
    if let Some(serving) = serving {
        serving.await?;
    }
    outcome
}

fn fatal(what: &str, error: &dyn std::error::Error) -> anyhow::Error {
    anyhow::anyhow!("{what}: {}", distinct_chain(error))
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
    let failed =
        |error: &dyn std::error::Error| fatal("failed to get a kubernetes core client", error);
    let kubeconfig = Path::new(&config.global.kubeconfig);
    let mut client_config = daemon::client::config(Some(kubeconfig))
        .await
        .map_err(|error| failed(&error))?;
    // each cycle retries failures itself, and counts the retries
    client_config.default_retry = false;
    let client = kube::Client::try_from(client_config).map_err(|error| failed(&error))?;
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

/// The parts that a cycle needs.
struct Exporter {
    scanner: Scanner,
    publisher: Option<Publisher>,
    reporter: Option<Reporter>,
    status: StatusDump,
    metrics: Metrics,
    node: String,
    expose_timing: bool,
    last_event: Instant,
    /// The content on the API server, if known.
    published: Option<(Vec<Zone>, Vec<AttributeInfo>)>,
    /// Open while the last cycle was successful.
    ready: Gate,
}

impl Exporter {
    async fn run(
        mut self,
        mut events: Events,
        period: GoDuration,
        one_shot: bool,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        tracing::info!("initial update trigger");
        let mut trigger = Trigger::Reactive;
        loop {
            let interval = match trigger {
                Trigger::Periodic => period,
                Trigger::Reactive => GoDuration::default(),
            };
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                outcome = self.cycle(trigger, interval) => outcome,
            };
            if one_shot {
                return outcome;
            }
            match &outcome {
                Ok(()) => self.ready.open(),
                Err(error) => {
                    self.ready.close();
                    tracing::error!(%error, "Update failed, trying again");
                }
            }
            if events.is_retrying() {
                self.metrics.retried("cycle");
            }
            events.plan_retry(trigger, outcome.is_ok());
            trigger = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                trigger = self.next(&mut events) => trigger,
            };
        }
    }

    /// Waits until a cycle is due.
    async fn next(&mut self, events: &mut Events) -> Trigger {
        loop {
            match events.next().await {
                Event::Cycle(trigger) => return trigger,
                Event::Probe if self.differs_from_published().await => {
                    tracing::debug!("pod change update trigger");
                    return Trigger::Reactive;
                }
                Event::Probe => {}
            }
        }
    }

    /// Returns whether the state of the node differs from the published one. A failed probe counts as no difference; the next cycle reports
    /// the failure.
    async fn differs_from_published(&mut self) -> bool {
        match self.scanner.probe().await {
            Ok(seen) => self.published.as_ref().is_none_or(|(zones, attributes)| {
                (zones, attributes) != (&seen.zones, &seen.attributes)
            }),
            Err(error) => {
                tracing::debug!(error = %distinct_chain(&error), "Probe failed");
                false
            }
        }
    }

    /// Scans, publishes and reports.
    async fn cycle(&mut self, trigger: Trigger, interval: GoDuration) -> anyhow::Result<()> {
        let start = Instant::now();
        let since_previous = start - std::mem::replace(&mut self.last_event, start);
        self.metrics.record_wakeup(trigger.as_str(), since_previous);
        let observation = match self.scanner.scan().await {
            Ok(observation) => observation,
            Err(error) => {
                let report = Report {
                    fetched: false,
                    updated: None,
                };
                self.report(report).await;
                return Err(fatal("failed to scan pod resources", &error));
            }
        };
        self.metrics
            .record_duration("podresources_scan", trigger.as_str(), start.elapsed());
        self.record(&observation);
        self.metrics.unzoned(&observation.unzoned);

        let start = Instant::now();
        let timing = self.expose_timing.then_some(Timing {
            since_previous,
            interval,
        });
        let content = content(observation, trigger, timing);
        let written = match &mut self.publisher {
            Some(publisher) => publisher.publish(&content).await.map(Some),
            None => Ok(None),
        };
        self.published = written
            .is_ok()
            .then_some((content.zones, content.attributes));
        self.metrics.record_duration(
            "node_resource_object_update",
            trigger.as_str(),
            start.elapsed(),
        );
        let report = Report {
            fetched: true,
            updated: Some(written.is_ok()),
        };
        let reported = self.report(report).await;
        let outcome = written.map_err(|error| fatal("failed to update", &error))?;
        if let Some(outcome) = outcome {
            self.metrics.published(SystemTime::now());
            if outcome != publish::Outcome::Unchanged {
                tracing::info!(node = %self.node, ?outcome, trigger = trigger.as_str(), "Published");
            }
        }
        anyhow::ensure!(reported, "failed to update pod status");
        Ok(())
    }

    /// Writes the conditions of the own pod. Returns whether that succeeded.
    async fn report(&mut self, report: Report) -> bool {
        let Some(reporter) = &mut self.reporter else {
            return true;
        };
        let outcome = reporter.report(report, Timestamp::now()).await;
        if let Err(error) = &outcome {
            tracing::error!(error = %distinct_chain(error), "Conditions not reported");
        }
        outcome.is_ok()
    }

    fn record(&mut self, observation: &Observation) {
        let Some(fingerprint) = &observation.fingerprint else {
            return;
        };
        let pod = |(namespace, name): &(String, String)| PodName {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let record = Record {
            fingerprint_computed: fingerprint.text.clone(),
            pods: fingerprint.pods.iter().map(pod).collect(),
            node_name: self.node.clone(),
        };
        self.status.add(&record, Timestamp::now());
    }
}

fn content(observation: Observation, trigger: Trigger, timing: Option<Timing>) -> Content {
    Content {
        zones: observation.zones,
        attributes: observation.attributes,
        fingerprint: observation.fingerprint.map(|fingerprint| fingerprint.text),
        trigger,
        timing,
    }
}

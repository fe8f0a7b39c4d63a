//! Start-up and the one loop: the only module that knows all the others.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::admin::Checks;
use daemon::lease;
use k8s_openapi::api::core::v1::{Namespace, Node as WireNode, Pod as WirePod};
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use nrt::decode::decode;
use prometheus_client::registry::Registry;
use scheduler_config::args::NodeResourceTopologyMatchArgs;
use scheduler_config::configuration::{Configuration, LeaderElection};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::cache::{Cache, Settings};
use crate::cluster::Node;
use crate::engine::{Engine, Message};
use crate::explain;
use crate::metrics::Metrics;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::queue::{Backoff, Queue};
use crate::report::Reporter;
use crate::status_dump::StatusDump;
use crate::watch::{Sink, follow};

/// Changes that may wait for the loop; watches pause when it is full.
const CHANGES: usize = 4096;
/// How long reports and bindings that are under way may take after the loop ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// The configuration when no file is given: as kube-scheduler's own.
const DEFAULT_CONFIG: &str =
    "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}";

/// The program. Exit codes: 0 stopped by a signal or only informed, 1 failed or lost the leader election, 2 wrong usage.
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let argv: Vec<OsString> = argv.into_iter().collect();
    if explain::is_asked_for(&argv) {
        return explain::main(&argv);
    }
    let args = match Args::read(argv) {
        Ok(args) => args,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Nothing is left to be done if even this cannot be printed.
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    let format = if args.logging_format == "text" {
        daemon::log::Format::Text
    } else {
        daemon::log::Format::Json
    };
    if daemon::log::init(format, args.verbosity).is_err() {
        return ExitCode::FAILURE;
    }
    daemon::client::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let result = runtime
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(run(args)));
    match result {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "Stopped");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = daemon::shutdown::token().context("cannot listen to signals")?;
    let config = read_config(&args)?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let mut checks = Checks::new();
    let synced = checks.ready("sched-handler-sync");
    let mut tasks = JoinSet::new();
    serve(&args, checks, registry, &stop, &mut tasks).await?;

    let kubeconfig = config
        .client_connection
        .kubeconfig
        .as_ref()
        .map(Into::into)
        .or_else(|| args.kubeconfig.clone());
    let client = daemon::client::client(kubeconfig.as_deref())
        .await
        .context("cannot reach the API server")?;
    let (sender, changes) = mpsc::channel(CHANGES);
    watch_all(&client, &sender, &metrics, &mut tasks);

    let host = hostname();
    let mut reports = JoinSet::new();
    let reporter = Reporter::start(&client, &host, &metrics, &mut reports);
    let profiles: Vec<Profile> = config.profiles.iter().map(Profile::new).collect();
    for profile in &profiles {
        tracing::info!(profile = %profile.name, filters = ?profile.filters, "Profile ready");
    }
    let dump = status_dump();
    let settings = Settings {
        trace: dump.is_some(),
        ..cache_settings(&config)?
    };
    let mut engine = Engine::new(
        profiles,
        Cache::new(settings),
        Queue::new(Backoff {
            initial: config.pod_initial_backoff,
            maximum: config.pod_max_backoff,
        }),
        client.clone(),
        reporter,
        metrics,
        sender,
    )
    .with_dump(dump);

    let election = args.leader_election(&config.leader_election);
    let leadership = tokio::spawn(lead(client, election, host, stop.clone()));
    let ended = engine.run(changes, &synced, leadership, &stop).await?;
    tracing::info!("Finishing what is under way");
    stop.cancel();
    tasks.abort_all();
    engine.finish(FAREWELL).await;
    // The workers end once everything that was reported is written.
    if tokio::time::timeout(FAREWELL, async {
        while reports.join_next().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::warn!("Some events were not written in time");
    }
    Ok(ended)
}

/// Where the environment asks for a dump.
fn status_dump() -> Option<StatusDump> {
    let directory = std::env::var_os(api::names::ENV_PFP_STATUS_DUMP)
        .filter(|directory| !directory.is_empty())?;
    StatusDump::new(directory.as_ref())
}

fn read_config(args: &Args) -> anyhow::Result<Configuration> {
    let text = match &args.config {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?,
        None => DEFAULT_CONFIG.to_owned(),
    };
    scheduler_config::parse(&text).context("cannot use the configuration")
}

/// All profiles share one cache: they place pods on the same zones. So they must agree on how it works.
pub(crate) fn cache_settings(config: &Configuration) -> anyhow::Result<Settings> {
    let names: BTreeSet<String> = config
        .profiles
        .iter()
        .map(|profile| profile.scheduler_name.clone())
        .collect();
    let mut all = config
        .profiles
        .iter()
        .filter_map(|profile| profile.topology_match.as_ref());
    let Some(first) = all.next() else {
        return Ok(Settings::new(
            &NodeResourceTopologyMatchArgs::default(),
            names,
        ));
    };
    let settings = Settings::new(first, names.clone());
    for other in all {
        if Settings::new(other, names.clone()) != settings {
            anyhow::bail!(
                "the profiles disagree on the cache settings of NodeResourceTopologyMatch"
            );
        }
    }
    Ok(settings)
}

async fn serve(
    args: &Args,
    checks: Checks,
    registry: Registry,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    if args.secure_port == 0 {
        return Ok(());
    }
    let names = ["localhost".to_owned(), hostname()];
    let certificate = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => daemon::tls::from_files(certificate, key),
        (None, None) => daemon::tls::self_signed(&names),
        _ => anyhow::bail!("--tls-cert-file and --tls-private-key-file go together"),
    };
    let options = daemon::tls::Options {
        min_version: args.tls_min_version.clone(),
        cipher_suites: args
            .tls_cipher_suites
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect(),
        client_ca: None,
    };
    let tls =
        daemon::tls::server_config(certificate.context("cannot get a certificate")?, &options)
            .context("cannot serve with these TLS settings")?;
    let address = (args.bind_address, args.secure_port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address:?}"))?;
    let router = checks
        .router()
        .merge(daemon::metrics::router(Arc::new(registry)));
    let stop = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = daemon::serve::serve(listener, Some(tls), router, stop).await {
            tracing::error!(%error, "Health and metrics are not served any more");
        }
    });
    Ok(())
}

fn watch_all(
    client: &Client,
    channel: &mpsc::Sender<Message>,
    metrics: &Metrics,
    tasks: &mut JoinSet<()>,
) {
    let (channel, metrics) = (|| channel.clone(), || metrics.clone());
    tasks.spawn(follow(
        Api::<WireNode>::all(client.clone()),
        "nodes",
        |node| Node::read(node).map(|node| (node.name.clone(), node)),
        Sink {
            channel: channel(),
            wrap: Message::Node,
        },
        metrics(),
    ));
    tasks.spawn(follow(
        Api::<api::nrt::v1alpha2::NodeResourceTopology>::all(client.clone()),
        "noderesourcetopologies",
        |nrt| {
            let name = nrt.name_any();
            let (topology, problems) = decode(&nrt);
            for problem in problems {
                tracing::warn!(node = %name, %problem, "Part of the NodeResourceTopology is not used");
            }
            Some((name.clone(), (name, topology)))
        },
        Sink { channel: channel(), wrap: Message::Topology },
        metrics(),
    ));
    tasks.spawn(follow(
        Api::<WirePod>::all(client.clone()),
        "pods",
        |pod| Pod::read(pod).map(|pod| (pod.key.clone(), pod)),
        Sink {
            channel: channel(),
            wrap: |change| Message::Pod(Box::new(change)),
        },
        metrics(),
    ));
    tasks.spawn(follow(
        Api::<Namespace>::all(client.clone()),
        "namespaces",
        |namespace| {
            let name = namespace.name_any();
            Some((
                name.clone(),
                (name, namespace.metadata.labels.unwrap_or_default()),
            ))
        },
        Sink {
            channel: channel(),
            wrap: Message::Namespace,
        },
        metrics(),
    ));
}

/// Waits for the lease, if one is wanted. Nothing if stopped before.
async fn lead(
    client: Client,
    election: LeaderElection,
    host: String,
    stop: CancellationToken,
) -> Option<Option<lease::Leadership>> {
    if !election.enabled {
        return Some(None);
    }
    let params = lease::Params {
        namespace: election.resource_namespace,
        name: election.resource_name,
        identity: format!("{host}_{}", uuid::Uuid::new_v4()),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
    };
    lease::acquire(client, params, &stop).await.map(Some)
}

/// The name of this pod or machine.
fn hostname() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_config(second: &str) -> Configuration {
        let profile = |name: &str, period: &str| {
            format!(
                "{{schedulerName: {name}, plugins: {{multiPoint: {{enabled: [{{name: NodeResourceTopologyMatch}}]}}}},
                  pluginConfig: [{{name: NodeResourceTopologyMatch, args: {{cacheResyncPeriodSeconds: {period}}}}}]}}"
            )
        };
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{}, {}]",
            profile("a", "5"),
            profile("b", second)
        );
        scheduler_config::parse(&text).expect("valid")
    }

    #[test]
    fn profiles_must_agree_on_the_shared_cache() {
        let settings = cache_settings(&mk_config("7")).expect("both account");
        assert_eq!(settings.mode, crate::cache::Mode::OverReserve);
        assert_eq!(settings.profiles.len(), 2);
        assert!(cache_settings(&mk_config("0")).is_err());
    }
}

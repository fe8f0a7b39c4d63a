//! Start-up and shutdown. This is the only module that knows all others.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use daemon::admin::Checks;
use daemon::guard::{self, Guard, Lifetimes};
use daemon::lease;
use daemon::metrics::requests::Requests as RequestCounts;
use daemon::metrics::{Leadership as LeaseStatus, Shared};
use daemon::rate::Bucket;
use kube::Client;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use scheduler_config::configuration::{ClientConnection, Configuration, LeaderElection};
use scheduler_config::without_effect::WithoutEffect;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api_tasks::report::Reporter;
use crate::api_tasks::status_dump::StatusDump;
use crate::args::Args;
use crate::engine::core::Core;
use crate::engine::requests::Requests;
use crate::engine::{Election, End, Engine};
use crate::framework::profile::{self, Profile};
use crate::framework::queue::{Backoff, Queue};
use crate::metrics::Metrics;
use crate::numa::cache::Cache;
use crate::numa::settings::Settings;
use crate::watch::kinds::Needs;
use crate::{explain, watch};

/// Capacity of the channel of changes; watches pause when it is full.
const CHANGES: usize = 4096;
/// How long reports and bindings in progress may take after the loop has ended.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// How long one turn of the loop may take before the scheduler counts as hanging. A turn takes milliseconds.
const TURN_LIMIT: Duration = Duration::from_mins(1);

/// Name of the configuration at `/configz`, as in kube-scheduler.
const CONFIGZ: &str = "componentconfig";
/// The configuration if no file is given; the same as kube-scheduler's.
const DEFAULT_CONFIG: &str =
    "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}";

/// Runs the program. Exit codes: 0 stopped by a signal or only printed information, 1 failed, lost the
/// leader election or wrong usage.
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let argv: Vec<OsString> = argv.into_iter().collect();
    if explain::is_asked_for(&argv) {
        return explain::main(&argv);
    }
    let args = match Args::read(argv) {
        Ok(args) => args,
        Err(error) => {
            // Nothing can be done if even this cannot be printed.
            drop(error.print());
            // as kube-scheduler; clap's own code for wrong usage is that of the `flag` package
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    if daemon::log::init(args.logging_format, args.verbosity).is_err() {
        return ExitCode::FAILURE;
    }
    daemon::client::install_crypto_provider();
    // This thread chooses nodes, the other one talks to the API server. With more threads a fifth of the time is lost to waking each other.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
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
    for warning in &args.warnings {
        tracing::warn!("{warning}");
    }
    let config = read_config(&args)?;
    let in_effect = Configuration {
        client_connection: args.client_connection(&config.client_connection),
        leader_election: args.leader_election(&config.leader_election),
        ..config.clone()
    };
    let in_effect = in_effect.document();
    if let Some(path) = &args.write_config_to {
        let text = serde_yaml::to_string(&in_effect).context("cannot write the configuration")?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let shared = Shared::default();
    shared.register(&mut registry);
    let mut checks = Checks::new();
    let synced = checks.ready("sched-handler-sync");
    let watchdog = checks.watch("scheduling-loop", TURN_LIMIT);
    let mut tasks = JoinSet::new();
    let endpoint = Endpoint::open(&args)?;
    let clients = Clients::connect(&args, &config, &shared.requests).await?;
    if let Some(endpoint) = endpoint {
        let lifetimes = Lifetimes {
            user: args.authentication_token_webhook_cache_ttl,
            nobody: args.authentication_token_webhook_cache_ttl,
            allowed: args.authorization_webhook_cache_authorized_ttl,
            refused: args.authorization_webhook_cache_unauthorized_ttl,
        };
        let options = guard::Options {
            lifetimes,
            open: args.authorization_always_allow_paths.clone(),
            anonymous: true,
        };
        let guard = Guard::new(clients.authentication, clients.authorization, options);
        let served = Served {
            checks,
            registry,
            in_effect: &in_effect,
        };
        endpoint.serve(served, guard, &stop, &mut tasks);
    }
    let (sender, changes) = mpsc::channel(CHANGES);
    let profiles: Vec<Profile> = config.profiles.iter().map(Profile::new).collect();
    let needs = Needs::of(&profiles);
    let volumes_wanted = CancellationToken::new();
    watch::start::start(
        needs,
        &volumes_wanted,
        &clients.placing,
        &sender,
        &metrics,
        &mut tasks,
    );

    let host = hostname();
    let mut reports = JoinSet::new();
    let reporter = Reporter::start(&clients.reports, &host, &metrics, &mut reports);
    warn_of_differences(&config);
    for profile in &profiles {
        tracing::info!(profile = %profile.name, filters = ?profile.filters.plugins, "Profile ready");
    }
    let dump = status_dump();
    let settings = Settings {
        trace: dump.is_some(),
        ..Settings::of_profiles(&config)?
    };
    let queue = Queue::new(Backoff {
        initial: config.pod_initial_backoff,
        maximum: config.pod_max_backoff,
    });
    let core = Core::new(
        profiles,
        Cache::new(settings),
        queue,
        metrics.clone(),
        needs,
    );
    let requests = Requests::new(clients.placing, reporter, metrics, sender, volumes_wanted);
    let mut engine = Engine::new(core, requests, dump, watchdog);

    let election = args.leader_election(&config.leader_election);
    let candidate = Candidate {
        client: clients.lease,
        host,
        status: shared.leadership,
    };
    let leadership = tokio::spawn(candidate.acquire_lease(election, stop.clone()));
    let End::Stopped(leadership) = engine.run(changes, &synced, leadership, &stop).await? else {
        // another scheduler may place pods from now on: what is being written is dropped where it stands
        return Ok(ExitCode::FAILURE);
    };
    tracing::info!("Finishing pending bindings and reports");
    stop.cancel();
    tasks.abort_all();
    let finish = async {
        engine.finish(SHUTDOWN_LIMIT).await;
        finish_reports(reports).await;
    };
    let Some(leadership) = leadership else {
        finish.await;
        return Ok(ExitCode::SUCCESS);
    };
    tokio::select! {
        () = leadership.lost().cancelled_owned() => return Ok(ExitCode::FAILURE),
        () = finish => {}
    }
    // after the last write: whoever takes the lease may place pods at once
    leadership.release().await;
    Ok(ExitCode::SUCCESS)
}

/// Waits until every report is written, at most for a while.
async fn finish_reports(mut reports: JoinSet<()>) {
    // The workers end once every report is written.
    if tokio::time::timeout(SHUTDOWN_LIMIT, async {
        while reports.join_next().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::warn!("Some events were not written in time");
    }
}

/// The clients of the API server. As in kube-scheduler, separate ones place pods, report, hold the lease and ask about the readers of metrics,
/// so that these do not wait for each other.
struct Clients {
    placing: Client,
    reports: Client,
    lease: Client,
    /// For asking who sends metrics requests.
    authentication: Client,
    /// For the authorization of metrics requests.
    authorization: Client,
}

impl Clients {
    async fn connect(
        args: &Args,
        config: &Configuration,
        requests: &RequestCounts,
    ) -> anyhow::Result<Self> {
        let kubeconfig = config
            .client_connection
            .kubeconfig
            .as_ref()
            .map(Into::into)
            .or_else(|| args.kubeconfig.clone());
        let connection = args.client_connection(&config.client_connection);
        let connect = || async {
            client(kubeconfig.as_deref(), &args.master, &connection, requests)
                .await
                .context("cannot reach the API server")
        };
        let (placing, reports, lease) = (connect().await?, connect().await?, connect().await?);
        let reviews = connect().await?;
        let for_requests = |path: Option<PathBuf>, other: Client| async {
            match path {
                Some(path) => client(Some(&path), "", &connection, requests)
                    .await
                    .context("cannot create the client for authorization of metrics requests"),
                None => Ok(other),
            }
        };
        let path = args.authorization_kubeconfig.clone();
        let authorization = for_requests(path, reviews).await?;
        let path = args.authentication_kubeconfig.clone();
        let authentication = for_requests(path, authorization.clone()).await?;
        Ok(Self {
            placing,
            reports,
            lease,
            authentication,
            authorization,
        })
    }
}

/// Creates a client with its own rate limit, whose requests are counted. `master` is the URL of the API server, if it is not that of the
/// kubeconfig. The client uses JSON, whatever content type is configured.
async fn client(
    kubeconfig: Option<&Path>,
    master: &str,
    connection: &ClientConnection,
    requests: &RequestCounts,
) -> Result<Client, daemon::client::Error> {
    let config = daemon::client::config_for(kubeconfig, master).await?;
    let rate = (connection.qps).map(|qps| Bucket::new(qps, connection.burst));
    let options = daemon::client::Options {
        requests: requests.clone(),
        rate,
        ..daemon::client::Options::default()
    };
    daemon::client::build(config, options)
}

/// Warns of plugins that act differently than the configuration says.
fn warn_of_differences(config: &Configuration) {
    for profile in &config.profiles {
        for plugin in &profile.unused_args {
            tracing::warn!(profile = %profile.scheduler_name, plugin, "The plugin takes no arguments; its arguments are ignored");
        }
        let unsupported = profile::unsupported_plugins(profile);
        if !unsupported.is_empty() {
            tracing::warn!(profile = %profile.scheduler_name, plugins = ?unsupported, "Some enabled plugins have no effect in this scheduler");
        }
        let active = profile::active_despite_profile(profile);
        if !active.is_empty() {
            tracing::warn!(profile = %profile.scheduler_name, plugins = ?active, "Some plugins act at points where the profile disables them");
        }
    }
}

/// Returns the status dump, if the environment asks for one.
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
    let config = scheduler_config::parse(&text).context("cannot use the configuration")?;
    for WithoutEffect {
        field,
        value,
        instead,
    } in scheduler_config::without_effect(&text)
    {
        tracing::info!(field, value, instead, "The field has no effect");
    }
    Ok(config)
}

/// What the endpoint serves.
struct Served<'a> {
    checks: Checks,
    registry: Registry,
    in_effect: &'a serde_json::Value,
}

/// The endpoint that serves health and metrics.
struct Endpoint {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
}

impl Endpoint {
    /// Opens the endpoint; `None` if nothing is to be served.
    fn open(args: &Args) -> anyhow::Result<Option<Self>> {
        if args.secure_port == 0 {
            return Ok(None);
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
            named: args.tls_sni_cert_key.clone(),
            client_ca: None,
        };
        let tls =
            daemon::tls::server_config(certificate.context("cannot get a certificate")?, &options)
                .context("cannot serve with these TLS settings")?;
        let address = SocketAddr::new(args.bind_address, args.secure_port);
        let listener = daemon::serve::listen(address, args.permit_port_sharing)
            .with_context(|| format!("cannot listen on {address}"))?;
        Ok(Some(Self { listener, tls }))
    }

    /// Serves health, metrics and the configuration in a task, until `stop`.
    fn serve(
        self,
        served: Served<'_>,
        guard: Guard,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) {
        let router = served
            .checks
            .router()
            .merge(daemon::metrics::router(Arc::new(served.registry)))
            .merge(daemon::configz::router(CONFIGZ, served.in_effect));
        let (router, stop) = (guard.protect(router), stop.clone());
        tasks.spawn(async move {
            let Self { listener, tls } = self;
            daemon::serve::serve(listener, Some(tls), router, stop).await;
        });
    }
}

/// Who wants the lease.
struct Candidate {
    client: Client,
    host: String,
    status: LeaseStatus,
}

impl Candidate {
    /// Waits for the lease, if leader election is enabled.
    async fn acquire_lease(self, election: LeaderElection, stop: CancellationToken) -> Election {
        if !election.enabled {
            return Election::NotRequired;
        }
        let params = lease::Params {
            namespace: election.resource_namespace,
            name: election.resource_name,
            identity: format!("{}_{}", self.host, instance()),
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
        };
        let leadership = lease::acquire(self.client, params, &self.status, &stop).await;
        leadership.map_or(Election::Stopped, Election::Leading)
    }
}

/// Returns what tells this candidate for the lease from others on its host: the UID of its pod, so that a scheduler that starts again after a
/// crash need not wait until its own lease runs out, or else a new name.
fn instance() -> String {
    std::env::var(api::names::ENV_POD_UID)
        .ok()
        .filter(|uid| !uid.is_empty())
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string())
}

/// Returns the host name of this pod or machine.
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
        let settings = Settings::of_profiles(&mk_config("7")).expect("both account");
        assert_eq!(settings.mode, crate::numa::settings::Mode::OverReserve);
        assert_eq!(settings.profiles.len(), 2);
        assert!(Settings::of_profiles(&mk_config("0")).is_err());
    }
}

//! Start-up: from the command line to running controllers. The only module that knows all parts.
//!
//! [`main`] and `serve` have the order; `endpoints` serves health and metrics, `own_pod` asks the process's own pod and environment.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::names;
use daemon::admin::Checks;
use daemon::guard::Guard;
use daemon::lease::{self, Params};
use daemon::metrics::requests::Requests;
use goflags::command_line;
use kube::Client;
use manifests::platform::Platform;
use tokio_util::sync::CancellationToken;

use self::own_pod::environment;
use crate::args::{Args, Error as ArgsError, usage};
use crate::context::Context;
use crate::images::Policy;
use crate::installation::Installation;
use crate::metrics::Metrics;
use crate::platform::{self, tls_profile};
use crate::{controllers, render, version};

mod endpoints;
mod own_pod;

/// Default TCP port of the API server.
pub const API_SERVER_PORT: u16 = 6443;

const PROGRAM: &str = "numaresources-operator";
const USAGE_ERROR: u8 = 2;
/// How long a reconciliation may take before the operator counts as hanging. The requests have limits of their own, and the first that fails
/// ends a reconciliation.
const RECONCILIATION_LIMIT: Duration = Duration::from_mins(10);

/// Runs the whole program. The first argument is the name of the program.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let args = match parse(arguments) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if args.is_on("version") {
        return print(&format!("{}\n", version::line(PROGRAM)));
    }
    if args.is_on("inspect-features") {
        return print(&format!("{}\n", version::features()));
    }
    if let Err(error) = daemon::log::init(args.log_format(), args.verbosity()) {
        return failed(&error.into());
    }
    tracing::info!(
        program = PROGRAM,
        version = version::VERSION,
        branch = version::branch(),
        gitcommit = version::commit(),
        "starting"
    );
    for warning in args.warnings() {
        tracing::warn!("{warning}");
    }
    let event = args.text("handle-lifecycle-event");
    if !event.is_empty() {
        tracing::info!(event, "handling");
        tracing::info!(event, "handled");
        return ExitCode::SUCCESS;
    }
    // the program mostly waits for the API server; one thread per CPU of a large node would only cost memory
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    daemon::client::install_crypto_provider();
    if args.is_on("render") {
        return match runtime.block_on(rendered(&args)) {
            Ok(text) => print(&text),
            Err(error) => failed(&error),
        };
    }
    match runtime.block_on(serve(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Parses the command line. Shows help, or what is wrong; the error is the exit code then.
fn parse(arguments: Vec<OsString>) -> Result<Args, ExitCode> {
    let arguments = arguments
        .into_iter()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned());
    Args::parse(arguments).map_err(|error| {
        let help = error == ArgsError::Flags(command_line::Error::Help);
        let heading = if help {
            String::new()
        } else {
            format!("{}\n", daemon::log::chain(&error))
        };
        // a failed write to stderr cannot be reported anywhere
        let _ = write!(std::io::stderr().lock(), "{heading}{}", usage(PROGRAM));
        if help {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(USAGE_ERROR)
        }
    })
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    tracing::error!(error = format!("{error:#}"), "Stopped");
    ExitCode::FAILURE
}

/// Renders the objects for the platform that the flag names, or else for that of the cluster (operator.md 2.4). Without a cluster to ask, that
/// is plain Kubernetes.
async fn rendered(args: &Args) -> anyhow::Result<String> {
    let given = args.text("platform");
    let platform = match Platform::parse(given) {
        Some(platform) => platform,
        None if args.is_on("render-nrt-crd") => Platform::default(),
        None => match client(args, &Requests::default()).await {
            Ok(client) => platform::detect(&client, given)
                .await
                .context("name the platform with -platform to render without the cluster")?,
            Err(daemon::client::Error::InCluster(_)) => {
                let platform = Platform::default();
                tracing::info!(%platform, "No cluster to ask, rendered for the default platform");
                platform
            }
            Err(error) => return Err(error.into()),
        },
    };
    Ok(render::render(args, platform)?)
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let stop = daemon::shutdown::token().context("failed to listen for signals")?;
    let metrics = Metrics::default();
    let client = client(args, &metrics.shared.requests).await?;
    let platform = platform::detect(&client, args.text("platform")).await?;
    let version = platform::version(&client, platform, args.text("platform-version")).await?;
    tracing::info!(%platform, %version, "Platform");
    if args.is_on("detect-platform-only") {
        let version = platform::short(&version);
        print(&format!("platform={platform} version={version}\n"));
        return Ok(());
    }
    let namespace = environment("NAMESPACE").unwrap_or_else(|| names::DEFAULT_NAMESPACE.into());
    let tls = platform::tls(&client, platform).await?;
    let installation = Installation {
        image: own_pod::exporter_image(&client, &namespace, args).await,
        namespace,
        platform,
        images: Policy::from_env(environment),
        tls: tls.clone(),
        api_server_ports: own_pod::api_server_ports(),
        has_admission_policies: platform::has_admission_policies(&client).await?,
        forwards_pool_conditions: args.is_on("enable-mcp-conds-fwd"),
        lists_active_pods: platform::lists_active_pods(platform, &version),
        version,
    };
    let mut checks = Checks::new();
    let context = Context::new(
        client.clone(),
        installation,
        metrics.clone(),
        checks.watch("reconciliations", RECONCILIATION_LIMIT),
        own_pod::instance(),
    );
    let guard = guard(args, &metrics.shared.requests).await?;
    let endpoints = endpoints::start(args, checks, &metrics, &tls, guard, &stop).await?;
    let follow_tls = async {
        tls_profile::changed(&client, platform, &tls).await;
        tracing::info!("TLS profile changed, triggering graceful shutdown to reload");
        stop.cancel();
    };
    let result = tokio::select! {
        result = run_as_leader(args, Arc::new(context), &stop) => result,
        // this branch never ends first: the other one ends when `stop` is cancelled
        () = async { follow_tls.await; std::future::pending().await } => Ok(()),
    };
    stop.cancel();
    for endpoint in endpoints {
        endpoint.await.context("endpoint task failed")?;
    }
    result
}

/// Runs the controllers while this process is the leader.
async fn run_as_leader(
    args: &Args,
    context: Arc<Context>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let with_scheduler = args.is_on("enable-scheduler");
    if !args.is_on("leader-elect") {
        controllers::run(context, with_scheduler, stop).await;
        return Ok(());
    }
    let params = Params {
        namespace: context.installation.namespace.clone(),
        name: names::OPERATOR_LEASE.into(),
        identity: format!("{}_{}", context.instance, uuid::Uuid::new_v4()),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let status = &context.metrics.shared.leadership;
    let Some(leadership) = lease::acquire(context.client.clone(), params, status, stop).await
    else {
        return Ok(());
    };
    let lost = leadership.lost();
    tokio::select! {
        biased;
        // another leader may write from now on: what runs is dropped where it stands
        () = lost.cancelled() => anyhow::bail!("leader election lost"),
        () = controllers::run(Arc::clone(&context), with_scheduler, stop) => {}
    }
    leadership.release().await;
    Ok(())
}

async fn client(args: &Args, requests: &Requests) -> Result<Client, daemon::client::Error> {
    let options = daemon::client::Options {
        requests: requests.clone(),
        ..daemon::client::Options::default()
    };
    daemon::client::build(client_config(args).await?, options)
}

/// Creates what says who may read the metrics, if not everybody may.
async fn guard(args: &Args, requests: &Requests) -> Result<Option<Guard>, daemon::client::Error> {
    if !args.is_on("metrics-auth") {
        return Ok(None);
    }
    Guard::of_metrics(client_config(args).await?, requests.clone()).map(Some)
}

async fn client_config(args: &Args) -> Result<kube::Config, daemon::client::Error> {
    let given = args.text("kubeconfig");
    let path = if given.is_empty() {
        environment("KUBECONFIG")
    } else {
        Some(given.to_owned())
    };
    daemon::client::config(path.as_deref().map(Path::new)).await
}

//! Start-up: from the command line to running controllers. The only module that knows all parts.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::names;
use daemon::lease::{self, Params};
use goflags::command_line;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use manifests::platform::TlsSettings;
use manifests::rte::Image;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, Error as ArgsError, usage};
use crate::context::{Context, Settings};
use crate::images::Policy;
use crate::metrics::Metrics;
use crate::{controllers, platform, render, tls_profile, version};

/// Default TCP port of the API server.
pub const API_SERVER_PORT: u16 = 6443;

const PROGRAM: &str = "numaresources-operator";
/// Mount path of OpenShift's certificate for the metrics endpoint.
const CERTIFICATES: &str = "/certs";
const USAGE_ERROR: u8 = 2;

/// Runs the whole program. The first argument is the name of the program; under the exporter's name it runs the exporter.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    if called_as == Path::new(names::RTE_BINARY).file_name() {
        return rte::entry(arguments.into_iter());
    }
    let arguments = arguments
        .into_iter()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned());
    let args = match Args::parse(arguments) {
        Ok(args) => args,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            let help = error == ArgsError::Flags(command_line::Error::Help);
            let heading = if help {
                String::new()
            } else {
                format!("{error}\n")
            };
            // a failed write to stderr cannot be reported anywhere
            let _ = write!(stderr, "{heading}{}", usage(PROGRAM));
            return if help {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(USAGE_ERROR)
            };
        }
    };
    if args.is_on("version") {
        return print(&format!("{}\n", version::line(PROGRAM)));
    }
    if args.is_on("inspect-features") {
        return print(&format!("{}\n", version::features()));
    }
    if let Err(error) = daemon::log::init(daemon::log::Format::Json, args.verbosity()) {
        return failed(&error.into());
    }
    tracing::info!(
        program = PROGRAM,
        version = version::VERSION,
        branch = version::branch(),
        gitcommit = version::commit(),
        "starting"
    );
    let event = args.text("handle-lifecycle-event");
    if !event.is_empty() {
        tracing::info!(event, "handling");
        tracing::info!(event, "handled");
        return ExitCode::SUCCESS;
    }
    if args.is_on("render") {
        return match render::render(&args) {
            Ok(text) => print(&text),
            Err(error) => failed(&error.into()),
        };
    }
    // the program mostly waits for the API server; one thread per CPU of a large node would only cost memory
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    match runtime.block_on(serve(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
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

async fn serve(args: &Args) -> anyhow::Result<()> {
    daemon::client::install_crypto_provider();
    let stop = daemon::shutdown::token().context("failed to listen for signals")?;
    let client = client(args).await?;
    let platform = platform::detect(&client, args.text("platform")).await?;
    let version = platform::version(&client, platform, args.text("platform-version")).await?;
    tracing::info!(%platform, %version, "Platform");
    if args.is_on("detect-platform-only") {
        let version = platform::short(&version);
        print(&format!("platform={platform} version={version}\n"));
        return Ok(());
    }
    if args.is_on("enable-webhooks") {
        tracing::warn!("No webhooks are served: the API server needs none to convert versions");
    }
    let namespace = environment("NAMESPACE").unwrap_or_else(|| names::DEFAULT_NAMESPACE.into());
    let metrics = Metrics::default();
    let tls = platform::tls(&client, platform).await?;
    let context = Arc::new(Context::new(Settings {
        image: exporter_image(&client, &namespace, args).await,
        client: client.clone(),
        namespace: namespace.clone(),
        platform,
        images: Policy::from_env(environment),
        tls: tls.clone(),
        api_server_ports: api_server_ports(),
        metrics: metrics.clone(),
        instance: instance(),
        forwards_pool_conditions: args.is_on("enable-mcp-conds-fwd"),
        lists_active_pods: platform::lists_active_pods(platform, &version),
    }));
    let endpoints = endpoints(args, &metrics, &tls, &stop).await?;
    let follow_tls = async {
        tls_profile::changed(&client, platform, &tls).await;
        tracing::info!("TLS profile changed, triggering graceful shutdown to reload");
        stop.cancel();
    };
    let result = tokio::select! {
        result = run_as_leader(args, context, &stop) => result,
        // this branch never ends first: the other one ends when `stop` is cancelled
        () = async { follow_tls.await; std::future::pending().await } => Ok(()),
    };
    stop.cancel();
    for endpoint in endpoints {
        endpoint
            .await
            .context("endpoint task failed")?
            .context("endpoint failed")?;
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
        namespace: context.namespace.clone(),
        name: names::OPERATOR_LEASE.into(),
        identity: format!("{}_{}", context.instance, uuid::Uuid::new_v4()),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let Some(leadership) = lease::acquire(context.client.clone(), params, stop).await else {
        return Ok(());
    };
    let lost = leadership.lost();
    let work = stop.child_token();
    let watch = async {
        lost.cancelled().await;
        work.cancel();
    };
    tokio::select! {
        () = controllers::run(Arc::clone(&context), with_scheduler, &work) => {}
        // this branch never ends first: the controllers end when `work` is cancelled
        () = async { watch.await; std::future::pending().await } => {}
    }
    if lost.is_cancelled() {
        anyhow::bail!("leader election lost");
    }
    leadership.release().await;
    Ok(())
}

type Endpoint = tokio::task::JoinHandle<std::io::Result<()>>;

/// Serves health on plain HTTP and metrics on HTTPS.
async fn endpoints(
    args: &Args,
    metrics: &Metrics,
    tls: &TlsSettings,
    stop: &CancellationToken,
) -> anyhow::Result<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    if let Some(address) = address(args.text("health-probe-bind-address"))? {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen on {address}"))?;
        let router = daemon::admin::Checks::new().router();
        endpoints.push(tokio::spawn(daemon::serve::serve(
            listener,
            None,
            router,
            stop.clone(),
        )));
    }
    let wanted = if args.is_on("enable-metrics") {
        args.text("metrics-bind-address")
    } else {
        "0"
    };
    if let Some(address) = address(wanted)? {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let directory = Path::new(CERTIFICATES);
        let certificate = daemon::tls::from_files_or_self_signed(
            &directory.join("tls.crt"),
            &directory.join("tls.key"),
            &[PROGRAM.to_owned()],
        )
        .context("failed to set up the metrics certificate")?;
        let options = daemon::tls::Options {
            min_version: tls.min_version.clone(),
            cipher_suites: tls.suites().map(str::to_owned).collect(),
            client_ca: None,
        };
        let tls =
            daemon::tls::server_config(certificate, &options).context("failed to set up TLS")?;
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen on {address}"))?;
        let router = daemon::metrics::router(Arc::new(registry));
        endpoints.push(tokio::spawn(daemon::serve::serve(
            listener,
            Some(tls),
            router,
            stop.clone(),
        )));
    }
    Ok(endpoints)
}

/// Parses Go's `:8080` and `host:port`. `0` and an empty text disable the endpoint.
fn address(text: &str) -> anyhow::Result<Option<SocketAddr>> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = port
            .parse()
            .with_context(|| format!("invalid address {text:?}"))?;
        return Ok(Some(SocketAddr::new(
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port,
        )));
    }
    let text = text.replace("localhost:", "127.0.0.1:");
    text.parse()
        .map(Some)
        .with_context(|| format!("invalid address {text:?}"))
}

async fn client(args: &Args) -> anyhow::Result<Client> {
    let given = args.text("kubeconfig");
    let path = if given.is_empty() {
        environment("KUBECONFIG")
    } else {
        Some(given.to_owned())
    };
    Ok(daemon::client::client(path.as_deref().map(Path::new)).await?)
}

/// Returns the image of the flag, or else that of the operator's own pod, or else the built-in one (operator.md 2.3).
async fn exporter_image(client: &Client, namespace: &str, args: &Args) -> Image {
    let image = |reference: String, pull_policy| Image {
        reference,
        pull_policy,
        run_as_root: true,
    };
    let given = args.text("image-exporter");
    if !given.is_empty() {
        return image(given.into(), None);
    }
    match own_container(client, namespace).await {
        Ok((reference, pull_policy)) => image(reference, pull_policy),
        Err(error) => {
            tracing::info!(
                error = format!("{error:#}"),
                image = names::BUILTIN_RTE_IMAGE,
                "unable to find current image, using hardcoded"
            );
            image(names::BUILTIN_RTE_IMAGE.into(), None)
        }
    }
}

async fn own_container(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<(String, Option<String>)> {
    let name = environment("PODNAME").context("the variable PODNAME is not set")?;
    let pod = Api::<Pod>::namespaced(client.clone(), namespace)
        .get(&name)
        .await
        .context("failed to read the own pod")?;
    let container = pod
        .spec
        .and_then(|spec| spec.containers.into_iter().next())
        .context("the own pod has no container")?;
    Ok((
        container.image.context("the own container has no image")?,
        container.image_pull_policy,
    ))
}

/// Returns the API server ports that the operands may reach: the default one, and that of the service through which this process reaches
/// the API server.
fn api_server_ports() -> Vec<u16> {
    let own = environment("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse::<u16>().ok());
    let mut ports = vec![API_SERVER_PORT];
    ports.extend(own.filter(|port| *port != API_SERVER_PORT));
    ports
}

/// Returns the name of this process: that of its pod, or else the host name, or else the program name.
fn instance() -> String {
    environment("PODNAME")
        .or_else(|| environment("HOSTNAME"))
        .unwrap_or_else(|| PROGRAM.into())
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_writes_them() {
        assert_eq!(address("0").unwrap(), None);
        assert_eq!(
            address(":8081").unwrap().unwrap().to_string(),
            "0.0.0.0:8081"
        );
        assert_eq!(
            address("127.0.0.1:1").unwrap().unwrap().to_string(),
            "127.0.0.1:1"
        );
        assert!(address("nonsense").is_err());
    }
}

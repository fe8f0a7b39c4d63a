//! The commands of the program: what they need, what they do, what they print.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use api::names;
use clap::{CommandFactory as _, Parser as _};
use manifests::platform::Platform;
use manifests::rte::machine_config::policy;
use serde_json::Value;

use crate::args::{
    Cli, Command, DetectArgs, InstallArgs, Part, RenderPart, ValidateArgs, VersionArgs,
};
use crate::cluster::{API_SERVER_PORT, Cluster};
use crate::deploy::{self, Work};
use crate::detect::{self, Detection};
use crate::images::{Images, UpdaterType};
use crate::kubelets;
use crate::log::Log;
use crate::objects::{Component, ExporterConfig, Set, Target, exporter, scheduler};
use crate::options::{self, Options};
use crate::platform;
use crate::scheduler_config;
use crate::validate::{self, finding};
use crate::version::Version;
use crate::{cluster, preflight, remove, version};

/// The command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag or a file is wrong.
    #[error(transparent)]
    Options(#[from] options::Error),
    /// There is no cluster.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The kind of cluster is not known.
    #[error(transparent)]
    Detect(#[from] detect::Error),
    /// Manifests are for one kind of cluster.
    #[error("must explicitly select a cluster platform")]
    NoPlatform,
    /// The policy is for OpenShift.
    #[error("must explicitly select the OpenShift platform")]
    NoOpenShift,
    /// The version of the policy is none.
    #[error("malformed version: {0}")]
    Version(String),
    /// The control plane has no nodes to count.
    #[error("non-positive replicas: {0}")]
    Replicas(usize),
    /// The scheduler's configuration cannot be made.
    #[error(transparent)]
    Scheduler(#[from] scheduler_config::Error),
    /// The exporters' configuration cannot be made.
    #[error(transparent)]
    Kubelets(#[from] kubelets::Error),
    /// A deployment has stopped.
    #[error(transparent)]
    Deploy(#[from] deploy::Error),
    /// A removal has not begun.
    #[error(transparent)]
    Remove(#[from] preflight::Error),
    /// The cluster cannot be looked at.
    #[error(transparent)]
    Validate(#[from] validate::Error),
    /// An object cannot be written as YAML.
    #[error("failed to write an object as YAML")]
    Yaml(#[source] serde_yaml::Error),
    /// The output has nowhere to go.
    #[error("failed to write the output")]
    Output(#[source] std::io::Error),
    /// Something was found, with `--strict`.
    #[error("{0} issues found")]
    Strict(usize),
}

/// Runs the program. Exit codes: 0 done, also with findings or objects that could not be deleted, 1 anything else (deployer.md 2).
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = !error.use_stderr();
            // clap's own output: it knows where help and mistakes go, and there is nowhere else to report to
            drop(error.print());
            return if is_help {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
        }
    };
    let Some(command) = &cli.command else {
        let usage = Cli::command().render_help();
        drop(write!(std::io::stderr(), "{usage}"));
        return ExitCode::SUCCESS;
    };
    let log = Log::stderr(cli.global.verbose);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(&cli, command, &log)),
        Err(error) => Err(Error::Output(error)),
    };
    log.done();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(
                std::io::stderr(),
                "{}",
                daemon::log::chain(&error)
            ));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli, command: &Command, log: &Log) -> Result<(), Error> {
    if let Command::Completion { shell } = command {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Cli::command(), "deployer", &mut script);
        return print(&String::from_utf8_lossy(&script));
    }
    let lookup = |name: &str| std::env::var(name).ok();
    let options = Options::read(&cli.global, lookup, log)?;
    match command {
        Command::Completion { .. } => Ok(()),
        Command::Version(args) => print(&version_line(*args)),
        Command::Images(args) => {
            let images = Images::from_env(lookup, args.sha);
            print(&images.format(options.updater.kind, args.json, args.raw))
        }
        Command::Render { part } => render(&options, *part).await,
        Command::Detect(args) => detect(&options, args, log).await,
        Command::Validate(args) => validate(args, log).await,
        Command::Deploy(args) => deploy(&Cluster::connect().await?, &options, args, log).await,
        Command::Remove(args) => remove(&options, args, log).await,
        Command::Setup => {
            let cluster = Cluster::connect().await?;
            let findings = validate::run(&cluster, log).await?;
            finding::log_all(&findings, log);
            let args = InstallArgs {
                wait: false,
                part: None,
            };
            deploy(&cluster, &options, &args, log).await
        }
    }
}

/// Writes to stdout, with colours if that is a terminal.
fn print(text: &str) -> Result<(), Error> {
    let mut out = anstream::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        // who reads only the beginning has got what they want
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Error::Output),
    }
}

fn version_line(args: VersionArgs) -> String {
    let commit = version::commit();
    if args.hash {
        format!("{commit}\n")
    } else if args.full {
        let beginning: String = commit.chars().take(9).collect();
        format!("{}-{beginning}\n", version::OWN)
    } else {
        format!("{}\n", version::OWN)
    }
}

/// Returns the components in the order of deployment.
fn components(part: Option<Part>, updater: UpdaterType) -> Vec<Component> {
    let all = [
        (Part::Api, Component::Api),
        (Part::TopologyUpdater, Component::Updater(updater)),
        (Part::SchedulerPlugin, Component::Scheduler),
    ];
    all.into_iter()
        .filter(|(own, _)| part.is_none_or(|part| part == *own))
        .map(|(_, component)| component)
        .collect()
}

fn sets(components: &[Component], options: &Options, target: &Target) -> Result<Vec<Set>, Error> {
    let sets: Result<Vec<Set>, _> = components
        .iter()
        .map(|component| Set::new(*component, options, target))
        .collect();
    Ok(sets?)
}

/// Returns the exporters' configuration from the file of the user.
fn given_config(options: &Options) -> Vec<ExporterConfig> {
    let text = options.updater.config.iter();
    text.map(|text| ExporterConfig {
        files: BTreeMap::from([(names::CONFIG_KEY.to_owned(), text.clone())]),
        ..ExporterConfig::default()
    })
    .collect()
}

async fn replicas(options: &Options, cluster: Option<&Cluster>) -> Result<i32, Error> {
    let count = match (options.replicas, cluster) {
        (Some(count), _) => return Ok(count),
        (None, Some(cluster)) => cluster.control_plane_nodes().await?,
        (None, None) => Cluster::connect().await?.control_plane_nodes().await?,
    };
    match i32::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::Replicas(count)),
    }
}

async fn render(options: &Options, part: Option<RenderPart>) -> Result<(), Error> {
    if part == Some(RenderPart::Policy) {
        if options.given.platform != Some(Platform::OpenShift) {
            return Err(Error::NoOpenShift);
        }
        let Some(version) = &options.given.version else {
            return Err(Error::Version(String::new()));
        };
        return print(&policy(&version.to_string()));
    }
    let platform = options.given.platform.ok_or(Error::NoPlatform)?;
    let version = options.given.version.as_ref();
    let target = Target {
        platform,
        version: version.map(ToString::to_string).unwrap_or_default(),
        // who names no version has a recent one
        has_admission_policies: version
            .is_none_or(|version| platform::has_admission_policies(platform, version)),
        api_server_ports: vec![API_SERVER_PORT],
        replicas: replicas(options, None).await?,
        exporter_configs: given_config(options),
        exporters_there: Vec::new(),
        elections_there: Vec::new(),
    };
    let part = part.and_then(|part| match part {
        RenderPart::Api => Some(Part::Api),
        RenderPart::TopologyUpdater => Some(Part::TopologyUpdater),
        RenderPart::SchedulerPlugin => Some(Part::SchedulerPlugin),
        RenderPart::Policy => None,
    });
    let sets = sets(&components(part, options.updater.kind), options, &target)?;
    let objects: Vec<&Value> = sets.iter().flat_map(|set| &set.render).collect();
    print(&documents(&objects)?)
}

/// Formats objects as YAML documents, each after a line `---`.
fn documents(objects: &[&Value]) -> Result<String, Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(object).map_err(Error::Yaml)?);
    }
    Ok(text)
}

async fn detect(options: &Options, args: &DetectArgs, log: &Log) -> Result<(), Error> {
    let cluster = Cluster::connect().await?;
    if args.control_plane {
        let count = cluster.control_plane_nodes().await?;
        return print(&detect::format_control_plane(count, args.json));
    }
    let detection = Detection::run(&cluster, &options.given).await;
    if let Some(failure) = &detection.failure {
        let pairs = [("error", daemon::log::chain(failure).into())];
        log.line(0, "detection failed", &pairs);
    }
    print(&detection.format(args.json))
}

async fn validate(args: &ValidateArgs, log: &Log) -> Result<(), Error> {
    let cluster = Cluster::connect().await?;
    let findings = validate::run(&cluster, log).await?;
    log.done();
    print(&if args.json {
        finding::format_json(&findings)
    } else {
        finding::format_text(&findings)
    })?;
    if args.strict && !findings.is_empty() {
        return Err(Error::Strict(findings.len()));
    }
    Ok(())
}

/// Detects what the objects depend on.
async fn target(cluster: &Cluster, options: &Options, log: &Log) -> Result<Target, Error> {
    log.doing("detecting the cluster");
    let detection = Detection::run(cluster, &options.given).await;
    let [reason, source] = detection.reasons();
    let (platform, version) = detection.required()?;
    let pairs = [
        ("platform", platform.to_string().into()),
        ("reason", reason.into()),
        ("version", version.as_str().into()),
        ("source", source.into()),
    ];
    log.line(3, "detection", &pairs);
    Ok(Target {
        platform,
        version,
        has_admission_policies: Version::parse(&cluster.server_version)
            .is_ok_and(|version| platform::has_admission_policies(Platform::Kubernetes, &version)),
        api_server_ports: cluster.api_server_ports().await,
        replicas: 1,
        exporter_configs: given_config(options),
        exporters_there: cluster.daemon_sets(exporter::NAMESPACE).await,
        elections_there: cluster
            .bound(
                scheduler::LEADER_ROLE,
                scheduler::namespace_on(platform),
                scheduler::SCHEDULER,
            )
            .await,
    })
}

async fn deploy(
    cluster: &Cluster,
    options: &Options,
    args: &InstallArgs,
    log: &Log,
) -> Result<(), Error> {
    let mut target = target(cluster, options, log).await?;
    let components = components(args.part, options.updater.kind);
    if components.contains(&Component::Scheduler) {
        target.replicas = replicas(options, Some(cluster)).await?;
    }
    let has_exporters = components.contains(&Component::Updater(UpdaterType::Rte));
    if has_exporters && target.platform.is_openshift() && target.exporter_configs.is_empty() {
        log.doing("asking kubelets");
        target.exporter_configs = kubelets::exporter_configs(cluster).await?;
    }
    let sets = sets(&components, options, &target)?;
    let work = Work {
        client: &cluster.client,
        log,
        waiting: options.waiting,
        wait: args.wait,
    };
    deploy::run(&work, &sets).await?;
    Ok(())
}

async fn remove(options: &Options, args: &InstallArgs, log: &Log) -> Result<(), Error> {
    let cluster = Cluster::connect().await?;
    let target = target(&cluster, options, log).await?;
    let mut components = components(args.part, options.updater.kind);
    components.reverse();
    let sets = sets(&components, options, &target)?;
    let work = Work {
        client: &cluster.client,
        log,
        waiting: options.waiting,
        wait: args.wait,
    };
    let left = remove::run(&work, &sets).await?;
    if left.failed > 0 {
        // the original ends with code 0 here, and scripts clean up with it
        log.line(
            0,
            "while removing",
            &[(
                "error",
                format!(
                    "{} objects are still there: remove again once the cause is mended",
                    left.failed
                )
                .into(),
            )],
        );
    }
    Ok(())
}

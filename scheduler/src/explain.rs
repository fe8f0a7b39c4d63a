//! `numaresources-scheduler explain`: where a pod could be placed, node by node and zone by zone, without changing anything.
//!
//! It runs the same filters, scores and cache that place pods, on a snapshot of a live cluster or of saved objects.
//!
//! Reading order: this file (the command), [`snapshot`] (the source of the objects), [`verdict`] (the examination), [`form`] (the
//! explanation in its JSON form), [`table`] (output for people).

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use k8s_openapi::api::core::v1::Pod as WirePod;
use serde::Deserialize as _;

use crate::framework::profile::Profile;
use crate::numa::cache::Cache;
use crate::numa::settings::Settings;
use crate::state::pod::{Pod, PodKey};

pub mod form;
pub mod snapshot;
pub mod table;
pub mod verdict;

/// The first argument that selects this command.
pub const COMMAND: &str = "explain";

const EXAMPLES: &str = "\
Examples:
  numaresources-scheduler explain numa-pod -n default
      why the pod was placed where it is, or waits
  numaresources-scheduler explain -f pod.yaml -o json
      what would happen to a pod that does not exist yet
  kubectl get nodes,pods,namespaces,noderesourcetopologies -A -o yaml > dump/all.yaml
  numaresources-scheduler explain numa-pod --from dump
      the same without the cluster

Exit codes: 0 explained, whatever the verdict; 1 the pod or the cluster could not be read; 2 wrong usage.";

/// Explains for each node and zone whether a pod could be placed there, and why not. Changes nothing.
#[derive(Debug, Parser)]
#[command(name = "numaresources-scheduler explain", version, after_help = EXAMPLES)]
struct Args {
    /// The pod, by NAME or NAMESPACE/NAME
    #[arg(value_name = "POD", required_unless_present = "file")]
    pod: Option<String>,
    /// Namespace of the pod [default: that of the manifest, else default]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Manifest of a pod that need not exist, `-` for standard input
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        conflicts_with = "pod"
    )]
    file: Option<PathBuf>,
    /// Directory with saved nodes, pods and NodeResourceTopologies (YAML or JSON, objects or lists), in place of a live cluster
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    from: Option<PathBuf>,
    /// Kubeconfig of the live cluster [default: `KUBECONFIG`, `~/.kube/config`, or that of the pod this runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// File with the KubeSchedulerConfiguration of the scheduler to explain [default: all default plugins and
    /// NodeResourceTopologyMatch]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Profile of that configuration [default: the pod's schedulerName, or the only one]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs: one JSON object, described in the manual
    Json,
}

/// Returns whether a command line asks for an explanation.
pub fn is_asked_for(argv: &[OsString]) -> bool {
    argv.get(1).is_some_and(|argument| argument == COMMAND)
}

/// Runs the command. `argv` begins with the program's name and [`COMMAND`].
pub fn main(argv: &[OsString]) -> ExitCode {
    let args = match Args::try_parse_from(&argv[1..]) {
        Ok(args) => args,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Nothing can be done if even this cannot be printed.
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    daemon::client::install_crypto_provider();
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(explain(&args)));
    match outcome.and_then(|text| {
        std::io::stdout()
            .write_all(text.as_bytes())
            .context("cannot print the explanation")
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn explain(args: &Args) -> anyhow::Result<String> {
    let snapshot = match &args.from {
        Some(directory) => snapshot::saved(directory)?,
        None => snapshot::live(args.kubeconfig.as_deref()).await?,
    };
    for note in &snapshot.notes {
        // a note that cannot be printed changes nothing
        drop(writeln!(std::io::stderr(), "note: {note}"));
    }
    let pod = match &args.file {
        Some(file) => {
            let wire = manifest(file, args.namespace.as_deref())?;
            Pod::read(wire).context("the pod has no name")?
        }
        None => find(&snapshot, args)?,
    };
    let config = configuration(args.config.as_deref(), &pod.scheduler)?;
    let wanted = args.profile.as_deref().unwrap_or(&pod.scheduler);
    let profile = match config.profiles.as_slice() {
        [only] if args.profile.is_none() => only,
        profiles => profiles
            .iter()
            .find(|profile| profile.scheduler_name == wanted)
            .with_context(|| format!("the configuration has no profile {wanted:?}"))?,
    };
    let settings: Settings = Settings::of_profiles(&config)?;
    let (mut cluster, cache) = snapshot.without(&pod.key, Cache::new(settings));
    let verdict = form::Explanation::new(&Profile::new(profile), &mut cluster, &cache, &pod);
    Ok(match args.output {
        Format::Json => serde_json::to_string_pretty(&verdict).context("cannot write JSON")? + "\n",
        Format::Table => table::render(&verdict),
    })
}

fn manifest(file: &Path, namespace: Option<&str>) -> anyhow::Result<WirePod> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let mut documents = serde_yaml::Deserializer::from_str(&text);
    let document = documents
        .next()
        .with_context(|| format!("{} is empty", file.display()))?;
    let value = serde_json::Value::deserialize(document)
        .with_context(|| format!("{} is neither YAML nor JSON", file.display()))?;
    if value["kind"] != "Pod" {
        bail!(
            "{} holds a {}, not a Pod",
            file.display(),
            value["kind"].as_str().unwrap_or("object without kind")
        );
    }
    let mut pod: WirePod = serde_json::from_value(value)
        .with_context(|| format!("{} is no valid Pod", file.display()))?;
    if documents.next().is_some() {
        bail!(
            "{} holds several documents; one pod is explained at a time",
            file.display()
        );
    }
    let namespace = namespace.map(str::to_owned).or(pod.metadata.namespace);
    pod.metadata.namespace = Some(namespace.unwrap_or_else(|| "default".to_owned()));
    if pod.metadata.name.is_none() {
        pod.metadata.name = Some(pod.metadata.generate_name.clone().unwrap_or_default() + "?");
    }
    Ok(pod)
}

fn find(snapshot: &snapshot::Snapshot, args: &Args) -> anyhow::Result<Pod> {
    let name = args.pod.as_deref().unwrap_or_default();
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (args.namespace.as_deref().unwrap_or("default"), name),
    };
    let key = PodKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    snapshot
        .pod(&key)
        .with_context(|| format!("there is no pod {key} among {}", snapshot.origin))
}

/// Reads the configuration from a file, or builds one whose only profile has all default plugins and NodeResourceTopologyMatch.
fn configuration(
    file: Option<&Path>,
    scheduler: &str,
) -> anyhow::Result<scheduler_config::configuration::Configuration> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?,
        None => serde_json::json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{
                "schedulerName": if scheduler.is_empty() { "default-scheduler" } else { scheduler },
                "plugins": {"multiPoint": {"enabled": [{"name": scheduler_config::args::PLUGIN}]}},
                "pluginConfig": [{"name": scheduler_config::args::PLUGIN, "args": {"cacheResyncPeriodSeconds": 5}}],
            }],
        })
        .to_string(),
    };
    scheduler_config::parse(&text).context("cannot use the configuration")
}

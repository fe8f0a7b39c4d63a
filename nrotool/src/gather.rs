//! must-gather: collects into a folder what somebody needs who looks into a cluster from afar, in the layout of the original
//! (scenarios-other.md 5, 10.5).
//!
//! No part keeps the others from being collected: what could not be had is listed in `errors.txt`. Secrets never enter: objects of that kind
//! are not read, and what looks like a token, a password or a key is replaced in everything that is written.
//!
//! Reading order: this file (the command and the order), `limits`, `folder` (what is written, with `redact`), then the parts: `namespaces`,
//! `objects`, `pods`, `nodes`, `dumps`, `metrics`, `explain`, `selinux`; at the end
//! `index`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use apply::platform;
use clap::Parser;
use kube::Client;
use manifests::platform::Platform;
use serde_json::json;

use crate::cluster;

mod dumps;
mod explain;
mod folder;
mod index;
mod limits;
mod metrics;
mod namespaces;
mod nodes;
mod objects;
mod pods;
mod redact;
mod selinux;

use folder::Folder;
use limits::Limits;

/// Where `oc adm must-gather` looks for what its pod collected.
const FOLDER_IN_POD: &str = "/must-gather";
/// Folder elsewhere.
const FOLDER: &str = "must-gather";
/// First line of the version file (scenarios-other.md 10.5).
const PRODUCT: &str = "numaresources-operator/must-gather";

const AFTER_HELP: &str = "\
The layout is that of `oc adm must-gather`; index.html leads through it, and errors.txt lists what could not be collected.

Objects of kind Secret are not read; what looks like a token, a password or a private key in anything else is replaced by REDACTED.

With oc: `oc adm must-gather --image=IMAGE` (the stack's image has this program where oc starts it).

Exit codes: 0 something was collected; 1 nothing was; 2 wrong usage.";

/// Collects the state of the NUMA-aware scheduling stack and of its cluster into a folder.
#[derive(Debug, Parser)]
#[command(name = "numaresources-must-gather", version, after_help = AFTER_HELP)]
struct Args {
    /// Folder to write to; it must be empty or not exist [default: /must-gather if it exists, else must-gather]
    #[arg(long, value_name = "DIR")]
    dest_dir: Option<PathBuf>,
    /// Namespace to collect, beside those where the stack is found; may be repeated
    #[arg(short, long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// Largest part of each log, from its end, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 10 << 20)]
    log_bytes: u64,
    /// Largest sum of all files, in bytes; what is too large for what is left of it is listed in errors.txt
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    max_bytes: u64,
    /// Longest time for one request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    request_timeout: u64,
    /// Longest time for everything, in seconds; what is not collected by then is listed in errors.txt
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Kubeconfig of the cluster [default: `KUBECONFIG`, `~/.kube/config`, or that of the pod this runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// What every part of the collection needs.
struct Gather {
    client: Client,
    folder: Folder,
    limits: Limits,
}

/// Runs the program. The first argument is its name.
pub fn main(argv: &[OsString]) -> ExitCode {
    let args = match Args::try_parse_from(argv) {
        Ok(args) => args,
        Err(error) => return crate::output::usage(&error),
    };
    crate::output::block_on(gather(&args))
}

async fn gather(args: &Args) -> anyhow::Result<ExitCode> {
    let root = destination(args.dest_dir.as_ref())?;
    let client = cluster::connect(args.kubeconfig.as_deref()).await?;
    let gather = Gather {
        client,
        folder: Folder::create(&root, args.max_bytes)?,
        limits: Limits::new(
            Duration::from_secs(args.request_timeout),
            Duration::from_secs(args.timeout),
            args.log_bytes,
        ),
    };
    let platform = gather.collect(&args.namespaces).await;
    let folder = gather.folder;
    let outcome = folder.outcome();
    folder.write_errors()?;
    index::write(&folder, platform)?;
    if outcome.objects == 0 {
        bail!(
            "nothing could be collected: see {}",
            root.join(folder::ERRORS).display()
        );
    }
    crate::output::complain(&format!(
        "collected {} files into {}; {} parts could not be had{}\n",
        outcome.files,
        root.display(),
        outcome.errors,
        if outcome.errors == 0 {
            String::new()
        } else {
            format!(", see {}", folder::ERRORS)
        }
    ));
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder to write to, which must not have anything of another collection.
fn destination(given: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let root = given.cloned().unwrap_or_else(|| {
        let in_pod = PathBuf::from(FOLDER_IN_POD);
        if in_pod.is_dir() {
            in_pod
        } else {
            PathBuf::from(FOLDER)
        }
    });
    if root.exists() {
        let mut entries = fs_err::read_dir(&root).context("cannot use the folder")?;
        if entries.next().is_some() {
            bail!(
                "{} is not empty: name another folder with --dest-dir",
                root.display()
            );
        }
    }
    Ok(root)
}

impl Gather {
    /// Collects all parts. The platform is `None` if the cluster does not tell it.
    async fn collect(&self, namespaces: &[String]) -> Option<Platform> {
        let platform = self.about_the_cluster().await;
        objects::cluster_wide(self, platform.unwrap_or_default()).await;
        nodes::collect(self).await;
        let namespaces = namespaces::find(self, platform.unwrap_or_default(), namespaces).await;
        for namespace in &namespaces {
            objects::of_namespace(self, namespace).await;
            pods::collect(self, namespace).await;
            dumps::collect(self, namespace).await;
            explain::collect(self, namespace).await;
        }
        metrics::collect(self, &namespaces).await;
        if platform == Some(Platform::OpenShift) {
            selinux::collect(self).await;
        }
        platform
    }

    async fn about_the_cluster(&self) -> Option<Platform> {
        let text = format!("{PRODUCT}\n{}\n", goflags::build_line!());
        self.folder.text("version", &text);
        let platform = self.limits.request(platform::detect(&self.client)).await;
        let platform = self.folder.or_error("platform", platform)?;
        let version = platform::version(&self.client, platform);
        let version = self
            .folder
            .or_error("version", self.limits.request(version).await);
        let server = self.limits.request(self.client.apiserver_version()).await;
        let server = self.folder.or_error("version of the API server", server);
        let about =
            json!({"platform": platform.to_string(), "version": version, "apiServer": server});
        self.folder.json("platform.json", &about);
        Some(platform)
    }
}

//! Commands in containers.

use std::time::Duration;

use apply::Cause;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use kube::{Client, ResourceExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest output of a command, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// Longest time of a command.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A command in a container gave no usable output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command could not be started.
    #[error("cannot run {command} in pod {pod}")]
    Start {
        /// The command's words.
        command: String,
        /// Namespace and name of the pod.
        pod: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// Its output could not be read.
    #[error("cannot read the output of {command} in pod {pod}")]
    Output {
        /// The command's words.
        command: String,
        /// Namespace and name of the pod.
        pod: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It ended with another code than 0.
    #[error("{command} in pod {pod} failed: {complaint}")]
    Failed {
        /// The command's words.
        command: String,
        /// Namespace and name of the pod.
        pod: String,
        /// What it or the container runtime said.
        complaint: String,
    },
    /// It did not end in time.
    #[error("{command} in pod {pod} did not end within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// The command's words.
        command: String,
        /// Namespace and name of the pod.
        pod: String,
    },
}

/// Runs a command in a container of a pod until it ends. Returns its standard output, at most 16 MiB of it.
pub(crate) async fn run(
    client: &Client,
    pod: &Pod,
    container: &str,
    command: &[&str],
) -> Result<String, Error> {
    match tokio::time::timeout(TIMEOUT, finish(client, pod, container, command)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::Timeout {
            command: command.join(" "),
            pod: name(pod),
        }),
    }
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

async fn finish(
    client: &Client,
    pod: &Pod,
    container: &str,
    command: &[&str],
) -> Result<String, Error> {
    let words = || command.join(" ");
    let params = AttachParams::default()
        .container(container)
        .stdout(true)
        .stderr(true);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let started = pods
        .exec(&pod.name_any(), command.iter().copied(), &params)
        .await;
    let mut process = started.map_err(|error| Error::Start {
        command: words(),
        pod: name(pod),
        source: error.into(),
    })?;
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let status = process.take_status();
    let (output, complaint, status) = tokio::join!(read(stdout), read(stderr), async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    });
    let unread = |source| Error::Output {
        command: words(),
        pod: name(pod),
        source,
    };
    let (output, complaint) = (output.map_err(unread)?, complaint.map_err(unread)?);
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(output),
        status => {
            let said = complaint.trim();
            let told = status.and_then(|status| status.message);
            Err(Error::Failed {
                command: words(),
                pod: name(pod),
                complaint: match told.filter(|_| said.is_empty()) {
                    Some(told) => told,
                    None => said.to_owned(),
                },
            })
        }
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let mut limited = stream.take(MAX_OUTPUT);
        limited.read_to_end(&mut bytes).await?;
        // the rest has to be read, or else the command never ends
        tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

//! The server of the control protocol, and what the runtime of this package answers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::{Answer, ContainerFacts, ExecOutput, Refusal, Request, State, Target};
use crate::filter;
use crate::runtime::records::{Container, Phase};
use crate::runtime::{self, Runtime, containers};

/// A node whose containers can be controlled.
pub(super) trait Node: Send + Sync + 'static {
    /// Does what a request asks for; the error is a text for the client.
    fn answer(&self, request: Request) -> impl Future<Output = Result<Answer, String>> + Send;
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no running container {0}")]
    NotRunning(Target),
    #[error("{}", .0.chain())]
    Runtime(runtime::Error),
    #[error("no ready sandbox of pod {0}")]
    NoSandbox(String),
    #[error("pod {0}: {1}")]
    Filter(String, filter::Error),
}

/// Listens at `path`, and replaces the socket of an earlier process.
///
/// # Errors
/// Returns an error if the directory or the socket cannot be made.
pub fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        fs_err::create_dir_all(parent)?;
    }
    if path.exists() {
        fs_err::remove_file(path)?;
    }
    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}

/// Serves the containers of a runtime until the future is dropped.
pub async fn serve(listener: UnixListener, runtime: Arc<Runtime>) {
    serve_node(listener, runtime).await;
}

/// Serves connections until the future is dropped.
pub(super) async fn serve_node<N: Node>(listener: UnixListener, node: Arc<N>) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                tokio::spawn(serve_connection(connection, Arc::clone(&node)));
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot accept a control connection");
                // Most likely there are no file descriptors left; some will soon be free again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection<N: Node>(connection: UnixStream, node: Arc<N>) {
    let (reader, mut writer) = connection.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => node.answer(request).await,
            Err(error) => Err(format!("cannot parse the request: {error}")),
        };
        let answer = match answer {
            Ok(answer) => serde_json::to_vec(&answer),
            Err(error) => serde_json::to_vec(&Refusal { error }),
        };
        let Ok(mut bytes) = answer else { return };
        bytes.push(b'\n');
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

impl Node for Runtime {
    async fn answer(&self, request: Request) -> Result<Answer, String> {
        let answer = answer(self, request).await;
        answer.map_err(|error| error.to_string())
    }
}

async fn answer(runtime: &Runtime, request: Request) -> Result<Answer, Error> {
    match request {
        Request::Containers => Ok(Answer::Containers {
            containers: runtime
                .containers()
                .iter()
                .map(|container| facts(container))
                .collect(),
        }),
        Request::Signal { target, signal } => {
            let container = running(runtime, &target)?;
            containers::signal(&container, signal.into()).map_err(Error::Runtime)?;
            Ok(Answer::Done)
        }
        Request::Exec {
            target,
            command,
            timeout_seconds,
        } => {
            let container = running(runtime, &target)?;
            let limit = Some(Duration::from_secs(timeout_seconds));
            let output = runtime
                .exec(&container.id, command, limit)
                .await
                .map_err(Error::Runtime)?;
            Ok(Answer::Output(ExecOutput::new(
                output.exit_code,
                &output.stdout,
                &output.stderr,
            )))
        }
        Request::Filter { pod_uid, rules } => {
            let namespaces = runtime
                .namespaces_of(&pod_uid)
                .ok_or_else(|| Error::NoSandbox(pod_uid.clone()))?;
            let applied = filter::apply(namespaces, rules).await;
            applied.map_err(|error| Error::Filter(pod_uid, error))?;
            Ok(Answer::Done)
        }
    }
}

fn target_of(container: &Container) -> Target {
    let pod = container.sandbox.metadata();
    Target {
        namespace: pod.namespace,
        pod: pod.name,
        container: container.metadata().name,
    }
}

/// Returns the running container with this name; of several, the newest.
fn running(runtime: &Runtime, target: &Target) -> Result<Arc<Container>, Error> {
    runtime
        .containers()
        .into_iter()
        .filter(|container| container.process().is_some() && target_of(container) == *target)
        .max_by_key(|container| container.created_at)
        .ok_or_else(|| Error::NotRunning(target.clone()))
}

fn facts(container: &Container) -> ContainerFacts {
    let resources = container.resources();
    let (state, exit_code) = match container.phase() {
        Phase::Created | Phase::Starting => (State::Created, None),
        Phase::Running { .. } => (State::Running, None),
        Phase::Exited { exit_code, .. } => (State::Exited, Some(exit_code)),
    };
    ContainerFacts {
        target: target_of(container),
        pod_uid: container.sandbox.metadata().uid,
        id: container.id.clone(),
        attempt: container.metadata().attempt,
        state,
        pid: container.process().map(|process| process.pid.as_raw()),
        exit_code,
        cpus: resources.cpuset_cpus,
        mems: resources.cpuset_mems,
    }
}

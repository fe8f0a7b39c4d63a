//! The server of the control protocol.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::{Answer, ContainerFacts, ExecOutput, Refusal, Request, Signal, State, Target};
use crate::filter;
use crate::runtime::records::{Container, Phase};
use crate::runtime::{self, Runtime, containers};

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot parse the request: {0}")]
    InvalidRequest(serde_json::Error),
    #[error("no running container {0}")]
    NotRunning(Target),
    #[error("{}", .0.chain())]
    Runtime(runtime::Error),
    #[error("no ready sandbox of pod {0}")]
    NoSandbox(String),
    #[error("pod {0}: {1}")]
    Filter(String, filter::Error),
}

/// Serves connections until the future is dropped.
pub async fn serve(listener: UnixListener, runtime: Arc<Runtime>) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                tokio::spawn(serve_connection(connection, Arc::clone(&runtime)));
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot accept a control connection");
                // Most likely there are no file descriptors left; some will soon be free again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(connection: UnixStream, runtime: Arc<Runtime>) {
    let (reader, mut writer) = connection.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let answer = match answer(&runtime, &line).await {
            Ok(answer) => serde_json::to_vec(&answer),
            Err(error) => serde_json::to_vec(&Refusal {
                error: error.to_string(),
            }),
        };
        let Ok(mut bytes) = answer else { return };
        bytes.push(b'\n');
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn answer(runtime: &Runtime, line: &str) -> Result<Answer, Error> {
    match serde_json::from_str(line).map_err(Error::InvalidRequest)? {
        Request::Containers => Ok(Answer::Containers {
            containers: runtime
                .containers()
                .iter()
                .map(|container| facts(container))
                .collect(),
        }),
        Request::Signal { target, signal } => {
            let container = running(runtime, &target)?;
            let signal = match signal {
                Signal::Stop => signal::Signal::SIGSTOP,
                Signal::Cont => signal::Signal::SIGCONT,
                Signal::Kill => signal::Signal::SIGKILL,
                Signal::Term => signal::Signal::SIGTERM,
            };
            containers::signal(&container, signal).map_err(Error::Runtime)?;
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
            Ok(Answer::Output(ExecOutput {
                exit_code: output.exit_code,
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            }))
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

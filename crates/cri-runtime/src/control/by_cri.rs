//! The control protocol of a node with another runtime, such as containerd, whose CRI and processes it uses.
//!
//! The runtime's own answer to a verbose `ContainerStatus` names the first process of a container. Its ID is that of the runtime's PID
//! namespace, so this process has to be in the same.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use nix::sys::signal::{self, kill};
use nix::unistd::Pid;
use podresources::cri::v1 as cri;
use podresources::cri::v1::runtime_service_client::RuntimeServiceClient;
use podresources::socket::Socket;
use serde::Deserialize;
use tonic::Status;
use tonic::transport::Channel;

use super::server::{self, Node};
use super::{Answer, ContainerFacts, ExecOutput, Request, Signal, State, Target};
use crate::{filter, processes, stop};

/// Labels of a container that the kubelet sets.
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD: &str = "io.kubernetes.pod.name";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER: &str = "io.kubernetes.container.name";

/// Arguments of `control`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Socket of the runtime's CRI
    #[arg(long, value_name = "SOCKET")]
    pub cri: PathBuf,
    /// Socket of the control protocol
    #[arg(long, value_name = "SOCKET")]
    pub listen: PathBuf,
}

/// Serves the control protocol until `SIGTERM` or `SIGINT`.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let stop = stop::signalled().context("cannot watch signals")?;
    let socket = Socket::new(args.cri).context("unusable CRI socket")?;
    let node = Arc::new(Foreign {
        runtime: RuntimeServiceClient::new(socket.channel())
            .max_decoding_message_size(podresources::MAX_MESSAGE_SIZE),
    });
    let listener = server::listen(&args.listen)?;
    tokio::select! {
        () = server::serve_node(listener, node) => {}
        () = stop => {}
    }
    Ok(())
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the runtime refused to {0}: {1}")]
    Runtime(&'static str, String),
    #[error("no running container {0}")]
    NotRunning(Target),
    #[error("cannot signal {0}: {1}")]
    Signal(Target, nix::Error),
    #[error("pod {0}: {1}")]
    Filter(String, filter::Error),
    #[error("the thread that runs nft panicked")]
    Thread,
}

fn refused(what: &'static str) -> impl FnOnce(Status) -> Error {
    move |status| Error::Runtime(what, status.message().to_owned())
}

/// A node whose runtime is not ours.
struct Foreign {
    runtime: RuntimeServiceClient<Channel>,
}

impl Node for Foreign {
    async fn answer(&self, request: Request) -> Result<Answer, String> {
        let answer = self.act(request).await;
        answer.map_err(|error| error.to_string())
    }
}

impl Foreign {
    async fn act(&self, request: Request) -> Result<Answer, Error> {
        match request {
            Request::Containers => {
                let mut containers = Vec::new();
                for container in self.list().await? {
                    // Without a status the container was removed meanwhile.
                    if let Some((status, info)) = self.status(&container.id).await? {
                        containers.push(facts(&container, &status, info));
                    }
                }
                Ok(Answer::Containers { containers })
            }
            Request::Signal { target, signal } => {
                let container = self.running(&target).await?;
                let status = self.status(&container.id).await?;
                let info = status.map(|(_, info)| info).unwrap_or_default();
                send(&target, &info, signal)?;
                Ok(Answer::Done)
            }
            Request::Exec {
                target,
                command,
                timeout_seconds,
            } => {
                let container = self.running(&target).await?;
                let request = cri::ExecSyncRequest {
                    container_id: container.id,
                    cmd: command,
                    timeout: timeout_seconds.try_into().unwrap_or(i64::MAX),
                };
                let output = self.runtime.clone().exec_sync(request).await;
                let output = output.map_err(refused("run a command"))?.into_inner();
                Ok(Answer::Output(ExecOutput::new(
                    output.exit_code,
                    &output.stdout,
                    &output.stderr,
                )))
            }
            Request::Filter { pod_uid, rules } => {
                let applied = tokio::task::spawn_blocking(move || filter::apply_here(&rules));
                let applied = applied.await.map_err(|_| Error::Thread)?;
                applied.map_err(|error| Error::Filter(pod_uid, error))?;
                Ok(Answer::Done)
            }
        }
    }

    async fn list(&self) -> Result<Vec<cri::Container>, Error> {
        let request = cri::ListContainersRequest::default();
        let listed = self.runtime.clone().list_containers(request).await;
        let listed = listed.map_err(refused("list its containers"))?;
        Ok(listed.into_inner().containers)
    }

    /// Returns the running container with this name; of several, the newest.
    async fn running(&self, target: &Target) -> Result<cri::Container, Error> {
        let containers = self.list().await?.into_iter();
        containers
            .filter(|container| {
                container.state() == cri::ContainerState::ContainerRunning
                    && target_of(container) == *target
            })
            .max_by_key(|container| container.created_at)
            .ok_or_else(|| Error::NotRunning(target.clone()))
    }

    /// Returns the status of a container, unless it is gone.
    async fn status(&self, id: &str) -> Result<Option<(cri::ContainerStatus, Info)>, Error> {
        let request = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: true,
        };
        let answer = match self.runtime.clone().container_status(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == tonic::Code::NotFound => return Ok(None),
            Err(status) => return Err(refused("show a container")(status)),
        };
        let info = answer.info.get("info").map(String::as_str);
        Ok(answer.status.map(|status| (status, Info::read(info))))
    }
}

/// What a runtime tells of a container beyond the CRI; all of it may be missing.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Info {
    /// First process; 0 while there is none.
    pid: i32,
    config: Config,
}

/// The container's configuration as the kubelet sent it.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Config {
    linux: Linux,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Linux {
    resources: Sets,
    security_context: SecurityContext,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Sets {
    cpuset_cpus: String,
    cpuset_mems: String,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct SecurityContext {
    namespace_options: NamespaceOptions,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct NamespaceOptions {
    /// `NamespaceMode` as a number; the pod's is 0 and left out.
    pid: i32,
}

impl Info {
    fn read(text: Option<&str>) -> Self {
        let info = text.and_then(|text| serde_json::from_str(text).ok());
        info.unwrap_or_default()
    }

    /// Returns the first process.
    fn process(&self) -> Option<Pid> {
        (self.pid > 0).then(|| Pid::from_raw(self.pid))
    }

    /// Returns whether processes of other containers are in the same PID namespace.
    fn shares_pids(&self) -> bool {
        let mode = self.config.linux.security_context.namespace_options.pid;
        mode != cri::NamespaceMode::Container as i32
    }
}

/// Sends a signal: `SIGSTOP` and `SIGCONT` to each process of the container, others to the first one.
fn send(target: &Target, info: &Info, signal: Signal) -> Result<(), Error> {
    let Some(first) = info.process() else {
        return Err(Error::NotRunning(target.clone()));
    };
    let pids = match signal {
        Signal::Stop | Signal::Cont => processes::members(first, info.shares_pids()),
        Signal::Term | Signal::Kill => vec![first],
    };
    for pid in pids {
        match kill(pid, signal::Signal::from(signal)) {
            // A process that has ended meanwhile needs no signal.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(errno) => return Err(Error::Signal(target.clone(), errno)),
        }
    }
    Ok(())
}

fn label(container: &cri::Container, name: &str) -> String {
    container.labels.get(name).cloned().unwrap_or_default()
}

fn target_of(container: &cri::Container) -> Target {
    Target {
        namespace: label(container, NAMESPACE),
        pod: label(container, POD),
        container: label(container, CONTAINER),
    }
}

fn facts(container: &cri::Container, status: &cri::ContainerStatus, info: Info) -> ContainerFacts {
    let (state, exit_code) = match status.state() {
        cri::ContainerState::ContainerRunning => (State::Running, None),
        cri::ContainerState::ContainerExited => (State::Exited, Some(status.exit_code)),
        cri::ContainerState::ContainerCreated | cri::ContainerState::ContainerUnknown => {
            (State::Created, None)
        }
    };
    let pid = info.process().filter(|_| state == State::Running);
    let sets = info.config.linux.resources;
    ContainerFacts {
        target: target_of(container),
        pod_uid: label(container, POD_UID),
        id: container.id.clone(),
        attempt: container
            .metadata
            .as_ref()
            .map_or(0, |metadata| metadata.attempt),
        state,
        pid: pid.map(Pid::as_raw),
        exit_code,
        cpus: sets.cpuset_cpus,
        mems: sets.cpuset_mems,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container() -> cri::Container {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        cri::Container {
            id: "c0".to_owned(),
            metadata: Some(cri::ContainerMetadata {
                name: "main".to_owned(),
                attempt: 2,
            }),
            labels: [
                label(NAMESPACE, "default"),
                label(POD, "p"),
                label(POD_UID, "u"),
                label(CONTAINER, "main"),
            ]
            .into(),
            ..Default::default()
        }
    }

    #[test]
    fn facts_of_a_running_container_come_from_its_labels_and_the_runtimes_own_answer() {
        let status = cri::ContainerStatus {
            state: cri::ContainerState::ContainerRunning.into(),
            ..Default::default()
        };
        let info = json!({
            "sandboxID": "s", "pid": 42, "runtimeSpec": {"process": {}},
            "config": {"linux": {
                "resources": {"cpu_shares": 2, "cpuset_cpus": "1-6", "cpuset_mems": "0"},
                "security_context": {"namespace_options": {"pid": 1}},
            }},
        });
        let info = Info::read(Some(&info.to_string()));
        assert!(!info.shares_pids());
        let facts = facts(&container(), &status, info);
        assert_eq!(facts.target, Target::new("default", "p", "main"));
        assert_eq!((facts.pid, facts.state), (Some(42), State::Running));
        assert_eq!((facts.attempt, facts.pod_uid.as_str()), (2, "u"));
        assert_eq!((facts.cpus.as_str(), facts.mems.as_str()), ("1-6", "0"));
    }

    #[test]
    fn ended_container_has_its_exit_code_and_no_process() {
        let status = cri::ContainerStatus {
            state: cri::ContainerState::ContainerExited.into(),
            exit_code: 137,
            ..Default::default()
        };
        let facts = facts(&container(), &status, Info::read(Some("{\"pid\": 42}")));
        assert_eq!((facts.pid, facts.exit_code), (None, Some(137)));
        assert_eq!(facts.state, State::Exited);
    }

    #[test]
    fn container_in_the_pids_of_its_pod_shares_them() {
        // The mode of the pod is the default value, which Go leaves out.
        let info =
            json!({"pid": 1, "config": {"linux": {"security_context": {"namespace_options": {}}}}});
        assert!(Info::read(Some(&info.to_string())).shares_pids());
        assert!(Info::read(None).shares_pids());
    }

    #[test]
    fn container_without_a_process_takes_no_signal() {
        let target = Target::new("n", "p", "c");
        let error = send(&target, &Info::default(), Signal::Kill).unwrap_err();
        assert_eq!(error.to_string(), "no running container n/p/c");
    }
}

//! Starts containers.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;

use nix::unistd::Pid;
use podresources::cri::v1 as cri;

use super::{not_running, watch};
use crate::helper::{InitRequest, Role, START_ERROR};
use crate::identity::etc_files;
use crate::logs::LogFile;
use crate::rootfs::plan::{Inputs, plan};
use crate::runtime::records::{Container, Phase, Process};
use crate::runtime::{Error, Runtime, file, handoff, now};
use crate::spawner::{self, PidNamespace};

impl Runtime {
    /// Starts a created container; returns after its program has been executed.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        let container = self.container(id)?;
        let claimed = container.phase.send_if_modified(|phase| {
            let created = *phase == Phase::Created;
            if created {
                *phase = Phase::Starting;
            }
            created
        });
        if !claimed {
            return Err(Error::State {
                object: "container",
                id: container.id.clone(),
                state: container.phase().name(),
            });
        }
        let outcome = self.launch(&container).await;
        if let Err(error) = &outcome {
            let at = now();
            container.phase.send_replace(Phase::Exited {
                started_at: 0,
                finished_at: at,
                exit_code: START_ERROR.into(),
                reason: "StartError",
                message: error.chain(),
            });
            tracing::info!(
                container = id,
                error = error.chain(),
                "Container cannot start"
            );
        }
        outcome
    }

    async fn launch(&self, container: &Arc<Container>) -> Result<(), Error> {
        let pids = self.pid_namespace(container)?;
        let shared = matches!(pids, PidNamespace::Join(_));
        let request = self.init_request(container)?;
        let log = match &container.log_path {
            Some(path) => Some(Arc::new(LogFile::open(path).map_err(file("open", path))?)),
            None => None,
        };
        container.log.lock().clone_from(&log);
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::Spawn(spawner::Error::Spawn(error)))?;
        let mut command = Self::helper("container-init");
        command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = self.spawner.spawn(command, pids).await?;
        let pid = child.id().unwrap_or_default();
        let path = format!("/proc/{pid}/ns/pid");
        let namespace = File::open(&path).map_err(file("open", path.as_ref()))?;
        handoff::send(ours, &request).await.map_err(Error::Start)?;
        *container.process.lock() = Some(Process {
            pid: Pid::from_raw(pid as i32),
            namespace: Arc::new(namespace.into()),
            shared,
        });
        let started_at = now();
        container.phase.send_replace(Phase::Running { started_at });
        tracing::info!(container = container.id, pid, "Container runs");
        tokio::spawn(watch::watch(Arc::clone(container), child, log, started_at));
        Ok(())
    }

    fn pid_namespace(&self, container: &Container) -> Result<PidNamespace, Error> {
        let options = container
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|security| security.namespace_options.as_ref());
        if let Some(options) = options
            && options.pid() == cri::NamespaceMode::Target
        {
            let target = self.container(&options.target_id)?;
            let process = target.process().ok_or_else(|| not_running(&target))?;
            return Ok(PidNamespace::Join(process.namespace));
        }
        let ready = container.sandbox.ready_state();
        let shared = ready.as_ref().and_then(|ready| ready.shared_pids.as_ref());
        Ok(shared.map_or(PidNamespace::New, |shared| {
            PidNamespace::Join(Arc::clone(&shared.namespace))
        }))
    }

    fn init_request(&self, container: &Container) -> Result<InitRequest, Error> {
        let sandbox = &container.sandbox;
        let namespaces = sandbox
            .ready_state()
            .as_ref()
            .map(|ready| Arc::clone(&ready.namespaces))
            .ok_or_else(|| Error::State {
                object: "sandbox",
                id: sandbox.id.clone(),
                state: "SANDBOX_NOTREADY",
            })?;
        let etc = etc_files(
            &container.identity,
            self.hostname(sandbox),
            &sandbox.address.to_string(),
            sandbox.config.dns_config.as_ref(),
        );
        let steps = plan(&Inputs {
            host: &self.host,
            image: &container.image.image,
            etc: &etc,
            cgroup: &container.directory.join("cgroup"),
            config: &container.config,
            host_path_overrides: &self.spec.host_path_overrides,
        });
        let security = container
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref());
        Ok(InitRequest {
            namespaces: namespaces.paths(),
            role: Role::Container {
                root: container.directory.join("root"),
                steps,
                read_only: security.is_some_and(|security| security.readonly_rootfs),
                program: container.program.clone(),
            },
        })
    }
}

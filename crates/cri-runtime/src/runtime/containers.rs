//! Creates, starts, stops and removes containers.

mod program;
mod start;
pub(super) mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use podresources::cri::v1 as cri;

use self::program::program;
use super::records::{Container, NewContainer, Phase, Sandbox};
use super::{Error, Runtime, file, new_id, now};
use crate::cgroup;
use crate::identity::Identity;

/// How long the kernel may take to end a process after `SIGKILL`.
const KILL_LIMIT: Duration = Duration::from_secs(30);

impl Runtime {
    /// Creates a container in a ready sandbox; returns its ID. Nothing runs yet.
    pub fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
    ) -> Result<String, Error> {
        let sandbox = self.sandbox(sandbox)?;
        if !sandbox.is_ready() {
            return Err(Error::State {
                object: "sandbox",
                id: sandbox.id.clone(),
                state: "SANDBOX_NOTREADY",
            });
        }
        let Some(metadata) = &config.metadata else {
            return Err(Error::Invalid("container config must include metadata"));
        };
        let name = metadata.name.clone();
        let image = config
            .image
            .as_ref()
            .ok_or(Error::Invalid("container config must include an image"))?;
        let image = self.images.resolve(&image.image)?;
        let security = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref());
        let identity = Identity::resolve(security, image.image.user)?;
        let program = program(&config, &image.image, &identity, self.hostname(&sandbox))?;
        let id = new_id();
        let directory = self.spec.state_dir.join("containers").join(&id);
        let root = directory.join("root");
        std::fs::create_dir_all(&root).map_err(file("create", &root))?;
        let log_path = (!config.log_path.is_empty() && !sandbox.config.log_directory.is_empty())
            .then(|| Path::new(&sandbox.config.log_directory).join(&config.log_path));
        let container = Container::from(NewContainer {
            id: id.clone(),
            image,
            identity,
            log_path,
            directory,
            program,
            created_at: now(),
            sandbox,
            config,
        });
        self.write_cgroup_files(&container)?;
        tracing::info!(
            container = id,
            name,
            sandbox = container.sandbox.id,
            "Container is created"
        );
        self.records()
            .containers
            .insert(id.clone(), Arc::new(container));
        Ok(id)
    }

    /// Returns the host name that processes of the sandbox see.
    fn hostname<'a>(&'a self, sandbox: &'a Sandbox) -> &'a str {
        if sandbox.config.hostname.is_empty() {
            &self.spec.node
        } else {
            &sandbox.config.hostname
        }
    }

    fn write_cgroup_files(&self, container: &Container) -> Result<(), Error> {
        let directory = container.directory.join("cgroup");
        cgroup::write(&directory, &container.resources(), &self.online)
            .map_err(file("write", &directory))
    }

    /// Asks a container to end, kills it after `grace`, and waits until it has ended. Does nothing for an unknown container or one that
    /// does not run.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        match self.container(id) {
            Ok(container) => self.stop(&container, grace).await,
            Err(_) => Ok(()),
        }
    }

    pub(super) async fn stop(&self, container: &Container, grace: Duration) -> Result<(), Error> {
        let mut phase = container.phase.subscribe();
        // A start in progress ends by itself.
        let outcome = phase.wait_for(|phase| *phase != Phase::Starting).await;
        if !outcome.is_ok_and(|phase| matches!(*phase, Phase::Running { .. })) {
            return Ok(());
        }
        let mut ended = async |limit| {
            let exited = phase.wait_for(|phase| matches!(phase, Phase::Exited { .. }));
            tokio::time::timeout(limit, exited).await.is_ok()
        };
        if !grace.is_zero() {
            signal(container, stop_signal(&container.config))?;
            if ended(grace).await {
                return Ok(());
            }
        }
        signal(container, Signal::SIGKILL)?;
        if ended(KILL_LIMIT).await {
            Ok(())
        } else {
            Err(Error::Unkillable(container.id.clone()))
        }
    }

    /// Ends a container if it runs, and removes it. Does nothing for an unknown container.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let Ok(container) = self.container(id) else {
            return Ok(());
        };
        self.stop(&container, Duration::ZERO).await?;
        self.records().containers.remove(id);
        let directory = &container.directory;
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(file("remove", directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Records CPU set and limits, which the status and the container's `/sys/fs/cgroup` show.
    pub fn update_resources(
        &self,
        id: &str,
        update: cri::LinuxContainerResources,
    ) -> Result<(), Error> {
        let container = self.container(id)?;
        if let phase @ Phase::Exited { .. } = container.phase() {
            return Err(Error::State {
                object: "container",
                id: id.to_owned(),
                state: phase.name(),
            });
        }
        cgroup::merge(&mut container.resources.lock(), update);
        self.write_cgroup_files(&container)
    }

    /// Reopens the log file of a running container.
    pub fn reopen_log(&self, id: &str) -> Result<(), Error> {
        let container = self.container(id)?;
        if !matches!(container.phase(), Phase::Running { .. }) {
            return Err(not_running(&container));
        }
        let log = container.log.lock().clone();
        match (log, &container.log_path) {
            (Some(log), Some(path)) => log.reopen().map_err(file("open", path)),
            _ => Ok(()),
        }
    }
}

/// Returns the error for a container that should run.
pub fn not_running(container: &Container) -> Error {
    Error::State {
        object: "container",
        id: container.id.clone(),
        state: container.phase().name(),
    }
}

/// Sends a signal to a container: `SIGSTOP` and `SIGCONT` to each of its processes, other signals only to the first process.
pub fn signal(container: &Container, signal: Signal) -> Result<(), Error> {
    let Some(process) = container.process() else {
        return Err(not_running(container));
    };
    let pids = match signal {
        Signal::SIGSTOP | Signal::SIGCONT => container.processes(),
        _ => vec![process.pid],
    };
    for pid in pids {
        match kill(pid, signal) {
            // A process that has ended meanwhile needs no signal.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(source) => {
                return Err(Error::Signal {
                    id: container.id.clone(),
                    source,
                });
            }
        }
    }
    Ok(())
}

/// Returns the signal that asks a container to end.
fn stop_signal(config: &cri::ContainerConfig) -> Signal {
    match config.stop_signal() {
        cri::Signal::RuntimeDefault => Signal::SIGTERM,
        named => named
            .as_str_name()
            .parse()
            // Real-time signals and aliases are not supported, because nothing here uses them.
            .unwrap_or(Signal::SIGTERM),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::unset(cri::Signal::RuntimeDefault, Signal::SIGTERM)]
    #[case::named(cri::Signal::Sigusr1, Signal::SIGUSR1)]
    #[case::real_time(cri::Signal::Sigrtmin, Signal::SIGTERM)]
    fn stop_signal_of_the_pod(#[case] asked: cri::Signal, #[case] expected: Signal) {
        let config = cri::ContainerConfig {
            stop_signal: asked.into(),
            ..Default::default()
        };
        assert_eq!(stop_signal(&config), expected);
    }
}

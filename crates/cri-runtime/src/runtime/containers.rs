//! Creates, starts, stops and removes containers.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cluster_spec::images::Image;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podresources::cri::v1 as cri;
use tokio::process::Child;

use super::records::{Container, NewContainer, Phase, Process, Sandbox};
use super::{Error, Runtime, file, handoff, new_id, now};
use crate::cgroup;
use crate::helper::{InitRequest, Program, Role, START_ERROR};
use crate::identity::{Identity, etc_files};
use crate::logs::{LogFile, Stream};
use crate::programs::sleep;
use crate::rootfs::{self, Inputs};
use crate::spawner::{self, PidNamespace};

/// Default `PATH` of containers: the image's own directories first.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/bin:/sbin:/usr/sbin:/usr/bin";
/// How long output is still read after a container has ended: then only processes outside it can hold the pipes open.
const DRAIN: Duration = Duration::from_secs(2);
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
        tokio::spawn(watch(Arc::clone(container), child, log, started_at));
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
        let steps = rootfs::plan(&Inputs {
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

/// Reads the output of a container and waits for its end.
async fn watch(
    container: Arc<Container>,
    mut child: Child,
    log: Option<Arc<LogFile>>,
    started_at: i64,
) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = tokio::spawn(async move {
        // Without a log file the output is still read, otherwise the container would block.
        let copy = async |stream, source: Option<_>| match (&log, source) {
            (Some(log), Some(source)) => log.copy(stream, source).await,
            (None, Some(mut source)) => {
                // A pipe that cannot be read has ended, too.
                let _ = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
            }
            (_, None) => {}
        };
        let stdout =
            stdout.map(|pipe| Box::new(pipe) as Box<dyn tokio::io::AsyncRead + Send + Unpin>);
        let stderr =
            stderr.map(|pipe| Box::new(pipe) as Box<dyn tokio::io::AsyncRead + Send + Unpin>);
        tokio::join!(copy(Stream::Stdout, stdout), copy(Stream::Stderr, stderr));
    });
    let abort = output.abort_handle();
    let status = child.wait().await;
    *container.process.lock() = None;
    if tokio::time::timeout(DRAIN, output).await.is_err() {
        abort.abort();
    }
    let exit_code = match status {
        Ok(status) => exit_code(status),
        Err(error) => {
            tracing::error!(container = container.id, %error, "Cannot wait for the container");
            255
        }
    };
    tracing::info!(container = container.id, exit_code, "Container ended");
    container.phase.send_replace(Phase::Exited {
        started_at,
        finished_at: now(),
        exit_code,
        reason: if exit_code == 0 { "Completed" } else { "Error" },
        message: String::new(),
    });
}

/// Returns the exit code as shells do: 128 + signal if a signal ended the process.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255)
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

/// Returns the program of a container: the pod's command, or else the image's, with the environment that other runtimes set.
fn program(
    config: &cri::ContainerConfig,
    image: &Image,
    identity: &Identity,
    hostname: &str,
) -> Result<Program, Error> {
    let command = if config.command.is_empty() {
        &image.entrypoint
    } else {
        &config.command
    };
    let argv: Vec<String> = command.iter().chain(&config.args).cloned().collect();
    if argv.is_empty() {
        return Err(Error::Invalid("no command specified"));
    }
    let argv = sleep::without_shell(&argv).unwrap_or(argv);
    let mut env: BTreeMap<&str, &str> = [
        ("PATH", DEFAULT_PATH),
        ("HOSTNAME", hostname),
        ("HOME", identity.home()),
    ]
    .into();
    env.extend(
        config
            .envs
            .iter()
            .map(|variable| (variable.key.as_str(), variable.value.as_str())),
    );
    let directory = if config.working_dir.is_empty() {
        "/"
    } else {
        &config.working_dir
    };
    Ok(Program {
        argv,
        env: env
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        directory: directory.into(),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups.clone(),
        no_new_privileges: config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .is_some_and(|security| security.no_new_privs),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn mk_program(config: &cri::ContainerConfig) -> Program {
        let image = Image {
            entrypoint: mk_words(&["/pause"]),
            ..Default::default()
        };
        program(config, &image, &Identity::default(), "web").unwrap()
    }

    #[rstest]
    #[case::image_alone(&[], &[], &["/pause"])]
    #[case::arguments_for_the_image(&[], &["-v"], &["/pause", "-v"])]
    #[case::command(&["/bin/sleep"], &["5"], &["/bin/sleep", "5"])]
    fn command_of_the_pod_replaces_that_of_the_image(
        #[case] command: &[&str],
        #[case] args: &[&str],
        #[case] expected: &[&str],
    ) {
        let config = cri::ContainerConfig {
            command: mk_words(command),
            args: mk_words(args),
            ..Default::default()
        };
        assert_eq!(mk_program(&config).argv, mk_words(expected));
    }

    #[test]
    fn nothing_to_run_is_refused() {
        let outcome = program(
            &cri::ContainerConfig::default(),
            &Image::default(),
            &Identity::default(),
            "",
        );
        assert!(matches!(
            outcome,
            Err(Error::Invalid("no command specified"))
        ));
    }

    #[test]
    fn environment_of_the_pod_wins_over_defaults() {
        let config = cri::ContainerConfig {
            envs: vec![
                cri::KeyValue {
                    key: "PATH".to_owned(),
                    value: "/x".to_owned(),
                },
                cri::KeyValue {
                    key: "A".to_owned(),
                    value: "1".to_owned(),
                },
            ],
            ..Default::default()
        };
        let env = mk_program(&config).env;
        let value = |name: &str| {
            env.iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(value("PATH"), Some("/x"));
        assert_eq!(value("A"), Some("1"));
        assert_eq!(value("HOSTNAME"), Some("web"));
        assert_eq!(value("HOME"), Some("/root"));
    }

    #[rstest]
    #[case::success(0, 0)]
    #[case::failure(3 << 8, 3)]
    #[case::killed(9, 137)]
    #[case::terminated(15, 143)]
    fn exit_codes_are_those_of_shells(#[case] raw: i32, #[case] expected: i32) {
        assert_eq!(exit_code(ExitStatus::from_raw(raw)), expected);
    }

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

//! Start of a container.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cluster_spec::images::Resolved;
use cri_runtime::logs::LogFile;
use cri_runtime::programs::sleep;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{FIRST_BACKOFF, LONGEST_BACKOFF, Run, Signal, Worker};
use crate::node::environment::{self, Addresses, expand};
use crate::node::events::Kind;
use crate::node::images::{self, Place};
use crate::node::kubelet::worker::{hooks, probes};
use crate::node::launcher::{Input, Launch};
use crate::node::rewrite::Paths;
use crate::node::status::facts::Role;

/// Default search path of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Where a pod finds the credentials of its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Default file of the termination message.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// Limits of the termination message: bytes of the file, and bytes and lines of the log.
const MESSAGE_LIMIT: usize = 4096;
const LOG_LIMIT: usize = 2048;
const LOG_LINES: usize = 80;
/// Directories that are private to a container unless a volume is mounted there.
const PRIVATE: [&str; 5] = ["/run", "/var/run", "/var/lib", "/tmp", "/dev/shm"];

/// The prepared environment in which programs of a container start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    paths: Paths,
    env: Vec<(String, String)>,
    directory: PathBuf,
    programs: std::collections::BTreeMap<PathBuf, PathBuf>,
    messages: PathBuf,
    log: PathBuf,
}

/// A program does not exist; the text is that of a container runtime.
#[derive(Debug, thiserror::Error)]
#[error("OCI runtime create failed: unable to start container process: {0}")]
pub(crate) struct NoProgram(String);

impl Prepared {
    /// Returns how to start a command in the container.
    pub(crate) fn launch(&self, argv: &[String]) -> Result<Launch, NoProgram> {
        let name = argv
            .first()
            .ok_or_else(|| NoProgram("no command specified".to_owned()))?;
        let mut argv = argv.to_vec();
        let program = match self.program(name) {
            Ok(program) => program,
            Err(error) => match (sleep::without_shell(&argv), self.program("/bin/sleep")) {
                (Some(words), Ok(program)) => {
                    argv = words;
                    program
                }
                _ => return Err(error),
            },
        };
        Ok(Launch {
            program,
            argv,
            env: self.env.clone(),
            directory: self.directory.clone(),
            input: Input::None,
        })
    }

    /// Returns how to start a command that comes from outside; paths in its words are paths of the container.
    pub(crate) fn command(&self, argv: &[String]) -> Result<Launch, NoProgram> {
        let mut words = argv.iter();
        let program = words.next().cloned();
        let words = words.map(|word| self.paths.rewrite(word));
        let argv: Vec<String> = program.into_iter().chain(words).collect();
        self.launch(&argv)
    }

    fn program(&self, name: &str) -> Result<PathBuf, NoProgram> {
        let known = |path: &Path| {
            let inside = path.to_string_lossy();
            let found = self.programs.get(path).cloned();
            found
                .or_else(|| self.paths.find(&inside))
                .or_else(|| Some(path.to_owned()))
                .filter(|program| program.is_file())
        };
        if name.contains('/') {
            let found = known(Path::new(name));
            return found.ok_or_else(|| {
                NoProgram(format!(
                    "exec: {name:?}: stat {name}: no such file or directory"
                ))
            });
        }
        PATH.split(':')
            .find_map(|directory| known(&Path::new(directory).join(name)))
            .ok_or_else(|| {
                NoProgram(format!(
                    "exec: {name:?}: executable file not found in $PATH"
                ))
            })
    }
}

impl Worker {
    /// Starts a container now; returns when to try again if that fails.
    pub(super) async fn start(&mut self, index: usize) -> Option<Instant> {
        let container = self.slots[index].facts.container.clone();
        let image = match self.pull(index, &container) {
            Ok(image) => image,
            Err(again) => return Some(again),
        };
        let argv = match self.prepare(index, &container, &image).await {
            Ok(argv) => argv,
            Err(problem) => {
                self.set_waiting(index, "CreateContainerConfigError", &problem);
                self.record_event(index, Kind::Warning, "Failed", format!("Error: {problem}"));
                return Some(Instant::now() + FIRST_BACKOFF);
            }
        };
        let slot = &mut self.slots[index];
        let is_restart = slot.facts.id.is_some();
        if is_restart {
            slot.facts.restarts += 1;
            slot.delay = if slot.delay.is_zero() {
                FIRST_BACKOFF
            } else {
                (slot.delay * 2).min(LONGEST_BACKOFF)
            };
            if let Run::Exited(end) = &slot.facts.run {
                slot.facts.last = Some(end.clone());
            }
        }
        let name = format!(
            "{}{}",
            uuid::Uuid::new_v4().simple(),
            uuid::Uuid::new_v4().simple()
        );
        slot.facts.id = Some(format!("numaresources-testbed://{name}"));
        slot.facts.image_id = Some(image.digest_reference.clone());
        slot.not_before = None;
        let attempt = slot.facts.restarts;
        self.record_event(index, Kind::Normal, "Created", "Container created");
        match self.spawn(index, &argv, attempt).await {
            Ok(()) => {
                self.record_event(index, Kind::Normal, "Started", "Container started");
                if self.slots[index].facts.role != Role::Ephemeral {
                    self.kubelet.managers.started(&self.uid, &container.name);
                }
                self.hook(index, attempt);
                self.watch(index, true);
                None
            }
            Err(problem) => Some(self.record_start_failure(index, &problem)),
        }
    }

    /// Returns the image, or when to try again.
    fn pull(&mut self, index: usize, container: &Container) -> Result<Resolved, Instant> {
        let name = container.image.clone().unwrap_or_default();
        let is_latest = !name.contains('@')
            && cluster_spec::images::Reference::parse(&name)
                .tag
                .is_none_or(|tag| tag == "latest");
        let policy = container.image_pull_policy.as_deref();
        let policy = policy.unwrap_or(if is_latest { "Always" } else { "IfNotPresent" });
        match (self.kubelet.images.resolve(&name), policy) {
            (Ok(image), "Always") => {
                self.record_event(
                    index,
                    Kind::Normal,
                    "Pulling",
                    format!("Pulling image {name:?}"),
                );
                let text = format!(
                    "Successfully pulled image {name:?} in 1ms (1ms including waiting). Image size: {} bytes.",
                    image.size()
                );
                self.record_event(index, Kind::Normal, "Pulled", text);
                Ok(image)
            }
            (Ok(image), _) => {
                let text = format!(
                    "Container image {name:?} already present on machine and can be accessed by the pod"
                );
                self.record_event(index, Kind::Normal, "Pulled", text);
                Ok(image)
            }
            (Err(_), "Never") => {
                let text =
                    format!("Container image {name:?} is not present with pull policy of Never");
                self.record_event(index, Kind::Warning, "ErrImageNeverPull", text.clone());
                self.record_event(index, Kind::Warning, "Failed", "Error: ErrImageNeverPull");
                self.set_waiting(index, "ErrImageNeverPull", &text);
                Err(Instant::now() + FIRST_BACKOFF)
            }
            (Err(error), _) => {
                let problem = format!("rpc error: code = NotFound desc = {error}");
                let again = Instant::now() + self.slots[index].pull_delay;
                let is_first = !matches!(&self.slots[index].facts.run, Run::Waiting { reason, .. } if reason == "ImagePullBackOff");
                self.record_event(
                    index,
                    Kind::Normal,
                    "Pulling",
                    format!("Pulling image {name:?}"),
                );
                let text = format!("Failed to pull image {name:?}: {problem}");
                self.record_event(index, Kind::Warning, "Failed", text);
                self.record_event(index, Kind::Warning, "Failed", "Error: ErrImagePull");
                if is_first {
                    self.set_waiting(index, "ErrImagePull", &problem);
                }
                let text = format!("Back-off pulling image {name:?}");
                self.record_event(index, Kind::Normal, "BackOff", text.clone());
                self.record_event(index, Kind::Warning, "Failed", "Error: ImagePullBackOff");
                self.set_waiting(
                    index,
                    "ImagePullBackOff",
                    &format!("{text}: ErrImagePull: {problem}"),
                );
                let slot = &mut self.slots[index];
                slot.pull_delay = (slot.pull_delay * 2).min(LONGEST_BACKOFF);
                slot.not_before = Some(again);
                Err(again)
            }
        }
    }

    fn set_waiting(&mut self, index: usize, reason: &str, message: &str) {
        self.slots[index].facts.run = Run::Waiting {
            reason: reason.to_owned(),
            message: Some(message.to_owned()),
        };
    }

    /// Prepares directories, environment and command line of a container.
    async fn prepare(
        &mut self,
        index: usize,
        container: &Container,
        image: &Resolved,
    ) -> Result<Vec<String>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let kubelet = Arc::clone(&self.kubelet);
        let node = kubelet.addresses.node();
        let address = self.address.unwrap_or(node);
        let addresses = Addresses { pod: address, node };
        let own = kubelet.layout.container(&self.uid, &container.name);
        let home = own.join("home");
        let directory = own.join("root");
        for path in [&home, &directory] {
            fs_err::create_dir_all(path).map_err(|error| text(&error))?;
        }
        let mut given: Vec<(String, String)> = kubelet.server.environment();
        given.push(("PATH".to_owned(), PATH.to_owned()));
        let name = self.pod.metadata.name.clone().unwrap_or_default();
        given.push(("HOSTNAME".to_owned(), name));
        kubelet
            .managers
            .pre_start(&self.uid, &container.name)
            .await?;
        let answers = kubelet.managers.answers(&self.uid, &container.name);
        for answer in &answers {
            given.extend(answer.envs.clone());
        }
        let mut env =
            environment::variables(&kubelet.client, &self.pod, container, addresses, given)
                .await
                .map_err(|error| text(&error))?;
        let paths = self
            .paths(container, &own, &answers)
            .map_err(|error| text(&error))?;
        for (link, target) in images::links(&paths) {
            let link = home.join(link);
            if !link.is_symlink() {
                fs_err::os::unix::fs::symlink(target, link).map_err(|error| text(&error))?;
            }
        }
        let mut argv = container.command.clone().unwrap_or_default();
        if argv.is_empty() {
            argv.clone_from(&image.image.entrypoint);
        }
        argv.extend(container.args.iter().flatten().cloned());
        let argv: Vec<String> = argv.iter().map(|word| expand(word, &env)).collect();
        for (_, value) in &mut env {
            *value = paths.rewrite(value);
        }
        // These are paths of this machine, so they are added after the rewriting.
        let mut own_paths = Vec::new();
        if !env.iter().any(|(name, _)| name == "HOME") {
            own_paths.push(("HOME", home.clone()));
        }
        let kubeconfig_file = home.join("kubeconfig");
        let account = paths.find(ACCOUNT);
        if let Some(account) = &account {
            fs_err::write(&kubeconfig_file, kubeconfig(&kubelet.server.url, account))
                .map_err(|error| text(&error))?;
            own_paths.push(("KUBECONFIG", kubeconfig_file.clone()));
        }
        for (name, path) in own_paths {
            env.push((name.to_owned(), path.to_string_lossy().into_owned()));
        }
        let working = container.working_dir.as_deref();
        let working = working.and_then(|path| paths.find(path));
        let messages = own.join("termination-log");
        let log = kubelet
            .layout
            .pod_logs(
                self.pod.metadata.namespace.as_deref().unwrap_or_default(),
                self.pod.metadata.name.as_deref().unwrap_or_default(),
                &self.uid,
            )
            .join(&container.name);
        let mut words = argv.into_iter();
        let program = words.next();
        let argv = program
            .into_iter()
            .chain(words.map(|word| paths.rewrite(&word)))
            .collect();
        let argv = images::adapt(
            argv,
            &Place {
                address,
                paths: &paths,
                home: &home,
                kubeconfig: account.is_some().then_some(&kubeconfig_file),
                sysfs: &kubelet.layout.host("/sys"),
                device_plugins: &kubelet.layout.kubelet("device-plugins"),
            },
        );
        self.prepared[index] = Arc::new(Prepared {
            paths,
            env,
            directory: working.unwrap_or(directory),
            programs: image.image.programs.clone(),
            messages,
            log,
        });
        Ok(argv)
    }

    /// Returns the paths of a container and their places on this machine.
    fn paths(
        &self,
        container: &Container,
        own: &Path,
        answers: &[podresources::deviceplugin::v1beta1::ContainerAllocateResponse],
    ) -> std::io::Result<Paths> {
        let layout = &self.kubelet.layout;
        let mut paths = Paths::default();
        for path in PRIVATE {
            let path_outside = own.join("root").join(path.trim_start_matches('/'));
            fs_err::create_dir_all(&path_outside)?;
            paths.add(path, path_outside);
        }
        paths.add("/sys", layout.host("/sys"));
        for path in ["/proc/cpuinfo", "/proc/meminfo"] {
            paths.add(path, layout.host(path));
        }
        let volumes = self.volumes.as_ref();
        for mount in container.volume_mounts.iter().flatten() {
            let Some(volume) = volumes.and_then(|volumes| volumes.get(&mount.name)) else {
                continue;
            };
            let outside = match mount.sub_path.as_deref() {
                Some(path) if !path.is_empty() => volume.join(path),
                _ => volume.clone(),
            };
            paths.add(&mount.mount_path, outside.clone());
            // `/run` is another name of `/var/run`.
            if let Some(rest) = mount.mount_path.strip_prefix("/var/run/") {
                paths.add(&format!("/run/{rest}"), outside);
            }
        }
        for mount in answers.iter().flat_map(|answer| &answer.mounts) {
            paths.add(&mount.container_path, layout.host(&mount.host_path));
        }
        let messages = container.termination_message_path.as_deref();
        paths.add(
            messages.unwrap_or(TERMINATION_LOG),
            own.join("termination-log"),
        );
        Ok(paths)
    }

    /// Starts the process.
    async fn spawn(&mut self, index: usize, argv: &[String], attempt: i32) -> Result<(), String> {
        let prepared = &self.prepared[index];
        let mut launch = prepared.launch(argv).map_err(|error| error.to_string())?;
        let container = &self.slots[index].facts.container;
        launch.input = match (container.stdin, container.stdin_once) {
            (Some(true), Some(true)) => Input::Once,
            (Some(true), _) => Input::Open,
            _ => Input::None,
        };
        // An earlier attempt may have left a message.
        let _ = std::fs::remove_file(&prepared.messages);
        let log = prepared.log.join(format!("{attempt}.log"));
        let log = LogFile::open(&log).map_err(|error| error.to_string())?;
        let process = self
            .kubelet
            .launcher
            .start_logged(&launch, Arc::new(log))
            .await
            .map_err(|error| error.to_string())?;
        let (ended, sender) = (process.clone(), self.sender.clone());
        tokio::spawn(async move {
            let exit = ended.ended().await;
            // The pod may be gone by now.
            let _ = sender.send(Signal::Exited {
                index,
                attempt,
                exit,
            });
        });
        let slot = &mut self.slots[index];
        let container = &slot.facts.container;
        slot.facts.started = container.startup_probe.is_none();
        slot.facts.ready = slot.facts.started && container.readiness_probe.is_none();
        slot.facts.run = Run::Running {
            since: Timestamp::now(),
        };
        slot.began = Some(Instant::now());
        slot.process = Some(process);
        Ok(())
    }

    /// Records that a container could not be started; returns when to try again.
    fn record_start_failure(&mut self, index: usize, problem: &str) -> Instant {
        self.record_event(index, Kind::Warning, "Failed", format!("Error: {problem}"));
        let slot = &mut self.slots[index];
        let again = Instant::now() + slot.delay;
        slot.not_before = Some(again);
        slot.facts.last = Some(ContainerStateTerminated {
            exit_code: 128,
            reason: Some("StartError".to_owned()),
            message: Some(problem.to_owned()),
            started_at: Some(Time(Timestamp::UNIX_EPOCH)),
            finished_at: Some(Time(Timestamp::now())),
            container_id: slot.facts.id.clone(),
            signal: None,
        });
        self.set_waiting(index, "RunContainerError", problem);
        again
    }

    /// Runs the `postStart` hook.
    fn hook(&mut self, index: usize, attempt: i32) {
        let container = self.slots[index].facts.container.clone();
        let hooks = container.lifecycle.as_ref();
        let Some(hook) = hooks.and_then(|hooks| hooks.post_start.clone()) else {
            return;
        };
        let (kubelet, prepared) = (Arc::clone(&self.kubelet), Arc::clone(&self.prepared[index]));
        let address = self.address.unwrap_or_else(|| kubelet.addresses.node());
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let done = hooks::run(&kubelet, &prepared, &container, address, &hook).await;
            if let Err(problem) = done {
                tracing::debug!(problem, "Hook after the start of a container failed");
                // The pod may be gone by now.
                let _ = sender.send(Signal::HookFailed { index, attempt });
            }
        });
    }

    /// Starts the probes of a running container. With a startup probe only that one starts first, until it succeeds.
    pub(super) fn watch(&mut self, index: usize, begins: bool) {
        let slot = &self.slots[index];
        let container = &slot.facts.container;
        let all = [
            (probes::Kind::Startup, container.startup_probe.clone()),
            (probes::Kind::Liveness, container.liveness_probe.clone()),
            (probes::Kind::Readiness, container.readiness_probe.clone()),
        ];
        let has_startup = container.startup_probe.is_some();
        let due = all.into_iter().filter(|(kind, _)| {
            let is_startup = *kind == probes::Kind::Startup;
            (begins && has_startup) == is_startup
        });
        let tasks: Vec<_> = due
            .filter_map(|(kind, probe)| {
                let probe = probes::Subject {
                    kind,
                    probe: probe?,
                    address: self
                        .address
                        .unwrap_or_else(|| self.kubelet.addresses.node()),
                    container: container.clone(),
                    prepared: Arc::clone(&self.prepared[index]),
                    began: slot.began.unwrap_or_else(Instant::now),
                };
                let (kubelet, sender) = (Arc::clone(&self.kubelet), self.sender.clone());
                let attempt = slot.facts.restarts;
                Some(tokio::spawn(probes::run(kubelet, probe, move |outcome| {
                    let _ = sender.send(Signal::Probed {
                        index,
                        attempt,
                        kind,
                        outcome,
                    });
                })))
            })
            .collect();
        self.slots[index].watchers.extend(tasks);
    }

    /// Returns the termination message of a container.
    pub(super) fn termination_message(&self, index: usize, code: i32) -> Option<String> {
        let prepared = &self.prepared[index];
        let written = std::fs::read(&prepared.messages).unwrap_or_default();
        let written = String::from_utf8_lossy(&written[..written.len().min(MESSAGE_LIMIT)]);
        if !written.is_empty() {
            return Some(written.into_owned());
        }
        let container = &self.slots[index].facts.container;
        let from_log =
            container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if code == 0 || !from_log {
            return None;
        }
        let log = prepared
            .log
            .join(format!("{}.log", self.slots[index].facts.restarts));
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // Time, stream and tag precede the text of each line.
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.splitn(4, ' ').nth(3))
            .collect();
        let lines = &lines[lines.len().saturating_sub(LOG_LINES)..];
        let mut text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        while text.len() > LOG_LIMIT {
            text.remove(0);
        }
        Some(text).filter(|text| !text.is_empty())
    }
}

/// Returns a kubeconfig for a pod's service account; clients read the token file again when it changes.
fn kubeconfig(url: &str, account: &Path) -> String {
    let file = |name: &str| account.join(name).to_string_lossy().into_owned();
    let namespace = std::fs::read_to_string(account.join("namespace")).unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": url, "certificate-authority": file("ca.crt")}}],
        "users": [{"name": "account", "user": {"tokenFile": file("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "account", "namespace": namespace}}],
        "current-context": "pod",
    })
    .to_string()
}

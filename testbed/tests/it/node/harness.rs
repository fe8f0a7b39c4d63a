//! A node in namespaces of its own, and a CRI client for it.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cluster_spec::images::Image;
use cri_runtime::control::Client;
use cri_runtime::spec::NodeSpec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podresources::cri::v1 as cri;
use podresources::cri::v1::image_service_client::ImageServiceClient;
use podresources::cri::v1::runtime_service_client::RuntimeServiceClient;
use podresources::socket::Socket;
use testbed::eventually;
use tonic::transport::Channel;

/// The image that the node knows.
pub(super) const IMAGE: &str = "localhost/numaresources/stack:dev";
/// The address of the node.
pub(super) const NODE_ADDRESS: &str = "198.18.0.10";
/// Time limit for any operation.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A running node; it ends completely when this is dropped.
pub(super) struct Node {
    /// Root directory of everything that the node writes.
    pub(super) directory: tempfile::TempDir,
    pub(super) runtime: RuntimeServiceClient<Channel>,
    pub(super) images: ImageServiceClient<Channel>,
    pub(super) control: Client,
    child: Child,
}

impl Node {
    /// Starts a node and waits until it answers.
    pub(super) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a node like [`Self::start`], with a changed specification.
    pub(super) async fn start_with(change: impl FnOnce(&mut NodeSpec)) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test makes namespaces and mounts: it must run as root"
        );
        let directory = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_numaresources-testbed"));
        let image = Image {
            programs: ["/pause", "/bin/sleep", "/bin/numacell"]
                .map(|path| (path.into(), program.to_owned()))
                .into(),
            user: None,
            entrypoint: vec!["/pause".to_owned()],
        };
        let mut spec = NodeSpec {
            node: "worker-0".to_owned(),
            cri_socket: directory.path().join("cri.sock"),
            control_socket: directory.path().join("control.sock"),
            state_dir: directory.path().join("state"),
            pod_gateway: "10.244.7.1".parse().unwrap(),
            pod_prefix: 24,
            node_address: NODE_ADDRESS.parse().unwrap(),
            images: [("localhost/numaresources/stack".to_owned(), image)].into(),
            host_path_overrides: BTreeMap::new(),
        };
        change(&mut spec);
        let spec_file = directory.path().join("node.json");
        fs_err::write(&spec_file, serde_json::to_vec(&spec).unwrap()).unwrap();
        let log = fs_err::File::create(directory.path().join("node.log")).unwrap();
        let child = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "--propagation", "private", "--"])
            .arg(program)
            .args(["node", "--spec"])
            .arg(&spec_file)
            .stdin(Stdio::null())
            .stderr(Stdio::from(log.into_parts().0))
            .process_group(0)
            .spawn()
            .expect("unshare of util-linux starts");
        let channel = Socket::new(&spec.cri_socket).unwrap().channel();
        let mut node = Self {
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            control: Client::new(&spec.control_socket),
            directory,
            child,
        };
        let answers = eventually(DEADLINE, async || {
            let version = node.runtime.version(cri::VersionRequest::default()).await;
            let ended = node.child.try_wait().unwrap();
            let text = || format!("the node does not answer ({ended:?}):\n{}", node.log());
            assert!(version.is_ok() || ended.is_none(), "{}", text());
            version.map_err(|_| text())
        });
        answers.await.unwrap();
        node
    }

    /// Returns the log of the node.
    pub(super) fn log(&self) -> String {
        fs_err::read_to_string(self.directory.path().join("node.log")).unwrap()
    }

    /// Returns the id of the node's process as the test sees it.
    pub(super) fn pid(&self) -> i32 {
        children_of(self.child.id() as i32)[0]
    }

    /// Kills only the node's process, at once.
    pub(super) fn kill(&self) {
        kill(Pid::from_raw(self.pid()), Signal::SIGKILL).unwrap();
    }

    /// Creates a sandbox.
    pub(super) async fn sandbox(&mut self, config: cri::PodSandboxConfig) -> String {
        let request = cri::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: String::new(),
        };
        let answer = self.runtime.run_pod_sandbox(request).await;
        answer.unwrap().into_inner().pod_sandbox_id
    }

    /// Creates a container.
    pub(super) async fn create(&mut self, sandbox: &str, config: cri::ContainerConfig) -> String {
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: None,
        };
        let answer = self.runtime.create_container(request).await;
        answer.unwrap().into_inner().container_id
    }

    /// Starts a container.
    pub(super) async fn start_container(&mut self, id: &str) -> Result<(), tonic::Status> {
        let request = cri::StartContainerRequest {
            container_id: id.to_owned(),
        };
        self.runtime.start_container(request).await.map(|_| ())
    }

    /// Creates and starts a container that runs `command`.
    pub(super) async fn run(&mut self, sandbox: &str, command: &[&str]) -> String {
        let id = self.create(sandbox, mk_container("main", command)).await;
        self.start_container(&id).await.unwrap();
        id
    }

    /// Returns the status of a container.
    pub(super) async fn status(&mut self, id: &str) -> cri::ContainerStatus {
        let request = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.runtime.container_status(request).await;
        answer.unwrap().into_inner().status.unwrap()
    }

    /// Waits until a container has ended; returns its status.
    pub(super) async fn ended(&mut self, id: &str) -> cri::ContainerStatus {
        let ended = eventually(DEADLINE, async || {
            let status = self.status(id).await;
            if status.state() == cri::ContainerState::ContainerExited {
                return Ok(status);
            }
            Err(format!("still {status:?}"))
        });
        ended.await.unwrap()
    }

    /// Returns the status of a sandbox.
    pub(super) async fn sandbox_status(&mut self, id: &str) -> cri::PodSandboxStatus {
        let request = cri::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.runtime.pod_sandbox_status(request).await;
        answer.unwrap().into_inner().status.unwrap()
    }

    /// Runs a command in a container.
    pub(super) async fn exec(&mut self, id: &str, command: &[&str]) -> (i32, String) {
        let request = cri::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: mk_words(command),
            timeout: 10,
        };
        let answer = self.runtime.exec_sync(request).await.unwrap().into_inner();
        let mut text = String::from_utf8(answer.stdout).unwrap();
        text.push_str(&String::from_utf8(answer.stderr).unwrap());
        (answer.exit_code, text)
    }

    /// Returns the log file of container `main`.
    pub(super) fn container_log(&self) -> String {
        fs_err::read_to_string(self.directory.path().join("logs/main.log")).unwrap()
    }

    /// Returns the configuration of a sandbox for pod `ns/pod`.
    pub(super) fn mk_sandbox(&self, pod: &str) -> cri::PodSandboxConfig {
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: pod.to_owned(),
                uid: format!("uid-{pod}"),
                namespace: "ns".to_owned(),
                attempt: 0,
            }),
            hostname: pod.to_owned(),
            log_directory: self.directory.path().join("logs").display().to_string(),
            ..Default::default()
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Some tests have ended the process already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the configuration of a container from the image that the node knows.
pub(super) fn mk_container(name: &str, command: &[&str]) -> cri::ContainerConfig {
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(cri::ImageSpec {
            image: IMAGE.to_owned(),
            ..Default::default()
        }),
        command: mk_words(command),
        log_path: format!("{name}.log"),
        linux: Some(cri::LinuxContainerConfig {
            security_context: Some(cri::LinuxContainerSecurityContext::default()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn mk_words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the direct children of a process.
pub(super) fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for task in fs_err::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let text = fs_err::read_to_string(task.unwrap().path().join("children")).unwrap();
        children.extend(
            text.split_whitespace()
                .map(|pid| pid.parse::<i32>().unwrap()),
        );
    }
    children
}

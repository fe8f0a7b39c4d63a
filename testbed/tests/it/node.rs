//! Sandboxes and containers of the real node runtime, through its sockets.

mod harness;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use cri_runtime::control::{Signal, State, Target};
use cri_runtime::streaming::spdy::{self, Frame};
use harness::{DEADLINE, IMAGE, NODE_ADDRESS, Node, children_of, mk_container, mk_words};
use nix::sched::{CloneFlags, setns};
use podresources::cri::v1 as cri;
use podresources::cri::v1::ContainerState::{ContainerExited, ContainerRunning};

fn security(config: &mut cri::ContainerConfig) -> &mut cri::LinuxContainerSecurityContext {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default()
}

fn namespaces(options: cri::NamespaceOption) -> cri::LinuxPodSandboxConfig {
    cri::LinuxPodSandboxConfig {
        security_context: Some(cri::LinuxSandboxSecurityContext {
            namespace_options: Some(options),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn container_lives_from_creation_to_removal() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node
        .create(&sandbox, mk_container("main", &["/bin/sleep", "infinity"]))
        .await;
    assert_eq!(
        node.status(&container).await.state(),
        cri::ContainerState::ContainerCreated
    );
    node.start_container(&container).await.unwrap();
    let status = node.status(&container).await;
    assert_eq!(status.state(), ContainerRunning);
    assert!(status.started_at >= status.created_at);

    let stopping = Instant::now();
    node.runtime
        .stop_container(cri::StopContainerRequest {
            container_id: container.clone(),
            timeout: 60,
        })
        .await
        .unwrap();
    assert!(
        stopping.elapsed() < DEADLINE,
        "the built-in sleep ends on SIGTERM"
    );
    let status = node.status(&container).await;
    assert_eq!(status.state(), ContainerExited);
    assert_eq!((status.exit_code, status.reason.as_str()), (143, "Error"));
    assert!(status.finished_at > status.started_at);

    node.runtime
        .stop_pod_sandbox(cri::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.clone(),
        })
        .await
        .unwrap();
    let status = node.sandbox_status(&sandbox).await;
    assert_eq!(status.state(), cri::PodSandboxState::SandboxNotready);
    node.runtime
        .remove_pod_sandbox(cri::RemovePodSandboxRequest {
            pod_sandbox_id: sandbox,
        })
        .await
        .unwrap();
    let left = node
        .runtime
        .list_containers(cri::ListContainersRequest::default())
        .await
        .unwrap();
    assert_eq!(left.into_inner().containers, []);
    let directory = node.directory.path().join("state/containers");
    assert_eq!(fs_err::read_dir(directory).unwrap().count(), 0);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn exit_code_and_output_are_kept() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let script = "echo out; echo err >&2; printf unfinished; exit 3";
    let container = node.run(&sandbox, &["sh", "-c", script]).await;
    let status = node.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    let log = node.container_log();
    for line in [
        " stdout F out\n",
        " stderr F err\n",
        " stdout P unfinished\n",
    ] {
        assert!(log.contains(line), "{line:?} in {log}");
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn successful_container_is_completed() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["true"]).await;
    let status = node.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (0, "Completed"));
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn image_without_a_command_pauses_and_ends_well() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &[]).await;
    node.runtime
        .stop_container(cri::StopContainerRequest {
            container_id: container.clone(),
            timeout: 60,
        })
        .await
        .unwrap();
    assert_eq!(node.status(&container).await.exit_code, 0);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn container_that_ignores_sigterm_is_killed_after_its_grace() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    // The kernel does not deliver a signal to the first process of a PID namespace unless the process handles it.
    let container = node.run(&sandbox, &["/usr/bin/sleep", "1000"]).await;
    node.runtime
        .stop_container(cri::StopContainerRequest {
            container_id: container.clone(),
            timeout: 1,
        })
        .await
        .unwrap();
    assert_eq!(node.status(&container).await.exit_code, 137);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn missing_program_is_a_start_error() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node
        .create(&sandbox, mk_container("main", &["no-such-program"]))
        .await;
    let error = node.start_container(&container).await.unwrap_err();
    let reason = r#"exec: "no-such-program": executable file not found in $PATH"#;
    assert!(error.message().contains(reason), "{error}");
    let status = node.status(&container).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (128, "StartError")
    );
    assert!(status.message.contains(reason), "{}", status.message);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn unknown_image_is_not_found() {
    let mut node = Node::start().await;
    let image = |image: &str| {
        Some(cri::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        })
    };
    let pull = |image| cri::PullImageRequest {
        image,
        ..Default::default()
    };
    let pulled = node.images.pull_image(pull(image(IMAGE))).await.unwrap();
    assert!(pulled.into_inner().image_ref.starts_with("sha256:"));
    let error = node
        .images
        .pull_image(pull(image("quay.io/no/such:1")))
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
    assert!(
        error.message().ends_with("quay.io/no/such:1: not found"),
        "{error}"
    );
    let status = node
        .images
        .image_status(cri::ImageStatusRequest {
            image: image("quay.io/no/such:1"),
            verbose: false,
        })
        .await
        .unwrap();
    assert_eq!(status.into_inner().image, None);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn recorded_cpu_set_is_shown_by_status_exec_and_control() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let mut config = mk_container("main", &["/pause"]);
    config.linux.get_or_insert_default().resources = Some(cri::LinuxContainerResources {
        cpuset_cpus: "0-31".to_owned(),
        memory_limit_in_bytes: 1 << 30,
        ..Default::default()
    });
    let container = node.create(&sandbox, config).await;
    node.start_container(&container).await.unwrap();
    node.runtime
        .update_container_resources(cri::UpdateContainerResourcesRequest {
            container_id: container.clone(),
            linux: Some(cri::LinuxContainerResources {
                cpuset_cpus: "18-27".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        })
        .await
        .unwrap();
    let resources = node.status(&container).await.resources.unwrap();
    let resources = resources.linux.unwrap();
    assert_eq!(resources.cpuset_cpus, "18-27");
    assert_eq!(resources.memory_limit_in_bytes, 1 << 30);
    let shown = node
        .exec(&container, &["cat", "/sys/fs/cgroup/cpuset.cpus.effective"])
        .await;
    assert_eq!(shown, (0, "18-27\n".to_owned()));
    let facts = node.control.containers().unwrap();
    assert_eq!(facts[0].cpus, "18-27");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn mounts_users_and_read_only_roots_are_as_asked_for() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let volume = node.directory.path().join("volume");
    fs_err::create_dir(&volume).unwrap();
    fs_err::write(volume.join("file"), "content").unwrap();
    let mount = |container_path: &str, readonly| cri::Mount {
        host_path: volume.display().to_string(),
        container_path: container_path.to_owned(),
        readonly,
        ..Default::default()
    };
    let mut config = mk_container("main", &["/pause"]);
    config.mounts = vec![
        mount("/volume/rw", false),
        mount("/volume/ro", true),
        cri::Mount {
            host_path: node.directory.path().join("made").display().to_string(),
            ..mount("/volume/made", false)
        },
    ];
    config.working_dir = "/volume/rw".to_owned();
    config.envs = vec![cri::KeyValue {
        key: "GREETING".to_owned(),
        value: "hello world".to_owned(),
    }];
    let value = |value| Some(cri::Int64Value { value });
    let context = security(&mut config);
    context.run_as_user = value(1234);
    context.run_as_group = value(2345);
    context.supplemental_groups = vec![3456];
    context.readonly_rootfs = true;
    fs_err::set_permissions(&volume, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let container = node.create(&sandbox, config).await;
    node.start_container(&container).await.unwrap();

    let script = "id -u; id -g; id -G; pwd; cat /volume/ro/file; echo; echo $GREETING; hostname
        touch /volume/rw/new && echo written; touch /volume/ro/new 2>/dev/null || echo refused
        touch /tmp/new 2>/dev/null || echo read-only; test -d /volume/made && echo made";
    let (code, text) = node.exec(&container, &["sh", "-c", script]).await;
    assert_eq!(code, 0, "{text}");
    let expected = "1234\n2345\n2345 3456\n/volume/rw\ncontent\nhello world\np\nwritten\nrefused\nread-only\nmade\n";
    assert_eq!(text, expected);
    assert!(volume.join("new").exists());
    let user = node.status(&container).await.user.unwrap().linux.unwrap();
    assert_eq!(
        (user.uid, user.gid, user.supplemental_groups),
        (1234, 2345, vec![3456])
    );
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn container_sees_its_own_processes_and_root_only() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["/pause"]).await;
    let (_, name) = node.exec(&container, &["cat", "/proc/1/cmdline"]).await;
    assert_eq!(name, "/pause\0");
    let (_, top) = node.exec(&container, &["ls", "/"]).await;
    assert!(top.contains("pause\n"), "{top}");
    let own = node.directory.path().display().to_string();
    let (code, text) = node.exec(&container, &["ls", &own]).await;
    assert_ne!(code, 0, "the node's files are not there: {text}");
    let (code, text) = node
        .exec(
            &container,
            &["sh", "-c", "echo 1 > /proc/sys/vm/overcommit_memory"],
        )
        .await;
    assert_ne!(code, 0, "kernel parameters are protected: {text}");
    let (code, text) = node
        .exec(&container, &["sh", "-c", ": > /usr/bin/new"])
        .await;
    assert_ne!(code, 0, "programs of the host are protected: {text}");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn host_path_override_puts_another_directory_in_place() {
    let other = tempfile::tempdir().unwrap();
    fs_err::write(other.path().join("kubelet.sock"), "fault").unwrap();
    let replacement = other.path().to_owned();
    let mut node = Node::start_with(move |spec| {
        let original = "/var/lib/kubelet/pod-resources".into();
        spec.host_path_overrides = [(original, replacement)].into();
    })
    .await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let mut config = mk_container("main", &["/pause"]);
    config.mounts = vec![cri::Mount {
        host_path: "/var/lib/kubelet/pod-resources".to_owned(),
        container_path: "/podresources".to_owned(),
        ..Default::default()
    }];
    let container = node.create(&sandbox, config).await;
    node.start_container(&container).await.unwrap();
    let shown = node
        .exec(&container, &["cat", "/podresources/kubelet.sock"])
        .await;
    assert_eq!(shown, (0, "fault".to_owned()));
}

/// Runs `work` in a thread in the network namespace of `pid`.
fn in_network_of<T: Send + 'static>(pid: i32, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = fs_err::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    std::thread::spawn(move || {
        setns(namespace.file(), CloneFlags::CLONE_NEWNET).unwrap();
        work()
    })
    .join()
    .unwrap()
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn pod_is_reached_at_its_reported_address_from_the_node() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    node.run(&sandbox, &["/pause"]).await;
    let address = node.sandbox_status(&sandbox).await.network.unwrap().ip;
    assert_eq!(address, "10.244.7.2");
    let pod = children_of(node.pid())[0];
    let listener = in_network_of(pod, || TcpListener::bind("0.0.0.0:8080").unwrap());
    let target = format!("{address}:8080").parse().unwrap();
    let connected = in_network_of(node.pid(), move || {
        TcpStream::connect_timeout(&target, DEADLINE)
    });
    connected.unwrap();
    // The pod's own loopback device is up, too.
    let target = "127.0.0.1:8080".parse().unwrap();
    in_network_of(pod, move || TcpStream::connect_timeout(&target, DEADLINE)).unwrap();
    drop(listener);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn pods_have_addresses_of_their_own_and_give_them_back() {
    let mut node = Node::start().await;
    let first = node.sandbox(node.mk_sandbox("p1")).await;
    let second = node.sandbox(node.mk_sandbox("p2")).await;
    let mut addresses = Vec::new();
    for sandbox in [&first, &second] {
        addresses.push(node.sandbox_status(sandbox).await.network.unwrap().ip);
    }
    assert_eq!(addresses, ["10.244.7.2", "10.244.7.3"]);
    let links = || {
        fs_err::read_to_string(format!("/proc/{}/net/dev", node.pid()))
            .unwrap()
            .matches("pod")
            .count()
    };
    // The bridge is counted, too.
    assert_eq!(links(), 3);
    node.runtime
        .stop_pod_sandbox(cri::StopPodSandboxRequest {
            pod_sandbox_id: first,
        })
        .await
        .unwrap();
    let links = fs_err::read_to_string(format!("/proc/{}/net/dev", node.pid())).unwrap();
    assert_eq!(links.matches("pod").count(), 2, "{links}");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn host_network_pod_reports_the_address_of_the_node() {
    let mut node = Node::start().await;
    let mut config = node.mk_sandbox("p");
    config.linux = Some(namespaces(cri::NamespaceOption {
        network: cri::NamespaceMode::Node.into(),
        pid: cri::NamespaceMode::Container.into(),
        ..Default::default()
    }));
    let sandbox = node.sandbox(config).await;
    let status = node.sandbox_status(&sandbox).await;
    assert_eq!(status.network.unwrap().ip, NODE_ADDRESS);
    let container = node.run(&sandbox, &["/pause"]).await;
    let (_, devices) = node.exec(&container, &["cat", "/proc/net/dev"]).await;
    assert!(devices.contains("pods0:"), "{devices}");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn containers_of_a_pod_may_share_their_processes() {
    let mut node = Node::start().await;
    let mut config = node.mk_sandbox("p");
    config.linux = Some(namespaces(cri::NamespaceOption::default()));
    let sandbox = node.sandbox(config).await;
    let first = node.run(&sandbox, &["/bin/sleep", "1234"]).await;
    let second = node
        .create(&sandbox, mk_container("second", &["/pause"]))
        .await;
    node.start_container(&second).await.unwrap();
    let (_, commands) = node
        .exec(&second, &["sh", "-c", "cat /proc/[0-9]*/cmdline"])
        .await;
    assert!(commands.contains("/bin/sleep\u{0}1234"), "{commands:?}");
    let (_, init) = node.exec(&second, &["cat", "/proc/1/cmdline"]).await;
    assert!(
        init.contains("container-init"),
        "the holder is first: {init:?}"
    );
    node.runtime
        .stop_container(cri::StopContainerRequest {
            container_id: first.clone(),
            timeout: 60,
        })
        .await
        .unwrap();
    assert_eq!(node.status(&second).await.state(), ContainerRunning);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn signals_of_the_control_socket_freeze_and_kill() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["/bin/sleep", "infinity"]).await;
    let target = Target::new("ns", "p", "main");
    let process = children_of(node.pid())[0];
    let state = || {
        let stat = fs_err::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    node.control.signal(&target, Signal::Stop).unwrap();
    let start = Instant::now();
    while state() != 'T' {
        assert!(start.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(node.status(&container).await.state(), ContainerRunning);
    node.control.signal(&target, Signal::Cont).unwrap();
    node.control.signal(&target, Signal::Kill).unwrap();
    assert_eq!(node.ended(&container).await.exit_code, 137);
    let facts = node.control.containers().unwrap();
    assert_eq!(
        (facts[0].state, facts[0].exit_code),
        (State::Exited, Some(137))
    );
    let error = node.control.signal(&target, Signal::Kill).unwrap_err();
    assert_eq!(error.to_string(), "no running container ns/p/main");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn commands_run_through_the_control_socket() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    node.run(&sandbox, &["/pause"]).await;
    let target = Target::new("ns", "p", "main");
    let output = node
        .control
        .exec(
            &target,
            &["sh", "-c", "echo a; echo b >&2; exit 4"],
            DEADLINE,
        )
        .unwrap();
    assert_eq!(
        (
            output.exit_code,
            output.stdout.as_str(),
            output.stderr.as_str()
        ),
        (4, "a\n", "b\n")
    );
    let error = node
        .control
        .exec(&target, &["/no/such"], DEADLINE)
        .unwrap_err();
    assert!(
        error.to_string().contains("no such file or directory"),
        "{error}"
    );
}

/// Returns a frame that opens a stream of a command, with an uncompressed header.
fn mk_stream(stream: u32, kind: &str) -> Vec<u8> {
    let mut plain = 1_u32.to_be_bytes().to_vec();
    for text in ["streamtype", kind] {
        plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
        plain.extend_from_slice(text.as_bytes());
    }
    let length = plain.len() as u16;
    let mut body = stream.to_be_bytes().to_vec();
    body.extend_from_slice(&[0; 6]);
    if stream == 1 {
        body.extend_from_slice(&[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2]);
    }
    body.push(0);
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(&(!length).to_le_bytes());
    body.extend_from_slice(&plain);
    let mut frame = vec![0x80, 3, 0, 1, 0];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(&body);
    frame
}

/// Runs a command with input as a client of the API does; returns the output of each stream.
fn stream_command(url: &str, input: &[u8]) -> BTreeMap<u32, String> {
    let (address, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
        socket.write_all(&mk_stream(stream, kind)).unwrap();
    }
    socket.write_all(&spdy::data(3, input, true)).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let mut decoder = spdy::Decoder::default();
    let mut upgraded = false;
    let mut streams: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        let length = socket.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "hung up after {streams:?}");
        if upgraded {
            decoder.feed(&buffer[..length]);
        } else {
            answer.extend_from_slice(&buffer[..length]);
            if let Some(at) = answer.windows(4).position(|end| end == b"\r\n\r\n") {
                assert!(answer.starts_with(b"HTTP/1.1 101 "));
                upgraded = true;
                decoder.feed(&answer[at + 4..]);
            }
        }
        while let Some(frame) = decoder.next_frame().unwrap() {
            match frame {
                Frame::Data { stream, bytes, .. } => {
                    let text = String::from_utf8(bytes).unwrap();
                    streams.entry(stream).or_default().push_str(&text);
                }
                Frame::GoAway => return streams,
                _ => {}
            }
        }
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn command_with_streams_gets_input_and_gives_output_errors_and_exit_code() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["/pause"]).await;
    let request = cri::ExecRequest {
        container_id: container,
        cmd: mk_words(&["sh", "-c", "cat; echo done >&2; exit 5"]),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let url = node.runtime.exec(request).await.unwrap().into_inner().url;
    let again = url.clone();
    let pid = node.pid();
    let input = "line\n".repeat(50_000);
    let expected = input.clone();
    let streams = tokio::task::spawn_blocking(move || {
        in_network_of(pid, move || stream_command(&url, input.as_bytes()))
    })
    .await
    .unwrap();
    assert!(
        streams[&5] == expected,
        "{} bytes came back",
        streams[&5].len()
    );
    assert_eq!(streams[&7], "done\n");
    let status: serde_json::Value = serde_json::from_str(&streams[&1]).unwrap();
    assert_eq!(status["details"]["causes"][0]["message"], "5");
    let second = tokio::task::spawn_blocking(move || {
        std::panic::catch_unwind(|| in_network_of(pid, move || stream_command(&again, b"")))
    })
    .await
    .unwrap();
    assert!(second.is_err(), "an address is good for one client");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn command_over_its_time_limit_is_killed() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["/pause"]).await;
    let request = cri::ExecSyncRequest {
        container_id: container.clone(),
        cmd: mk_words(&["/usr/bin/sleep", "4321"]),
        timeout: 1,
    };
    let error = node.runtime.exec_sync(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
    let start = Instant::now();
    loop {
        let (_, commands) = node
            .exec(
                &container,
                &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"],
            )
            .await;
        if !commands.contains("/usr/bin/sleep 4321") {
            break;
        }
        assert!(start.elapsed() < DEADLINE, "{commands}");
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn stats_count_the_processes_of_a_container() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exec /bin/sleep infinity";
    let container = node.run(&sandbox, &["sh", "-c", busy]).await;
    let start = Instant::now();
    loop {
        let answer = node
            .runtime
            .container_stats(cri::ContainerStatsRequest {
                container_id: container.clone(),
            })
            .await
            .unwrap();
        let stats = answer.into_inner().stats.unwrap();
        let memory = stats.memory.unwrap().rss_bytes.unwrap().value;
        let cpu = stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value;
        if memory > 0 && cpu > 0 {
            break;
        }
        assert!(start.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn containers_end_with_their_node() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    node.run(&sandbox, &["/pause"]).await;
    let mut config = mk_container("user", &["/bin/sleep", "infinity"]);
    security(&mut config).run_as_user = Some(cri::Int64Value { value: 1000 });
    let user = node.create(&sandbox, config).await;
    node.start_container(&user).await.unwrap();
    let containers = children_of(node.pid());
    assert_eq!(containers.len(), 2);
    node.kill();
    let start = Instant::now();
    while containers
        .iter()
        .any(|pid| fs_err::metadata(format!("/proc/{pid}")).is_ok())
    {
        assert!(start.elapsed() < DEADLINE, "containers outlived their node");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn nothing_is_mounted_outside_of_the_node() {
    let mounts = || {
        let text = fs_err::read_to_string("/proc/self/mountinfo").unwrap();
        text.lines().count()
    };
    let before = mounts();
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    node.run(&sandbox, &["/pause"]).await;
    assert_eq!(mounts(), before);
    let inside = fs_err::read_to_string(format!("/proc/{}/mountinfo", node.pid())).unwrap();
    let state = node.directory.path().display().to_string();
    assert!(
        !inside.contains(&state),
        "mounts of a container are its own: {inside}"
    );
}

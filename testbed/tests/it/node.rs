//! Sandboxes and containers of the real node runtime, through its sockets.

mod commands;
mod harness;
mod isolation;
mod network;

use std::time::Instant;

use cri_runtime::control::{Signal, State, Target};
use harness::{DEADLINE, IMAGE, Node, children_of, mk_container};
use podresources::cri::v1 as cri;
use podresources::cri::v1::ContainerState::{ContainerExited, ContainerRunning};
use testbed::eventually;

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
    let stopped = eventually(DEADLINE, async || match state() {
        'T' => Ok(()),
        other => Err(format!("its state is {other}")),
    });
    stopped.await.unwrap();
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
async fn stats_count_the_processes_of_a_container() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exec /bin/sleep infinity";
    let container = node.run(&sandbox, &["sh", "-c", busy]).await;
    let counted = eventually(DEADLINE, async || {
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
            return Ok(());
        }
        Err(format!("{memory} bytes, {cpu} ns"))
    });
    counted.await.unwrap();
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
    let ended = eventually(DEADLINE, async || {
        let mut left = containers.iter();
        if left.any(|pid| fs_err::metadata(format!("/proc/{pid}")).is_ok()) {
            return Err("containers outlived their node".to_owned());
        }
        Ok(())
    });
    ended.await.unwrap();
}

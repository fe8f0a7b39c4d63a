//! What a container sees and may change: files, users and processes.

use podresources::cri::v1 as cri;
use podresources::cri::v1::ContainerState::ContainerRunning;

use super::harness::{Node, mk_container};
use super::{namespaces, security};

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

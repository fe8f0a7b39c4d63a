use rstest::rstest;

use super::*;

fn mk_host() -> HostFacts {
    HostFacts {
        system: [
            ("lib".to_owned(), SystemEntry::Link("usr/lib".into())),
            ("lib64".to_owned(), SystemEntry::Link("/usr/lib64".into())),
            ("sbin".to_owned(), SystemEntry::Directory),
        ]
        .into(),
        tools: ["cat", "sleep"]
            .map(|name| (name.to_owned(), Path::new("/usr/bin").join(name)))
            .into(),
        has_local_bin: true,
    }
}

fn mk_image() -> Image {
    Image {
        programs: [("/bin/sleep".into(), "/target/testbed".into())].into(),
        ..Default::default()
    }
}

fn plan_with(config: &cri::ContainerConfig, overrides: &BTreeMap<PathBuf, PathBuf>) -> Vec<Step> {
    plan(&Inputs {
        host: &mk_host(),
        image: &mk_image(),
        etc: &EtcFiles::default(),
        cgroup: Path::new("/state/c/cgroup"),
        config,
        host_path_overrides: overrides,
    })
}

fn plan_of(config: &cri::ContainerConfig) -> Vec<Step> {
    plan_with(config, &BTreeMap::new())
}

fn mk_mount(host: &str, container: &str) -> cri::Mount {
    cri::Mount {
        host_path: host.to_owned(),
        container_path: container.to_owned(),
        ..Default::default()
    }
}

fn position(steps: &[Step], wanted: impl Fn(&Step) -> bool) -> usize {
    steps.iter().position(wanted).expect("the step is planned")
}

fn binds(step: &Step, wanted: &str) -> bool {
    matches!(step, Step::Bind(bind) if bind.target == Path::new(wanted))
}

#[test]
fn program_of_the_image_wins_over_a_tool_of_that_name() {
    let steps = plan_of(&cri::ContainerConfig::default());
    assert!(steps.contains(&Step::Link("/bin/cat".into(), "/usr/bin/cat".into())));
    assert!(
        !steps
            .iter()
            .any(|step| matches!(step, Step::Link(path, _) if path == Path::new("/bin/sleep")))
    );
    let Step::Bind(program) = &steps[position(&steps, |step| binds(step, "/bin/sleep"))] else {
        panic!("not a bind mount");
    };
    assert_eq!(program.source, Path::new("/target/testbed"));
    assert_eq!(program.access, Access::ReadOnly);
}

#[test]
fn links_of_the_node_become_relative() {
    let steps = plan_of(&cri::ContainerConfig::default());
    assert!(steps.contains(&Step::Link("/lib64".into(), "usr/lib64".into())));
    assert!(steps.iter().any(|step| binds(step, "/sbin")));
}

#[test]
fn mounts_come_after_everything_that_could_hide_them() {
    let config = cri::ContainerConfig {
        mounts: vec![mk_mount("/log", "/dev/termination-log")],
        ..Default::default()
    };
    let steps = plan_of(&config);
    let dev = position(
        &steps,
        |step| matches!(step, Step::Tmpfs(path, _) if path == Path::new("/dev")),
    );
    assert!(dev < position(&steps, |step| binds(step, "/dev/termination-log")));
}

#[test]
fn stand_in_for_the_cgroup_covers_the_one_of_the_node() {
    let steps = plan_of(&cri::ContainerConfig::default());
    let sys = position(&steps, |step| binds(step, "/sys"));
    assert!(sys < position(&steps, |step| binds(step, "/sys/fs/cgroup")));
}

#[rstest]
#[case::writable(false, false, Access::ReadWrite)]
#[case::read_only(true, false, Access::ReadOnly)]
#[case::recursive(true, true, Access::ReadOnlyRecursive)]
fn access_is_as_requested(
    #[case] readonly: bool,
    #[case] recursive_read_only: bool,
    #[case] expected: Access,
) {
    let mount = cri::Mount {
        readonly,
        recursive_read_only,
        ..mk_mount("/sys", "/host-sys")
    };
    assert_eq!(requested(&mount, &BTreeMap::new()).access, expected);
}

#[rstest]
#[case::directory_itself("/var/lib/kubelet/pod-resources", "/fault")]
#[case::below("/var/lib/kubelet/pod-resources/kubelet.sock", "/fault/kubelet.sock")]
#[case::longest_prefix("/var/lib/kubelet/pod-resources/deep/x", "/other/x")]
#[case::elsewhere("/var/lib/kubelet", "/var/lib/kubelet")]
#[case::only_whole_names("/var/lib/kubelet/pod-resources2", "/var/lib/kubelet/pod-resources2")]
fn host_paths_are_overridden_by_prefix(#[case] path: &str, #[case] expected: &str) {
    let overrides = [
        ("/var/lib/kubelet/pod-resources".into(), "/fault".into()),
        (
            "/var/lib/kubelet/pod-resources/deep".into(),
            "/other".into(),
        ),
    ]
    .into();
    let steps = plan_with(
        &cri::ContainerConfig {
            mounts: vec![mk_mount(path, "/x")],
            ..Default::default()
        },
        &overrides,
    );
    let Step::Bind(bind) = &steps[position(&steps, |step| binds(step, "/x"))] else {
        panic!("not a bind mount");
    };
    assert_eq!(bind.source, Path::new(expected));
}

#[test]
fn masked_and_read_only_paths_come_last() {
    let config = cri::ContainerConfig {
        linux: Some(cri::LinuxContainerConfig {
            security_context: Some(cri::LinuxContainerSecurityContext {
                masked_paths: vec!["/proc/keys".to_owned()],
                readonly_paths: vec!["/proc/fs".to_owned()],
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let steps = plan_of(&config);
    let expected = [
        Step::Protect("/proc/fs".into()),
        Step::Mask("/proc/keys".into()),
    ];
    assert_eq!(steps[steps.len() - 2..], expected);
}

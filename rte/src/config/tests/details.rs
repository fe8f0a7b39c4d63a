//! The second file beside the extra one.

use rstest::rstest;

use super::Home;

/// Flaw 29: the number of NUMA nodes that the topology manager supports is one of its policy options.
#[rstest]
#[case::first_file("extra/config.yaml")]
#[case::second_file("extra/kubelet-details.yaml")]
fn policy_options_are_read_from_the_extra_file_and_the_one_beside_it(#[case] file: &str) {
    let home = Home::new();
    home.write(
        file,
        "kubelet: {topologyManagerPolicyOptions: {max-allowable-numa-nodes: \"12\"}}",
    );
    let exporter = home.config("ROOT", &[]).topology_exporter;
    assert_eq!(exporter.topology_manager_max_numa_nodes, Some(12));
}

#[rstest]
#[case::file_of_its_own("{topologyManagerScope: pod}", Some("{cpuManagerPolicy: none, memoryManagerPolicy: None}"), Some(("none", false)))]
#[case::both_files(
    "{cpuManagerPolicy: none, memoryManagerPolicy: None}",
    Some("{cpuManagerPolicy: static, cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}, memoryManagerPolicy: None}"),
    Some(("static", true))
)]
#[case::first_file_of_older_operators("{cpuManagerPolicy: none, memoryManagerPolicy: None}", None, Some(("none", false)))]
#[case::second_file_says_half(
    "{topologyManagerScope: pod}",
    Some("{cpuManagerPolicy: static}"),
    None
)]
#[case::second_file_says_nothing("{topologyManagerScope: pod}", None, None)]
fn managers_of_the_kubelet_are_read_from_the_file_beside_the_extra_one(
    #[case] first: &str,
    #[case] second: Option<&str>,
    #[case] expected: Option<(&str, bool)>,
) {
    let home = Home::new();
    home.write("extra/config.yaml", &format!("kubelet: {first}"));
    if let Some(second) = second {
        home.write("extra/kubelet-details.yaml", &format!("kubelet: {second}"));
    }
    let exporter = home.config("ROOT", &[]).topology_exporter;
    let found = exporter.resource_managers.as_ref();
    assert_eq!(
        found.map(|managers| (managers.cpu.as_str(), managers.full_cores())),
        expected
    );
    let scope = exporter.topology_manager_scope;
    assert_eq!(scope == "pod", first.contains("pod"), "{scope}");
}

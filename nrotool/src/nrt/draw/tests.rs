use rstest::rstest;

use super::super::picture::tests::Cluster;
use super::*;

fn plain(picture: &Picture, width: usize) -> String {
    anstream::adapter::strip_str(&draw(picture, width)).to_string()
}

#[test]
fn two_zones_are_beside_each_other_on_a_usual_terminal() {
    let picture = Cluster::of_zones(2)
        .running("a", 0)
        .running("with-a-long-name-of-a-deployment-5d5f", 1)
        .waiting("large", "20")
        .picture();
    let expected = "\
█ held  ░ free  ▒ reserved   free/allocatable

worker-0 policy single-numa-node, scope container
zone 0                                   zone 1
 cpu                 █░░░░░░▒     18/22   cpu                 █░░░░░░▒     18/22
";
    let text = plain(&picture, 80);
    let head: Vec<&str> = text.lines().take(4).collect();
    assert_eq!(head, expected.lines().take(4).collect::<Vec<_>>(), "{text}");
    let row = expected.lines().last().unwrap();
    assert!(
        text.lines().any(|line| line == row),
        "{row} is not in\n{text}"
    );
    // a bar makes room for the name
    assert!(
        text.contains(" example.com/deviceA ████████       0/5"),
        "{text}"
    );
    assert!(text.contains(" default/a/main"), "{text}");
    assert!(text.contains("cpu=4 memory=4Gi"), "{text}");
    assert!(text.contains("…"), "{text}");
    assert!(
        text.contains("  worker-0: no: zones 0, 1 for container main: cpu 18 left, wanted 20"),
        "{text}"
    );
    assert!(
        text.contains("Without NodeResourceTopology: control-plane-0"),
        "{text}"
    );
}

#[rstest]
#[case::one_column(60, 2, 1)]
#[case::two_columns(80, 2, 2)]
#[case::eight_in_two(80, 8, 2)]
#[case::eight_in_four(200, 8, 4)]
#[case::narrow(40, 8, 1)]
fn zones_fill_the_width(#[case] width: usize, #[case] zones: usize, #[case] expected: usize) {
    assert_eq!(zones_beside_each_other(zones, width), expected);
}

#[rstest]
fn no_line_is_wider_than_the_terminal(
    #[values(39, 50, 60, 80, 100, 133, 200)] width: usize,
    #[values(1, 2, 8)] zones: usize,
) {
    let mut cluster = Cluster::of_zones(zones)
        .waiting("large", "20")
        .waiting("larger", "60");
    for number in 0..zones * 3 {
        cluster = cluster.running(&format!("workload-with-a-name-{number}"), number % zones);
    }
    let text = plain(&cluster.picture(), width);
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{width}: {line:?}\n{text}");
    }
    for number in 0..zones * 3 {
        assert!(
            text.contains(&format!("-{number}/main")),
            "{number}\n{text}"
        );
    }
}

#[rstest]
#[case::all_free(10, 10, 10, "░░░░░░░░░░")]
#[case::all_held(10, 10, 0, "██████████")]
#[case::a_little_held(1000, 1000, 999, "█░░░░░░░░░")]
#[case::a_little_free(1000, 1000, 1, "█████████░")]
#[case::a_little_reserved(1000, 999, 999, "░░░░░░░░░▒")]
#[case::all_of_it(1000, 999, 1, "████████░▒")]
#[case::half(100, 80, 40, "████░░░░▒▒")]
#[case::more_than_there_is(10, 10, 20, "░░░░░░░░░░")]
fn bars_show_every_part_that_there_is(
    #[case] capacity: i64,
    #[case] allocatable: i64,
    #[case] available: i64,
    #[case] expected: &str,
) {
    let amounts = Amounts {
        capacity,
        allocatable,
        available,
    };
    let line = bar(&amounts, 10).render();
    assert_eq!(
        anstream::adapter::strip_str(&line).to_string().trim_end(),
        expected
    );
}

#[test]
fn nodes_of_one_verdict_are_told_together() {
    let fit = |node: &str, zones: Vec<u8>| Fit {
        node: node.to_owned(),
        fits: true,
        zones,
        reasons: Vec::new(),
    };
    let fits = [fit("a", vec![0]), fit("b", vec![1]), fit("c", vec![0])];
    let names: Vec<Vec<&str>> = alike(&fits).into_iter().map(|(names, _)| names).collect();
    assert_eq!(names, [vec!["a", "c"], vec!["b"]]);
}

#[test]
fn a_cluster_without_topologies_is_said_to_have_none() {
    let picture = Picture {
        format: "",
        nodes: Vec::new(),
        without_topology: Vec::new(),
        pending: Vec::new(),
    };
    assert_eq!(plain(&picture, 80), "No node has a NodeResourceTopology.\n");
}

//! ImageLocality: prefers nodes that already have the pod's images (scheduler.md 7.5).

use super::score::MAX;
use crate::state::cluster::Cluster;
use crate::state::node::Node;
use crate::state::pod::Pod;

/// Sums of sizes in bytes up to this score 0.
const LEAST: i64 = 23 << 20;
/// Limit of the sum of sizes, in bytes for each container. A larger sum scores no more.
const MOST: i64 = 1000 << 20;

/// Scores how much of the pod's images the node has. An image counts by its size and by the share of the cluster's `nodes` that have it,
/// so that a rare image does not attract every pod to the only node that has it.
pub fn score(cluster: &Cluster, pod: &Pod, node: &Node, nodes: usize) -> i64 {
    let images = &pod.constraints.images;
    if images.is_empty() || nodes == 0 {
        return 0;
    }
    let present = images.iter().filter_map(|image| {
        let size = node.images.size(*image)?;
        let share = cluster.nodes_with(*image) as f64 / nodes as f64;
        Some((size as f64 * share) as i64)
    });
    let most = MOST * images.len() as i64;
    let sum = present.sum::<i64>().clamp(LEAST, most);
    MAX * (sum - LEAST) / (most - LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::images::{ImageId, Images};
    use crate::testing::{mk_node, mk_pod};
    use k8s_openapi::api::core::v1::ContainerImage;
    use rstest::rstest;

    const MIB: i64 = 1 << 20;

    fn mk_cluster(on_each: [&[(&str, i64)]; 2]) -> Cluster {
        let mut cluster = Cluster::new();
        for (name, images) in ["a", "b"].into_iter().zip(on_each) {
            let images: Vec<ContainerImage> = images
                .iter()
                .map(|(name, size)| ContainerImage {
                    names: Some(vec![(*name).to_owned()]),
                    size_bytes: Some(size * MIB),
                })
                .collect();
            cluster.apply_node(Node {
                images: Images::read(&images),
                ..mk_node(name, "cpu=1")
            });
        }
        cluster
    }

    fn scores(cluster: &Cluster, images: &[&str]) -> Vec<i64> {
        let mut pod = mk_pod("p", "");
        pod.constraints.images = images.iter().map(|name| ImageId::new(name)).collect();
        let nodes = cluster.nodes();
        nodes
            .map(|(node, _)| score(cluster, &pod, node, 2))
            .collect()
    }

    #[rstest]
    // 40 MiB on one of two nodes count as 20, below the minimum; 250 count as 125: 100 * (125 - 23) / (1000 - 23)
    #[case::one_node(&[("i:latest", 40)], &[("i:latest", 250)], &["j"], [0, 0])]
    #[case::small(&[("i:latest", 40)], &[], &["i"], [0, 0])]
    #[case::half(&[("i:latest", 250)], &[], &["i"], [10, 0])]
    #[case::everywhere(&[("i:latest", 250)], &[("i:latest", 250)], &["i"], [23, 23])]
    #[case::huge(&[("i:1", 4000)], &[], &["i:1"], [100, 0])]
    // two containers: 100 * (1000 / 2 + 23 / 2 - 23) / (2000 - 23)
    #[case::two(&[("i:1", 1000), ("j:1", 23)], &[], &["i:1", "j:1"], [24, 0])]
    fn images_count_by_size_and_spread(
        #[case] a: &[(&str, i64)],
        #[case] b: &[(&str, i64)],
        #[case] wanted: &[&str],
        #[case] expected: [i64; 2],
    ) {
        assert_eq!(scores(&mk_cluster([a, b]), wanted), expected);
    }

    #[test]
    fn a_node_that_goes_does_not_count_any_more() {
        let mut cluster = mk_cluster([&[("i:1", 500)], &[("i:1", 500)]]);
        let image = ImageId::new("i:1");
        assert_eq!(cluster.nodes_with(image), 2);
        cluster.delete_node("b");
        assert_eq!(cluster.nodes_with(image), 1);
        assert!(
            !cluster.apply_node(mk_node("a", "cpu=1")),
            "nothing that filters look at"
        );
        assert_eq!(cluster.nodes_with(image), 0);
    }
}

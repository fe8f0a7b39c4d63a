//! No pod is bound twice.

use std::collections::BTreeMap;

use crate::recording::{Entry, Line, PodView};

/// Returns every pod that had one node and then another, or a node and then none.
pub fn bound_once(lines: &[Line]) -> Vec<String> {
    let mut nodes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut violations = Vec::new();
    for line in lines {
        let Entry::Applied { kind, object } = &line.entry else {
            continue;
        };
        if kind != "Pod" {
            continue;
        }
        let pod = PodView(object);
        let before = nodes.get(pod.uid()).copied().unwrap_or_default();
        if !before.is_empty() && before != pod.node() {
            let (namespace, name) = pod.key();
            violations.push(format!(
                "pod {namespace}/{name} was bound to {before} and then to {:?} at {} ms",
                pod.node(),
                line.at
            ));
        }
        if !pod.node().is_empty() {
            nodes.insert(pod.uid(), pod.node());
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tests::{mk_pod, pod};
    use super::*;

    #[test]
    fn a_second_node_is_found() {
        let lines = [
            pod(0, mk_pod("p", Some("a"), "Pending", 1)),
            pod(5, mk_pod("p", Some("b"), "Pending", 1)),
        ];
        assert_eq!(
            bound_once(&lines),
            ["pod chaos/p was bound to a and then to \"b\" at 5 ms"]
        );
    }

    #[test]
    fn a_namesake_may_have_another_node() {
        let mut namesake = mk_pod("p", Some("b"), "Pending", 1);
        namesake["metadata"]["uid"] = "another".into();
        let lines = [
            pod(0, mk_pod("p", Some("a"), "Pending", 1)),
            pod(5, namesake),
        ];
        assert_eq!(bound_once(&lines), Vec::<String>::new());
    }
}

//! What is left out of an observation: pods, resources and CPUs that the configuration names (rte.md 4.2). Pure.

use std::collections::BTreeSet;

use podresources::v1;

use crate::config::glob::{self, Pattern};
use crate::config::{ContainerId, PodPattern};

/// What is not accounted for or not published.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The only namespace that is accounted for; empty: all.
    pub namespace: String,
    /// Resources that zones do not show.
    pub hidden_resources: BTreeSet<String>,
    /// Pods to ignore, as patterns of namespace and name.
    pub hidden_pods: Vec<(Pattern, Pattern)>,
    /// A container whose CPUs are shared by all containers.
    pub shared: Option<ContainerId>,
    /// Account for the resources of hidden pods and of pods in other namespaces, because no other pod can get them, and charge memory of
    /// several NUMA nodes only once. The original does neither, so the default is off. Then a hidden pod, or one in another namespace, is
    /// missing from the fingerprint *and* its resources look available, and memory of several NUMA nodes is charged in full to each.
    pub exact: bool,
}

impl Filter {
    /// Adds the valid patterns to the hidden pods. Returns the errors of the others, which match nothing.
    pub fn hide_pods(&mut self, patterns: &[PodPattern]) -> Vec<glob::Error> {
        let mut errors = Vec::new();
        for PodPattern {
            name_pattern,
            namespace_pattern,
        } in patterns
        {
            match (Pattern::new(namespace_pattern), Pattern::new(name_pattern)) {
                (Ok(namespace), Ok(name)) => self.hidden_pods.push((namespace, name)),
                (Err(error), _) | (_, Err(error)) => errors.push(error),
            }
        }
        errors
    }

    /// Removes the shared CPUs from an answer of the kubelet. Must run before anything else reads the answer.
    pub fn remove_shared_cpus(&self, pods: &mut [v1::PodResources]) {
        if let Some(id) = &self.shared {
            let shared: BTreeSet<i64> = pods
                .iter()
                .filter(|pod| pod.namespace == id.namespace && pod.name == id.pod_name)
                .flat_map(|pod| &pod.containers)
                .filter(|container| container.name == id.container_name)
                .flat_map(|container| container.cpu_ids.iter().copied())
                .collect();
            for container in pods.iter_mut().flat_map(|pod| &mut pod.containers) {
                container.cpu_ids.retain(|cpu| !shared.contains(cpu));
                container.cpu_ids.sort_unstable();
            }
        }
    }

    /// Removes the hidden pods and returns them.
    pub fn remove_hidden_pods(&self, pods: &mut Vec<v1::PodResources>) -> Vec<v1::PodResources> {
        let is_hidden = |pod: &mut v1::PodResources| {
            self.hidden_pods.iter().any(|(namespace, name)| {
                namespace.matches(&pod.namespace) && name.matches(&pod.name)
            })
        };
        pods.extract_if(.., is_hidden).collect()
    }

    /// Returns whether a pod is in the watched namespace.
    pub fn is_watched(&self, pod: &v1::PodResources) -> bool {
        self.namespace.is_empty() || pod.namespace == self.namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn exclusive(cpus: &[i64]) -> v1::ContainerResources {
        v1::ContainerResources {
            name: "c".to_owned(),
            cpu_ids: cpus.to_vec(),
            ..Default::default()
        }
    }

    #[test]
    fn hidden_pods_vanish_and_bad_patterns_match_nothing() {
        let pattern = |namespace: &str, name: &str| PodPattern {
            namespace_pattern: namespace.to_owned(),
            name_pattern: name.to_owned(),
        };
        let mut filter = Filter::default();
        let errors = filter.hide_pods(&[pattern("def*", "noisy-?"), pattern("[", "*")]);
        assert_eq!(errors.len(), 1);
        let mut pods = vec![
            pod("noisy-1", exclusive(&[])),
            pod("noisy-22", exclusive(&[])),
        ];
        let hidden = filter.remove_hidden_pods(&mut pods);
        assert_eq!(hidden[0].name, "noisy-1");
        let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["noisy-22"]);
    }

    #[test]
    fn cpus_of_the_reference_container_belong_to_nobody() {
        let filter = Filter {
            shared: Some(ContainerId {
                namespace: "default".to_owned(),
                pod_name: "rte".to_owned(),
                container_name: "c".to_owned(),
            }),
            ..Filter::default()
        };
        let mut pods = vec![
            pod("rte", exclusive(&[0, 1])),
            pod("p", exclusive(&[3, 1, 2])),
        ];
        filter.remove_shared_cpus(&mut pods);
        assert!(pods[0].containers[0].cpu_ids.is_empty());
        assert_eq!(pods[1].containers[0].cpu_ids, [2, 3]);
    }
}

//! The settings of a pool's kubelets are those of the majority; the others are named.

use std::collections::BTreeMap;

use manifests::rte::config_map::KubeletSettings;

/// Maximum number of nodes in the message about a mixed pool.
const MAX_NAMED_NODES: usize = 10;

/// Settings that the kubelets of a pool report.
#[derive(Debug, PartialEq)]
pub(crate) struct Majority {
    /// Settings of the majority.
    pub(crate) settings: KubeletSettings,
    /// Nodes with other settings, and the differences; empty when there are none.
    pub(crate) differing: String,
}

impl Majority {
    /// Compares the settings of the nodes, which are sorted by name. `None` when there are none.
    pub(crate) fn of(answers: &[(String, KubeletSettings)]) -> Option<Self> {
        let settings = most_common(answers)?;
        let differing = differing(&settings, answers);
        Some(Self {
            settings,
            differing,
        })
    }
}

/// Returns the most common settings. Among equally common ones the first in sort order wins, so that the choice is stable.
fn most_common(answers: &[(String, KubeletSettings)]) -> Option<KubeletSettings> {
    let mut counts: BTreeMap<&KubeletSettings, usize> = BTreeMap::new();
    for (_, answer) in answers {
        *counts.entry(answer).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts
        .into_iter()
        .find(|(_, count)| *count == most)
        .map(|(settings, _)| settings.clone())
}

/// Lists the nodes whose settings differ from these, each with its differences.
fn differing(settings: &KubeletSettings, answers: &[(String, KubeletSettings)]) -> String {
    let others: Vec<String> = answers
        .iter()
        .filter(|(_, answer)| answer != settings)
        .map(|(node, answer)| format!("{node} ({})", difference(settings, answer)))
        .collect();
    match others.len().checked_sub(MAX_NAMED_NODES) {
        None | Some(0) => others.join(", "),
        Some(more) => format!("{} and {more} more", others[..MAX_NAMED_NODES].join(", ")),
    }
}

/// Describes how the settings of a kubelet differ from those of the others.
fn difference(others: &KubeletSettings, kubelet: &KubeletSettings) -> String {
    let options = |options: &BTreeMap<String, String>| {
        let options = options.iter();
        let options: Vec<String> = options
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        options.join("+")
    };
    let rows = [
        (
            "cpuManagerPolicy",
            &kubelet.cpu_manager_policy,
            &others.cpu_manager_policy,
        ),
        (
            "cpuManagerPolicyOptions",
            &options(&kubelet.cpu_manager_policy_options),
            &options(&others.cpu_manager_policy_options),
        ),
        (
            "memoryManagerPolicy",
            &kubelet.memory_manager_policy,
            &others.memory_manager_policy,
        ),
        (
            "topologyManagerPolicy",
            &kubelet.topology_manager_policy,
            &others.topology_manager_policy,
        ),
        (
            "topologyManagerPolicyOptions",
            &options(&kubelet.topology_manager_policy_options),
            &options(&others.topology_manager_policy_options),
        ),
        (
            "topologyManagerScope",
            &kubelet.topology_manager_scope,
            &others.topology_manager_scope,
        ),
    ];
    let differing = rows.iter().filter(|(_, own, common)| own != common);
    let differing: Vec<String> = differing
        .map(|(name, own, common)| format!("{name} {own:?} instead of {common:?}"))
        .collect();
    differing.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(policy: &str) -> KubeletSettings {
        KubeletSettings {
            topology_manager_policy: policy.into(),
            topology_manager_scope: "container".into(),
            ..KubeletSettings::default()
        }
    }

    #[test]
    fn majority_wins_and_ties_are_stable() {
        assert_eq!(most_common(&[]), None);
        let of = |policies: &[&str]| {
            let answers = policies
                .iter()
                .map(|policy| ("n".to_owned(), settings(policy)));
            most_common(&answers.collect::<Vec<_>>())
        };
        assert_eq!(of(&["a", "b", "b"]), Some(settings("b")));
        assert_eq!(of(&["b", "a"]), Some(settings("a")));
    }

    #[test]
    fn nodes_unlike_the_others_are_named_with_what_is_different() {
        let node = |number: usize, policy: &str| (format!("n{number}"), settings(policy));
        let mut answers = vec![node(0, "a"), node(1, "b"), node(2, "a")];
        answers[2].1.cpu_manager_policy_options = [("x".into(), "true".into())].into();
        assert_eq!(
            differing(&settings("a"), &answers),
            "n1 (topologyManagerPolicy \"b\" instead of \"a\"), n2 (cpuManagerPolicyOptions \"x=true\" instead of \"\")"
        );
        assert_eq!(differing(&settings("a"), &answers[..1]), "");
        let many: Vec<_> = (0..MAX_NAMED_NODES + 2)
            .map(|number| node(number, "b"))
            .collect();
        assert!(differing(&settings("a"), &many).ends_with(" and 2 more"));
    }
}

//! The text about nodes that do not fit, as kube-scheduler writes it.

use std::collections::BTreeMap;

/// Formats reasons, each with the number of nodes that have it: `0/3 nodes are available: 1 cannot align pod, 2 Insufficient cpu.` Parts are sorted as text, including the numbers, as
/// kube-scheduler prints them.
pub(super) fn message<'a>(nodes: usize, reasons: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in reasons {
        *counts.entry(reason).or_default() += count;
    }
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

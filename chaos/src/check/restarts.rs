//! Kubelets that were down or started again.

use std::collections::BTreeMap;

use cluster_faults::Disturbance;

use crate::recording::{Entry, Line};

/// How long after its start a kubelet may not know yet what pods hold, in milliseconds. A kubelet hears of its pods within seconds; until then
/// what ended pods held stays taken (`docs/placement.md`, "What remains possible").
const UNAWARE: u64 = 5_000;

/// A time without a kubelet, in milliseconds.
#[derive(Debug)]
struct Restart {
    node: String,
    from: u64,
    /// `None` as long as it lasts.
    to: Option<u64>,
}

/// All restarts of a recording.
#[derive(Debug)]
pub(super) struct Restarts(Vec<Restart>);

impl Restarts {
    /// Finds the restarts of a recording.
    pub(super) fn of(lines: &[Line]) -> Self {
        let mut all = Vec::new();
        let mut open: BTreeMap<usize, usize> = BTreeMap::new();
        for line in lines {
            match &line.entry {
                Entry::FaultBegan { id, what } => {
                    let (Disturbance::Silence { node }
                    | Disturbance::RestartKubelet { node }
                    | Disturbance::LoseNode { node }) = what.as_ref()
                    else {
                        continue;
                    };
                    open.insert(*id, all.len());
                    all.push(Restart {
                        node: node.clone(),
                        from: line.at,
                        to: None,
                    });
                }
                Entry::FaultEnded { id, .. } => {
                    if let Some(index) = open.remove(id) {
                        all[index].to = Some(line.at);
                    }
                }
                _ => {}
            }
        }
        Self(all)
    }

    /// Returns whether a kubelet was down, or had just started, at some time between two.
    pub(super) fn excuse(&self, node: &str, from: u64, to: u64) -> bool {
        self.0.iter().any(|restart| {
            restart.node == node
                && restart.from <= to
                && restart.to.is_none_or(|end| end + UNAWARE >= from)
        })
    }
}

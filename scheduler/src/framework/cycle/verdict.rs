//! Why no node fits, in kube-scheduler's words (scheduler.md 7.7).

use crate::framework::message::message;
use crate::plugins::plugin::Plugins;
use crate::plugins::rejection::{RuledOut, counted};

/// Length in bytes after which no more nodes are described: no event has room for more.
const MOST_DETAILS: usize = 1024;

/// Why no node fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Message for the event and the condition (scheduler.md 7.7).
    pub message: String,
    /// Plugins that ruled out any node. The pod is tried again when something changes for one of them.
    pub rejected_by: Plugins,
    /// Every node with the reason why it was ruled out.
    pub nodes: Vec<RuledOut>,
    /// Whether an earlier nomination of the pod is void.
    pub clears_nomination: bool,
}

impl Verdict {
    /// Returns what each node lacked, for nodes with details: `worker-0: cannot align pod: cpu wanted 4000m, zone 0 has 2000m`.
    /// Of many nodes, the first ones are described.
    pub fn details(&self) -> String {
        let mut text = String::new();
        for (node, rejection) in &self.nodes {
            if let Some(detail) = &rejection.detail {
                if !text.is_empty() {
                    text.push_str("; ");
                }
                text.push_str(node);
                text.push_str(": ");
                text.push_str(detail);
            }
            if text.len() > MOST_DETAILS {
                break;
            }
        }
        text
    }
}

/// Returns the verdict if these are the nodes, each with the reason why it was ruled out.
pub(crate) fn verdict(nodes: Vec<RuledOut>) -> Verdict {
    let rejected_by = if nodes.is_empty() {
        Plugins::All
    } else {
        counted(&nodes)
            .map(|(rejection, _)| rejection.plugin)
            .collect()
    };
    Verdict {
        message: if nodes.is_empty() {
            "no nodes available to schedule pods".to_owned()
        } else {
            let reasons = counted(&nodes).flat_map(|(rejection, count)| {
                let reasons = rejection.reasons.iter();
                reasons.map(move |reason| (reason.as_ref(), count))
            });
            let mut first = reasons.clone();
            match first.next() {
                Some((reason, _)) if counted(&nodes).all(|(rejection, _)| rejection.everywhere) => {
                    format!("0/{} nodes are available: {reason}.", nodes.len())
                }
                _ => message(nodes.len(), reasons),
            }
        },
        rejected_by,
        nodes,
        clears_nomination: false,
    }
}

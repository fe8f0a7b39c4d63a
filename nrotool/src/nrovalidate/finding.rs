//! What is wrong, in the words that scripts of the original's users match (scenarios-other.md 10.2).

use std::fmt;

use serde::Serialize;

/// Area of what belongs to no node.
pub(super) const CLUSTER: &str = "cluster";
/// Area of what belongs to a kubelet.
pub(super) const KUBELET: &str = "kubelet";

/// One setting that is not as it has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The node; empty in the area `cluster`.
    pub(super) node: String,
    /// `cluster` or `kubelet`.
    pub(super) area: &'static str,
    /// What has the setting.
    pub(super) component: &'static str,
    /// The setting.
    pub(super) setting: String,
    /// What it has to be.
    pub(super) expected: String,
    /// What it is.
    pub(super) detected: String,
}

impl Finding {
    /// Creates a finding about the whole cluster.
    pub(super) fn of_cluster(
        component: &'static str,
        setting: &str,
        expected: &impl ToString,
        detected: &impl ToString,
    ) -> Self {
        Self {
            node: String::new(),
            area: CLUSTER,
            component,
            setting: setting.to_owned(),
            expected: expected.to_string(),
            detected: detected.to_string(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            node,
            area,
            component,
            setting,
            expected,
            detected,
        } = self;
        if *area == CLUSTER {
            write!(f, "Incorrect configuration of cluster: ")?;
        } else {
            write!(f, "Incorrect configuration of node {node:?} area {area:?} ")?;
        }
        write!(
            f,
            "component {component:?} setting {setting:?}: expected {expected:?} detected {detected:?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_original() {
        let finding = Finding::of_cluster("c", "s", &"e", &"d");
        assert_eq!(
            finding.to_string(),
            r#"Incorrect configuration of cluster: component "c" setting "s": expected "e" detected "d""#
        );
        let finding = Finding {
            node: "n".to_owned(),
            area: KUBELET,
            ..finding
        };
        assert_eq!(
            finding.to_string(),
            r#"Incorrect configuration of node "n" area "kubelet" component "c" setting "s": expected "e" detected "d""#
        );
    }
}

//! What is wrong with a cluster (deployer.md 10): the rules of the original on its version and its kubelets, then what users get wrong most.
//!
//! [`finding`] is what is found and how it is written; [`observe`] what is read of a cluster; the other modules are the rules, which are pure.

use crate::cluster::{self, Cluster};
use crate::log::Log;
use crate::version::Version;

pub mod exporters;
pub mod finding;
pub mod kubelets;
pub mod observe;
pub mod pools;
pub mod schedulers;

use finding::Finding;
use observe::Observed;

/// Oldest version of Kubernetes that works.
pub const OLDEST: &str = "1.21";

/// The cluster could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nodes cannot be listed.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The user may not ask kubelets.
    #[error(
        "the user of the kubeconfig may not read the settings of kubelets: it needs the right get nodes/proxy"
    )]
    Forbidden(#[source] crate::kubelets::NoAnswer),
}

/// Looks at a cluster and returns what is wrong: the version first, then nodes by name, then the stack.
pub async fn run(cluster: &Cluster, log: &Log) -> Result<Vec<Finding>, Error> {
    let observed = Observed::read(cluster, log).await?;
    let mut findings = version(&cluster.server_version);
    findings.extend(kubelets::check(&observed, log));
    findings.extend(pools::check(&observed));
    findings.extend(exporters::check(&observed));
    findings.extend(schedulers::check(&observed));
    Ok(findings)
}

fn version(server: &str) -> Vec<Finding> {
    let finding = |expected: &str, detected: &str| {
        vec![
            Finding::error("", finding::CLUSTER, "API Version", "")
                .expected(expected)
                .detected(detected)
                .fix("update the cluster"),
        ]
    };
    let oldest = Version::parse(OLDEST);
    match (Version::parse(server), oldest) {
        (Err(error), _) => finding("valid version", &error.to_string()),
        (Ok(version), Ok(oldest)) if !version.is_at_least(&oldest) => finding(OLDEST, server),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_unreadable_versions_are_found() {
        let lines =
            |server| -> Vec<String> { version(server).iter().map(ToString::to_string).collect() };
        assert_eq!(lines("v1.35.0"), [""; 0]);
        assert_eq!(
            lines("v1.20.15"),
            [
                "Incorrect configuration of cluster: component \"API Version\" setting \"\": expected \"1.21\" detected \"v1.20.15\""
            ]
        );
        assert_eq!(
            lines("new"),
            [
                "Incorrect configuration of cluster: component \"API Version\" setting \"\": expected \"valid version\" detected \"malformed version: new\""
            ]
        );
    }
}

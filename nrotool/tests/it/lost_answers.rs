//! must-gather where the API server creates what reads the metrics, and nobody hears of it.

use cluster_faults::{Fault, Rule, Selector};

use crate::stack::Stack;

const ROLES: &str = "rbac.authorization.k8s.io";
/// An object that is created to read metrics, what becomes of the answer, and whether the metrics are read all the same: with 504 the client
/// asks again by itself, with a broken connection it does not.
const LOST: [(&str, &str, Fault, bool); 3] = [
    (ROLES, "clusterroles", Fault::TimeOutAfterCommit, true),
    ("", "serviceaccounts", Fault::LoseAnswer, false),
    (
        ROLES,
        "clusterrolebindings",
        Fault::TimeOutAfterCommit,
        true,
    ),
];

#[tokio::test]
async fn the_account_that_reads_metrics_goes_although_its_creation_was_not_answered() {
    let stack = Stack::up().await;
    let faults = stack.cluster.faults();
    let faults = faults.api().unwrap();
    for (group, resource, fault, are_read) in LOST {
        let creation = Selector {
            subresource: Some(String::new()),
            ..Selector::resource(group, resource).verbs(&["create"])
        };
        let lost = faults.add(Rule::new(creation, fault).times(1));
        let files = stack.gather(resource, &[]).await;
        assert_eq!(faults.hits(lost), 1, "{resource}");
        stack.assert_no_account().await;
        if are_read {
            stack.assert_metrics(&files).await;
            continue;
        }
        let (_, errors) = files.iter().find(|(path, _)| path == "errors.txt").unwrap();
        let told = errors
            .lines()
            .filter(|line| line.starts_with("metrics of ") && line.contains("cannot be created"));
        assert_eq!(told.count(), 4, "{resource}:\n{errors}");
        assert!(!errors.contains("removal of the account"), "{errors}");
    }
    stack.down();
}

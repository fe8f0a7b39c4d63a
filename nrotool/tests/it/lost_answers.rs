//! must-gather where the API server creates and deletes what reads the metrics, and nobody hears of it.

use cluster_faults::{Fault, Rule, Selector};

use crate::stack::Stack;

const ROLES: &str = "rbac.authorization.k8s.io";
/// What is done to an object that is there to read metrics, and what becomes of the answer.
const LOST: [(&str, &str, &str, Fault); 4] = [
    ("create", ROLES, "clusterroles", Fault::TimeOutAfterCommit),
    ("create", "", "serviceaccounts", Fault::LoseAnswer),
    (
        "create",
        ROLES,
        "clusterrolebindings",
        Fault::TimeOutAfterCommit,
    ),
    ("delete", "", "serviceaccounts", Fault::TimeOutAfterCommit),
];

#[tokio::test]
async fn metrics_are_read_and_their_account_goes_although_answers_are_lost() {
    let stack = Stack::up().await;
    let faults = stack.cluster.faults();
    let faults = faults.api().unwrap();
    for (verb, group, resource, fault) in LOST {
        let request = Selector {
            subresource: Some(String::new()),
            ..Selector::resource(group, resource)
                .verbs(&[verb])
                .user("admin")
        };
        let lost = faults.add(Rule::new(request, fault).times(1));
        let files = stack.gather(&format!("{verb}-{resource}"), &[]).await;
        assert_eq!(faults.hits(lost), 1, "{verb} {resource}");
        stack.assert_no_account().await;
        stack.assert_metrics(&files).await;
        let (_, errors) = files.iter().find(|(path, _)| path == "errors.txt").unwrap();
        assert!(!errors.contains("account"), "{verb} {resource}:\n{errors}");
    }
    stack.down();
}

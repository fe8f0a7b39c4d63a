//! Compares the operator's own Deployment with the literals of operator.md 6.7.

use manifests::platform::Platform;
use manifests::{operator, to_value};
use rstest::rstest;
use serde_json::json;

/// A selector cannot be changed, and a binding's role neither. With the original's, our objects can be applied over its own.
#[test]
fn names_and_selectors_are_those_of_the_original() {
    let set = operator::Set::new(&operator::Options::default());
    let deployment = to_value(&set.deployment);
    assert_eq!(
        deployment["spec"]["selector"],
        json!({"matchLabels": {"control-plane": "controller-manager"}})
    );
    assert_eq!(
        deployment["spec"]["template"]["metadata"]["labels"],
        json!({"app": "numaresources-operator", "control-plane": "controller-manager"})
    );
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["name"], "metrics-tls");
    let mut bindings = vec![to_value(&set.cluster_role_binding)];
    bindings.extend(set.role_bindings.iter().map(to_value));
    let named: Vec<(&str, &str)> = bindings
        .iter()
        .map(|binding| {
            let name = binding["metadata"]["name"].as_str().unwrap();
            (name, binding["roleRef"]["name"].as_str().unwrap())
        })
        .collect();
    let manager = (
        "numaresources-manager-rolebinding",
        "numaresources-manager-role",
    );
    let leader = (
        "numaresources-leader-election-rolebinding",
        "numaresources-leader-election-role",
    );
    assert_eq!(named, [manager, manager, leader]);
}

#[test]
fn users_roles_let_viewers_read_and_editors_write_all_but_the_status() {
    let roles: Vec<_> = operator::users::roles().iter().map(to_value).collect();
    let names: Vec<&str> = roles
        .iter()
        .map(|role| role["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "numaresourcesoperator-editor-role",
            "numaresourcesoperator-viewer-role",
            "numaresourcesscheduler-editor-role",
            "numaresourcesscheduler-viewer-role",
        ]
    );
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["nodetopology.openshift.io"], "resources": [resource], "verbs": verbs});
    assert_eq!(
        roles[3]["rules"],
        json!([
            rule("numaresourcesschedulers", &["get", "list", "watch"]),
            rule("numaresourcesschedulers/status", &["get"]),
        ])
    );
    let all = [
        "create", "delete", "get", "list", "patch", "update", "watch",
    ];
    assert_eq!(
        roles[0]["rules"],
        json!([
            rule("numaresourcesoperators", &all),
            rule("numaresourcesoperators/status", &["get"]),
        ])
    );
}

#[rstest]
#[case::kubernetes(Platform::Kubernetes, true)]
#[case::openshift(Platform::OpenShift, false)]
#[case::hypershift(Platform::HyperShift, false)]
fn kubelets_are_asked_only_where_nothing_else_tells(
    #[case] platform: Platform,
    #[case] expected: bool,
) {
    let options = operator::Options {
        platform,
        ..operator::Options::default()
    };
    let objects = operator::Set::new(&options).objects();
    let asks = objects
        .iter()
        .any(|object| object.to_string().contains("nodes/proxy"));
    assert_eq!(asks, expected);
}

#[test]
fn operator_deployment_passes_environment_and_arguments() {
    let options = operator::Options {
        env: [("EXTRA".to_owned(), "1".to_owned())].into(),
        args: vec!["-platform=kubernetes".into()],
        ..operator::Options::default()
    };
    let deployment = to_value(&operator::Set::new(&options).deployment);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["args"],
        json!(["-v=4", "-metrics-auth", "-platform=kubernetes"])
    );
    assert_eq!(
        container["env"],
        json!([
            {"name": "PODNAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "EXTRA", "value": "1"},
        ])
    );
    assert_eq!(
        container["livenessProbe"]["httpGet"],
        json!({"path": "/healthz", "port": 8081})
    );
    assert_eq!(
        container["lifecycle"]["preStop"]["exec"]["command"],
        json!([
            "/bin/numaresources-operator",
            "-handle-lifecycle-event",
            "preStop"
        ])
    );
}

//! Compares the operator's own Deployment with the literals of operator.md 6.7.

use manifests::{operator, to_value};
use serde_json::json;

#[test]
fn operator_deployment_passes_environment_and_arguments() {
    let options = operator::Options {
        env: [("EXTRA".to_owned(), "1".to_owned())].into(),
        args: vec!["-platform=kubernetes".into()],
        ..operator::Options::default()
    };
    let deployment = to_value(&operator::Set::new(&options).deployment);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], json!(["-v=4", "-platform=kubernetes"]));
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

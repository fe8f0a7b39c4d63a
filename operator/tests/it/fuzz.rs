//! What users write for the operator.

use ::fuzz::object;
use api::operator::v1::NumaResourcesOperator;
use manifests::platform::Platform;
use serde_json::json;

#[test]
fn no_operator_resource_stops_the_derivation_of_its_pools() {
    let seed = json!({
        "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator",
        "metadata": {"name": "numaresourcesoperator", "annotations": {"a": "b"}},
        "spec": {
            "imageSpec": "i", "logLevel": "Normal", "podExcludes": [{"namespace": "a*", "name": "b"}],
            "nodeGroups": [
                {"poolName": "worker", "annotations": {"a": "b"}, "config": {"podsFingerprinting": "Enabled", "infoRefreshMode": "Periodic", "infoRefreshPeriod": "10s", "infoRefreshPause": "Disabled", "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]}},
                {"machineConfigPoolSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}},
            ],
        },
    });
    ::fuzz::run(file!(), |input| {
        let Some(read) = object::<NumaResourcesOperator>(&seed, input)? else {
            return Ok(());
        };
        let groups = &read.spec.node_groups;
        for platform in [
            Platform::Kubernetes,
            Platform::OpenShift,
            Platform::HyperShift,
        ] {
            if operator::node_groups::validate(groups, platform).is_ok() {
                drop(operator::node_groups::pools(
                    groups,
                    platform,
                    input.arbitrary()?,
                ));
            }
        }
        Ok(())
    });
}

//! The operator resource and the scheduler resource, in both versions.

use api::operator::v1::NumaResourcesOperator;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::{OPERATOR, SCHEDULER, Server};

fn cr(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let api_version = format!("nodetopology.openshift.io/{version}");
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn operator_cr(spec: &Value) -> Value {
    cr("v1", "NUMAResourcesOperator", OPERATOR, spec)
}

fn scheduler_cr(spec: &Value) -> Value {
    cr("v1", "NUMAResourcesScheduler", SCHEDULER, spec)
}

pub(super) async fn operator_v1(server: &Server) {
    let full = json!({
        "nodeGroups": [
            {
                "poolName": "a", "annotations": {"k": "v"},
                "config": {
                    "podsFingerprinting": "EnabledExclusiveResources", "infoRefreshMode": "PeriodicAndEvents",
                    "infoRefreshPeriod": "7s", "infoRefreshPause": "Enabled",
                    "tolerations": [{"key": "k", "operator": "Anything", "effect": "Whatever", "tolerationSeconds": 3}],
                },
            },
            {"machineConfigPoolSelector": {
                "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
            }},
        ],
        "imageSpec": "i", "logLevel": "TraceAll", "podExcludes": [{"namespace": "n*", "name": "p*"}],
    });
    let created = server.accepts(operator_cr(&full)).await;
    assert_eq!(
        created["spec"], full,
        "nothing is pruned and nothing is added"
    );
    let created = server.accepts(operator_cr(&json!({}))).await;
    assert_eq!(
        created["spec"],
        json!({"logLevel": "Normal"}),
        "the only default"
    );
    let mut without_spec = operator_cr(&json!({}));
    without_spec.as_object_mut().unwrap().remove("spec");
    server.accepts(without_spec).await;
    server.accepts(operator_cr(&json!({"logLevel": ""}))).await;
    // only the controller checks these (operator.md 1)
    server
        .accepts(operator_cr(
            &json!({"nodeGroups": [{}, {"poolName": "a"}, {"poolName": "a"}]}),
        ))
        .await;
    server
        .accepts(operator_cr(
            &json!({"nodeGroups": [{"poolName": "a", "config": {"infoRefreshPeriod": "soon"}}]}),
        ))
        .await;
    server
        .refuses(
            cr("v1", "NUMAResourcesOperator", "other", &json!({})),
            "This is a singleton resource and the object name must be 'numaresourcesoperator'.",
        )
        .await;
    server
        .refuses(operator_cr(&json!({"logLevel": "Loud"})), "spec.logLevel")
        .await;
    server
        .refuses(
            operator_cr(&json!({"imageSpec": null, "logLevel": 1})),
            "spec.logLevel",
        )
        .await;
    for (field, value) in [
        ("podsFingerprinting", json!("Sometimes")),
        ("infoRefreshMode", json!("Never")),
        ("infoRefreshPause", json!("Later")),
        ("infoRefreshPeriod", json!(10)),
    ] {
        let spec = json!({"nodeGroups": [{"poolName": "a", "config": {field: value}}]});
        server
            .refuses(
                operator_cr(&spec),
                &format!("spec.nodeGroups[0].config.{field}"),
            )
            .await;
    }
    let mut with_status = operator_cr(&json!({}));
    with_status["status"] = json!({"conditions": []});
    let created = server.accepts(with_status).await;
    assert_eq!(created.get("status"), None, "the status is a subresource");
}

/// Checks that null is accepted everywhere, as the original's definitions do: as a value where that is meant, and as nothing elsewhere.
pub(super) async fn nulls(server: &Server) {
    let group = json!({
        "poolName": "a", "machineConfigPoolSelector": null, "annotations": null,
        "config": {
            "podsFingerprinting": null, "infoRefreshMode": null, "infoRefreshPeriod": null, "infoRefreshPause": null, "tolerations": null,
        },
    });
    let spec =
        json!({"nodeGroups": [group], "imageSpec": null, "logLevel": null, "podExcludes": null});
    let created = server.accepts(operator_cr(&spec)).await;
    assert_eq!(
        created["spec"],
        json!({"nodeGroups": [{"poolName": "a", "config": {}}], "logLevel": "Normal"})
    );
    let optional = json!({
        "imageSpec": "i", "schedulerName": null, "logLevel": null, "cacheResyncPeriod": null, "cacheResyncDebug": null,
        "schedulerInformer": null, "cacheResyncDetection": null, "preemptionMode": null, "replicas": null, "scoringStrategy": null,
    });
    let created = server.accepts(scheduler_cr(&optional)).await;
    assert_eq!(
        created["spec"],
        json!({"imageSpec": "i", "logLevel": "Normal"})
    );

    let object = operator_cr(&json!({}));
    let api = server.api(&object);
    let parsed = serde_json::from_value(object).unwrap();
    let mut live = api.create(&PostParams::default(), &parsed).await.unwrap();
    let condition = json!({"type": "Updated", "status": "True", "reason": "", "message": "", "lastTransitionTime": null});
    live.data["status"] =
        json!({"machineconfigpools": [{"name": "worker", "conditions": [condition]}]});
    let live = api
        .replace_status(OPERATOR, &PostParams::default(), &live)
        .await
        .unwrap();
    assert_eq!(
        live.data["status"]["machineconfigpools"][0]["conditions"],
        json!([condition])
    );
    let read: NumaResourcesOperator = live.try_parse().unwrap();
    let pools = read.status.unwrap().machineconfigpools;
    assert_eq!(pools[0].conditions[0].last_transition_time, None);
    api.delete(OPERATOR, &DeleteParams::default())
        .await
        .unwrap();
}

pub(super) async fn scheduler_v1(server: &Server) {
    let full = json!({
        "imageSpec": "i", "schedulerName": "s", "logLevel": "Debug", "cacheResyncPeriod": "0s", "cacheResyncDebug": "DumpJSONFile",
        "schedulerInformer": "Shared", "cacheResyncDetection": "Aggressive", "preemptionMode": "Enabled", "replicas": -1,
        "scoringStrategy": {"type": "BalancedAllocation", "resources": [{"name": "cpu"}, {"name": "memory", "weight": 2}]},
    });
    let created = server.accepts(scheduler_cr(&full)).await;
    assert_eq!(
        created["spec"], full,
        "nothing is pruned and nothing is added"
    );
    let created = server
        .accepts(scheduler_cr(&json!({"imageSpec": "i"})))
        .await;
    assert_eq!(
        created["spec"],
        json!({"imageSpec": "i", "logLevel": "Normal"}),
        "the only default"
    );
    server
        .refuses(scheduler_cr(&json!({})), "spec.imageSpec: Required value")
        .await;
    server
        .refuses(
            cr(
                "v1",
                "NUMAResourcesScheduler",
                "other",
                &json!({"imageSpec": "i"}),
            ),
            "This is a singleton resource and the object name must be 'numaresourcesscheduler'.",
        )
        .await;
    for (field, value) in [
        ("cacheResyncDebug", "DumpXML"),
        ("schedulerInformer", "None"),
        ("cacheResyncDetection", "Strict"),
        ("preemptionMode", "Maybe"),
        ("logLevel", "Loud"),
        ("replicas", "one"),
    ] {
        let spec = json!({"imageSpec": "i", field: value});
        server
            .refuses(scheduler_cr(&spec), &format!("spec.{field}"))
            .await;
    }
    let strategy = json!({"imageSpec": "i", "scoringStrategy": {"type": "LeastNUMANodes"}});
    server
        .refuses(scheduler_cr(&strategy), "spec.scoringStrategy.type")
        .await;
    let nameless = json!({"imageSpec": "i", "scoringStrategy": {"resources": [{"weight": 1}]}});
    server
        .refuses(
            scheduler_cr(&nameless),
            "spec.scoringStrategy.resources[0].name",
        )
        .await;
}

pub(super) async fn alpha(server: &Server) {
    let operator = json!({"nodeGroups": [{
        "disablePodsFingerprinting": true, "machineConfigPoolSelector": {},
        "config": {"podsFingerprinting": "Enabled", "infoRefreshMode": "Events", "infoRefreshPeriod": "1s"},
    }]});
    let created = server
        .accepts(cr(
            "v1alpha1",
            "NUMAResourcesOperator",
            "any-name",
            &operator,
        ))
        .await;
    let mut stored = operator["nodeGroups"].clone();
    stored[0]
        .as_object_mut()
        .unwrap()
        .remove("disablePodsFingerprinting");
    assert_eq!(
        created["spec"]["nodeGroups"], stored,
        "the stored version does not have the deprecated switch"
    );
    let newer = json!({"nodeGroups": [{"poolName": "a", "annotations": {"a": "b"}, "config": {"infoRefreshPause": "Enabled"}}]});
    let created = server
        .accepts(cr("v1alpha1", "NUMAResourcesOperator", "any-name", &newer))
        .await;
    assert_eq!(
        created["spec"]["nodeGroups"],
        json!([{"config": {}}]),
        "fields of v1 are pruned"
    );
    let scheduler =
        json!({"imageSpec": "i", "schedulerName": "s", "cacheResyncPeriod": "1s", "replicas": 1});
    let created = server
        .accepts(cr(
            "v1alpha1",
            "NUMAResourcesScheduler",
            "any-name",
            &scheduler,
        ))
        .await;
    assert_eq!(
        created["spec"].get("replicas"),
        None,
        "fields of v1 are pruned"
    );
    server
        .refuses(
            cr("v1alpha1", "NUMAResourcesScheduler", "any-name", &json!({})),
            "spec.imageSpec: Required value",
        )
        .await;
}

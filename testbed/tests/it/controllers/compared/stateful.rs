//! StatefulSets, and Endpoints that are mirrored.

use kube::api::PropagationPolicy;
use serde_json::{Value, json};

use super::{Scenario, forever};

impl Scenario {
    pub(super) async fn stateful_sets(&mut self) {
        let kind = ("apps/v1", "StatefulSet");
        let service = json!({"metadata": {"name": "db"}, "spec": {
            "clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]}});
        self.make("v1", "Service", service).await;
        let set = json!({"metadata": {"name": "db"}, "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": forever("db")}});
        self.make(kind.0, kind.1, set).await;
        self.record_state("a stateful set").await;
        let version = |version: &str| json!({"metadata": {"labels": {"version": version}}});
        let partition = |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        let on_delete = json!({"type": "OnDelete", "rollingUpdate": null});
        let steps: [(&'static str, Value); 5] = [
            (
                "a stateful set above a partition",
                json!({"updateStrategy": partition(1), "template": version("2")}),
            ),
            (
                "a stateful set without partition",
                json!({"updateStrategy": partition(0)}),
            ),
            ("a stateful set that scales down", json!({"replicas": 1})),
            (
                "a stateful set that updates what is deleted",
                json!({"updateStrategy": on_delete, "template": version("3")}),
            ),
            (
                "a stateful set that is rolled back",
                json!({"updateStrategy": partition(0), "template": version("2")}),
            ),
        ];
        for (step, spec) in steps {
            self.patch(kind.0, kind.1, "db", json!({"spec": spec}))
                .await;
            self.record_state(step).await;
        }
        self.delete(kind.0, kind.1, "db", PropagationPolicy::Background)
            .await;
        self.delete("v1", "Service", "db", PropagationPolicy::Background)
            .await;
        let set = json!({"metadata": {"name": "held"}, "spec": {
            "replicas": 2, "serviceName": "", "selector": {"matchLabels": {"app": "held"}}, "template": forever("held"),
            "ordinals": {"start": 3}, "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}});
        self.make(kind.0, kind.1, set).await;
        self.record_state("a parallel stateful set with claims")
            .await;
        let spec = json!({"spec": {"replicas": 1}});
        self.patch(kind.0, kind.1, "held", spec).await;
        self.record_state("a stateful set with claims that scales down")
            .await;
        self.delete(kind.0, kind.1, "held", PropagationPolicy::Background)
            .await;
        self.record_state("no stateful set").await;
    }

    pub(super) async fn mirrored_endpoints(&mut self) {
        let service = json!({"metadata": {"name": "outside"}, "spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}});
        self.make("v1", "Service", service).await;
        let subset = |ip: &str, port: i32| json!({"addresses": [{"ip": ip}], "notReadyAddresses": [{"ip": "fd00::7"}], "ports": [{"port": port, "name": "a"}]});
        let endpoints = json!({"metadata": {"name": "outside", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "subsets": [subset("10.9.0.1", 80), subset("10.9.0.2", 81)]});
        self.make("v1", "Endpoints", endpoints).await;
        self.record_state("endpoints that are mirrored").await;
        let fewer = json!({"subsets": [subset("10.9.0.3", 82)]});
        self.patch("v1", "Endpoints", "outside", fewer).await;
        self.record_state("fewer endpoints that are mirrored").await;
        let skipped =
            json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
        self.patch("v1", "Endpoints", "outside", skipped).await;
        self.record_state("endpoints that are not mirrored").await;
        self.delete("v1", "Service", "outside", PropagationPolicy::Background)
            .await;
        self.record_state("no endpoints").await;
    }
}

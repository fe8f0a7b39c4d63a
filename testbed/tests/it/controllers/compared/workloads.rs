//! StatefulSets, jobs with indexes and policies, CronJobs, and Endpoints that are mirrored: all are made, changed and deleted together, so that
//! few states have to settle.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Scenario, forever, template};

const SET: (&str, &str) = ("apps/v1", "StatefulSet");
const JOB: (&str, &str) = ("batch/v1", "Job");
const CRON: (&str, &str) = ("batch/v1", "CronJob");
const SERVICE: (&str, &str) = ("v1", "Service");
const ENDPOINTS: (&str, &str) = ("v1", "Endpoints");

/// A merge patch of an object: version and kind, name, patch.
type Change = ((&'static str, &'static str), &'static str, Value);

fn merged(mut fields: Value, more: &Value) -> Value {
    let all = fields.as_object_mut().unwrap();
    all.extend(more.as_object().cloned().unwrap());
    fields
}

/// Returns the specification of a job whose pods sleep for a time; with nonsense they fail, not with code 42.
fn spec(name: &str, sleeps: &str, fields: &Value) -> Value {
    let pods = json!({"template": template(name, &["/bin/sleep", sleeps], "Never")});
    merged(pods, fields)
}

/// Returns names, times and further fields of jobs.
fn jobs() -> Vec<(&'static str, &'static str, Value)> {
    let indexed = |completions: i32, parallelism: i32, more: Value| {
        let fields = json!({"completionMode": "Indexed", "completions": completions, "parallelism": parallelism});
        merged(fields, &more)
    };
    let on_code = |operator: &str| {
        let codes = json!({"operator": operator, "values": [42]});
        json!({"rules": [{"action": "FailJob", "onExitCodes": codes}]})
    };
    let one_is_enough =
        json!({"successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}});
    vec![
        ("each", "0", indexed(3, 2, json!({}))),
        (
            "indexes-fail",
            "nonsense",
            indexed(2, 2, json!({"backoffLimitPerIndex": 0})),
        ),
        (
            "too-many-fail",
            "nonsense",
            indexed(
                2,
                1,
                json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}),
            ),
        ),
        ("one-is-enough", "0", indexed(3, 1, one_is_enough)),
        (
            "code-ends-it",
            "nonsense",
            json!({"podFailurePolicy": on_code("NotIn")}),
        ),
        (
            "other-code",
            "nonsense",
            json!({"backoffLimit": 0, "podFailurePolicy": on_code("In")}),
        ),
        (
            "deadline",
            "infinity",
            json!({"activeDeadlineSeconds": 1, "podReplacementPolicy": "Failed"}),
        ),
        ("gone", "0", json!({"ttlSecondsAfterFinished": 0})),
        ("theirs", "0", json!({"managedBy": "example.com/other"})),
        ("later", "infinity", json!({"suspend": true})),
    ]
}

fn subset(ip: &str, port: i32) -> Value {
    json!({"addresses": [{"ip": ip}], "notReadyAddresses": [{"ip": "fd00::7"}], "ports": [{"port": port, "name": "a"}]})
}

/// Returns what is changed, step by step.
fn changes() -> [(&'static str, Vec<Change>); 4] {
    let version = |version: &str| json!({"metadata": {"labels": {"version": version}}});
    let partition = |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    let on_delete = json!({"type": "OnDelete", "rollingUpdate": null});
    let set = |spec: Value| (SET, "db", json!({"spec": spec}));
    [
        (
            "an update above a partition, fewer claims, jobs that go on",
            vec![
                set(json!({"updateStrategy": partition(1), "template": version("2")})),
                (SET, "held", json!({"spec": {"replicas": 1}})),
                (JOB, "later", json!({"spec": {"suspend": false}})),
                (CRON, "yearly", json!({"spec": {"suspend": false}})),
                (
                    ENDPOINTS,
                    "outside",
                    json!({"subsets": [subset("10.9.0.3", 82)]}),
                ),
            ],
        ),
        (
            "an update of all, a job that pauses, a cron job without history",
            vec![
                set(json!({"updateStrategy": partition(0)})),
                (JOB, "later", json!({"spec": {"suspend": true}})),
                (
                    CRON,
                    "yearly",
                    json!({"spec": {"successfulJobsHistoryLimit": 0}}),
                ),
                (
                    ENDPOINTS,
                    "outside",
                    json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}),
                ),
            ],
        ),
        (
            "one replica, and an update of what is deleted",
            vec![set(
                json!({"replicas": 1, "updateStrategy": on_delete, "template": version("3")}),
            )],
        ),
        (
            "an update that is rolled back",
            vec![set(
                json!({"updateStrategy": partition(0), "template": version("2")}),
            )],
        ),
    ]
}

impl Scenario {
    pub(super) async fn workloads(&mut self) {
        self.make_sets().await;
        for (name, sleeps, fields) in jobs() {
            let job = json!({"metadata": {"name": name}, "spec": spec(name, sleeps, &fields)});
            self.make(JOB.0, JOB.1, job).await;
        }
        self.make_cron_job().await;
        self.make_endpoints().await;
        self.record_state("sets, jobs and endpoints").await;
        for (step, changes) in changes() {
            for ((api_version, kind), name, patch) in changes {
                self.patch(api_version, kind, name, patch).await;
            }
            self.record_state(step).await;
        }
        for (api_version, kind) in [SET, JOB, CRON, SERVICE] {
            let params = DeleteParams::background();
            self.api(api_version, kind)
                .delete_collection(&params, &ListParams::default())
                .await
                .unwrap();
        }
        self.record_state("no sets, jobs and endpoints").await;
    }

    async fn make_sets(&self) {
        let service = json!({"metadata": {"name": "db"}, "spec": {
            "clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]}});
        self.make(SERVICE.0, SERVICE.1, service).await;
        let set = json!({"metadata": {"name": "db"}, "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": forever("db")}});
        self.make(SET.0, SET.1, set).await;
        let set = json!({"metadata": {"name": "held"}, "spec": {
            "replicas": 2, "serviceName": "", "selector": {"matchLabels": {"app": "held"}}, "template": forever("held"),
            "ordinals": {"start": 3}, "podManagementPolicy": "Parallel",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}});
        self.make(SET.0, SET.1, set).await;
    }

    async fn make_cron_job(&self) {
        let job = spec("yearly", "0", &json!({}));
        let object = json!({"metadata": {"name": "yearly"}, "spec": {
            "schedule": "30 9 1 1 *", "timeZone": "Asia/Tokyo", "suspend": true,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": job}}});
        self.make(CRON.0, CRON.1, object).await;
        // so that a job is due at once, and the same one in both clusters
        let last = json!({"status": {"lastScheduleTime": "2023-06-01T00:00:00Z"}});
        self.api(CRON.0, CRON.1)
            .patch_status("yearly", &PatchParams::default(), &Patch::Merge(last))
            .await
            .unwrap();
    }

    async fn make_endpoints(&self) {
        let service = json!({"metadata": {"name": "outside"}, "spec": {"ports": [{"port": 80, "name": "a"}]}});
        self.make(SERVICE.0, SERVICE.1, service).await;
        let endpoints = json!({"metadata": {"name": "outside", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "subsets": [subset("10.9.0.1", 80), subset("10.9.0.2", 81)]});
        self.make(ENDPOINTS.0, ENDPOINTS.1, endpoints).await;
    }
}

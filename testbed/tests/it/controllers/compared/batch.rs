//! Jobs with indexes and policies, and CronJobs.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use super::{Scenario, template};

const JOB: (&str, &str) = ("batch/v1", "Job");

/// Returns the specification of a job whose pods sleep for a time; with nonsense they fail with code 1.
fn spec(name: &str, sleeps: &str, fields: &Value) -> Value {
    let mut spec = json!({"template": template(name, &["/bin/sleep", sleeps], "Never")});
    let all = spec.as_object_mut().unwrap();
    all.extend(fields.as_object().cloned().unwrap_or_default());
    spec
}

impl Scenario {
    pub(super) async fn indexed_jobs(&mut self) {
        let in_code = |code: i32| json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [code]}}]);
        let indexed = |completions: i32, parallelism: i32| json!({"completionMode": "Indexed", "completions": completions, "parallelism": parallelism});
        let with = |mut fields: Value, more: Value| {
            let all = fields.as_object_mut().unwrap();
            all.extend(more.as_object().cloned().unwrap());
            fields
        };
        let jobs: [(&'static str, &str, Value); 9] = [
            ("an indexed job", "0", indexed(3, 2)),
            (
                "an indexed job whose indexes fail",
                "nonsense",
                with(indexed(2, 2), json!({"backoffLimitPerIndex": 0})),
            ),
            (
                "an indexed job with too many failed indexes",
                "nonsense",
                with(
                    indexed(2, 1),
                    json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}),
                ),
            ),
            (
                "an indexed job that is content with one",
                "0",
                with(
                    indexed(3, 1),
                    json!({"successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}}),
                ),
            ),
            (
                "a job that a code ends",
                "nonsense",
                json!({"podFailurePolicy": {"rules": in_code(1)}}),
            ),
            (
                "a job that another code would end",
                "nonsense",
                json!({"backoffLimit": 0, "podFailurePolicy": {"rules": in_code(42)}}),
            ),
            (
                "a job with a deadline",
                "infinity",
                json!({"activeDeadlineSeconds": 1, "podReplacementPolicy": "Failed"}),
            ),
            (
                "a job that goes when it is over",
                "0",
                json!({"ttlSecondsAfterFinished": 0}),
            ),
            (
                "a job of another controller",
                "0",
                json!({"managedBy": "example.com/other"}),
            ),
        ];
        for (place, (step, sleeps, fields)) in jobs.into_iter().enumerate() {
            let name = format!("job{place}x");
            let job = json!({"metadata": {"name": name}, "spec": spec(&name, sleeps, &fields)});
            self.make(JOB.0, JOB.1, job).await;
            self.record_state(step).await;
        }
        let job = json!({"metadata": {"name": "later"}, "spec": spec("later", "infinity", &json!({"suspend": true}))});
        self.make(JOB.0, JOB.1, job).await;
        self.record_state("a job that is suspended").await;
        for (step, suspend) in [("a job that goes on", false), ("a job that pauses", true)] {
            let suspend = json!({"spec": {"suspend": suspend}});
            self.patch(JOB.0, JOB.1, "later", suspend).await;
            self.record_state(step).await;
        }
        let all = self.api(JOB.0, JOB.1);
        let params = DeleteParams::background();
        all.delete_collection(&params, &ListParams::default())
            .await
            .unwrap();
        self.record_state("no indexed jobs").await;
    }

    pub(super) async fn cron_jobs(&mut self) {
        let cron = ("batch/v1", "CronJob");
        let job = spec("yearly", "0", &json!({}));
        let object = json!({"metadata": {"name": "yearly"}, "spec": {
            "schedule": "30 9 1 1 *", "timeZone": "Asia/Tokyo", "suspend": true,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": job}}});
        self.make(cron.0, cron.1, object).await;
        // so that a job is due at once, and the same one in both clusters
        let last = json!({"status": {"lastScheduleTime": "2023-06-01T00:00:00Z"}});
        self.api(cron.0, cron.1)
            .patch_status("yearly", &PatchParams::default(), &Patch::Merge(last))
            .await
            .unwrap();
        self.record_state("a cron job that is suspended").await;
        let resume = json!({"spec": {"suspend": false}});
        self.patch(cron.0, cron.1, "yearly", resume).await;
        self.record_state("a cron job whose job is due").await;
        let forget = json!({"spec": {"successfulJobsHistoryLimit": 0}});
        self.patch(cron.0, cron.1, "yearly", forget).await;
        self.record_state("a cron job without history").await;
        self.delete(cron.0, cron.1, "yearly", PropagationPolicy::Background)
            .await;
        self.record_state("no cron job").await;
    }
}

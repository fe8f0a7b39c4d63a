//! Jobs and CronJobs.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PropagationPolicy};
use rstest::rstest;
use serde_json::{Value, json};

use super::harness::{Cluster, make, until, until_all};

/// Returns a job whose pods wait until the test says how they end.
fn job(name: &str, spec: &Value) -> Value {
    let mut job = json!({"metadata": {"name": name}, "spec": {"template": {
        "metadata": {"annotations": {"play": "Pending"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}}}});
    let fields = job["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().cloned().unwrap_or_default());
    job
}

/// Returns the status of a job, without times.
fn summary(job: &Job) -> Value {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.into_iter().flatten();
    let conditions = conditions.filter(|held| held.status == "True");
    json!({
        "ends": conditions.map(|held| format!("{} {}", held.type_, held.reason.unwrap_or_default())).collect::<Vec<_>>(),
        "completed": status.completed_indexes, "bad": status.failed_indexes,
        "succeeded": status.succeeded, "failed": status.failed,
    })
}

/// Ends the pod of an index that is not over.
async fn end(pods: &Api<Pod>, index: &str, code: i32) {
    let is_open = |pod: &&Pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        phase == Some("Pending")
    };
    let selected = format!("batch.kubernetes.io/job-completion-index={index}");
    let found = until_all(pods, &selected, |pods| pods.iter().any(|pod| is_open(&pod))).await;
    let name = found.iter().find(is_open).unwrap().name_any();
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let status = json!({"status": {"phase": phase, "containerStatuses": [{
        "name": "main", "image": "pause", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"}}}]}});
    let params = PatchParams::default();
    pods.patch_status(&name, &params, &Patch::Merge(status))
        .await
        .unwrap();
}

#[rstest]
#[case::all_indexes(json!({}), &[("0", 0), ("2", 0), ("1", 0)],
    json!({"ends": ["SuccessCriteriaMet CompletionsReached", "Complete CompletionsReached"],
        "completed": "0-2", "bad": null, "succeeded": 3, "failed": null}))]
#[case::an_index_again(json!({"backoffLimitPerIndex": 1}), &[("1", 7), ("1", 0), ("0", 0), ("2", 0)],
    json!({"ends": ["SuccessCriteriaMet CompletionsReached", "Complete CompletionsReached"],
        "completed": "0-2", "bad": "", "succeeded": 3, "failed": 1}))]
#[case::an_index_that_failed(json!({"backoffLimitPerIndex": 1}), &[("1", 7), ("1", 7), ("0", 0), ("2", 0)],
    json!({"ends": ["FailureTarget FailedIndexes", "Failed FailedIndexes"],
        "completed": "0,2", "bad": "1", "succeeded": 2, "failed": 2}))]
#[case::too_many_failed_indexes(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}), &[("1", 7)],
    json!({"ends": ["FailureTarget MaxFailedIndexesExceeded", "Failed MaxFailedIndexesExceeded"],
        "completed": null, "bad": "1", "succeeded": null, "failed": 3}))]
#[case::a_code_that_ends_the_job(
    json!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}}), &[("0", 42)],
    json!({"ends": ["FailureTarget PodFailurePolicy", "Failed PodFailurePolicy"],
        "completed": null, "bad": null, "succeeded": null, "failed": 3}))]
#[case::a_code_that_does_not_count(
    json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]}}),
    &[("0", 42), ("0", 7)],
    json!({"ends": ["FailureTarget BackoffLimitExceeded", "Failed BackoffLimitExceeded"],
        "completed": null, "bad": null, "succeeded": null, "failed": 3}))]
#[case::enough_indexes(json!({"successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}}), &[("0", 0), ("2", 0)],
    json!({"ends": ["SuccessCriteriaMet SuccessPolicy", "Complete SuccessPolicy"],
        "completed": "0,2", "bad": null, "succeeded": 2, "failed": null}))]
#[tokio::test(flavor = "multi_thread")]
async fn the_policies_of_an_indexed_job_decide_its_end(
    #[case] policies: Value,
    #[case] ends: &[(&str, i32)],
    #[case] expected: Value,
) {
    let cluster = Cluster::start(&["a"]).await;
    let mut spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    let fields = spec.as_object_mut().unwrap();
    fields.extend(policies.as_object().cloned().unwrap());
    let jobs: Api<Job> = cluster.api();
    make(&jobs, job("each", &spec)).await;
    let pods: Api<Pod> = cluster.api();
    for (index, code) in ends {
        end(&pods, index, *code).await;
    }
    let has_ended = |job: &Job| {
        let ends = &summary(job)["ends"];
        ends.as_array().is_some_and(|ends| ends.len() == 2)
    };
    let ended = until(&jobs, "each", |job| job.is_some_and(has_ended)).await;
    assert_eq!(summary(&ended.unwrap()), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_an_indexed_job_know_their_index() {
    let cluster = Cluster::start(&["a"]).await;
    let jobs: Api<Job> = cluster.api();
    let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 3});
    make(&jobs, job("each", &spec)).await;
    let pods: Api<Pod> = cluster.api();
    end(&pods, "1", 7).await;
    let of_one = "batch.kubernetes.io/job-completion-index=1";
    let again = |pod: &Pod| pod.annotations()["batch.kubernetes.io/job-index-failure-count"] == "1";
    let found = until_all(&pods, of_one, |pods| pods.iter().any(again)).await;
    let pod = found.iter().find(|pod| again(pod)).unwrap();
    assert!(pod.name_any().starts_with("each-1-"), "{}", pod.name_any());
    let spec = pod.spec.clone().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("each-1"));
    let env = spec.containers[0].env.clone().unwrap();
    let from = env[0].value_from.clone().unwrap().field_ref.unwrap();
    assert_eq!(env[0].name, "JOB_COMPLETION_INDEX");
    assert_eq!(
        from.field_path,
        "metadata.labels['batch.kubernetes.io/job-completion-index']"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_controller_is_left_alone() {
    let cluster = Cluster::start(&["a"]).await;
    let jobs: Api<Job> = cluster.api();
    make(
        &jobs,
        job("theirs", &json!({"managedBy": "example.com/other"})),
    )
    .await;
    make(&jobs, job("ours", &json!({}))).await;
    // the jobs come to the controller in this order
    let pods: Api<Pod> = cluster.api();
    let pods = until_all(&pods, "job-name", |pods| !pods.is_empty()).await;
    assert_eq!(pods[0].labels()["job-name"], "ours");
    let theirs = jobs.get("theirs").await.unwrap();
    assert_eq!(theirs.status.unwrap_or_default().start_time, None);
}

/// Returns who controls a pod, and its finalizers.
fn ties(pod: &Pod) -> (Vec<&str>, &[String]) {
    let owners = pod.owner_references().iter();
    let owners = owners.map(|owner| owner.uid.as_str()).collect();
    (owners, pod.finalizers())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_takes_back_a_lost_pod_and_lets_go_of_one_that_is_not_its_own() {
    let cluster = Cluster::start(&["a"]).await;
    let jobs: Api<Job> = cluster.api();
    let pods: Api<Pod> = cluster.api();
    let uid = make(&jobs, job("mine", &json!({}))).await.uid().unwrap();
    let first = until_all(&pods, "job-name=mine", |pods| pods.len() == 1).await;
    let name = first[0].name_any();
    let tracked = ["batch.kubernetes.io/job-tracking".to_owned()];
    assert_eq!(ties(&first[0]), (vec![&*uid], &tracked[..]));
    let params = PatchParams::default();
    let lost = json!({"metadata": {"ownerReferences": null, "finalizers": null}});
    pods.patch(&name, &params, &Patch::Merge(lost))
        .await
        .unwrap();
    until(&pods, &name, |pod| {
        pod.is_some_and(|pod| ties(pod) == (vec![&*uid], &tracked[..]))
    })
    .await;
    let strange = json!({"metadata": {"labels": null}});
    pods.patch(&name, &params, &Patch::Merge(strange))
        .await
        .unwrap();
    until(&pods, &name, |pod| {
        pod.is_some_and(|pod| ties(pod) == (Vec::new(), &[]))
    })
    .await;
    let next = until_all(&pods, "job-name=mine", |pods| pods.len() == 1).await;
    assert_ne!(next[0].name_any(), name);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_deleted_job_leaves_behind_can_be_deleted() {
    let cluster = Cluster::start(&["a"]).await;
    let jobs: Api<Job> = cluster.api();
    let pods: Api<Pod> = cluster.api();
    make(&jobs, job("gone", &json!({}))).await;
    let left = until_all(&pods, "job-name=gone", |pods| pods.len() == 1).await;
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    jobs.delete("gone", &params).await.unwrap();
    until(&pods, &left[0].name_any(), |pod| {
        pod.is_some_and(|pod| ties(pod) == (Vec::new(), &[]))
    })
    .await;
}

fn is_same<T: std::str::FromStr + PartialEq>(text: &str, value: &T) -> bool {
    text.parse().is_ok_and(|parsed: T| parsed == *value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_makes_the_job_that_is_due() {
    let cluster = Cluster::start(&["a"]).await;
    let cron_jobs: Api<CronJob> = cluster.api();
    let template = job("any", &json!({}))["spec"].clone();
    let cron = json!({"metadata": {"name": "yearly"}, "spec": {
        "schedule": "30 9 1 1 *", "timeZone": "America/New_York", "suspend": true, "concurrencyPolicy": "Forbid",
        "jobTemplate": {"metadata": {"labels": {"cron": "yearly"}}, "spec": template}}});
    make(&cron_jobs, cron).await;
    let params = PatchParams::default();
    let last = json!({"status": {"lastScheduleTime": "2023-06-01T00:00:00Z"}});
    cron_jobs
        .patch_status("yearly", &params, &Patch::Merge(last))
        .await
        .unwrap();
    let resume = json!({"spec": {"suspend": false}});
    cron_jobs
        .patch("yearly", &params, &Patch::Merge(resume))
        .await
        .unwrap();
    let jobs: Api<Job> = cluster.api();
    let jobs = until_all(&jobs, "cron=yearly", |jobs| jobs.len() == 1).await;
    let status = until(&cron_jobs, "yearly", |cron| {
        let status = cron.and_then(|cron| cron.status.as_ref());
        status.is_some_and(|status| status.active.is_some())
    })
    .await
    .unwrap()
    .status
    .unwrap();
    // only the last of the missed times counts
    let at = status.last_schedule_time.unwrap().0;
    let scheduled = &jobs[0].annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert!(scheduled.ends_with("-01-01T09:30:00-05:00"), "{scheduled}");
    assert!(is_same(scheduled, &at), "{scheduled} {at}");
    let name = format!("yearly-{}", at.as_second() / 60);
    assert_eq!(jobs[0].name_any(), name);
    assert_eq!(status.active.unwrap()[0].name, Some(name));
}

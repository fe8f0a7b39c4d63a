//! Cells of the kinds that create pods.

use serde_json::{Value, json};

use crate::values::words::{
    age, boolean, containers, duration, items, labels, none_if_empty, number, or, parsed, selector,
    since, text,
};

/// Returns the cells of an object; `None` for kinds of other modules.
pub(super) fn cells(storage: &str, object: &Value, created: &str) -> Option<Vec<Value>> {
    Some(match storage {
        "podtemplates" => pod_template(object),
        "deployments.apps" => deployment(object, created),
        "replicasets.apps" => {
            let selected = none_if_empty(selector(&object["spec"]["selector"]));
            replicas(object, created, &selected)
        }
        "replicationcontrollers" => replicas(object, created, &labels(&object["spec"]["selector"])),
        "daemonsets.apps" => daemon_set(object, created),
        "statefulsets.apps" => stateful_set(object, created),
        "controllerrevisions.apps" => controller_revision(object, created),
        "jobs.batch" => job(object, created),
        "cronjobs.batch" => cron_job(object, created),
        _ => return None,
    })
}

/// Returns the names and the images of a template's containers.
fn containers_of(template: &Value) -> [String; 2] {
    containers(&template["spec"]["containers"])
}

/// Returns how many of the wanted pods are ready.
fn ready(object: &Value) -> String {
    format!(
        "{}/{}",
        number(&object["status"]["readyReplicas"]),
        number(&object["spec"]["replicas"])
    )
}

fn pod_template(template: &Value) -> Vec<Value> {
    let template_of_pods = &template["template"];
    let [names, images] = containers_of(template_of_pods);
    vec![
        json!(text(&template["metadata"]["name"])),
        json!(names),
        json!(images),
        json!(labels(&template_of_pods["metadata"]["labels"])),
    ]
}

fn deployment(deployment: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let [names, images] = containers_of(&spec["template"]);
    vec![
        json!(text(&deployment["metadata"]["name"])),
        json!(ready(deployment)),
        json!(number(&status["updatedReplicas"])),
        json!(number(&status["availableReplicas"])),
        json!(created),
        json!(names),
        json!(images),
        json!(selector(&spec["selector"])),
    ]
}

/// Returns the cells of a replica set or a replication controller.
fn replicas(object: &Value, created: &str, selected: &str) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [names, images] = containers_of(&spec["template"]);
    vec![
        json!(text(&object["metadata"]["name"])),
        json!(number(&spec["replicas"])),
        json!(number(&status["replicas"])),
        json!(number(&status["readyReplicas"])),
        json!(created),
        json!(names),
        json!(images),
        json!(selected),
    ]
}

fn daemon_set(set: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let [names, images] = containers_of(&spec["template"]);
    vec![
        json!(text(&set["metadata"]["name"])),
        json!(number(&status["desiredNumberScheduled"])),
        json!(number(&status["currentNumberScheduled"])),
        json!(number(&status["numberReady"])),
        json!(number(&status["updatedNumberScheduled"])),
        json!(number(&status["numberAvailable"])),
        json!(labels(&spec["template"]["spec"]["nodeSelector"])),
        json!(created),
        json!(names),
        json!(images),
        json!(none_if_empty(selector(&spec["selector"]))),
    ]
}

fn stateful_set(set: &Value, created: &str) -> Vec<Value> {
    let [names, images] = containers_of(&set["spec"]["template"]);
    vec![
        json!(text(&set["metadata"]["name"])),
        json!(ready(set)),
        json!(created),
        json!(names),
        json!(images),
    ]
}

fn controller_revision(revision: &Value, created: &str) -> Vec<Value> {
    let controller = items(&revision["metadata"]["ownerReferences"])
        .iter()
        .find(|owner| owner["controller"] == true)
        .map(|owner| {
            let version = text(&owner["apiVersion"]);
            let kind = text(&owner["kind"]);
            let kind = match version.split_once('/') {
                Some((group, _)) => format!("{kind}.{group}"),
                None => kind,
            };
            format!("{}/{}", kind.to_lowercase(), text(&owner["name"]))
        });
    vec![
        json!(text(&revision["metadata"]["name"])),
        json!(controller.unwrap_or_else(|| "<none>".into())),
        json!(number(&revision["revision"])),
        json!(created),
    ]
}

fn job(job: &Value, created: &str) -> Vec<Value> {
    let spec = &job["spec"];
    let [names, images] = containers_of(&spec["template"]);
    vec![
        json!(text(&job["metadata"]["name"])),
        json!(job_status(job)),
        json!(job_completions(job)),
        json!(job_duration(&job["status"])),
        json!(created),
        json!(names),
        json!(images),
        json!(none_if_empty(selector(&spec["selector"]))),
    ]
}

fn cron_job(job: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&job["spec"], &job["status"]);
    let inner = &spec["jobTemplate"]["spec"];
    let [names, images] = containers_of(&inner["template"]);
    let last = match parsed(&status["lastScheduleTime"]) {
        Some(last) => since(last),
        None => "<none>".into(),
    };
    vec![
        json!(text(&job["metadata"]["name"])),
        json!(text(&spec["schedule"])),
        json!(or(&spec["timeZone"], "<none>")),
        json!(boolean(&spec["suspend"])),
        json!(items(&status["active"]).len()),
        json!(last),
        json!(created),
        json!(names),
        json!(images),
        json!(none_if_empty(selector(&inner["selector"]))),
    ]
}

fn job_status(job: &Value) -> &'static str {
    let is = |kind: &str| {
        let condition = items(&job["status"]["conditions"])
            .iter()
            .find(|condition| condition["type"] == kind);
        condition.is_some_and(|condition| condition["status"] == "True")
    };
    for ended in ["Complete", "Failed"] {
        if is(ended) {
            return ended;
        }
    }
    if job["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|kind| is(kind))
        .unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let succeeded = number(&job["status"]["succeeded"]);
    let parallelism = number(&job["spec"]["parallelism"]);
    match job["spec"]["completions"].as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn job_duration(status: &Value) -> String {
    match (
        parsed(&status["startTime"]),
        parsed(&status["completionTime"]),
    ) {
        (None, _) => String::new(),
        (Some(_), None) => age(&status["startTime"]),
        (Some(start), Some(end)) => duration(end.duration_since(start).as_secs_f64()),
    }
}

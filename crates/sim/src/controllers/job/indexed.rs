//! Pods of an Indexed job: each has the index of its completion.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt as _;

use super::policies;
use crate::controllers::objects;

/// Annotation and label of a pod with its index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation of a pod with the number of failures of its index before it.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation of a pod with the number of failures of its index that the policy ignores.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// Variable of the containers with the index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Longest beginning of a generated name, in bytes.
const LONGEST_PREFIX: usize = 58;

/// Returns whether the pods of a job have indexes.
pub(super) fn is_indexed(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    spec.and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
}

/// Returns how often an index may fail, if each index has its own limit.
pub(super) fn limit(job: &Job) -> Option<i32> {
    let limit = job.spec.as_ref()?.backoff_limit_per_index;
    limit.filter(|_| is_indexed(job))
}

/// Returns the number of completions that a job wants; 0 if it wants no number.
pub(super) fn completions(job: &Job) -> i32 {
    let spec = job.spec.as_ref();
    spec.and_then(|spec| spec.completions).unwrap_or(0)
}

fn number(pod: &Pod, annotation: &str) -> Option<i32> {
    let number = pod.annotations().get(annotation)?.parse().ok()?;
    (number >= 0).then_some(number)
}

/// Returns the index of a pod, if it has one that the job wants.
pub(super) fn index(job: &Job, pod: &Pod) -> Option<i32> {
    number(pod, INDEX).filter(|index| *index < completions(job))
}

/// Returns how many pods of its index failed before a pod: those that count, and those that the policy ignores.
pub(super) fn failures(pod: &Pod) -> (i32, i32) {
    let of = |annotation| number(pod, annotation).unwrap_or(0);
    (of(FAILURES), of(IGNORED))
}

/// Gives a new pod an index. `replaced` is the failed pod of that index, if there is one.
pub(super) fn mark(job: &Job, pod: &mut Pod, index: i32, replaced: Option<&Pod>) {
    let name = objects::name(job);
    let end = format!("-{index}-");
    let kept = name.len().min(LONGEST_PREFIX - end.len());
    pod.metadata.generate_name = Some(format!("{}{end}", &name[..kept]));
    pod.labels_mut().insert(INDEX.to_owned(), index.to_string());
    let annotations = pod.annotations_mut();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if limit(job).is_some() {
        let (mut counted, mut ignored) = replaced.map_or((0, 0), failures);
        match replaced {
            Some(pod) if policies::of_failure(job, pod).counts() => counted += 1,
            Some(_) => ignored += 1,
            None => {}
        }
        annotations.insert(FAILURES.to_owned(), counted.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED.to_owned(), ignored.to_string());
        }
    }
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{name}-{index}"));
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        tell(container);
    }
}

/// Tells a container the index, unless it has such a variable.
fn tell(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|held| held.name == VARIABLE) {
        return;
    }
    env.push(EnvVar {
        name: VARIABLE.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{INDEX}']"),
            }),
            ..EnvVarSource::default()
        }),
        value: None,
    });
}

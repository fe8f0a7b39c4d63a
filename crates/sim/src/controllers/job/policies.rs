//! What the policies of a job say about failed pods and succeeded indexes.

use k8s_openapi::api::batch::v1::{
    Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicyRule,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use super::indexes::Indexes;
use crate::controllers::objects;

/// What becomes of a failed pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts towards the limit of failures.
    Counts,
    /// It does not count.
    Ignored,
    /// Its index fails, whatever the limit is.
    FailsIndex,
    /// The job fails; holds the message.
    FailsJob(String),
}

impl Failure {
    /// Returns whether the failure is counted in the status.
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignored
    }
}

/// Returns what becomes of a failed pod by the policy of its job.
pub(super) fn of_failure(job: &Job, pod: &Pod) -> Failure {
    let spec = job.spec.as_ref();
    let rules = spec.and_then(|spec| spec.pod_failure_policy.as_ref());
    let rules = rules.map_or(&[][..], |policy| &policy.rules);
    let namespace = objects::namespace(pod);
    let name = objects::name(pod);
    for (place, rule) in rules.iter().enumerate() {
        let Some(what) = matched(rule, pod) else {
            continue;
        };
        let at = format!("matching {} rule at index {place}", rule.action);
        return match (rule.action.as_str(), what) {
            ("Ignore", _) => Failure::Ignored,
            ("FailIndex", _) => Failure::FailsIndex,
            ("FailJob", Match::Container(container, code)) => Failure::FailsJob(format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {code} {at}"
            )),
            ("FailJob", Match::Condition(kind)) => {
                Failure::FailsJob(format!("Pod {namespace}/{name} has condition {kind} {at}"))
            }
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

/// Why a rule is about a pod.
enum Match<'a> {
    /// Name and exit code of a container.
    Container(&'a str, i32),
    /// Type of a condition.
    Condition(&'a str),
}

fn matched<'a>(rule: &PodFailurePolicyRule, pod: &'a Pod) -> Option<Match<'a>> {
    let status = pod.status.as_ref()?;
    if let Some(codes) = &rule.on_exit_codes {
        let containers = status.container_statuses.iter().flatten();
        let init = status.init_container_statuses.iter().flatten();
        return containers
            .chain(init)
            .find_map(|container| exit(container, codes));
    }
    let is_met = |held: &&PodCondition| {
        let patterns = rule.on_pod_conditions.iter().flatten();
        patterns.clone().any(|pattern| {
            let wanted = pattern.status.as_deref().unwrap_or("True");
            pattern.type_ == held.type_ && wanted == held.status
        })
    };
    let conditions = status.conditions.iter().flatten();
    let mut met = conditions.filter(is_met);
    met.next().map(|held| Match::Condition(&held.type_))
}

fn exit<'a>(
    container: &'a ContainerStatus,
    wanted: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<Match<'a>> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let name = wanted.container_name.as_ref();
    if code == 0 || name.is_some_and(|name| *name != container.name) {
        return None;
    }
    let is_met = match wanted.operator.as_str() {
        "In" => wanted.values.contains(&code),
        "NotIn" => !wanted.values.contains(&code),
        _ => false,
    };
    is_met.then_some(Match::Container(&container.name, code))
}

/// Returns the message of the first rule of a job's success policy that the succeeded indexes satisfy.
pub(super) fn success(job: &Job, succeeded: &Indexes) -> Option<String> {
    let spec = job.spec.as_ref()?;
    let completions = spec.completions.unwrap_or(0);
    if succeeded.total() == 0 {
        return None;
    }
    let rules = &spec.success_policy.as_ref()?.rules;
    let met = rules
        .iter()
        .position(|rule| is_met(rule, succeeded, completions))?;
    Some(format!("Matched rules at index {met}"))
}

fn is_met(rule: &SuccessPolicyRule, succeeded: &Indexes, completions: i32) -> bool {
    let is_enough = |count: i32| rule.succeeded_count.is_some_and(|wanted| count >= wanted);
    let Some(wanted) = &rule.succeeded_indexes else {
        return is_enough(succeeded.total());
    };
    let wanted = Indexes::parse(wanted, completions);
    let shared = wanted.shared_with(succeeded);
    wanted.total() > 0 && (shared == wanted.total() || is_enough(shared))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::no_rule(json!([]), Failure::Counts)]
    #[case::another_code(json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]), Failure::Counts)]
    #[case::another_container(json!([{"action": "FailJob", "onExitCodes": {"containerName": "b", "operator": "In", "values": [42]}}]), Failure::Counts)]
    #[case::a_code(json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]),
        Failure::FailsJob("Container a for pod ns/p failed with exit code 42 matching FailJob rule at index 0".into()))]
    #[case::all_other_codes(json!([{"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}}]), Failure::FailsIndex)]
    #[case::the_first_rule_wins(json!([
        {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]), Failure::Counts)]
    #[case::a_condition(json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]), Failure::Ignored)]
    #[case::a_condition_with_another_status(json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}]), Failure::Counts)]
    #[case::a_condition_that_ends_the_job(json!([{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]),
        Failure::FailsJob("Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0".into()))]
    fn the_first_matching_rule_decides(#[case] rules: Value, #[case] expected: Failure) {
        let job =
            json!({"metadata": {}, "spec": {"podFailurePolicy": {"rules": rules}, "template": {}}});
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 42}}}]}});
        let job = serde_json::from_value(job).unwrap();
        let pod = serde_json::from_value(pod).unwrap();
        assert_eq!(of_failure(&job, &pod), expected);
    }

    #[rstest]
    #[case::no_index("", json!([{"succeededCount": 1}]), None)]
    #[case::a_count("3-5", json!([{"succeededCount": 3}]), Some("Matched rules at index 0"))]
    #[case::all_of_some("0,1,2", json!([{"succeededIndexes": "3"}, {"succeededIndexes": "0,2"}]), Some("Matched rules at index 1"))]
    #[case::not_all("0", json!([{"succeededIndexes": "0,2"}]), None)]
    #[case::some_of_some("0,5", json!([{"succeededIndexes": "0-3", "succeededCount": 1}]), Some("Matched rules at index 0"))]
    fn a_job_may_succeed_before_its_last_index(
        #[case] succeeded: &str,
        #[case] rules: Value,
        #[case] expected: Option<&str>,
    ) {
        let job = json!({"metadata": {}, "spec": {"completions": 6, "successPolicy": {"rules": rules}, "template": {}}});
        let job = serde_json::from_value(job).unwrap();
        let found = success(&job, &Indexes::parse(succeeded, 6));
        assert_eq!(found.as_deref(), expected);
    }
}

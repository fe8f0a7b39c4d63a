//! Checks of jobs and cron jobs.

use std::collections::HashSet;

use cron_schedule::Schedule;
use serde_json::{Value, json};

use super::checks::{filled, indexed, not_negative, one_of, text, wrong};
use super::network::domain_path;
use super::{internal, names, workloads};
use crate::failure::Cause;
use crate::values::fields::elements;

mod selector;

/// Most pods at a time, and most failed indexes, of an indexed job.
const MOST_INDEXED: i64 = 100_000;
/// From how many completions on an indexed job with limits per index may run fewer pods at a time, and how many.
const MANY: i64 = 100_000;
const MOST_OF_MANY: i64 = 10_000;
const NEEDS_INDEXES: &str = "requires indexed completion mode";
/// Most rules of a policy.
const MOST_RULES: usize = 20;
/// Most exit codes of a rule.
const MOST_CODES: usize = 255;
const MODES: [&str; 2] = ["NonIndexed", "Indexed"];

/// Checks a job.
pub(super) fn job(object: &Value, causes: &mut Vec<Cause>) {
    check(object, true, causes);
}

/// Checks a changed job. One that had no labels with a domain needs none.
pub(super) fn changed(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let labels = &before["spec"]["template"]["metadata"]["labels"];
    let had = |label: &str| !labels[label].is_null();
    let had_both = had("batch.kubernetes.io/job-name") && had("batch.kubernetes.io/controller-uid");
    check(object, had_both, causes);
    again(&object["spec"], causes);
}

fn check(object: &Value, needs_domains: bool, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    selector::generated(object, needs_domains, causes);
    again(spec, causes);
    let completions = spec["completions"].as_i64().unwrap_or_default();
    if spec["completionMode"] == "Indexed" && completions > 0 {
        let name = text(&object["metadata"]["name"]);
        let host = format!("{name}-{}", completions - 1);
        if !names::label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            causes.push(Cause::invalid("metadata.name", &json!(name), &why));
        }
    }
}

/// Checks what a real server checks once more in a change.
fn again(spec: &Value, causes: &mut Vec<Cause>) {
    specification(spec, "spec", causes);
    selector::check(spec, causes);
}

/// Checks the specification of a job at a path, but for its selector.
fn specification(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(&spec[field], &at(field), causes);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let why = "when maxFailedIndexes is specified";
        causes.push(Cause::required(at("backoffLimitPerIndex"), why));
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        if manager.is_empty() {
            causes.push(Cause::required(at("managedBy"), ""));
        } else {
            domain_path(manager, &at("managedBy"), causes);
        }
        if manager.len() > 63 {
            causes.push(Cause::too_long(at("managedBy"), 63));
        }
    }
    let mode = &spec["completionMode"];
    if !mode.is_null() {
        one_of(mode, &MODES, &at("completionMode"), causes);
    }
    if mode == "Indexed" {
        indexed_job(spec, path, causes);
    } else if mode.is_null() || mode == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if !spec[field].is_null() {
                causes.push(Cause::invalid(at(field), &spec[field], NEEDS_INDEXES));
            }
        }
    }
    if !spec["podFailurePolicy"].is_null() {
        failure_policy(spec, &at("podFailurePolicy.rules"), causes);
    }
    let success = &spec["successPolicy"];
    if !success.is_null() && mode != "Indexed" {
        let cause = Cause::invalid(at("successPolicy"), &Value::Null, NEEDS_INDEXES);
        causes.push(cause.with_value(&internal::written("SuccessPolicy", success)));
    } else if !success.is_null() {
        success_policy(spec, &at("successPolicy.rules"), causes);
    }
    let replacement = &spec["podReplacementPolicy"];
    if !replacement.is_null() {
        let policies: &[&str] = if spec["podFailurePolicy"].is_null() {
            &["Failed", "TerminatingOrFailed"]
        } else {
            &["Failed"]
        };
        one_of(replacement, policies, &at("podReplacementPolicy"), causes);
    }
    workloads::template(&spec["template"], &at("template"), causes);
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let at = at("template.spec.restartPolicy");
    match text(policy) {
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            causes.push(Cause::invalid(at, policy, why));
        }
        "OnFailure" | "Never" => {}
        "" | "Always" => {
            let why = "valid values: \"OnFailure\", \"Never\"";
            causes.push(Cause::required(at, why));
        }
        _ => one_of(policy, &["OnFailure", "Never"], &at, causes),
    }
}

fn indexed_job(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = |field: &str| spec[field].as_i64();
    let (parallelism, completions) = (number("parallelism"), number("completions"));
    let failed = number("maxFailedIndexes");
    let mut refuse = |field: &str, why: &str| {
        causes.push(Cause::invalid(format!("{path}.{field}"), &spec[field], why));
    };
    if parallelism.is_some_and(|count| count > MOST_INDEXED) {
        let why =
            format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
        refuse("parallelism", &why);
    }
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        refuse(
            "maxFailedIndexes",
            "must be less than or equal to completions",
        );
    }
    if failed.is_some_and(|count| count > MOST_INDEXED) {
        let why = format!("must be less than or equal to {MOST_INDEXED}");
        refuse("maxFailedIndexes", &why);
    }
    let is_large = completions.is_some_and(|count| count > MANY);
    if is_large && !spec["backoffLimitPerIndex"].is_null() {
        let why = format!(
            "must be less than or equal to {MOST_OF_MANY} when completions are above {MANY} and used with backoff limit per index"
        );
        for (field, count) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
            if count.is_some_and(|count| count > MOST_OF_MANY) {
                refuse(field, &why);
            }
        }
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY}");
            causes.push(Cause::required(format!("{path}.maxFailedIndexes"), &why));
        }
    }
    if completions.is_none() {
        let why = "when completion mode is Indexed";
        causes.push(Cause::required(format!("{path}.completions"), why));
    }
}

/// Refuses an empty choice and one that there is not.
fn choice(value: &Value, allowed: &[&str], path: &str, causes: &mut Vec<Cause>) {
    if filled(value) {
        one_of(value, allowed, path, causes);
        return;
    }
    let list: Vec<String> = allowed.iter().map(|one| format!("{one:?}")).collect();
    let why = format!("valid values: [{}]", list.join(" "));
    causes.push(Cause::required(path, &why));
}

fn failure_policy(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let rules = &spec["podFailurePolicy"]["rules"];
    let count = rules.as_array().map_or(0, Vec::len);
    if count > MOST_RULES {
        causes.push(Cause::too_many(path, count, MOST_RULES));
    }
    for (path, rule) in indexed(rules, path) {
        let at = format!("{path}.action");
        if rule["action"] != "FailIndex" {
            let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
            choice(&rule["action"], &actions, &at, causes);
        } else if spec["backoffLimitPerIndex"].is_null() {
            let why = "requires the backoffLimitPerIndex to be set";
            causes.push(Cause::invalid(at, &rule["action"], why));
        }
        let (codes, conditions) = (&rule["onExitCodes"], &rule["onPodConditions"]);
        if !codes.is_null() {
            exit_codes(codes, spec, &format!("{path}.onExitCodes"), causes);
        }
        let at = format!("{path}.onPodConditions");
        let count = conditions.as_array().map_or(0, Vec::len);
        if count > MOST_RULES {
            causes.push(Cause::too_many(&*at, count, MOST_RULES));
        }
        for (at, condition) in indexed(conditions, &at) {
            let kind = text(&condition["type"]);
            wrong(names::key(kind), kind, &format!("{at}.type"), causes);
            let all = ["False", "True", "Unknown"];
            choice(&condition["status"], &all, &format!("{at}.status"), causes);
        }
        let why = match (!codes.is_null(), filled(conditions)) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        causes.push(Cause::invalid_without_value(path, why));
    }
}

fn exit_codes(codes: &Value, spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let operator = &codes["operator"];
    choice(
        operator,
        &["In", "NotIn"],
        &format!("{path}.operator"),
        causes,
    );
    let template = &spec["template"]["spec"];
    let known = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| elements(&template[*list]))
        .any(|container| container["name"] == codes["containerName"]);
    if !codes["containerName"].is_null() && !known {
        let why = "must be one of the container or initContainer names in the pod template";
        let at = format!("{path}.containerName");
        causes.push(Cause::invalid(at, &codes["containerName"], why));
    }
    let (values, at) = (&codes["values"], format!("{path}.values"));
    let list: Vec<i64> = elements(values).filter_map(Value::as_i64).collect();
    if list.is_empty() {
        causes.push(Cause::invalid(
            &*at,
            values,
            "at least one value is required",
        ));
    } else if list.len() > MOST_CODES {
        causes.push(Cause::too_many(&*at, list.len(), MOST_CODES));
    }
    let mut seen = HashSet::new();
    for (at, value) in indexed(values, &at) {
        if operator == "In" && *value == json!(0) {
            let why = "must not be 0 for the In operator";
            causes.push(Cause::invalid(&*at, value, why));
        }
        if !seen.insert(value.as_i64()) {
            causes.push(Cause::duplicate(at, value));
        }
    }
    if !list.is_sorted() {
        causes.push(Cause::invalid(at, values, "must be ordered"));
    }
}

fn success_policy(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let rules = &spec["successPolicy"]["rules"];
    let count = rules.as_array().map_or(0, Vec::len);
    if count == 0 {
        let why = "at least one rules must be specified when the successPolicy is specified";
        causes.push(Cause::required(path, why));
    }
    if count > MOST_RULES {
        causes.push(Cause::too_many(path, count, MOST_RULES));
    }
    let completions = spec["completions"].as_i64().unwrap_or_default();
    for (path, rule) in indexed(rules, path) {
        let (indexes, number) = (&rule["succeededIndexes"], &rule["succeededCount"]);
        if indexes.is_null() && number.is_null() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            causes.push(Cause::required(&*path, why));
        }
        let mut total = None;
        if let Some(given) = indexes.as_str() {
            match count_indexes(given, completions) {
                Ok(count) => total = Some(count),
                Err(why) => {
                    total = Some(0);
                    let why = format!("error parsing succeededIndexes: {why}");
                    let at = format!("{path}.succeededIndexes");
                    causes.push(Cause::invalid(at, indexes, &why));
                }
            }
        }
        let at = format!("{path}.succeededCount");
        not_negative(number, &at, causes);
        let Some(wanted) = number.as_i64() else {
            continue;
        };
        for (most, of) in [
            (Some(completions), "specified completions"),
            (total, "indexes in the specified succeededIndexes field"),
        ] {
            if let Some(most) = most.filter(|most| wanted > *most) {
                let why = format!("must be less than or equal to {most} (the number of {of})");
                causes.push(Cause::invalid(&*at, number, &why));
            }
        }
    }
}

/// Counts the indexes of a list of intervals such as `1,3-5`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for interval in text.split(',') {
        let limits: Vec<&str> = interval.split('-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let number = |text: &str| -> Result<i64, String> {
            let parsed: i64 = text
                .parse()
                .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
            if parsed >= completions {
                return Err(format!("too large index: {text:?}"));
            }
            Ok(parsed)
        };
        let first = number(limits[0])?;
        let end = limits.get(1).map_or(Ok(first), |text| number(text))?;
        if limits.len() == 2 && first >= end {
            return Err(format!(
                "non-increasing order, previous: {first}, current: {end}"
            ));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!(
                "non-increasing order, previous: {last}, current: {first}"
            ));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Checks a cron job.
pub(super) fn cron_job(spec: &Value, causes: &mut Vec<Cause>) {
    let (schedule, at) = (text(&spec["schedule"]), "spec.schedule");
    if schedule.is_empty() {
        causes.push(Cause::required(at, ""));
    } else if let Err(error) = Schedule::parse(schedule) {
        causes.push(Cause::invalid(at, &spec["schedule"], &error.to_string()));
    }
    if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        causes.push(Cause::invalid(at, &spec["schedule"], why));
    }
    not_negative(
        &spec["startingDeadlineSeconds"],
        "spec.startingDeadlineSeconds",
        causes,
    );
    if let Some(zone) = spec["timeZone"].as_str() {
        time_zone(zone, causes);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    if spec["concurrencyPolicy"] == "" {
        causes.push(Cause::required("spec.concurrencyPolicy", ""));
    } else {
        one_of(
            &spec["concurrencyPolicy"],
            &policies,
            "spec.concurrencyPolicy",
            causes,
        );
    }
    let job = &spec["jobTemplate"]["spec"];
    specification(job, "spec.jobTemplate.spec", causes);
    if !job["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        causes.push(Cause::invalid(
            "spec.jobTemplate.spec.selector",
            &job["selector"],
            why,
        ));
    }
    if job["manualSelector"] == true {
        let allowed = ["nil", "false"].map(str::to_owned);
        let at = "spec.jobTemplate.spec.manualSelector";
        causes.push(Cause::unsupported(at, &json!(true), &allowed));
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&spec[field], &format!("spec.{field}"), causes);
    }
}

fn time_zone(zone: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid("spec.timeZone", &json!(zone), why));
    if zone.is_empty() {
        return refuse("timeZone must be nil or non-empty string");
    }
    let good = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    let is_right = |part: &str| {
        part != "."
            && part != ".."
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.chars().all(good)
    };
    if !zone.split('/').all(is_right) {
        return refuse(&format!("unknown time zone {zone}"));
    }
    if zone.eq_ignore_ascii_case("local") {
        let why =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        refuse(why);
    }
    if zone != "UTC" && zone != "Local" && jiff::tz::TimeZone::get(zone).is_err() {
        refuse(&format!("unknown time zone {zone}"));
    }
}

//! Checks of the selector of a job, and of the labels that the server adds for it.

use serde_json::{Value, json};

use super::super::checks::{label_selector, text};
use super::super::internal;
use crate::failure::Cause;
use crate::objects::selectors;

/// Checks that a generated selector and the labels of the template are as they were generated.
pub(super) fn generated(object: &Value, needs_domains: bool, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let metadata = &object["metadata"];
    let (uid, name) = (text(&metadata["uid"]), text(&metadata["name"]));
    let mut wanted = vec![
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    wanted.retain(|(label, _)| needs_domains || !label.contains('/'));
    let labels = &spec["template"]["metadata"]["labels"];
    for &(label, wanted) in &wanted {
        let at = format!("spec.template.metadata.labels[{label}]");
        let why = format!("must be '{wanted}'");
        match labels[label].as_str() {
            None => causes.push(Cause::required(at, &why)),
            Some(given) if given != wanted => causes.push(Cause::invalid(at, labels, &why)),
            Some(_) => {}
        }
    }
    let expected: Value = wanted
        .into_iter()
        .map(|(label, value)| (label.to_owned(), json!(value)))
        .collect();
    if is_readable(&spec["selector"]) && !selectors::selects(&spec["selector"], &expected) {
        let cause = Cause::invalid(
            "spec.selector",
            &Value::Null,
            "`selector` not auto-generated",
        );
        causes.push(cause.with_value(&internal::selector(&spec["selector"])));
    }
}

/// Checks the selector of a job, and that it finds the job's pods.
pub(super) fn check(spec: &Value, causes: &mut Vec<Cause>) {
    let selector = &spec["selector"];
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else {
        label_selector(selector, "spec.selector", causes);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if is_readable(selector) && !selectors::selects(selector, labels) {
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, why));
    }
}

/// Returns whether a real server can read a selector; it says no more of one that it cannot.
fn is_readable(selector: &Value) -> bool {
    let mut causes = Vec::new();
    label_selector(selector, "", &mut causes);
    causes.is_empty()
}

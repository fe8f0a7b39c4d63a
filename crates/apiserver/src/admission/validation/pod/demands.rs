//! Checks of what a pod requests as a whole: resources, and claims to devices.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::checks::{indexed, text, wrong};
use super::super::container::{self, Pod};
use super::super::{internal, names, resources};
use crate::failure::Cause;
use crate::values::fields::members;
use crate::values::{pods, quantity};

/// Checks the claims of a pod.
pub(super) fn claims(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, claim) in indexed(list, path) {
        let (name, at_name) = (text(&claim["name"]), format!("{at}.name"));
        if name.is_empty() {
            causes.push(Cause::required(at_name, ""));
        } else if seen.insert(name) {
            wrong(names::label(name), name, &at_name, causes);
        } else {
            causes.push(Cause::duplicate(at_name, &json!(name)));
        }
        let fields = ["resourceClaimName", "resourceClaimTemplateName"];
        let why = match fields
            .iter()
            .filter(|field| !claim[**field].is_null())
            .count()
        {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
        };
        if !why.is_empty() {
            let written = internal::written("PodResourceClaim", claim);
            let cause = Cause::invalid(&*at, &Value::Null, why);
            causes.push(cause.with_value(&written));
        }
        for field in fields {
            let given = text(&claim[field]);
            if !claim[field].is_null() {
                wrong(
                    names::subdomain(given),
                    given,
                    &format!("{at}.{field}"),
                    causes,
                );
            }
        }
    }
}

/// Checks what a pod as a whole requests.
pub(super) fn of_pod(pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let spec = pod.spec;
    let given = &spec["resources"];
    if given.is_null() {
        return;
    }
    if spec["os"]["name"] == "windows" {
        causes.push(Cause::forbidden(path, "may not be set for a windows pod"));
        return;
    }
    let (claims, at) = (&given["claims"], format!("{path}.claims"));
    if !claims.is_null() {
        let why = "claims may not be set for Resources at pod-level";
        causes.push(Cause::forbidden(&*at, why));
    }
    resources::check(given, resources::name_for_pod, path, causes);
    container::claims(claims, pod, &at, causes);
    for (resource, sum) in pods::of_containers(spec, "requests") {
        let own = &given["requests"][&resource];
        if !own.is_null() && sum > quantity::amount(own) {
            let why =
                format!("must be greater than or equal to aggregate container requests of {sum}");
            let at = format!("{path}.requests[{resource}]");
            causes.push(Cause::invalid(at, own, &why));
        }
    }
    for (resource, sum) in pods::of_containers(spec, "limits") {
        let own = &given["limits"][&resource];
        let is_huge = resource.starts_with("hugepages-");
        if is_huge && !own.is_null() && sum > quantity::amount(own) {
            let why =
                format!("must be greater than or equal to aggregate container limits of {sum}");
            let at = format!("{path}.limits[{resource}]");
            causes.push(Cause::invalid(at, own, &why));
        }
    }
    for (at, container) in indexed(&spec["containers"], &format!("{path}.containers")) {
        for (resource, limit) in members(&container["resources"]["limits"]) {
            let own = &given["limits"][resource];
            if !own.is_null() && quantity::amount(limit) > quantity::amount(own) {
                let why = format!("must be less than or equal to pod limits of {}", text(own));
                let at = format!("{at}[{resource}].limits");
                causes.push(Cause::invalid(at, limit, &why));
            }
        }
    }
}

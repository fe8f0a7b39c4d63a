//! Changes of services that are not allowed.

use serde_json::Value;

use super::super::service;
use super::IMMUTABLE;
use crate::failure::Cause;

const FIXED: &str = "may not change once set";

/// Checks a change of the specification of a service.
pub(super) fn check(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    addresses(old, new, causes);
    families(old, new, causes);
    let balances = |spec: &Value| spec["type"] == "LoadBalancer";
    let class = &new["loadBalancerClass"];
    if balances(old) && balances(new) && old["loadBalancerClass"] != *class {
        causes.push(Cause::invalid("spec.loadBalancerClass", class, FIXED));
    }
    // a real server looks at it twice
    service::class(new, causes);
    let tells = |spec: &Value| balances(spec) && spec["externalTrafficPolicy"] == "Local";
    let port = "healthCheckNodePort";
    if tells(old) && tells(new) && old[port] != new[port] {
        causes.push(Cause::forbidden(format!("spec.{port}"), IMMUTABLE));
    }
}

fn list<'a>(spec: &'a Value, field: &str) -> &'a [Value] {
    spec[field]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn is_headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [only] if only == "None")
}

fn is_external(spec: &Value) -> bool {
    spec["type"] == "ExternalName"
}

/// Refuses that the second of two addresses or families goes, unless only one is wanted.
fn release(new: &Value, called: &str, causes: &mut Vec<Cause>) {
    let policy = &new["ipFamilyPolicy"];
    if policy != "SingleStack" {
        let why = format!("must be set to 'SingleStack' when releasing the secondary {called}");
        causes.push(Cause::invalid("spec.ipFamilyPolicy", policy, &why));
    }
}

fn addresses(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if is_external(old) || is_external(new) || is_headless(old) && is_headless(new) {
        return;
    }
    let (was, is) = (list(old, "clusterIPs"), list(new, "clusterIPs"));
    let mut refuse = |index: usize, why: &str| {
        let at = format!("spec.clusterIPs[{index}]");
        causes.push(Cause::invalid(at, &new["clusterIPs"], why));
    };
    if was.len() == is.len() {
        for (index, (was, is)) in was.iter().zip(is).enumerate() {
            if was != is {
                refuse(index, FIXED);
            }
        }
        return;
    }
    match (was.first(), is.first()) {
        (Some(_), None) => refuse(0, "primary clusterIP can not be unset"),
        (Some(was), Some(is)) if was != is => refuse(0, FIXED),
        _ => {}
    }
    if was.len() > is.len() && is.len() == 1 {
        release(new, "clusterIP", causes);
    }
}

fn families(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let is_outside = is_external(old) || is_external(new);
    if is_outside || is_headless(old) || is_headless(new) {
        return;
    }
    let (was, is) = (list(old, "ipFamilies"), list(new, "ipFamilies"));
    let at = "spec.ipFamilies[0]";
    if was.len() == is.len() {
        for _ in was.iter().zip(is).filter(|(was, is)| was != is) {
            causes.push(Cause::invalid(at, &new["ipFamilies"], FIXED));
        }
        return;
    }
    if was.len() > is.len() && list(new, "clusterIPs").is_empty() {
        let why = "primary ipFamily can not be unset";
        causes.push(Cause::invalid(at, &new["ipFamilies"], why));
    }
    if let (Some(was), Some(is)) = (was.first(), is.first())
        && was != is
    {
        causes.push(Cause::invalid(at, &new["clusterIPs"], FIXED));
    }
    if was.len() > is.len() && is.len() == 1 {
        release(new, "ipFamily", causes);
    }
}

//! Families of the addresses of a service. A cluster has one: IPv4.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{has_same_addresses, is_external, list, refused, text};
use crate::admission::validation::service as validation;
use crate::failure::{Cause, Failure};

const POLICY: &str = "spec.ipFamilyPolicy";
const DUAL: &str = "RequireDualStack";
const SINGLE: &str = "SingleStack";

/// Fills in the families of a service and its policy about them; refuses those that contradict each other or that the cluster does not have.
pub(super) fn settle(object: &mut Value, before: Option<&Value>) -> Result<(), Failure> {
    if is_external(object) || is_unchanged(object, before) {
        return Ok(());
    }
    let has_selector = object["spec"]["selector"]
        .as_object()
        .is_some_and(|selector| !selector.is_empty());
    let is_open = text(object, "clusterIP") == "None" && !has_selector;
    if object["spec"]["ipFamilyPolicy"].is_null() {
        let known = before.map(|before| &before["spec"]["ipFamilyPolicy"]);
        object["spec"]["ipFamilyPolicy"] = match known {
            Some(known) if !known.is_null() => known.clone(),
            _ if is_open => json!(DUAL),
            _ => json!(SINGLE),
        };
    }
    let wrong = validation::addresses(&object["spec"]);
    if !wrong.is_empty() {
        return Err(refused(object, &wrong));
    }
    let mut wrong = match before {
        Some(before) => release(object, before),
        None => Vec::new(),
    };
    let policy = object["spec"]["ipFamilyPolicy"].clone();
    if policy == SINGLE {
        for (field, called) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if list(object, field).len() == 2 {
                let why = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {called} are specified"
                );
                wrong.push(Cause::invalid(POLICY, &policy, &why));
            }
        }
    }
    let mut families = list(object, "ipFamilies");
    infer(object, &mut families, &mut wrong);
    if !wrong.is_empty() {
        return Err(refused(object, &wrong));
    }
    if is_open {
        let first = families.first().cloned().unwrap_or_else(|| json!("IPv4"));
        if families.is_empty() {
            families.push(first.clone());
        }
        if families.len() < 2 && policy != SINGLE {
            families.push(if first == "IPv4" {
                json!("IPv6")
            } else {
                json!("IPv4")
            });
        }
        object["spec"]["ipFamilies"] = json!(families);
        return Ok(());
    }
    if policy == DUAL {
        let why = "this cluster is not configured for dual-stack services";
        wrong.push(Cause::invalid(POLICY, &policy, why));
    }
    for (index, family) in families.iter().enumerate() {
        if family != "IPv4" {
            let why = "not configured on this cluster";
            let at = format!("spec.ipFamilies[{index}]");
            wrong.push(Cause::invalid(at, family, why));
        }
    }
    if !wrong.is_empty() {
        return Err(refused(object, &wrong));
    }
    if families.is_empty() {
        families.push(json!("IPv4"));
    }
    object["spec"]["ipFamilies"] = json!(families);
    Ok(())
}

/// Returns whether a service that prefers two families keeps what it has, as one does that changes nothing about them.
fn is_unchanged(object: &Value, before: Option<&Value>) -> bool {
    let prefers = |object: &Value| object["spec"]["ipFamilyPolicy"] == "PreferDualStack";
    before.is_some_and(|before| {
        before["spec"]["type"] == object["spec"]["type"]
            && prefers(object)
            && prefers(before)
            && has_same_addresses(before, object)
            && list(before, "ipFamilies") == list(object, "ipFamilies")
    })
}

/// Gives up the second address and family if only one is wanted; refuses to lose one otherwise.
fn release(object: &mut Value, before: &Value) -> Vec<Cause> {
    let mut wrong = Vec::new();
    let policy = object["spec"]["ipFamilyPolicy"].clone();
    for (field, called) in [
        ("clusterIPs", "secondary cluster IP"),
        ("ipFamilies", "secondary IP family"),
    ] {
        let (was, mut is) = (list(before, field), list(object, field));
        let is_same = match field {
            "clusterIPs" => has_same_addresses(before, object),
            _ => was == is,
        };
        if policy == SINGLE && is_same && is.len() > 1 {
            is.truncate(1);
            object["spec"][field] = json!(is);
        } else if policy != SINGLE && is.len() < was.len() && was.starts_with(&is) && !is.is_empty()
        {
            let why = format!("must be 'SingleStack' to release the {called}");
            wrong.push(Cause::invalid(POLICY, &policy, &why));
        }
    }
    wrong
}

/// Adds the families of addresses that have none.
fn infer(object: &Value, families: &mut Vec<Value>, wrong: &mut Vec<Cause>) {
    let all = list(object, "clusterIPs");
    for (index, address) in all.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address == "None" {
            break;
        }
        if index < families.len() {
            continue;
        }
        if address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_ipv6())
        {
            let why = "IPv6 is not configured on this cluster";
            let at = format!("spec.clusterIPs[{index}]");
            wrong.push(Cause::invalid(at, &json!(all), why));
        } else {
            families.push(json!("IPv4"));
        }
    }
}

//! Checks of the services that stand for other API servers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde_json::{Value, json};

use super::checks::{filled, text, wrong};
use super::names;
use crate::failure::Cause;

/// Checks an API service.
pub(super) fn api_service(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let (group, version) = (text(&spec["group"]), text(&spec["version"]));
    if group.is_empty() && version != "v1" {
        let why = "only v1 may have an empty group and it better be legacy kube";
        causes.push(Cause::required("spec.group", why));
    } else if !group.is_empty() {
        wrong(names::subdomain(group), group, "spec.group", causes);
    }
    wrong(names::service(version), version, "spec.version", causes);
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let number = spec[field].as_i64().unwrap_or_default();
        if !(1..=most).contains(&number) {
            let why = format!("must be positive and less than {most}");
            causes.push(Cause::invalid(
                format!("spec.{field}"),
                &json!(number),
                &why,
            ));
        }
    }
    let (service, bundle) = (&spec["service"], text(&spec["caBundle"]));
    let unchecked = spec["insecureSkipTLSVerify"] == true;
    if service.is_null() {
        if !bundle.is_empty() {
            let bytes = STANDARD.decode(bundle).map_or(0, |bytes| bytes.len());
            let why = "local APIServices may not have a caBundle";
            causes.push(Cause::invalid(
                "spec.caBundle",
                &json!(format!("{bytes} bytes")),
                why,
            ));
        }
        if unchecked {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            causes.push(Cause::invalid(
                "spec.insecureSkipTLSVerify",
                &json!(true),
                why,
            ));
        }
        return;
    }
    for field in ["namespace", "name"] {
        if !filled(&service[field]) {
            causes.push(Cause::required(format!("spec.service.{field}"), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or_default();
    if !(1..=65_535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid("spec.service.port", &json!(port), why));
    }
    if unchecked && !bundle.is_empty() {
        let why = "may not be true if caBundle is present";
        causes.push(Cause::invalid(
            "spec.insecureSkipTLSVerify",
            &json!(true),
            why,
        ));
    }
}

//! Conversion of objects from one version to another.

use serde_json::Value;

use super::parts::{check_supported, numbered, text};
use crate::admission::validation::{clients, names};
use crate::failure::Cause;
use crate::registry::definition::texts;

/// Versions of the conversion reviews that a real server sends.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const PATH: &str = "spec.conversion";
const CLIENT: &str = "spec.conversion.webhookClientConfig";

/// Checks a definition's `conversion`.
pub(super) fn check(conversion: &Value, causes: &mut Vec<Cause>) {
    if conversion.is_null() {
        return;
    }
    let strategy = text(&conversion["strategy"]);
    check_supported(
        strategy,
        &["None", "Webhook"],
        "spec.conversion.strategy",
        causes,
    );
    let client = &conversion["webhook"]["clientConfig"];
    let versions = &conversion["webhook"]["conversionReviewVersions"];
    let reviews = format!("{PATH}.conversionReviewVersions");
    if strategy != "Webhook" {
        for (given, path) in [
            (client.is_object(), CLIENT),
            (texts(versions).count() > 0, &reviews),
        ] {
            if given {
                let why = "should not be set when strategy is not set to Webhook";
                causes.push(Cause::forbidden(path, why));
            }
        }
        return;
    }
    if client.is_null() {
        let why = "required when strategy is set to Webhook";
        causes.push(Cause::required(CLIENT, why));
    } else {
        clients::check(client, CLIENT, causes);
    }
    check_versions(versions, &reviews, causes);
}

fn check_versions(versions: &Value, path: &str, causes: &mut Vec<Cause>) {
    let all: Vec<&str> = texts(versions).collect();
    if all.is_empty() {
        causes.push(Cause::required(path, ""));
        return;
    }
    for (index, version) in numbered(versions) {
        let path = format!("{path}[{index}]");
        if all[..index].contains(&text(version)) {
            causes.push(Cause::invalid(path, version, "duplicate version"));
            continue;
        }
        for why in names::service(text(version)) {
            causes.push(Cause::invalid(path.clone(), version, &why));
        }
    }
    if !all.iter().any(|version| REVIEWS.contains(version)) {
        let why = format!("must include at least one of {}", REVIEWS.join(", "));
        causes.push(Cause::invalid(path, versions, &why));
    }
}

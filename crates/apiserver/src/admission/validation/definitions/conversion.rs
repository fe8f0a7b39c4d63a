//! Conversion of objects from one version to another.

use serde_json::{Value, json};

use super::parts::{check_supported, numbered, text};
use crate::admission::validation::names;
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
        check_client(client, causes);
    }
    check_versions(versions, &reviews, causes);
}

fn check_client(client: &Value, causes: &mut Vec<Cause>) {
    let (url, service) = (&client["url"], &client["service"]);
    if url.is_null() == service.is_null() {
        let why = "exactly one of url or service is required";
        causes.push(Cause::required(CLIENT, why));
    } else if service.is_null() {
        check_url(text(url), causes);
    } else {
        check_service(service, causes);
    }
}

fn check_url(url: &str, causes: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut refuse = |value: &str, why: String| {
        causes.push(Cause::invalid(format!("{CLIENT}.url"), &json!(value), &why));
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    if scheme != "https" {
        refuse(
            scheme,
            format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if host.is_empty() {
        refuse(host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        refuse(
            user,
            "user information is not permitted in the URL".to_owned(),
        );
    }
    if let Some((_, fragment)) = rest.split_once('#')
        && !fragment.is_empty()
    {
        refuse(
            fragment,
            "fragments are not permitted in the URL".to_owned(),
        );
    }
    if let Some((_, query)) = rest.split('#').next().and_then(|rest| rest.split_once('?'))
        && !query.is_empty()
    {
        refuse(
            query,
            "query parameters are not permitted in the URL".to_owned(),
        );
    }
}

fn check_service(service: &Value, causes: &mut Vec<Cause>) {
    // a real server reports a missing name as a missing namespace, and the reverse
    for (field, missing) in [("name", "namespace"), ("namespace", "name")] {
        if text(&service[field]).is_empty() {
            causes.push(Cause::required(format!("{CLIENT}.service.{missing}"), ""));
        }
    }
    if let Some(port) = service["port"].as_i64()
        && !(1..=65535).contains(&port)
    {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(
            format!("{CLIENT}.service.port"),
            &json!(port),
            why,
        ));
    }
    let Some(path) = service["path"].as_str() else {
        return;
    };
    let mut refuse = |why: String| {
        causes.push(Cause::invalid(
            format!("{CLIENT}.service.path"),
            &json!(path),
            &why,
        ));
    };
    if path == "/" || path.is_empty() {
        return;
    }
    if path == "//" {
        refuse("segment[0] may not be empty".to_owned());
        return;
    }
    if !path.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    // the first character is skipped even when it is not a slash
    let rest = path.get(1..).unwrap_or_default();
    for (index, segment) in rest
        .strip_suffix('/')
        .unwrap_or(rest)
        .split('/')
        .enumerate()
    {
        if segment.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in names::subdomain(segment) {
            refuse(format!("segment[{index}]: {why}"));
        }
    }
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

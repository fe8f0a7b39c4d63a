//! How webhooks are reached: at a URL, or behind a service.

use serde_json::{Value, json};

use super::checks::text;
use super::names;
use crate::failure::Cause;

/// Checks a client configuration at a path.
pub(super) fn check(client: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (url, service) = (&client["url"], &client["service"]);
    if url.is_null() == service.is_null() {
        let why = "exactly one of url or service is required";
        causes.push(Cause::required(path, why));
    } else if service.is_null() {
        check_url(text(url), &format!("{path}.url"), causes);
    } else {
        check_service(service, &format!("{path}.service"), causes);
    }
}

fn check_url(url: &str, at: &str, causes: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut refuse = |value: &str, why: String| {
        causes.push(Cause::invalid(at, &json!(value), &why));
    };
    // without a host all of it is a path
    let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
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

fn check_service(service: &Value, at: &str, causes: &mut Vec<Cause>) {
    // a real server reports a missing name as a missing namespace, and the reverse
    for (field, missing) in [("namespace", "name"), ("name", "namespace")] {
        if text(&service[field]).is_empty() {
            causes.push(Cause::required(format!("{at}.{missing}"), ""));
        }
    }
    if let Some(port) = service["port"].as_i64()
        && !(1..=65535).contains(&port)
    {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(format!("{at}.port"), &json!(port), why));
    }
    let Some(path) = service["path"].as_str() else {
        return;
    };
    let mut refuse = |why: String| {
        causes.push(Cause::invalid(format!("{at}.path"), &json!(path), &why));
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

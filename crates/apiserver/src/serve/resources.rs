//! Requests for resources: whether the resource exists, the user may access it and it has the verb, and the answer in the form that the
//! client asks for.

use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;
use http::{Request as HttpRequest, Response, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use serde_json::json;

use super::answers::{Body, json_response, refusal, respond_with, text_body};
use super::negotiation::{negotiate, wants_yaml};
use super::perform::{perform, with_webhooks};
use super::requests::{LARGEST_BODY, text_header};
use super::shared::Shared;
use super::watch::watch;
use super::{lists, protobuf, proxy};
use crate::access::authz::{self, Attributes};
use crate::access::identity::Identity;
use crate::access::target::Target;
use crate::admission::attempt::Attempt;
use crate::admission::policies::{self, Operation, Options, Review};
use crate::admission::webhooks::{self, Calls, Invocations};
use crate::failure::{Failure, Subject};
use crate::faults::Effects;
use crate::objects::views::View;
use crate::registry::Resource;
use crate::verbs::{Answer, Request};

/// Warning about jobs, the one built-in kind whose dependents are orphaned by default.
const JOBS_ORPHAN: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Serves a request for a resource that exists and that the user may access.
pub(super) async fn serve_resource(
    shared: &Arc<Shared>,
    identity: &Identity,
    request: HttpRequest<Incoming>,
    target: Target<'_>,
    query: &HashMap<String, String>,
    verb: &str,
    resource: Arc<Resource>,
) -> Result<Response<Body>, Failure> {
    let effects = request.extensions().get::<Arc<Effects>>().cloned();
    check_verb(&resource, &target, verb)?;
    if proxy::answers(&target) {
        let calls = Calls::default();
        let check = || check_connection(shared, identity, &target, query, &resource, &calls);
        with_webhooks(&calls, check).await?;
        return proxy::proxy(shared, request, &target).await;
    }
    let (parts, body) = request.into_parts();
    let (content_type, body) = read_body(&parts, body, &resource).await?;
    let calls = Calls::default();
    let request = Request {
        identity,
        disabled: &shared.disabled_admission,
        ignored: shared.ignored,
        resource: &resource,
        subresource: target.subresource,
        // the namespace of a Namespace matters for authorization only
        namespace: if resource.namespaced {
            target.namespace
        } else {
            ""
        },
        name: target.name,
        unnamed: false,
        query,
        body: &body,
        content_type,
        user_agent: text_header(&parts, &header::USER_AGENT),
        effects: effects.as_deref(),
        calls: &calls,
    };
    let include = query.get("includeObject").map_or("", String::as_str);
    let accept = text_header(&parts, &header::ACCEPT);
    let view = negotiate(accept, include, &resource, verb)?;
    if verb == "watch" {
        check_included(view, include)?;
        return watch(shared, &request, Arc::clone(&resource), view);
    }
    if verb == "list" && !wants_yaml(accept) {
        let answer = list(shared, &request, Arc::clone(&resource), view)?;
        check_included(view, include)?;
        return Ok(answer);
    }
    let request_warnings: Vec<String> = request_warning(&request, verb).into_iter().collect();
    let Answer {
        code,
        body,
        mut warnings,
    } = match perform(shared, verb, &request).await {
        Ok(answer) => answer,
        Err(failure) => {
            let warnings = [request_warnings.as_slice(), &failure.warnings].concat();
            return Ok(refusal(&failure, &warnings));
        }
    };
    warnings.extend(request_warnings);
    check_included(view, include)?;
    let body = view.of(&resource, body);
    if wants_yaml(accept)
        && let Ok(text) = serde_yaml::to_string(&body)
    {
        return Ok(respond_with(
            code,
            "application/yaml",
            text_body(text),
            &warnings,
        ));
    }
    Ok(json_response(code, &body, &warnings))
}

/// Checks what the rows of a table have to contain. A real server looks at it when the answer is there, so what was asked is done.
fn check_included(view: View, include: &str) -> Result<(), Failure> {
    if matches!(view, View::Table(_)) && !["", "Metadata", "None", "Object"].contains(&include) {
        return Err(Failure::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', 'Object', 'None', or empty"
        )));
    }
    Ok(())
}

/// Asks the admission policies and the webhooks whether a user may connect to a pod, a service or a node.
fn check_connection(
    shared: &Shared,
    identity: &Identity,
    target: &Target<'_>,
    query: &HashMap<String, String>,
    resource: &Resource,
    calls: &Calls,
) -> Result<(), Failure> {
    let state = shared.store.lock();
    if !policies::has_bindings(&state) && !webhooks::are_there(&state) {
        return Ok(());
    }
    let mut options = json!({"apiVersion": "v1"});
    if let Some(subresource) = resource.subresource(target.subresource) {
        options["kind"] = json!(subresource.kind);
    }
    for (name, value) in query {
        options[name] = match value.as_str() {
            "true" | "1" => json!(true),
            "false" | "0" => json!(false),
            _ if name == "command" => json!([value]),
            text => json!(text),
        };
    }
    let attempt = Attempt {
        resource,
        subresource: target.subresource,
        namespace: target.namespace,
        name: target.name,
        identity,
        before: None,
        disabled: &shared.disabled_admission,
    };
    let review = Review {
        attempt,
        operation: Operation::Connect,
        object: None,
        options: Options::default(),
    };
    // nothing shows warnings about a connection
    let mut invocations = Invocations::default();
    let changed = Some(&mut options);
    webhooks::mutate(&state, calls, &review, changed, &mut invocations, &|_| {
        Ok(())
    })?;
    let review = Review {
        object: Some(&options),
        ..review
    };
    policies::check(&state, &review)?;
    webhooks::validate(&state, calls, &review).map(|_| ())
}

/// Reads the body of a request; returns it with the type of its contents. Protobuf becomes JSON.
async fn read_body<'p>(
    parts: &'p Parts,
    body: Incoming,
    resource: &Resource,
) -> Result<(&'p str, Bytes), Failure> {
    let body = Limited::new(body, LARGEST_BODY)
        .collect()
        .await
        .map_err(|_| Failure::too_large())?
        .to_bytes();
    let content_type = match text_header(parts, &header::CONTENT_TYPE) {
        "" => "application/json",
        text => text.split(';').next().unwrap_or_default().trim(),
    };
    if content_type == "application/vnd.kubernetes.protobuf" && resource.custom.is_none() {
        return Ok(("application/json", read_protobuf(body)?));
    }
    Ok((content_type, body))
}

/// Answers a list in JSON, which is written without a copy of the objects.
fn list(
    shared: &Shared,
    request: &Request<'_>,
    resource: Arc<Resource>,
    view: View,
) -> Result<Response<Body>, Failure> {
    let page = {
        let state = shared.store.lock();
        let past = request.past_state(&state);
        request.page(past.as_ref().unwrap_or(&state))?
    };
    let body = lists::body(resource, view, page);
    Ok(respond_with(200, "application/json", body, &[]))
}

/// Returns the requested resource, if it exists and the user may access it.
pub(super) fn find(
    shared: &Shared,
    identity: &Identity,
    target: &Target<'_>,
    verb: &str,
    selected_name: Option<&str>,
    query: &HashMap<String, String>,
) -> Result<Arc<Resource>, Failure> {
    let state = shared.store.lock();
    let table = shared.registry.table(&state);
    let attributes = Attributes {
        verb,
        group: target.group,
        resource: target.plural,
        subresource: target.subresource,
        namespace: target.namespace,
        // a list selected by name counts as a request for one object, so that users who may read only that object can list it
        name: match selected_name {
            Some(name) if target.name.is_empty() => name,
            _ => target.name,
        },
        path: "",
        fields: query.get("fieldSelector").map_or("", String::as_str),
    };
    let decision = authz::decide(&state, &identity.user, &attributes);
    shared
        .audit
        .add(&identity.user, &attributes, decision.is_ok());
    if let Err(why) = decision {
        let subject = Subject {
            group: target.group,
            resource: target.plural,
            name: attributes.name,
        };
        let mut refusal = attributes.refusal(&identity.user);
        if !why.is_empty() {
            refusal = format!("{refusal}: {why}");
        }
        return Err(Failure::forbidden(&subject, &refusal));
    }
    let found = table
        .find(target.group, target.version, target.plural)
        .filter(|resource| {
            resource.namespaced || target.namespace.is_empty() || resource.plural == "namespaces"
        });
    found.cloned().ok_or_else(|| {
        if table.is_built_in(target.group) {
            Failure::resource_not_found()
        } else {
            Failure::path_not_found()
        }
    })
}

/// Returns the warning about a request, which is sent whatever its result is.
fn request_warning(request: &Request<'_>, verb: &str) -> Option<String> {
    let deletes = ["delete", "deletecollection"].contains(&verb);
    let jobs = request.resource.storage == "jobs.batch";
    (jobs && deletes && request.leaves_propagation_open()).then(|| JOBS_ORPHAN.to_owned())
}

/// Converts a body from protobuf to JSON.
fn read_protobuf(body: Bytes) -> Result<Bytes, Failure> {
    if body.is_empty() {
        return Ok(body);
    }
    let object =
        protobuf::decode(&body).map_err(|error| Failure::bad_request(error.to_string()))?;
    Ok(Bytes::from(object.to_string()))
}

/// Checks that the resource supports the verb and that the subresource exists.
fn check_verb(resource: &Resource, target: &Target<'_>, verb: &str) -> Result<(), Failure> {
    let is_custom = resource.custom.is_some();
    let subject = Subject {
        group: target.group,
        resource: target.plural,
        name: target.name,
    };
    let verbs = match target.subresource {
        "" => &resource.verbs,
        name => match resource.subresource(name) {
            Some(subresource) => &subresource.verbs,
            None if is_custom => return Err(Failure::not_found(&subject)),
            None => return Err(Failure::resource_not_found()),
        },
    };
    let is_everywhere = resource.namespaced && target.namespace.is_empty();
    let has_path = match verb {
        "list" | "watch" => true,
        // the path of a creation has no name, any other path has one
        "create" => {
            !is_everywhere
                && (is_custom || target.name.is_empty() || !target.subresource.is_empty())
        }
        "deletecollection" => !is_everywhere,
        _ => !is_everywhere && !target.name.is_empty(),
    };
    if verbs.iter().any(|known| known == verb) && has_path {
        Ok(())
    } else if is_custom && !target.subresource.is_empty() {
        Err(Failure::not_supported(&subject, verb))
    } else {
        Err(Failure::method_not_allowed())
    }
}

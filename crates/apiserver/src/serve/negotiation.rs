//! The form of an answer that the client asks for.

use crate::failure::Failure;
use crate::objects::views::View;
use crate::registry::Resource;
use crate::verbs::reviews;

/// Returns whether YAML is the first supported format that a client accepts.
pub(super) fn wants_yaml(accept: &str) -> bool {
    let first = accept.split(',').find(|clause| {
        ["application/json", "application/yaml", "*/*"]
            .iter()
            .any(|known| clause.trim().starts_with(known))
    });
    first.is_some_and(|clause| clause.trim().starts_with("application/yaml"))
}

/// Returns what a client accepts beside tables. If that is nothing, it is a type that no server has.
fn without_tables(accept: &str) -> String {
    let clauses = accept.split(',');
    let left: Vec<&str> = clauses
        .filter(|clause| !clause.contains("as=Table"))
        .collect();
    if left.is_empty() {
        "application/json;as=None".to_owned()
    } else {
        left.join(",")
    }
}

/// Returns the view that a request asks for. Answers to reviews are never tables.
pub(super) fn negotiate(
    accept: &str,
    include: &str,
    resource: &Resource,
    verb: &str,
) -> Result<View, Failure> {
    let is_custom = resource.custom.is_some();
    let other;
    let accept = if reviews::is_review(&resource.storage) {
        other = without_tables(accept);
        other.as_str()
    } else {
        accept
    };
    let view = View::negotiate(accept, include).filter(|_| is_custom || accept != "application/*");
    let Some(view) = view else {
        // for built-in kinds, the outer layer of a real server checks the media type only
        return Err(if is_custom || accept.contains("json") {
            Failure::not_acceptable_parameters()
        } else {
            Failure::not_acceptable()
        });
    };
    if view == View::Metadata && !accept.contains(',') {
        let of_list = accept.contains("PartialObjectMetadataList");
        if verb == "list" && !of_list {
            let (package, kind) = if is_custom {
                ("unstructured", "UnstructuredList")
            } else {
                let group = resource.group.split('.').next().unwrap_or_default();
                let package = if group.is_empty() { "core" } else { group };
                (package, resource.list_kind.as_str())
            };
            return Err(Failure::not_acceptable_because(&format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{package}.{kind})"
            )));
        }
        if verb == "get" && of_list {
            return Err(Failure::internal_without_reason("content is not a list"));
        }
    }
    Ok(view)
}

//! Cells of a row, by resource.

use serde_json::{Value, json};

use super::{network, nodes, pods, policies, storage, workloads};
use crate::registry::Resource;
use crate::values::words::{age, items, text};

/// Returns the cells of an object, in the order of the columns.
pub(super) fn of(resource: &Resource, object: &Value) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    if let Some(custom) = &resource.custom {
        return std::iter::once(name)
            .chain(custom.columns.iter().map(|column| column.cell(object)))
            .collect();
    }
    let created = age(&object["metadata"]["creationTimestamp"]);
    match resource.storage.as_str() {
        "pods" => return pods::cells(object, &created),
        "nodes" => return nodes::cells(object, &created),
        _ => {}
    }
    if let Some(cells) = workloads::cells(&resource.storage, object, &created)
        .or_else(|| network::cells(&resource.storage, object, &created))
        .or_else(|| storage::cells(&resource.storage, object, &created))
        .or_else(|| policies::cells(&resource.storage, object, &created))
    {
        return cells;
    }
    let rest = others(&resource.storage, object, &created);
    std::iter::once(name).chain(rest).collect()
}

/// Returns the cells after the name, for kinds with simple cells.
fn others(storage: &str, object: &Value, created: &str) -> Vec<Value> {
    let spec = &object["spec"];
    let count = |list: &Value| json!(items(list).len());
    match storage {
        "serviceaccounts"
        | "deviceclasses.resource.k8s.io"
        | "resourceclaimtemplates.resource.k8s.io" => vec![json!(created)],
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => {
            vec![count(&object["webhooks"]), json!(created)]
        }
        "validatingadmissionpolicies.admissionregistration.k8s.io" => {
            let kind = &spec["paramKind"];
            let kind = if kind.is_object() {
                format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"]))
            } else {
                "<unset>".into()
            };
            vec![count(&spec["validations"]), json!(kind), json!(created)]
        }
        "validatingadmissionpolicybindings.admissionregistration.k8s.io" => {
            let parameter = &spec["paramRef"];
            let parameter = match (parameter["namespace"].as_str(), parameter["name"].as_str()) {
                (_, Some("") | None) if parameter["selector"].is_object() => "*".to_owned(),
                (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
                (None, Some(name)) => format!("*/{name}"),
                _ => "<unset>".into(),
            };
            vec![spec["policyName"].clone(), json!(parameter), json!(created)]
        }
        "csinodes.storage.k8s.io" => vec![count(&spec["drivers"]), json!(created)],
        "runtimeclasses.node.k8s.io" => vec![object["handler"].clone(), json!(created)],
        "volumeattributesclasses.storage.k8s.io" => {
            vec![object["driverName"].clone(), json!(created)]
        }
        "leases.coordination.k8s.io" => {
            vec![json!(text(&spec["holderIdentity"])), json!(created)]
        }
        "apiservices.apiregistration.k8s.io" => {
            let service = &spec["service"];
            let service = if service.is_object() {
                format!("{}/{}", text(&service["namespace"]), text(&service["name"]))
            } else {
                "Local".into()
            };
            let conditions = items(&object["status"]["conditions"]).iter();
            let available = conditions
                .filter(|condition| condition["type"] == "Available")
                .map(|condition| text(&condition["status"]))
                .next();
            let available = available.unwrap_or_else(|| "Unknown".into());
            vec![json!(service), json!(available), json!(created)]
        }
        "resourceslices.resource.k8s.io" => vec![
            json!(text(&spec["nodeName"])),
            spec["driver"].clone(),
            spec["pool"]["name"].clone(),
            json!(created),
        ],
        "ipaddresses.networking.k8s.io" => {
            let parent = &spec["parentRef"];
            let path: Vec<String> = ["resource", "group", "namespace", "name"]
                .iter()
                .map(|field| text(&parent[*field]))
                .collect();
            let resource = if path[1].is_empty() {
                path[0].clone()
            } else {
                format!("{}.{}", path[0], path[1])
            };
            vec![json!(format!("{resource}/{}/{}", path[2], path[3]))]
        }
        "servicecidrs.networking.k8s.io" => {
            let ranges: Vec<String> = items(&spec["cidrs"]).iter().map(text).collect();
            vec![json!(ranges.join(",")), json!(created)]
        }
        _ => vec![json!(text(&object["metadata"]["creationTimestamp"]))],
    }
}

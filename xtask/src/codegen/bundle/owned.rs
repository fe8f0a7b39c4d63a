//! The kinds that the operator owns, as a console shows them: their fields come from the definitions themselves.

use api::operator;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

/// Prefix of what tells a console how to show a field.
const SHOWN_AS: &str = "urn:alm:descriptor:";

/// Returns the kinds of a definition, one for each version.
pub(super) fn kinds(definition: &CustomResourceDefinition) -> anyhow::Result<Vec<Value>> {
    let kind = &definition.spec.names.kind;
    let (title, description, made) = if kind == operator::KIND {
        (
            "NUMA Resources Operator",
            "The exporters of a cluster.",
            ["DaemonSet", "ConfigMap", "ServiceAccount"],
        )
    } else {
        (
            "NUMA Resources Scheduler",
            "The secondary scheduler of a cluster.",
            ["Deployment", "ConfigMap", "ServiceAccount"],
        )
    };
    let resources = made.map(|kind| json!({"kind": kind, "name": "", "version": "v1"}));
    let versions = definition.spec.versions.iter();
    versions
        .map(|version| {
            let schema = serde_json::to_value(&version.schema)?;
            let fields = &schema["openAPIV3Schema"]["properties"];
            Ok(json!({
                "name": definition.name_any(), "kind": kind, "version": version.name,
                "displayName": title, "description": description,
                "resources": resources,
                "specDescriptors": descriptors(&fields["spec"], spec_field),
                "statusDescriptors": descriptors(&fields["status"], status_field),
            }))
        })
        .collect()
}

/// Describes the fields of a part of a kind. The second argument tells how a field is shown.
fn descriptors(part: &Value, shown: fn(&str, &Value) -> Vec<String>) -> Vec<Value> {
    let fields = part["properties"].as_object();
    let fields = fields.into_iter().flatten();
    fields
        .map(|(name, schema)| {
            let title = title(name);
            let text = schema["description"].as_str();
            let mut descriptor = Map::new();
            descriptor.insert("displayName".into(), title.clone().into());
            descriptor.insert("path".into(), name.as_str().into());
            descriptor.insert("description".into(), text.unwrap_or(&title).into());
            let shown = shown(name, schema);
            if !shown.is_empty() {
                descriptor.insert("x-descriptors".into(), shown.into());
            }
            Value::Object(descriptor)
        })
        .collect()
}

fn spec_field(name: &str, schema: &Value) -> Vec<String> {
    if let Some(choices) = schema["enum"].as_array() {
        let choices = choices.iter().filter_map(Value::as_str);
        return choices
            .filter(|choice| !choice.is_empty())
            .map(|choice| format!("{SHOWN_AS}com.tectonic.ui:select:{choice}"))
            .collect();
    }
    match schema["type"].as_str() {
        Some("integer") if name == "replicas" => {
            vec![format!("{SHOWN_AS}com.tectonic.ui:podCount")]
        }
        Some("string") => vec![format!("{SHOWN_AS}com.tectonic.ui:text")],
        _ => Vec::new(),
    }
}

fn status_field(name: &str, _: &Value) -> Vec<String> {
    if name == "conditions" {
        vec![format!("{SHOWN_AS}io.kubernetes.conditions")]
    } else {
        Vec::new()
    }
}

/// Returns the name of a field as a title: `nodeGroups` is `Node Groups`.
fn title(name: &str) -> String {
    let mut title = String::new();
    for (at, letter) in name.char_indices() {
        if at == 0 {
            title.extend(letter.to_uppercase());
            continue;
        }
        if letter.is_uppercase() {
            title.push(' ');
        }
        title.push(letter);
    }
    title
}

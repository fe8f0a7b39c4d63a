//! Group, scope, versions, names, columns, subresources and selectable fields of definitions.

use serde_json::{Value, json};

use super::hub::{Parts, Spec, Version};
use super::parts::{check_supported, numbered, text};
use super::{conversion, go, path, schema};
use crate::admission::validation::names as forms;
use crate::failure::Cause;
use crate::registry::definition::{is_true, texts};

/// Types of columns.
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
/// Formats of columns.
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
/// Largest number of selectable fields.
const MAX_SELECTABLE_FIELDS: usize = 8;
/// Longest warning of a deprecated version, in bytes.
const LONGEST_WARNING: usize = 256;

/// Checks the whole specification; `before` is the one that is replaced.
pub(super) fn check(spec: &Spec<'_>, before: Option<&Value>, causes: &mut Vec<Cause>) {
    group(text(&spec.raw["group"]), causes);
    check_supported(
        text(&spec.raw["scope"]),
        &["Cluster", "Namespaced"],
        "spec.scope",
        causes,
    );
    if spec.shared.open_api().is_null() {
        for (index, version) in spec.versions.iter().enumerate() {
            if version.own.open_api().is_null() {
                let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
                causes.push(Cause::required(path, ""));
            }
        }
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        check_version(spec, version, before, &path, causes);
    }
    let mut refuse = |why: &str| {
        let cause = Cause::invalid("spec.versions", &Value::Null, why);
        causes.push(cause.with_value(&go::versions(spec)));
    };
    let names: Vec<&str> = spec.versions.iter().map(Version::name).collect();
    if (1..names.len()).any(|index| names[..index].contains(&names[index])) {
        refuse("must contain unique version names");
    }
    if spec
        .versions
        .iter()
        .filter(|version| version.is("storage"))
        .count()
        != 1
    {
        refuse("must have exactly one version marked as storage version");
    }
    if !spec.version().is_empty() {
        dns_label(spec.version(), "spec.version", "", causes);
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(&spec.raw["names"][name]).is_empty() {
            causes.push(Cause::required(format!("spec.names.{name}"), ""));
        }
    }
    self::names(&spec.raw["names"], "spec.names", causes);
    let has_status =
        spec.shared.has_status() || spec.versions.iter().any(|version| version.own.has_status());
    schema::check(
        spec.shared.open_api(),
        has_status,
        had_schema(before, spec.version(), spec.shared.open_api()),
        "spec.validation",
        causes,
    );
    subresources(spec.shared.subresources, "spec.subresources", causes);
    columns(spec.shared.columns, "spec.additionalPrinterColumns", causes);
    selectable(&spec.shared, "spec", causes);
    conversion::check(&spec.raw["conversion"], causes);
}

/// Refuses changes of fields that can never be changed, or no longer after the definition is established.
pub(super) fn check_change(before: &Value, definition: &Value, causes: &mut Vec<Cause>) {
    let mut fixed: Vec<&[&str]> = Vec::new();
    if is_true(before, "Established") {
        fixed.extend([&["scope"][..], &["names", "kind"]]);
    }
    fixed.extend([&["group"][..], &["names", "plural"]]);
    for path in fixed {
        let at = |object: &Value| -> Value {
            path.iter()
                .fold(object["spec"].clone(), |value, step| value[*step].clone())
        };
        let is = at(definition);
        if at(before) != is {
            let path = format!("spec.{}", path.join("."));
            causes.push(Cause::invalid(path, &is, "field is immutable"));
        }
    }
}

fn group(group: &str, causes: &mut Vec<Cause>) {
    const PATH: &str = "spec.group";
    if group.is_empty() {
        causes.push(Cause::required(PATH, ""));
        return;
    }
    let wrong = forms::subdomain(group);
    if !wrong.is_empty() {
        causes.push(Cause::invalid(PATH, &json!(group), &wrong.join(",")));
    } else if !group.contains('.') {
        let why = "should be a domain with at least one dot";
        causes.push(Cause::invalid(PATH, &json!(group), why));
    }
}

fn dns_label(label: &str, path: &str, before: &str, causes: &mut Vec<Cause>) {
    let lower = if before.is_empty() {
        label.to_owned()
    } else {
        label.to_lowercase()
    };
    let wrong = forms::service(&lower);
    if !wrong.is_empty() {
        let why = format!("{before}{}", wrong.join(","));
        causes.push(Cause::invalid(path, &json!(label), &why));
    }
}

/// Checks the names of a kind, requested or accepted.
pub(super) fn names(names: &Value, path: &str, causes: &mut Vec<Cause>) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    for (field, before) in [
        ("plural", ""),
        ("singular", ""),
        ("kind", MIXED),
        ("listKind", MIXED),
    ] {
        let name = text(&names[field]);
        if !name.is_empty() {
            dns_label(name, &format!("{path}.{field}"), before, causes);
        }
    }
    let mut list = |field: &str| {
        for (index, name) in texts(&names[field]).enumerate() {
            dns_label(name, &format!("{path}.{field}[{index}]"), "", causes);
        }
    };
    list("shortNames");
    let (kind, of_lists) = (text(&names["kind"]), text(&names["listKind"]));
    if !kind.is_empty() && kind == of_lists {
        let why = "kind and listKind may not be the same";
        causes.push(Cause::invalid(
            format!("{path}.listKind"),
            &json!(kind),
            why,
        ));
    }
    for (index, name) in texts(&names["categories"]).enumerate() {
        dns_label(name, &format!("{path}.categories[{index}]"), "", causes);
    }
}

/// Returns whether a version had the same schema before.
fn had_schema(before: Option<&Value>, version: &str, schema: &Value) -> bool {
    let known = before
        .into_iter()
        .flat_map(|spec| numbered(&spec["versions"]));
    let mut known = known.filter(|(_, known)| text(&known["name"]) == version);
    known.any(|(_, known)| known["schema"]["openAPIV3Schema"] == *schema)
}

fn check_version(
    spec: &Spec<'_>,
    version: &Version<'_>,
    before: Option<&Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    dns_label(version.name(), &format!("{path}.name"), "", causes);
    warning(version, &format!("{path}.deprecationWarning"), causes);
    let any_own = spec
        .versions
        .iter()
        .any(|version| !version.own.subresources.is_null());
    let has_status = if any_own {
        version.own.has_status()
    } else {
        spec.shared.has_status()
    };
    schema::check(
        version.own.open_api(),
        has_status,
        had_schema(before, version.name(), version.own.open_api()),
        &format!("{path}.schema"),
        causes,
    );
    subresources(
        version.own.subresources,
        &format!("{path}.subresources"),
        causes,
    );
    columns(
        version.own.columns,
        &format!("{path}.additionalPrinterColumns"),
        causes,
    );
    selectable(&version.own, path, causes);
}

fn warning(version: &Version<'_>, path: &str, causes: &mut Vec<Cause>) {
    let Some(warning) = version.raw["deprecationWarning"].as_str() else {
        return;
    };
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(warning), why));
    if !version.is("deprecated") {
        refuse("can only be set for deprecated versions");
        return;
    }
    if warning.len() > LONGEST_WARNING {
        refuse("must be <= 256 characters long");
    }
    if warning.is_empty() {
        refuse("must not be an empty string");
    }
    if let Some((index, _)) = warning
        .char_indices()
        .find(|(_, letter)| letter.is_control())
    {
        refuse(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

fn simple_path(given: &str, path: &str, causes: &mut Vec<Cause>) -> bool {
    let right = given.starts_with('.');
    if !right {
        let why = "must be a simple json path starting with .";
        causes.push(Cause::invalid(path, &json!(given), why));
    }
    right
}

fn subresources(subresources: &Value, path: &str, causes: &mut Vec<Cause>) {
    let scale = &subresources["scale"];
    if scale.is_null() {
        return;
    }
    for (field, part) in [
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
    ] {
        let (given, path) = (text(&scale[field]), format!("{path}.scale.{field}"));
        if given.is_empty() {
            causes.push(Cause::required(path, ""));
        } else if simple_path(given, &path, causes) && !given.starts_with(&format!("{part}.")) {
            let why = format!("should be a json path under {part}");
            causes.push(Cause::invalid(path, &json!(given), &why));
        }
    }
    let (given, path) = (
        text(&scale["labelSelectorPath"]),
        format!("{path}.scale.labelSelectorPath"),
    );
    let is_under = |part: &str| given.starts_with(part);
    if !given.is_empty()
        && simple_path(given, &path, causes)
        && !is_under(".spec.")
        && !is_under(".status.")
    {
        let why = "should be a json path under either .spec or .status";
        causes.push(Cause::invalid(path, &json!(given), why));
    }
}

fn columns(columns: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, column) in numbered(columns) {
        let path = |field: &str| format!("{path}[{index}].{field}");
        let given = |field: &str| text(&column[field]);
        if given("name").is_empty() {
            causes.push(Cause::required(path("name"), ""));
        }
        let one_of = |known: &[&str]| format!("must be one of {}", known.join(","));
        let kind = given("type");
        if kind.is_empty() {
            causes.push(Cause::required(path("type"), &one_of(&COLUMN_TYPES)));
        } else if !COLUMN_TYPES.contains(&kind) {
            causes.push(Cause::invalid(
                path("type"),
                &json!(kind),
                &one_of(&COLUMN_TYPES),
            ));
        }
        let format = given("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            causes.push(Cause::invalid(
                path("format"),
                &json!(format),
                &one_of(&COLUMN_FORMATS),
            ));
        }
        if given("jsonPath").is_empty() {
            causes.push(Cause::required(path("JSONPath"), ""));
        } else {
            simple_path(given("jsonPath"), &path("JSONPath"), causes);
        }
    }
}

fn selectable(parts: &Parts<'_>, path: &str, causes: &mut Vec<Cause>) {
    let path = format!("{path}.selectableFields");
    if numbered(parts.selectable).next().is_none() {
        return;
    }
    if parts.open_api().is_null() {
        let why = if path == "spec.selectableFields" {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        causes.push(Cause::invalid(path, &json!(""), why));
        return;
    }
    let mut seen: Vec<String> = Vec::new();
    for (index, field) in numbered(parts.selectable) {
        let path = format!("{path}[{index}].jsonPath");
        let given = &field["jsonPath"];
        if text(given).is_empty() {
            causes.push(Cause::required(path, ""));
            continue;
        }
        let (steps, found) = match path::find(text(given), parts.open_api(), false) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("is an invalid path: {why}");
                causes.push(Cause::invalid(path, given, &why));
                continue;
            }
        };
        if steps.first().is_some_and(|step| step == "metadata") {
            let why = "must not point to fields in metadata";
            causes.push(Cause::invalid(path.clone(), given, why));
        }
        if !["string", "boolean", "integer"].contains(&text(&found["type"])) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            causes.push(Cause::invalid(path.clone(), given, why));
        }
        let name = steps.join(".");
        if seen.contains(&name) {
            causes.push(Cause::duplicate(path, given));
        } else {
            seen.push(name);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        causes.push(Cause::too_many(path, seen.len(), MAX_SELECTABLE_FIELDS));
    }
}

//! Checks of the sources of volumes that lie outside a node: disks of clouds, network file systems.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::super::checks::{filled, name, one_of, optional_name, text, within, wrong};
use super::super::names;
use super::descending;
use crate::failure::Cause;
use crate::values::fields::members;

const REGISTRY: &str = "must be a host:port pair or multiple pairs separated by commas";
const FORM: &str = "must be valid format";
const LONG_FORM: &str = "must be valid format starting with iqn, eui, or naa";
/// Most characters of a volume's name and its portal of iSCSI together.
const LONGEST_PORTAL: usize = 64;
/// Longest name of a tenant.
const LONGEST_TENANT: usize = 64;

/// The forms of a name in iSCSI, by how it begins.
static INITIATORS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    [
        (
            "iqn",
            r"iqn\.[0-9]{4}-[0-9]{2}\.([[:alnum:].-]+)(:[^,;*&$|\s]+)$",
        ),
        ("eui", r"^eui.[[:alnum:]]{16}$"),
        ("naa", r"^naa.[[:alnum:]]{32}$"),
    ]
    .into_iter()
    .filter_map(|(begin, form)| Some((begin, Regex::new(form).ok()?)))
    .collect()
});

/// Whose source a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner<'a> {
    /// A pod.
    Pod,
    /// A volume of its own, with its name.
    Volume(&'a str),
}

/// Checks a source that has a kind; of other kinds than those here nothing is checked.
pub(super) fn check(
    kind: &str,
    value: &Value,
    owner: Owner<'_>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    for field in required(kind) {
        if !filled(&value[*field]) {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
        }
    }
    let is_own = owner != Owner::Pod;
    match kind {
        "gitRepo" => {
            let given = text(&value["directory"]);
            descending(given, &format!("{path}.directory"), causes);
        }
        "nfs" if !text(&value["path"]).starts_with('/') => {
            let given = json!(text(&value["path"]));
            let why = "must be an absolute path";
            causes.push(Cause::invalid(format!("{path}.path"), &given, why));
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = value["partition"].as_i64().unwrap_or_default();
            if !(0..=255).contains(&partition) {
                let why = "must be between 1 and 255, inclusive";
                let at = format!("{path}.partition");
                causes.push(Cause::invalid(at, &json!(partition), why));
            }
        }
        "glusterfs" if is_own && !value["endpointsNamespace"].is_null() => {
            let (given, at) = (
                text(&value["endpointsNamespace"]),
                format!("{path}.endpointsNamespace"),
            );
            if given.is_empty() {
                let why = "if the endpointnamespace is set, it must be a valid namespace name";
                causes.push(Cause::invalid(at, &json!(given), why));
            } else {
                wrong(names::label(given), given, &at, causes);
            }
        }
        "cinder" => secret(&value["secretRef"], is_own, path, causes),
        "storageos" => {
            let at = format!("{path}.volumeName");
            name(&value["volumeName"], names::label, &at, causes);
            let at = format!("{path}.volumeNamespace");
            optional_name(&value["volumeNamespace"], names::label, &at, causes);
            secret(&value["secretRef"], is_own, path, causes);
        }
        "azureFile" if is_own && value["secretNamespace"] == "" => {
            causes.push(Cause::required(format!("{path}.secretNamespace"), ""));
        }
        "azureDisk" => azure_disk(value, path, causes),
        "fc" => fibre_channel(value, path, causes),
        "flocker" => flocker(value, path, causes),
        "flexVolume" => flex(value, path, causes),
        "quobyte" => quobyte(value, path, causes),
        "iscsi" => iscsi(value, owner, path, causes),
        _ => {}
    }
}

fn required(kind: &str) -> &'static [&'static str] {
    match kind {
        "gitRepo" => &["repository"],
        "gcePersistentDisk" => &["pdName"],
        "nfs" => &["server", "path"],
        "glusterfs" => &["endpoints", "path"],
        "persistentVolumeClaim" => &["claimName"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "portworxVolume" | "cinder" | "awsElasticBlockStore" => &["volumeID"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "rbd" => &["monitors", "image"],
        "cephfs" => &["monitors"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "flexVolume" => &["driver"],
        "iscsi" => &["targetPortal", "iqn"],
        _ => &[],
    }
}

/// Checks a reference to a secret; that of a volume of its own has a namespace.
fn secret(reference: &Value, is_own: bool, path: &str, causes: &mut Vec<Cause>) {
    if reference.is_null() {
        return;
    }
    let fields: &[&str] = if is_own {
        &["name", "namespace"]
    } else {
        &["name"]
    };
    for field in fields {
        if !filled(&reference[*field]) {
            causes.push(Cause::required(format!("{path}.secretRef.{field}"), ""));
        }
    }
}

fn azure_disk(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let choices: [(&str, &[&str]); 2] = [
        ("cachingMode", &["None", "ReadOnly", "ReadWrite"]),
        ("kind", &["Dedicated", "Managed", "Shared"]),
    ];
    for (field, allowed) in choices {
        if !value[field].is_null() {
            one_of(&value[field], allowed, &format!("{path}.{field}"), causes);
        }
    }
    let (begin, form) = match value["kind"].as_str() {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    let given = text(&value["diskURI"]);
    if !given.starts_with(begin) {
        let at = format!("{path}.diskURI");
        causes.push(Cause::unsupported(at, &json!(given), &[form.to_owned()]));
    }
}

fn fibre_channel(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.targetWWNs");
    match (filled(&value["targetWWNs"]), filled(&value["wwids"])) {
        (false, false) => {
            let why = "must specify either targetWWNs or wwids, but not both";
            causes.push(Cause::required(at, why));
        }
        (true, true) => {
            let why = "targetWWNs and wwids can not be specified simultaneously";
            causes.push(Cause::invalid(at, &value["targetWWNs"], why));
        }
        _ => {}
    }
    if !filled(&value["targetWWNs"]) {
        return;
    }
    let at = format!("{path}.lun");
    if value["lun"].is_null() {
        let why = "lun is required if targetWWNs is specified";
        causes.push(Cause::required(at, why));
    } else {
        within(&value["lun"], 0, 255, &at, causes);
    }
}

fn flocker(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let given = text(&value["datasetName"]);
    match (given.is_empty(), !filled(&value["datasetUUID"])) {
        (true, true) => {
            let why = "one of datasetName and datasetUUID is required";
            causes.push(Cause::required(path, why));
        }
        (false, false) => {
            let why = "datasetName and datasetUUID can not be specified simultaneously";
            causes.push(Cause::invalid(path, &json!("resource"), why));
        }
        _ => {}
    }
    if given.contains('/') {
        let at = format!("{path}.datasetName");
        causes.push(Cause::invalid(at, &json!(given), "must not contain '/'"));
    }
}

fn flex(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for key in members(&value["options"]).map(|(key, _)| key) {
        let domain = key.split('/').next().unwrap_or_default().to_lowercase();
        let domain = format!(".{domain}");
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            let at = format!("{path}.options[{key}]");
            causes.push(Cause::invalid(at, &json!(key), why));
        }
    }
}

fn quobyte(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (given, at) = (text(&value["registry"]), format!("{path}.registry"));
    if given.is_empty() {
        causes.push(Cause::required(at, REGISTRY));
    } else if text(&value["tenant"]).len() > LONGEST_TENANT {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        causes.push(Cause::required(format!("{path}.tenant"), why));
    } else {
        for _ in given.split(',').filter(|pair| !is_host_and_port(pair)) {
            causes.push(Cause::invalid(&*at, &json!(given), REGISTRY));
        }
    }
    if !filled(&value["volume"]) {
        causes.push(Cause::required(format!("{path}.volume"), ""));
    }
}

/// Returns whether a text has the form `host:port`, with brackets around a host that has colons.
fn is_host_and_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else {
        return false;
    };
    let inner = match host.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(inner) => inner,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !inner.contains(['[', ']']) && !port.contains(['[', ']'])
}

fn iscsi(value: &Value, owner: Owner<'_>, path: &str, causes: &mut Vec<Cause>) {
    let short = if owner == Owner::Pod { LONG_FORM } else { FORM };
    let initiator = &value["initiatorName"];
    if let Owner::Volume(volume) = owner
        && !initiator.is_null()
    {
        let portal = text(&value["targetPortal"]);
        if volume.len() + 1 + portal.len() > LONGEST_PORTAL {
            let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            let at = format!("{path}.targetportal");
            causes.push(Cause::invalid(at, &json!(portal), why));
        }
    }
    let mut refuse = |field: &str, given: &Value, why: Option<&str>| {
        if let Some(why) = why {
            causes.push(Cause::invalid(format!("{path}.{field}"), given, why));
        }
    };
    if filled(&value["iqn"]) {
        refuse("iqn", &value["iqn"], wrong_name(text(&value["iqn"]), short));
    }
    if !initiator.is_null() {
        refuse(
            "initiatorname",
            initiator,
            wrong_name(text(initiator), short),
        );
    }
    if !value["lun"].is_null() {
        within(&value["lun"], 0, 255, &format!("{path}.lun"), causes);
    }
    let is_authenticated = ["chapAuthDiscovery", "chapAuthSession"]
        .iter()
        .any(|field| value[*field] == true);
    if is_authenticated && value["secretRef"].is_null() {
        causes.push(Cause::required(format!("{path}.secretRef"), ""));
    }
    if owner != Owner::Pod && !value["secretRef"].is_null() && !filled(&value["secretRef"]["name"])
    {
        causes.push(Cause::required(format!("{path}.secretRef.name"), ""));
    }
}

/// Returns what is wrong with a name of iSCSI; `unknown` is what is said of one that begins as none does.
fn wrong_name<'a>(given: &str, unknown: &'a str) -> Option<&'a str> {
    let known = INITIATORS
        .iter()
        .find(|(begin, _)| given.starts_with(begin));
    match known {
        None => Some(unknown),
        Some((_, form)) => (!form.is_match(given)).then_some(FORM),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn told(kind: &str, value: &Value, owner: Owner<'_>) -> Vec<String> {
        let mut causes = Vec::new();
        check(kind, value, owner, "p", &mut causes);
        causes.iter().map(Cause::text).collect()
    }

    #[rstest]
    #[case::plain("a:1", true)]
    #[case::with_colons("[::1]:1", true)]
    #[case::without_brackets("::1:1", false)]
    #[case::no_port("a", false)]
    #[case::no_end("[a:1", false)]
    #[case::empty_parts(":", true)]
    fn pairs_have_one_colon_outside_of_brackets(#[case] pair: &str, #[case] right: bool) {
        assert_eq!(is_host_and_port(pair), right);
    }

    #[rstest]
    #[case::plain("iqn.2001-04.com.example:disk", None)]
    #[case::no_disk("iqn.2001-04.com.example", Some(FORM))]
    #[case::eui("eui.0123456789abcdef", None)]
    #[case::short_eui("eui.0123", Some(FORM))]
    #[case::unknown("disk", Some("unknown"))]
    fn names_of_iscsi_have_three_forms(#[case] given: &str, #[case] why: Option<&str>) {
        assert_eq!(wrong_name(given, "unknown"), why);
    }

    #[test]
    fn only_a_volume_of_its_own_says_in_which_namespace_its_secret_is() {
        let disk = json!({"volumeID": "v", "secretRef": {"name": "s"}});
        assert_eq!(told("cinder", &disk, Owner::Pod), Vec::<String>::new());
        assert_eq!(
            told("cinder", &disk, Owner::Volume("v")),
            ["p.secretRef.namespace: Required value"]
        );
    }

    #[test]
    fn a_disk_of_its_kind_has_the_right_address() {
        let disk = json!({"diskName": "d", "diskURI": "x", "kind": "Shared"});
        assert_eq!(
            told("azureDisk", &disk, Owner::Pod),
            [
                "p.diskURI: Unsupported value: \"x\": supported values: \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\""
            ]
        );
    }
}

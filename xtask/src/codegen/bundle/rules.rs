//! Rules of `operator-sdk bundle validate` and of the lifecycle manager for bundles, as far as ours can break them.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::{Value, json};

use super::super::HEADING;
use super::{MANIFESTS, PACKAGE, files};

const LEVELS: [&str; 5] = [
    "Basic Install",
    "Seamless Upgrades",
    "Full Lifecycle",
    "Deep Insights",
    "Auto Pilot",
];

/// The files of a bundle, as an image would hold them.
struct Bundle {
    /// The cluster service version.
    csv: Value,
    /// All other manifests.
    objects: Vec<Value>,
    annotations: Value,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Bundle {
    fn rendered() -> Self {
        let mut bundle = Self {
            csv: Value::Null,
            objects: Vec::new(),
            annotations: Value::Null,
        };
        for file in files().unwrap() {
            let document = file.text.strip_prefix(HEADING).unwrap();
            let value: Value = serde_yaml::from_str(document).unwrap();
            if !file.path.starts_with(MANIFESTS) {
                bundle.annotations = value["annotations"].clone();
            } else if value["kind"] == "ClusterServiceVersion" {
                bundle.csv = value;
            } else {
                bundle.objects.push(value);
            }
        }
        bundle
    }

    fn owned(&self) -> &[Value] {
        list(&self.csv["spec"]["customresourcedefinitions"]["owned"])
    }

    fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.check_metadata(&mut found);
        self.check_kinds(&mut found);
        self.check_examples(&mut found);
        self.check_installation(&mut found);
        self.check_objects(&mut found);
        self.check_annotations(&mut found);
        found
    }

    fn check_metadata(&self, found: &mut Vec<String>) {
        let (metadata, spec) = (&self.csv["metadata"], &self.csv["spec"]);
        let version = text(&spec["version"]);
        let release = version.split('-').next().unwrap_or_default();
        let parts: Vec<&str> = release.split('.').collect();
        if parts.len() != 3 || parts.iter().any(|part| part.parse::<u64>().is_err()) {
            found.push(format!("version {version:?} is not semantic"));
        }
        if metadata["name"] != format!("{PACKAGE}.v{version}") {
            found.push("the name is not package and version".into());
        }
        for field in ["displayName", "description", "minKubeVersion"] {
            if text(&spec[field]).is_empty() {
                found.push(format!("{field} is missing"));
            }
        }
        if text(&spec["provider"]["name"]).is_empty() {
            found.push("the provider has no name".into());
        }
        let maintainers = list(&spec["maintainers"]);
        let has_address = |who: &Value| text(&who["email"]).contains('@');
        if maintainers.is_empty() || !maintainers.iter().all(has_address) {
            found.push("a maintainer has no address".into());
        }
        let level = text(&metadata["annotations"]["capabilities"]);
        if !LEVELS.contains(&level) {
            found.push(format!("capabilities {level:?} are unknown"));
        }
        let modes = list(&spec["installModes"]);
        let kinds: BTreeSet<&str> = modes.iter().map(|mode| text(&mode["type"])).collect();
        if kinds.len() != 4 || !modes.iter().any(|mode| mode["supported"] == true) {
            found.push("install modes are incomplete, or none is supported".into());
        }
    }

    /// Checks that the definitions serve exactly the kinds and versions that the version owns.
    fn check_kinds(&self, found: &mut Vec<String>) {
        let mut served = BTreeSet::new();
        for definition in &self.objects {
            for version in list(&definition["spec"]["versions"]) {
                let kind = &definition["spec"]["names"]["kind"];
                served.insert([&definition["metadata"]["name"], kind, &version["name"]].map(text));
            }
        }
        let owned = self.owned().iter();
        let owned: BTreeSet<[&str; 3]> = owned
            .map(|kind| ["name", "kind", "version"].map(|key| text(&kind[key])))
            .collect();
        for kind in served.symmetric_difference(&owned) {
            found.push(format!("{kind:?} is defined or owned, and not both"));
        }
    }

    /// Checks that each kind and version has an example.
    fn check_examples(&self, found: &mut Vec<String>) {
        let examples = text(&self.csv["metadata"]["annotations"]["alm-examples"]);
        let examples: Vec<Value> = serde_json::from_str(examples).unwrap_or_default();
        for kind in self.owned() {
            let version = format!("nodetopology.openshift.io/{}", text(&kind["version"]));
            let is_of = |example: &&Value| {
                example["kind"] == kind["kind"] && example["apiVersion"] == version
            };
            if examples.iter().find(is_of).is_none() {
                found.push(format!("no example of {} {version}", kind["kind"]));
            }
        }
    }

    fn check_installation(&self, found: &mut Vec<String>) {
        let install = &self.csv["spec"]["install"];
        let deployments = list(&install["spec"]["deployments"]);
        if install["strategy"] != "deployment" || deployments.is_empty() {
            found.push("nothing is deployed".into());
        }
        for deployment in deployments {
            let template = &deployment["spec"]["template"];
            let account = &template["spec"]["serviceAccountName"];
            for kind in ["permissions", "clusterPermissions"] {
                let mut granted = list(&install["spec"][kind]).iter();
                if !granted.any(|entry| entry["serviceAccountName"] == *account) {
                    found.push(format!("{account} has no {kind}"));
                }
            }
            for container in list(&template["spec"]["containers"]) {
                if container["resources"]["requests"].is_null() {
                    found.push(format!("container {} requests nothing", container["name"]));
                }
            }
            let wanted = deployment["spec"]["selector"]["matchLabels"].as_object();
            let labels = &template["metadata"]["labels"];
            if !wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
            {
                found.push("a deployment does not select its pods".into());
            }
        }
    }

    fn check_objects(&self, found: &mut Vec<String>) {
        for object in &self.objects {
            let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
            // the lifecycle manager creates what the version names; it never creates namespaces
            if ["ServiceAccount", "Namespace", "Deployment"].contains(&kind) {
                found.push(format!("a {kind} is no part of a bundle"));
            }
            if !metadata["namespace"].is_null() {
                found.push(format!(
                    "{kind} {} is bound to a namespace",
                    metadata["name"]
                ));
            }
        }
    }

    fn check_annotations(&self, found: &mut Vec<String>) {
        let annotation = |key: &str| {
            text(&self.annotations[format!("operators.operatorframework.io.bundle.{key}")])
        };
        for (key, wanted) in [
            ("mediatype.v1", "registry+v1"),
            ("manifests.v1", "manifests/"),
            ("metadata.v1", "metadata/"),
            ("package.v1", PACKAGE),
        ] {
            if annotation(key) != wanted {
                found.push(format!("annotation {key} is not {wanted}"));
            }
        }
        let default = annotation("channel.default.v1");
        if !annotation("channels.v1")
            .split(',')
            .any(|channel| channel == default)
        {
            found.push("the default channel is no channel".into());
        }
    }
}

#[test]
fn rendered_bundle_keeps_the_rules() {
    assert_eq!(Bundle::rendered().violations(), Vec::<String>::new());
}

/// Checks that each rule finds its violation; a rule that is never broken would prove nothing.
#[rstest]
#[case::version("/spec/version", json!("latest"), "is not semantic")]
#[case::name("/metadata/name", json!("operator"), "not package and version")]
#[case::description("/spec/description", json!(""), "description is missing")]
#[case::provider("/spec/provider", json!({}), "provider has no name")]
#[case::maintainer("/spec/maintainers/0/email", json!("nobody"), "maintainer has no address")]
#[case::capabilities("/metadata/annotations/capabilities", json!("All"), "are unknown")]
#[case::modes("/spec/installModes", json!([]), "install modes are incomplete")]
#[case::owned("/spec/customresourcedefinitions/owned/0/version", json!("v2"), "and not both")]
#[case::examples("/metadata/annotations/alm-examples", json!("[]"), "no example of")]
#[case::strategy("/spec/install/strategy", json!("job"), "nothing is deployed")]
#[case::account(
    "/spec/install/spec/deployments/0/spec/template/spec/serviceAccountName",
    json!("default"),
    "has no clusterPermissions"
)]
#[case::requests(
    "/spec/install/spec/deployments/0/spec/template/spec/containers/0/resources",
    json!({}),
    "requests nothing"
)]
#[case::selector(
    "/spec/install/spec/deployments/0/spec/template/metadata/labels",
    json!({}),
    "does not select its pods"
)]
fn broken_version_is_found(#[case] place: &str, #[case] value: Value, #[case] message: &str) {
    let mut bundle = Bundle::rendered();
    *bundle.csv.pointer_mut(place).unwrap() = value;
    let found = bundle.violations().join("\n");
    assert!(found.contains(message), "{found}");
}

#[rstest]
#[case::account(json!({"kind": "ServiceAccount", "metadata": {"name": "a"}}), "is no part of a bundle")]
#[case::namespaced(
    json!({"kind": "Service", "metadata": {"name": "a", "namespace": "b"}}),
    "bound to a namespace"
)]
fn object_that_does_not_belong_is_found(#[case] object: Value, #[case] message: &str) {
    let mut bundle = Bundle::rendered();
    bundle.objects.push(object);
    let found = bundle.violations().join("\n");
    assert!(found.contains(message), "{found}");
}

#[test]
fn default_channel_must_be_one_of_the_channels() {
    let mut bundle = Bundle::rendered();
    let default = "operators.operatorframework.io.bundle.channel.default.v1";
    bundle.annotations[default] = json!("stable");
    assert_eq!(bundle.violations(), ["the default channel is no channel"]);
}

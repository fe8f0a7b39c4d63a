//! Rules of `operator-sdk bundle validate` and of the lifecycle manager for bundles, as far as ours can break them.

use std::collections::BTreeSet;

use data_encoding::BASE64;
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
    scorecard: Value,
    recipe: String,
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
            scorecard: Value::Null,
            recipe: String::new(),
        };
        for file in files().unwrap() {
            let document = file.text.strip_prefix(HEADING).unwrap();
            if file.path.ends_with("/Containerfile") {
                bundle.recipe = document.to_owned();
                continue;
            }
            // the lifecycle manager takes what is before a mark for the first document, and reads no other
            assert!(!document.starts_with("---"), "{}", file.path);
            let value: Value = serde_yaml::from_str(document).unwrap();
            if file.path == "bundle/metadata/annotations.yaml" {
                bundle.annotations = value["annotations"].clone();
            } else if !file.path.starts_with(MANIFESTS) {
                assert_eq!(file.path, "bundle/tests/scorecard/config.yaml");
                bundle.scorecard = value;
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
        self.check_upgrade(&mut found);
        self.check_images(&mut found);
        self.check_descriptors(&mut found);
        self.check_kinds(&mut found);
        self.check_examples(&mut found);
        self.check_installation(&mut found);
        self.check_objects(&mut found);
        self.check_annotations(&mut found);
        self.check_image(&mut found);
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

    /// Checks what this version takes the place of.
    fn check_upgrade(&self, found: &mut Vec<String>) {
        let (metadata, spec) = (&self.csv["metadata"], &self.csv["spec"]);
        let replaced = text(&spec["replaces"]);
        let last = replaced.strip_prefix(&format!("{PACKAGE}.v"));
        if last.is_none() || spec["replaces"] == metadata["name"] {
            found.push(format!(
                "{replaced:?} is no other version of the package to replace"
            ));
        }
        let range = text(&metadata["annotations"]["olm.skipRange"]);
        let bounds: Vec<&str> = range.split(' ').collect();
        let is_range = matches!(bounds[..], [first, second]
            if first.starts_with(">=") && second.starts_with('<'));
        if !is_range || !last.is_some_and(|last| range.ends_with(last)) {
            found.push(format!(
                "the range {range:?} does not end with what is replaced"
            ));
        }
    }

    /// Checks that a mirror of the images named has all that is run.
    fn check_images(&self, found: &mut Vec<String>) {
        let spec = &self.csv["spec"];
        let related: BTreeSet<&str> = list(&spec["relatedImages"])
            .iter()
            .map(|related| text(&related["image"]))
            .collect();
        let deployments = list(&spec["install"]["spec"]["deployments"]);
        let containers = deployments
            .iter()
            .flat_map(|deployment| list(&deployment["spec"]["template"]["spec"]["containers"]));
        let shown = &self.csv["metadata"]["annotations"]["containerImage"];
        let used = containers.map(|container| &container["image"]);
        for image in used.chain([shown]) {
            if !related.contains(text(image)) {
                found.push(format!("{image} is not among the related images"));
            }
        }
        for icon in list(&spec["icon"]) {
            let drawing = BASE64.decode(text(&icon["base64data"]).as_bytes());
            if !drawing.is_ok_and(|drawing| drawing.starts_with(b"<svg")) {
                found.push("the icon is no drawing".into());
            }
        }
        if list(&spec["icon"]).is_empty() {
            found.push("there is no icon".into());
        }
    }

    /// Checks that all fields that a kind has are described, and no others.
    fn check_descriptors(&self, found: &mut Vec<String>) {
        for kind in self.owned() {
            let schema = self.schema(text(&kind["kind"]), text(&kind["version"]));
            for (part, descriptors) in
                [("spec", "specDescriptors"), ("status", "statusDescriptors")]
            {
                let fields = schema["properties"][part]["properties"].as_object();
                let fields: BTreeSet<&str> = fields
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                let described = list(&kind[descriptors]).iter();
                let described: BTreeSet<&str> = described
                    .filter(|one| !text(&one["displayName"]).is_empty())
                    .map(|one| text(&one["path"]))
                    .collect();
                for field in fields.symmetric_difference(&described) {
                    found.push(format!(
                        "{part}.{field} of {} has a field or a description, and not both",
                        kind["kind"]
                    ));
                }
            }
            if list(&kind["resources"]).is_empty() {
                found.push(format!("{} names no resources", kind["kind"]));
            }
        }
    }

    /// Returns the schema of a version of a kind; null if it is not defined.
    fn schema(&self, kind: &str, version: &str) -> &Value {
        let of_kind = |object: &&Value| object["spec"]["names"]["kind"] == kind;
        let versions = self.objects.iter().find(of_kind);
        let versions = versions.map_or(&Value::Null, |definition| &definition["spec"]["versions"]);
        let found = list(versions).iter().find(|one| one["name"] == version);
        found.map_or(
            &Value::Null,
            |version| &version["schema"]["openAPIV3Schema"],
        )
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
        for example in &examples {
            let version = text(&example["apiVersion"]);
            let version = version
                .rsplit_once('/')
                .map_or(version, |(_, version)| version);
            let schema = self.schema(text(&example["kind"]), version);
            check_value("example", example, schema, found);
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
        let tests = "operators.operatorframework.io.test";
        if self.annotations[format!("{tests}.mediatype.v1")] != "scorecard+v1"
            || self.annotations[format!("{tests}.config.v1")] != "tests/scorecard/"
        {
            found.push("the tests are not annotated".into());
        }
        let default = annotation("channel.default.v1");
        if !annotation("channels.v1")
            .split(',')
            .any(|channel| channel == default)
        {
            found.push("the default channel is no channel".into());
        }
    }

    /// Checks that the image has the annotations as labels, and all directories; and that its tests are complete.
    fn check_image(&self, found: &mut Vec<String>) {
        let labels = self.recipe.lines().filter_map(|line| {
            let (key, value) = line.strip_prefix("LABEL ")?.split_once('=')?;
            Some((key.to_owned(), value.into()))
        });
        let labels: serde_json::Map<String, Value> = labels.collect();
        if self.annotations != Value::Object(labels) {
            found.push("labels and annotations differ".into());
        }
        for directory in ["manifests", "metadata", "tests/scorecard"] {
            let line = format!("COPY {directory} /{directory}/");
            if !self.recipe.lines().any(|one| one == line) {
                found.push(format!("the image has no {directory}"));
            }
        }
        let stages = list(&self.scorecard["stages"]).iter();
        let tests = stages.flat_map(|stage| list(&stage["tests"])).count();
        if tests != 6 {
            found.push(format!("there are {tests} tests instead of 6"));
        }
    }
}

/// Checks a value by a schema as the API server does, and refuses fields that the schema does not have.
fn check_value(place: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
    let is_right = match text(&schema["type"]) {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "boolean" => value.is_boolean(),
        // any value
        "" => !schema.is_null(),
        _ => false,
    };
    if !is_right {
        found.push(format!("{place} is not of type {}", schema["type"]));
    }
    if schema["enum"].is_array() && !list(&schema["enum"]).contains(value) {
        found.push(format!("{place} is none of {}", schema["enum"]));
    }
    for field in list(&schema["required"]) {
        if value[text(field)].is_null() {
            found.push(format!("{place} lacks {field}"));
        }
    }
    for item in list(value) {
        check_value(place, item, &schema["items"], found);
    }
    let top = ["apiVersion", "kind", "metadata"];
    for (name, value) in value.as_object().into_iter().flatten() {
        if place == "example" && top.contains(&name.as_str()) {
            continue;
        }
        let own = &schema["properties"][name];
        let schema = if own.is_null() {
            &schema["additionalProperties"]
        } else {
            own
        };
        check_value(&format!("{place}.{name}"), value, schema, found);
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
#[case::replaces("/spec/replaces", json!("numaresources-operator.v0.1.0"), "no other version")]
#[case::range("/metadata/annotations/olm.skipRange", json!(">=1.0.0 <2.0.0"), "does not end with")]
#[case::related("/spec/relatedImages", json!([]), "is not among the related images")]
#[case::icon("/spec/icon/0/base64data", json!("!"), "is no drawing")]
#[case::descriptor(
    "/spec/customresourcedefinitions/owned/0/specDescriptors/0/path",
    json!("none"),
    "and not both"
)]
#[case::resources("/spec/customresourcedefinitions/owned/0/resources", json!([]), "names no resources")]
#[case::unknown_field_of_an_example(
    "/metadata/annotations/alm-examples",
    json!(r#"[{"apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "spec": {"nodes": []}}]"#),
    "example.spec.nodes is not of type"
)]
#[case::wrong_field_of_an_example(
    "/metadata/annotations/alm-examples",
    json!(r#"[{"apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesScheduler", "spec": {"logLevel": "Loud"}}]"#),
    "example.spec.logLevel is none of"
)]
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
fn labels_that_differ_from_the_annotations_are_found() {
    let mut bundle = Bundle::rendered();
    bundle.recipe = bundle.recipe.replace("=scorecard+v1", "=other");
    assert_eq!(bundle.violations(), ["labels and annotations differ"]);
}

#[test]
fn default_channel_must_be_one_of_the_channels() {
    let mut bundle = Bundle::rendered();
    let default = "operators.operatorframework.io.bundle.channel.default.v1";
    bundle.annotations[default] = json!("stable");
    let found = bundle.violations();
    assert_eq!(
        found,
        [
            "the default channel is no channel",
            "labels and annotations differ"
        ]
    );
}

//! Component `api` (deployer.md 4).

use serde_json::{Value, json};

use super::{HYPERSHIFT, KUBERNETES, OPENSHIFT, Rendered, keys};

const NAME: &str = "noderesourcetopologies.topology.node.k8s.io";
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

fn definition(rendered: &Rendered) -> &Value {
    rendered.object("CustomResourceDefinition", NAME)
}

#[test]
fn there_is_one_object_the_same_on_all_platforms() {
    let [one, two, three] = [KUBERNETES, OPENSHIFT, HYPERSHIFT].map(Rendered::new);
    assert_eq!(one.names("CustomResourceDefinition"), [NAME]);
    assert_eq!(definition(&one), definition(&two));
    assert_eq!(definition(&one), definition(&three));
}

#[test]
fn names_and_annotations_are_those_of_the_page() {
    let rendered = Rendered::new(KUBERNETES);
    let definition = definition(&rendered);
    let annotations = &definition["metadata"]["annotations"];
    assert_eq!(
        annotations["api-approved.kubernetes.io"],
        "https://github.com/kubernetes/enhancements/pull/1870"
    );
    assert_eq!(
        annotations["controller-gen.kubebuilder.io/version"],
        "v0.11.2"
    );
    // ours: `remove` leaves a definition alone that somebody else has made
    assert_eq!(
        definition["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "deployer"})
    );
    let spec = &definition["spec"];
    assert_eq!(spec["group"], "topology.node.k8s.io");
    assert_eq!(spec["names"]["kind"], "NodeResourceTopology");
    assert_eq!(spec["names"]["listKind"], "NodeResourceTopologyList");
    assert_eq!(spec["names"]["plural"], "noderesourcetopologies");
    assert_eq!(spec["names"]["singular"], "noderesourcetopology");
    assert_eq!(spec["names"]["shortNames"], json!(["node-res-topo"]));
    assert_eq!(spec["scope"], "Cluster");
    assert_eq!(spec["conversion"], Value::Null);
}

#[test]
fn both_versions_are_served_and_the_second_is_stored() {
    let rendered = Rendered::new(KUBERNETES);
    let versions = definition(&rendered)["spec"]["versions"]
        .as_array()
        .unwrap();
    let about = |key: &str| -> Vec<&Value> { versions.iter().map(|it| &it[key]).collect() };
    assert_eq!(about("name"), ["v1alpha1", "v1alpha2"]);
    assert_eq!(about("served"), [true, true]);
    assert_eq!(about("storage"), [false, true]);
    assert_eq!(about("subresources"), [&Value::Null; 2]);
    assert_eq!(about("additionalPrinterColumns"), [&Value::Null; 2]);
}

/// Returns the schemas of both versions.
fn schemas(rendered: &Rendered) -> [&Value; 2] {
    [0, 1].map(
        |version| &definition(rendered)["spec"]["versions"][version]["schema"]["openAPIV3Schema"],
    )
}

#[test]
fn the_properties_are_those_of_the_table() {
    let rendered = Rendered::new(KUBERNETES);
    let [old, new] = schemas(&rendered);
    assert_eq!(
        keys(&old["properties"]),
        [
            "apiVersion",
            "kind",
            "metadata",
            "topologyPolicies",
            "zones"
        ]
    );
    assert_eq!(old["required"], json!(["topologyPolicies", "zones"]));
    assert_eq!(
        keys(&new["properties"]),
        [
            "apiVersion",
            "attributes",
            "kind",
            "metadata",
            "topologyPolicies",
            "zones"
        ]
    );
    assert_eq!(new["required"], json!(["zones"]));
    for schema in [old, new] {
        let policies = &schema["properties"]["topologyPolicies"];
        assert_eq!(policies["type"], "array");
        assert_eq!(policies["items"]["type"], "string");
        assert_eq!(schema["properties"]["zones"]["type"], "array");
    }
    let policies = new["properties"]["topologyPolicies"]["description"].as_str();
    let policies = policies.unwrap_or_default().to_lowercase();
    assert!(policies.contains("deprecated"), "{policies}");
    assert_pairs(&new["properties"]["attributes"]);
}

/// Asserts a list of names with values, both texts and both required.
fn assert_pairs(list: &Value) {
    assert_eq!(list["type"], "array");
    assert_eq!(keys(&list["items"]["properties"]), ["name", "value"]);
    assert_eq!(list["items"]["required"], json!(["name", "value"]));
    for key in ["name", "value"] {
        assert_eq!(list["items"]["properties"][key]["type"], "string");
    }
}

#[test]
fn a_zone_is_as_described() {
    let rendered = Rendered::new(KUBERNETES);
    for schema in schemas(&rendered) {
        let zone = &schema["properties"]["zones"]["items"];
        assert_eq!(
            keys(&zone["properties"]),
            ["attributes", "costs", "name", "parent", "resources", "type"]
        );
        assert_eq!(zone["required"], json!(["name", "type"]));
        for key in ["name", "type", "parent"] {
            assert_eq!(zone["properties"][key]["type"], "string");
        }
        assert_pairs(&zone["properties"]["attributes"]);
        let cost = &zone["properties"]["costs"]["items"];
        assert_eq!(cost["properties"]["name"]["type"], "string");
        assert_eq!(cost["properties"]["value"]["type"], "integer");
        assert_eq!(cost["properties"]["value"]["format"], "int64");
        assert_eq!(cost["required"], json!(["name", "value"]));
        let resource = &zone["properties"]["resources"]["items"];
        assert_eq!(resource["properties"]["name"]["type"], "string");
        assert_eq!(
            resource["required"],
            json!(["allocatable", "available", "capacity", "name"])
        );
        for key in ["capacity", "allocatable", "available"] {
            let quantity = &resource["properties"][key];
            assert_eq!(quantity["x-kubernetes-int-or-string"], true);
            assert_eq!(
                quantity["anyOf"],
                json!([{"type": "integer"}, {"type": "string"}])
            );
            assert_eq!(quantity["pattern"], QUANTITY);
        }
    }
}

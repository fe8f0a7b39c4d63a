//! What makes the directory a bundle's image: annotations, the recipe with the same labels, and the tests that `operator-sdk scorecard` runs.

use serde_json::{Value, json};

use super::super::{File, HEADING};
use super::PACKAGE;

/// The original's only channel, which is also its default (operator.md 9).
const CHANNEL: &str = "alpha";
/// Prefix of the keys.
const KEY: &str = "operators.operatorframework.io";
/// The tests' image: the one that `operator-sdk` itself writes into a new bundle.
const TESTS: &str = "quay.io/operator-framework/scorecard-test:v1.41.1";

/// Renders the files.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let annotations =
        json!({"annotations": annotations().into_iter().collect::<serde_json::Map<_, _>>()});
    Ok(vec![
        File::document("bundle/metadata/annotations.yaml", &annotations)?,
        File::document("bundle/tests/scorecard/config.yaml", &scorecard())?,
        File {
            path: "bundle/Containerfile".to_owned(),
            text: recipe(),
        },
    ])
}

/// Returns the annotations of the bundle, which are also the labels of its image.
fn annotations() -> [(String, Value); 8] {
    [
        ("bundle.mediatype.v1", "registry+v1"),
        ("bundle.manifests.v1", "manifests/"),
        ("bundle.metadata.v1", "metadata/"),
        ("bundle.package.v1", PACKAGE),
        ("bundle.channels.v1", CHANNEL),
        ("bundle.channel.default.v1", CHANNEL),
        ("test.mediatype.v1", "scorecard+v1"),
        ("test.config.v1", "tests/scorecard/"),
    ]
    .map(|(key, value)| (format!("{KEY}.{key}"), value.into()))
}

/// Returns the recipe of the image: `podman build --file config/bundle/Containerfile config/bundle`.
fn recipe() -> String {
    let labels = annotations()
        .into_iter()
        .map(|(key, value)| format!("LABEL {key}={}", value.as_str().unwrap_or_default()));
    let copies = ["manifests", "metadata", "tests/scorecard"]
        .into_iter()
        .map(|directory| format!("COPY {directory} /{directory}/"));
    let lines: Vec<String> = std::iter::once("FROM scratch".to_owned())
        .chain(labels)
        .chain(copies)
        .collect();
    format!("{HEADING}{}\n", lines.join("\n"))
}

/// Returns the tests: the basic one and the five of the lifecycle manager, as the original has them (operator.md 9).
fn scorecard() -> Value {
    let tests = [
        ("basic", "basic-check-spec"),
        ("olm", "olm-bundle-validation"),
        ("olm", "olm-crds-have-validation"),
        ("olm", "olm-crds-have-resources"),
        ("olm", "olm-spec-descriptors"),
        ("olm", "olm-status-descriptors"),
    ];
    let tests = tests.map(|(suite, test)| {
        json!({
            "image": TESTS,
            "entrypoint": ["scorecard-test", test],
            "labels": {"suite": suite, "test": format!("{test}-test")},
            "storage": {"spec": {"mountPath": {}}},
        })
    });
    json!({
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": true, "tests": tests}],
        "storage": {"spec": {"mountPath": {}}},
    })
}

//! The images that the suite names: those of its own pods, and those of the stack that it installs.
//!
//! Clusters of ours resolve [`names::STACK_IMAGE`] and every digest of its repository by themselves, or have a registry with it ([`Published`]).
//! Any other cluster pulls what it is told, so its user names the image that was pushed or loaded there.

use std::env;

use api::names;
use cluster_spec::images::Published;
use kube::api::DynamicObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Environment variable that names the image of the stack, by tag or by digest.
pub const STACK_VARIABLE: &str = "NUMARESOURCES_STACK_IMAGE";
/// Environment variable that names the image of the tests, which has every program that the scenarios start.
pub const TESTS_VARIABLE: &str = "NUMARESOURCES_TESTS_IMAGE";
/// Variable of the operator with the digests of schedulers that it runs (operator.md 5.2).
pub const TRUSTED_DIGESTS: &str = "SCHEDULER_IMAGE_DIGESTS";
/// Variable of the operator that lets it run a scheduler without a trusted digest (operator.md 5.2).
const VALIDATION: &str = "SCHEDULER_IMAGE_VALIDATION";

/// Returns the image that the user named for the stack.
pub fn named_by_user() -> Option<String> {
    variable(STACK_VARIABLE)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|image| !image.is_empty())
}

/// Returns the image of a pod of the suite: that of the first of these variables that is set, or that of the tests. Clusters of ours have the programs
/// of both images in one.
pub fn of_pods(variables: &[&str]) -> String {
    let named = variables.iter().find_map(|name| variable(name));
    named
        .or_else(|| variable(TESTS_VARIABLE))
        .unwrap_or_else(|| names::STACK_IMAGE.to_owned())
}

/// Returns the image that the stack is to be installed from, if it is another one than its manifests name: what the user named, or what the
/// cluster's own registry has.
pub fn of_stack(published: &Published) -> Option<String> {
    let pushed = published.by_digest(names::STACK_IMAGE);
    named_by_user().or_else(|| pushed.map(str::to_owned))
}

/// Returns the image for a scheduler resource. Without a choice of the user it is pinned, as the operator wants it.
pub fn of_scheduler(published: &Published) -> String {
    of_stack(published).unwrap_or_else(names::pinned_stack_image)
}

/// Names the images of an object's containers by digest where the cluster's own registry has them.
///
/// # Errors
/// Returns an error if the object cannot be written as JSON, or read from it.
pub fn pinned<K>(published: &Published, object: K) -> serde_json::Result<K>
where
    K: Serialize + DeserializeOwned,
{
    if published.0.is_empty() {
        return Ok(object);
    }
    let mut value = serde_json::to_value(object)?;
    pin(published, &mut value);
    serde_json::from_value(value)
}

/// Does the same in any part of an object.
pub fn pin(published: &Published, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let known = value.as_str().filter(|_| name == "image");
                match known.and_then(|image| published.by_digest(image)) {
                    Some(reference) => *value = json!(reference),
                    None => pin(published, value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| pin(published, item)),
        _ => {}
    }
}

/// Makes the manifests of the stack run this image. The operator gets to trust the image's digest, or, for an image without one, to run schedulers
/// by their tag.
pub fn replace(objects: &mut [DynamicObject], image: &str) {
    let deployments = objects.iter_mut().filter(|object| {
        object
            .types
            .as_ref()
            .is_some_and(|types| types.kind == "Deployment")
    });
    let containers = deployments
        .filter_map(|object| {
            object
                .data
                .pointer_mut("/spec/template/spec/containers")?
                .as_array_mut()
        })
        .flatten()
        .filter(|container| container["image"] == names::STACK_IMAGE);
    for container in containers {
        container["image"] = json!(image);
        match image.split_once('@') {
            Some((_, digest)) => set_variable(container, TRUSTED_DIGESTS, digest),
            None => set_variable(container, VALIDATION, "false"),
        }
    }
}

/// Sets a variable of a container, whether it is there or not.
fn set_variable(container: &mut Value, name: &str, value: &str) {
    let variable = json!({ "name": name, "value": value });
    match container["env"].as_array_mut() {
        None => container["env"] = json!([variable]),
        Some(variables) => match variables.iter_mut().find(|entry| entry["name"] == name) {
            Some(entry) => *entry = variable,
            None => variables.push(variable),
        },
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use rstest::rstest;

    use super::*;

    fn published() -> Published {
        let stack = (names::STACK_IMAGE.to_owned(), "r/s@sha256:ab".to_owned());
        Published([stack].into())
    }

    #[test]
    fn containers_are_pinned_to_what_the_clusters_registry_has_and_others_are_left_alone() {
        let pod = |stack: &str| -> Pod {
            let containers = json!([
                {"name": "a", "image": stack},
                {"name": "b", "image": "r.example/other:1"},
            ]);
            let spec = json!({"containers": containers, "initContainers": containers});
            serde_json::from_value(json!({"spec": spec})).expect("a pod")
        };
        let given = pod(names::STACK_IMAGE);
        let result = pinned(&published(), given.clone()).expect("a pod");
        assert_eq!(result, pod("r/s@sha256:ab"));
        let without = pinned(&Published::default(), given.clone()).expect("a pod");
        assert_eq!(without, given);
    }

    #[test]
    fn the_scheduler_is_pinned_whether_the_cluster_has_a_registry_or_not() {
        assert_eq!(of_scheduler(&published()), "r/s@sha256:ab");
        assert_eq!(
            of_scheduler(&Published::default()),
            names::pinned_stack_image()
        );
    }

    #[rstest]
    #[case::by_digest("r.example/s@sha256:ab", "SCHEDULER_IMAGE_DIGESTS", "sha256:ab")]
    #[case::by_tag("r.example/s:1", "SCHEDULER_IMAGE_VALIDATION", "false")]
    fn an_operator_of_another_image_runs_a_scheduler_of_that_image(
        #[case] image: &str,
        #[case] variable: &str,
        #[case] value: &str,
    ) {
        let container = json!({
            "image": names::STACK_IMAGE,
            "env": [{ "name": "SCHEDULER_IMAGE_DIGESTS", "value": "sha256:of-the-manifest" }],
        });
        let sidecar = json!({ "image": "r.example/other:1" });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
            "spec": { "template": { "spec": { "containers": [container, sidecar] } } },
        });
        let mut objects: [DynamicObject; 1] =
            [serde_json::from_value(deployment).expect("a deployment")];
        replace(&mut objects, image);
        let containers = &objects[0].data["spec"]["template"]["spec"]["containers"];
        assert_eq!(containers[0]["image"], image);
        let values: Vec<_> = containers[0]["env"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry["name"] == variable)
            .map(|entry| entry["value"].clone())
            .collect();
        assert_eq!(values, [json!(value)]);
        assert_eq!(containers[1], sidecar);
    }
}

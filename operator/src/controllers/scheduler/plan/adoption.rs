//! Whether the scheduler that runs was let in by another operator.
//!
//! The list of trusted digests belongs to an operator, and each release of the original has its own (operator.md 5.2). An operator that takes
//! over a running installation cannot know the list of the one before. What runs was let in by that list, so it stays. What this operator
//! let in itself carries a mark, and has to be in the list for as long as it runs.

use api::annotations::TRUSTED_IMAGE;
use api::scheduler::v1::NumaResourcesScheduler;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Returns whether the Deployment runs the image that the resource names, belongs to the resource, and was written by another operator.
pub(super) fn is_adopted(cr: &NumaResourcesScheduler, running: Option<&Deployment>) -> bool {
    let Some(running) = running else {
        return false;
    };
    let mut owners = running.owner_references().iter();
    let is_owned = owners.any(|owner| Some(&owner.uid) == cr.metadata.uid.as_ref());
    is_owned
        && image(running) == Some(cr.spec.scheduler_image.as_str())
        && !running.annotations().contains_key(TRUSTED_IMAGE)
}

/// Marks a Deployment, not its pods, as let in by this operator.
pub(super) fn mark(deployment: &mut Value, image: &str) {
    deployment["metadata"]["annotations"][TRUSTED_IMAGE] = json!(image);
}

fn image(deployment: &Deployment) -> Option<&str> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.as_deref()
}

#[cfg(test)]
mod tests {
    use api::scheduler::v1::NumaResourcesSchedulerSpec;
    use rstest::rstest;

    use super::*;

    fn resource() -> NumaResourcesScheduler {
        let spec = NumaResourcesSchedulerSpec {
            scheduler_image: "i@sha256:1".into(),
            ..NumaResourcesSchedulerSpec::default()
        };
        let mut cr = NumaResourcesScheduler::new("n", spec);
        cr.metadata.uid = Some("u".into());
        cr
    }

    fn deployment(owner: &str, image: &str) -> Value {
        json!({
            "metadata": {"name": "d", "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": owner}]},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
        })
    }

    #[rstest]
    #[case::same_image("u", "i@sha256:1", true)]
    #[case::other_image("u", "i@sha256:2", false)]
    #[case::of_another_resource("v", "i@sha256:1", false)]
    fn running_image_of_another_operator_is_adopted(
        #[case] owner: &str,
        #[case] image: &str,
        #[case] expected: bool,
    ) {
        let mut running = deployment(owner, image);
        let parsed = serde_json::from_value(running.clone()).unwrap();
        assert_eq!(is_adopted(&resource(), Some(&parsed)), expected);
        mark(&mut running, image);
        let marked = serde_json::from_value(running).unwrap();
        assert!(!is_adopted(&resource(), Some(&marked)));
        assert!(!is_adopted(&resource(), None));
    }
}

//! Protection of claims: one that is being deleted goes once no pod uses it. Nothing else is done about claims: no controller binds them to
//! volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};

use super::mirror::ObjectKey;
use super::objects;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;

mod volumes;

pub(super) use self::volumes::Volumes;

/// The finalizer that admission adds to claims.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
}

/// Returns the names of the claims that a pod names, and of those that are made for it.
fn claims_of(pod: &Pod) -> impl Iterator<Item = (String, Source)> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let named = volume.persistent_volume_claim.as_ref();
        let own = volume.ephemeral.as_ref();
        named
            .map(|source| (source.claim_name.clone(), Source::Named))
            .or_else(|| own.map(|_| (format!("{}-{}", pod.name_any(), volume.name), Source::Own)))
    })
}

/// How a pod comes to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It names it.
    Named,
    /// It was made for the pod's volume.
    Own,
}

/// Returns whether a pod keeps a claim. One without a node does not: no kubelet starts a pod whose claim is being deleted. One that has ended
/// does until it is gone, but a claim of its own goes when only a finalizer keeps the pod, which may wait for just that.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let only_finalizers_are_left =
        objects::deleting(pod) && pod.metadata.deletion_grace_period_seconds == Some(0);
    objects::node_of(pod).is_some()
        && claims_of(pod).any(|(name, source)| {
            name == objects::name(claim)
                && match source {
                    Source::Named => true,
                    Source::Own => {
                        !only_finalizers_are_left
                            && objects::controlled_by(&claim.metadata, objects::uid(pod))
                    }
                }
        })
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let claims = Arc::clone(&world.claims);
        let own = Arc::clone(&queue);
        claims.listen(move |_, after: Option<&Arc<PersistentVolumeClaim>>| {
            if let Some(claim) = after
                && objects::deleting(&**claim)
            {
                own.add(ObjectKey::of(&claim.metadata));
            }
        });
        let own = Arc::clone(&queue);
        world.pods.listen(move |before, after| {
            let is_over = after.is_none_or(|pod| objects::terminal(pod));
            if let Some(pod) = before
                && is_over
            {
                for (claim, _) in claims_of(pod) {
                    own.add(ObjectKey::new(objects::namespace(&**pod), &claim));
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "pvcprotection";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(claim) = self.world.claims.get(key) else {
            return Ok(());
        };
        if !objects::deleting(&*claim) || !claim.finalizers().iter().any(|name| name == PROTECTION)
        {
            return Ok(());
        }
        let known = self.world.pods.within(&key.namespace);
        if known.iter().any(|pod| uses(pod, &claim)) {
            return Ok(());
        }
        // a pod may be there that the watch has not brought yet
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), &key.namespace);
        let pods = pods.list(&ListParams::default()).await?.items;
        if pods.iter().any(|pod| uses(pod, &claim)) {
            return Ok(());
        }
        match self
            .world
            .claims
            .patch(&claim, &without(&*claim, PROTECTION))
            .await
        {
            Err(error) if objects::code(&error) != 404 => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns the patch that takes a finalizer from an object.
fn without<K: Resource>(object: &K, finalizer: &str) -> Value {
    let held = object.finalizers().iter();
    let left: Vec<&String> = held.filter(|name| *name != finalizer).collect();
    json!({"metadata": {"finalizers": left, "resourceVersion": object.meta().resource_version}})
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::runs(|_: &mut Value| {}, true, true)]
    #[case::waits_for_a_node(|pod: &mut Value| pod["spec"]["nodeName"] = Value::Null, false, false)]
    #[case::has_ended(|pod: &mut Value| pod["status"] = json!({"phase": "Succeeded"}), true, true)]
    #[case::ends(|pod: &mut Value| deleted(pod, 30), true, true)]
    #[case::is_kept_by_a_finalizer(|pod: &mut Value| deleted(pod, 0), true, false)]
    #[case::has_a_namesakes_claim(|pod: &mut Value| pod["metadata"]["uid"] = json!("2"), true, false)]
    fn a_pod_keeps_claims(#[case] change: fn(&mut Value), #[case] named: bool, #[case] own: bool) {
        let mut pod = json!({"metadata": {"name": "p", "uid": "1"}, "spec": {"containers": [], "nodeName": "n", "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "scratch", "ephemeral": {}}]}});
        change(&mut pod);
        let pod = serde_json::from_value(pod).unwrap();
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]);
        for (name, expected) in [("data", named), ("p-scratch", own), ("other", false)] {
            let claim = json!({"metadata": {"name": name, "ownerReferences": owner}});
            let claim = serde_json::from_value(claim).unwrap();
            assert_eq!(uses(&pod, &claim), expected, "{name}");
        }
    }

    fn deleted(pod: &mut Value, grace: i64) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
}

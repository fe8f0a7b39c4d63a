//! Protection of claims: one that is being deleted goes once no pod uses it. Nothing else is done about claims: no controller binds them to
//! volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
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

/// Returns the names of the claims that a pod uses.
fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| {
            let named = volume.persistent_volume_claim.as_ref();
            let own = volume.ephemeral.as_ref();
            named
                .map(|source| source.claim_name.clone())
                .or_else(|| own.map(|_| format!("{}-{}", pod.name_any(), volume.name)))
        })
        .collect()
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
                for claim in claims_of(pod) {
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
        let pods = self.world.pods.within(&key.namespace);
        let is_used = pods
            .iter()
            .any(|pod| !objects::terminal(pod) && claims_of(pod).contains(&key.name));
        if is_used {
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

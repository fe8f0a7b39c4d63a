//! Protection of volumes: one that is being deleted goes once no claim is bound to it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};

use super::without;
use crate::controllers::mirror::{Mirror, ObjectKey};
use crate::controllers::queue::Queue;
use crate::controllers::reconcile::Reconcile;
use crate::controllers::world::World;
use crate::controllers::{MANAGER, objects};

/// The finalizer that admission adds to volumes.
const PROTECTION: &str = "kubernetes.io/pv-protection";

pub(crate) struct Volumes {
    client: Client,
    mirror: Arc<Mirror<PersistentVolume>>,
    queue: Arc<Queue<ObjectKey>>,
}

impl Volumes {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world
            .volumes
            .listen(move |_, after: Option<&Arc<PersistentVolume>>| {
                if let Some(volume) = after.filter(|volume| is_free(volume)) {
                    own.add(ObjectKey::of(&volume.metadata));
                }
            });
        Arc::new(Self {
            client: world.client.clone(),
            mirror: Arc::clone(&world.volumes),
            queue,
        })
    }
}

/// Returns whether only the protection keeps a volume that was deleted.
fn is_free(volume: &PersistentVolume) -> bool {
    let status = volume.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    objects::deleting(volume)
        && volume.finalizers().iter().any(|name| name == PROTECTION)
        && phase != Some("Bound")
}

impl Reconcile for Volumes {
    const NAME: &'static str = "pvprotection";
    const PARALLEL: usize = 1;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let held = self.mirror.get(key);
        let Some(volume) = held.filter(|volume| is_free(volume)) else {
            return Ok(());
        };
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(without(&*volume, PROTECTION));
        match api.patch(&key.name, &params, &patch).await {
            Ok(written) => {
                self.mirror.observe(written);
                Ok(())
            }
            Err(error) if objects::code(&error) == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

//! What every namespace gets: the service account `default` and the certificate of the cluster's authority.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::mirror::ObjectKey;
use super::objects;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::{ROOT_CA, World};

const ACCOUNT: &str = "default";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    root_ca: String,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>, root_ca: String) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world.namespaces.listen(move |_, after| {
            if let Some(namespace) = after {
                own.add(ObjectKey::of(&namespace.metadata));
            }
        });
        let own = Arc::clone(&queue);
        world.service_accounts.listen(move |before, after| {
            if let (Some(gone), None) = (before, after)
                && objects::name(&**gone) == ACCOUNT
            {
                own.add(ObjectKey::new("", objects::namespace(&**gone)));
            }
        });
        let maps = Arc::clone(&world.root_cas);
        let own = Arc::clone(&queue);
        maps.listen(move |before: Option<&Arc<ConfigMap>>, after| {
            if let Some(map) = after.or(before) {
                own.add(ObjectKey::new("", objects::namespace(&**map)));
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            root_ca,
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "namespaces";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(namespace) = self.world.namespaces.get(key) else {
            return Ok(());
        };
        let ending = namespace
            .status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Terminating"));
        if ending || objects::deleting(&*namespace) {
            return Ok(());
        }
        let account = ObjectKey::new(&key.name, ACCOUNT);
        if self.world.service_accounts.get(&account).is_none() {
            let wanted = ServiceAccount {
                metadata: metadata(&account),
                ..ServiceAccount::default()
            };
            let made = self.world.service_accounts.create(&key.name, &wanted).await;
            ignore_expected(made.map(|_| ()))?;
        }
        let map = ObjectKey::new(&key.name, ROOT_CA);
        let mut wanted: ConfigMap = ConfigMap {
            metadata: metadata(&map),
            data: Some([("ca.crt".to_owned(), self.root_ca.clone())].into()),
            ..ConfigMap::default()
        };
        wanted.metadata.annotations = Some(
            [(
                "kubernetes.io/description".to_owned(),
                DESCRIPTION.to_owned(),
            )]
            .into(),
        );
        let annotated = |held: &ConfigMap| {
            held.metadata
                .annotations
                .as_ref()
                .is_some_and(|map| map.contains_key("kubernetes.io/description"))
        };
        match self.world.root_cas.get(&map) {
            None => ignore_expected(
                self.world
                    .root_cas
                    .create(&key.name, &wanted)
                    .await
                    .map(|_| ()),
            ),
            Some(held) if held.data != wanted.data || !annotated(&held) => {
                let patch = json!({
                    "data": wanted.data,
                    "metadata": {"annotations": wanted.metadata.annotations},
                });
                ignore_expected(self.world.root_cas.patch(&held, &patch).await.map(|_| ()))
            }
            Some(_) => Ok(()),
        }
    }
}

fn metadata(key: &ObjectKey) -> ObjectMeta {
    ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        ..ObjectMeta::default()
    }
}

/// Ignores errors that need no retry: the object exists already, or its namespace is being deleted.
fn ignore_expected(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if objects::code(&error) == 409 || objects::namespace_terminating(&error) => {
            Ok(())
        }
        other => other,
    }
}

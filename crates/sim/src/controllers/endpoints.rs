//! Endpoints and EndpointSlices of Services: with a selector both follow its pods, without one the slices mirror the Endpoints of users.

mod mirroring;
mod shape;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DeleteParams;

use self::mirroring::MIRROR_MANAGER;
use self::shape::{address, slices, subsets};
use super::events::Recorder;
use super::mirror::ObjectKey;
use super::objects::{self, SERVICE_NAME};
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
/// Annotation of slices: the time of the change that they reflect.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Label of the endpoints of a headless service (one without a cluster IP).
const HEADLESS: &str = "service.kubernetes.io/headless";

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let services = Arc::clone(&world.services);
        let own = Arc::clone(&queue);
        services.listen(move |before: Option<&Arc<Service>>, after| {
            if let Some(service) = after.or(before) {
                own.add(ObjectKey::of(&service.metadata));
            }
        });
        let (own, all) = (Arc::clone(&queue), Arc::clone(&services));
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                for service in all.within(objects::namespace(&**pod)) {
                    if selects(&service, pod) {
                        own.add(ObjectKey::of(&service.metadata));
                    }
                }
            }
        });
        let endpoints = Arc::clone(&world.endpoints);
        let slices = Arc::clone(&world.slices);
        // what this controller writes for a service with a selector is no news, but what somebody deletes has to come again
        let (own, all) = (Arc::clone(&queue), Arc::clone(&services));
        let tell = Arc::new(move |key: ObjectKey, is_gone: bool| {
            let service = all.get(&key);
            if service.is_some_and(|service| is_gone || !has_selector(&service)) {
                own.add(key);
            }
        });
        let own = Arc::clone(&tell);
        endpoints.listen(move |before: Option<&Arc<Endpoints>>, after| {
            if let Some(endpoints) = after.or(before) {
                own(ObjectKey::of(&endpoints.metadata), after.is_none());
            }
        });
        slices.listen(move |before: Option<&Arc<EndpointSlice>>, after| {
            let Some(slice) = after.or(before) else {
                return;
            };
            let service = objects::labels(&**slice).get(SERVICE_NAME);
            let is_ours = is_managed_by(slice, MIRROR_MANAGER)
                || after.is_none() && is_managed_by(slice, SLICE_MANAGER);
            if let Some(service) = service.filter(|_| is_ours) {
                let key = ObjectKey::new(objects::namespace(&**slice), service);
                tell(key, after.is_none());
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("endpoint-slice-mirroring-controller"),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "endpoints";
    const PARALLEL: usize = 4;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        self.mirror(key).await?;
        let held = self.world.slices.indexed(&key.to_string());
        let Some(service) = self.world.services.get(key) else {
            if let Some(endpoints) = self.world.endpoints.get(key) {
                self.world
                    .endpoints
                    .delete(&endpoints, &DeleteParams::default())
                    .await?;
            }
            for slice in held
                .iter()
                .filter(|slice| is_managed_by(slice, SLICE_MANAGER))
            {
                self.world
                    .slices
                    .delete(slice, &DeleteParams::default())
                    .await?;
            }
            return Ok(());
        };
        let spec = service.spec.clone().unwrap_or_default();
        if !has_selector(&service) || objects::deleting(&*service) {
            return Ok(());
        }
        let mut pods: Vec<Arc<Pod>> = self
            .world
            .pods
            .within(&key.namespace)
            .into_iter()
            .filter(|pod| {
                selects(&service, pod) && !objects::terminal(pod) && address(pod).is_some()
            })
            .collect();
        pods.sort_by_cached_key(|pod| address(pod).map(str::to_owned));
        let ports = spec.ports.unwrap_or_default();
        let headless = spec.cluster_ip.as_deref() == Some("None");
        let published = spec.publish_not_ready_addresses == Some(true);
        let wanted = slices(&service, &pods, &ports, headless, published);
        self.write_slices(&service, wanted, &held).await?;
        let subsets = subsets(&service, &pods, &ports, published);
        self.write_endpoints(&service, subsets, headless).await
    }
}

impl Controller {
    /// Writes the slices of a service that differ from those that are there.
    async fn write_slices(
        &self,
        service: &Service,
        wanted: Vec<EndpointSlice>,
        held: &[Arc<EndpointSlice>],
    ) -> Result<(), kube::Error> {
        let uid = objects::uid(service);
        let is_owned = |slice: &&Arc<EndpointSlice>| objects::controlled_by(&slice.metadata, uid);
        let mut held: Vec<&Arc<EndpointSlice>> = held.iter().filter(is_owned).collect();
        let ports = |slice: &EndpointSlice| slice.ports.clone().unwrap_or_default();
        let mut rest = Vec::new();
        // a slice keeps its ports where it can, so that pods do not move between slices
        for slice in wanted {
            let at = held.iter().position(|held| ports(held) == ports(&slice));
            match at {
                Some(at) => self.write_slice(held.swap_remove(at), slice).await?,
                None => rest.push(slice),
            }
        }
        for slice in rest {
            if let Some(held) = held.pop() {
                self.write_slice(held, slice).await?;
            } else {
                let made = self
                    .world
                    .slices
                    .create(objects::namespace(service), &slice);
                ignore_terminating(made.await.map(drop))?;
            }
        }
        for slice in held {
            self.world
                .slices
                .delete(slice, &DeleteParams::default())
                .await?;
        }
        Ok(())
    }

    /// Makes a slice what it should be, if it is not.
    async fn write_slice(
        &self,
        slice: &EndpointSlice,
        mut wanted: EndpointSlice,
    ) -> Result<(), kube::Error> {
        let same = slice.endpoints == wanted.endpoints
            && slice.ports.clone().unwrap_or_default() == wanted.ports.clone().unwrap_or_default()
            && slice.metadata.labels == wanted.metadata.labels;
        if same {
            return Ok(());
        }
        let mut annotations = slice.metadata.annotations.clone().unwrap_or_default();
        annotations.extend(wanted.metadata.annotations.take().unwrap_or_default());
        wanted.metadata = ObjectMeta {
            labels: wanted.metadata.labels,
            annotations: Some(annotations).filter(|map| !map.is_empty()),
            ..slice.metadata.clone()
        };
        self.world.slices.replace(&wanted).await?;
        Ok(())
    }

    async fn write_endpoints(
        &self,
        service: &Arc<Service>,
        subsets: Vec<EndpointSubset>,
        headless: bool,
    ) -> Result<(), kube::Error> {
        let mut labels = objects::labels(&**service).clone();
        labels.insert(
            "endpoints.kubernetes.io/managed-by".to_owned(),
            "endpoint-controller".to_owned(),
        );
        if headless {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        let wanted = Endpoints {
            metadata: ObjectMeta {
                name: service.metadata.name.clone(),
                namespace: service.metadata.namespace.clone(),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            subsets: Some(subsets).filter(|list| !list.is_empty()),
        };
        let Some(held) = self.world.endpoints.get(&ObjectKey::of(&service.metadata)) else {
            let namespace = objects::namespace(&**service);
            return ignore_terminating(
                self.world
                    .endpoints
                    .create(namespace, &wanted)
                    .await
                    .map(|_| ()),
            );
        };
        if held.subsets == wanted.subsets && held.metadata.labels == wanted.metadata.labels {
            return Ok(());
        }
        let object = Endpoints {
            metadata: ObjectMeta {
                labels: wanted.metadata.labels,
                ..held.metadata.clone()
            },
            subsets: wanted.subsets,
        };
        self.world.endpoints.replace(&object).await?;
        Ok(())
    }
}

fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let selector = spec.and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| !selector.is_empty())
}

fn is_managed_by(slice: &EndpointSlice, manager: &str) -> bool {
    let labels = objects::labels(slice);
    labels.get(MANAGED_BY).is_some_and(|held| held == manager)
}

fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| {
        !selector.is_empty()
            && selector
                .iter()
                .all(|(key, value)| objects::labels(pod).get(key) == Some(value))
    })
}

/// Ignores the error of a creation in a namespace that is being deleted.
fn ignore_terminating(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if objects::namespace_terminating(&error) => Ok(()),
        other => other,
    }
}

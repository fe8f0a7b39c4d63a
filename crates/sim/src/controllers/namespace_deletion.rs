//! Deletion of namespaces: first the pods, then all other content, then the namespace itself.
//!
//! As in the real controller, the conditions of the namespace show what is left and what holds it. The real controller waits five seconds
//! before it begins, so that all API servers know of the deletion. Here there is only one API server, so the wait is left out.

mod conditions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams, PropagationPolicy};
use serde_json::json;

use super::garbage;
use super::garbage::kind::WatchedKind;
use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{MANAGER, objects};

/// Finalizer that this controller removes once a namespace is empty.
const FINALIZER: &str = "kubernetes";
/// Interval of the checks while something is left. The deletion of a pod triggers a check at once.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    garbage: Arc<garbage::Controller>,
}

/// What is left of the content of a namespace.
#[derive(Debug, Default)]
struct Remaining {
    /// Number of objects by resource and group.
    objects: BTreeMap<String, usize>,
    /// Number of objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Why something could not be deleted.
    failures: Vec<String>,
}

impl Controller {
    /// Subscribes to the changes that concern this controller. The garbage collector provides the kinds to delete.
    pub(crate) fn new(world: &Arc<World>, garbage: &Arc<garbage::Controller>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        world.namespaces.listen(move |_, after| {
            if let Some(namespace) = after.filter(|namespace| objects::deleting(&***namespace)) {
                own.add(ObjectKey::of(&namespace.metadata));
            }
        });
        let (own, namespaces) = (Arc::clone(&queue), Arc::clone(&world.namespaces));
        world.pods.listen(move |before, after| {
            if let (Some(gone), None) = (before, after) {
                let key = ObjectKey::new("", objects::namespace(&**gone));
                if namespaces
                    .get(&key)
                    .is_some_and(|it| objects::deleting(&*it))
                {
                    own.add(key);
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            garbage: Arc::clone(garbage),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "namespacedeletion";
    const PARALLEL: usize = 4;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn ready(&self) {
        self.garbage.discovered().await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let api: Api<Namespace> = Api::all(self.world.client.clone());
        let Some(namespace) = api.get_opt(&key.name).await? else {
            return Ok(());
        };
        let finalizers = namespace.spec.clone().unwrap_or_default().finalizers;
        let is_ours = finalizers.iter().flatten().any(|held| held == FINALIZER);
        if !objects::deleting(&namespace) || !is_ours {
            return Ok(());
        }
        let remaining = self.empty(&key.name).await?;
        write_conditions(&api, &namespace, &remaining).await?;
        if !remaining.objects.is_empty() || !remaining.failures.is_empty() {
            self.queue.add_after(key.clone(), CHECK_INTERVAL);
            return Ok(());
        }
        finalize(&self.world.client, &api, &key.name).await
    }
}

impl Controller {
    /// Deletes the content of a namespace, and nothing but pods as long as there are pods. Returns what is left.
    async fn empty(&self, namespace: &str) -> Result<Remaining, kube::Error> {
        let mut remaining = Remaining::default();
        let mut kinds = self.garbage.namespaced_kinds();
        kinds.sort_by_key(|kind| (!kind.is_pods(), kind.group_resource()));
        for kind in kinds {
            if !kind.is_pods() && remaining.objects.contains_key("pods.") {
                break;
            }
            if let Err(error) = self.empty_kind(namespace, &kind, &mut remaining).await {
                remaining.failures.push(objects::message(&error));
            }
        }
        Ok(remaining)
    }

    async fn empty_kind(
        &self,
        namespace: &str,
        kind: &WatchedKind,
        remaining: &mut Remaining,
    ) -> Result<(), kube::Error> {
        let api = kind.api_in(&self.world.client, namespace);
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let everything = ListParams::default();
        if none_if_unserved(api.list_metadata(&everything).await)?
            .is_none_or(|list| list.items.is_empty())
        {
            return Ok(());
        }
        none_if_unserved(
            api.delete_collection(&params, &everything)
                .await
                .map(|_| ()),
        )?;
        let Some(list) = none_if_unserved(api.list_metadata(&everything).await)? else {
            return Ok(());
        };
        if !list.items.is_empty() {
            remaining
                .objects
                .insert(kind.group_resource(), list.items.len());
        }
        for finalizer in list.items.iter().flat_map(kube::ResourceExt::finalizers) {
            *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        Ok(())
    }
}

/// Writes the conditions if they changed.
async fn write_conditions(
    api: &Api<Namespace>,
    namespace: &Namespace,
    remaining: &Remaining,
) -> Result<(), kube::Error> {
    let before = namespace.status.clone().unwrap_or_default();
    let mut after = before.clone();
    after.phase = Some("Terminating".to_owned());
    let held = before.conditions.as_deref().unwrap_or_default();
    after.conditions = Some(conditions::of(held, remaining));
    if after == before {
        return Ok(());
    }
    let mut object = namespace.clone();
    object.status = Some(after);
    let params = params();
    api.replace_status(objects::name(namespace), &params, &object)
        .await?;
    Ok(())
}

/// Removes the finalizer. The namespace is gone once no finalizer is left.
async fn finalize(client: &Client, api: &Api<Namespace>, name: &str) -> Result<(), kube::Error> {
    let Some(mut namespace) = api.get_opt(name).await? else {
        return Ok(());
    };
    if let Some(finalizers) = namespace
        .spec
        .as_mut()
        .and_then(|spec| spec.finalizers.as_mut())
    {
        finalizers.retain(|held| held != FINALIZER);
    }
    let path = format!("/api/v1/namespaces/{name}/finalize?fieldManager={MANAGER}");
    let mut body = json!(namespace);
    body["apiVersion"] = json!("v1");
    body["kind"] = json!("Namespace");
    let request = http::Request::put(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let request = request.map_err(kube::Error::HttpError)?;
    match client.request_text(request).await {
        Err(error) if objects::code(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Returns the answer, or `None` if the definition of the kind was deleted meanwhile, together with all its objects.
fn none_if_unserved<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Err(error) if matches!(objects::code(&error), 404 | 405) => Ok(None),
        other => other.map(Some),
    }
}

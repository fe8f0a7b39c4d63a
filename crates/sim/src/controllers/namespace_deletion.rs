//! Deletion of namespaces: first the pods, then all other content, then the namespace itself.
//!
//! As in the real controller, the conditions of the namespace show what is left and what holds it. The real controller waits five seconds
//! before it begins, so that all API servers know of the deletion. Here there is only one API server, so the wait is left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams, PropagationPolicy};
use serde_json::json;

use super::garbage;
use super::garbage::kind::WatchedKind;
use super::mirror::ObjectKey;
use super::queue::Queue;
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

    /// Runs the controller; never returns by itself.
    pub(crate) async fn run(self: Arc<Self>) {
        self.garbage.discovered().await;
        let queue = Arc::clone(&self.queue);
        queue
            .work("namespacedeletion", 4, |key| {
                let this = Arc::clone(&self);
                async move { this.reconcile(&key).await }
            })
            .await;
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
    after.conditions = Some(conditions(held, remaining));
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

/// Returns the conditions; those that did not change keep their times.
fn conditions(before: &[NamespaceCondition], remaining: &Remaining) -> Vec<NamespaceCondition> {
    let listed = |counts: &BTreeMap<String, usize>, between: &str| {
        let counts = counts.iter();
        let texts: Vec<String> = counts
            .map(|(what, count)| format!("{what} {between} {count} resource instances"))
            .collect();
        texts.join(", ")
    };
    let failed = !remaining.failures.is_empty();
    let remains = !remaining.objects.is_empty();
    let held = !remaining.finalizers.is_empty();
    let all = [
        (
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        if failed {
            let message = format!(
                "Failed to delete all resource types, {} remaining: {}",
                remaining.failures.len(),
                remaining.failures.join(", ")
            );
            let reason = "ContentDeletionFailed";
            ("NamespaceDeletionContentFailure", true, reason, message)
        } else {
            (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_owned(),
            )
        },
        if remains {
            let listed = listed(&remaining.objects, "has");
            let message = format!("Some resources are remaining: {listed}");
            let reason = "SomeResourcesRemain";
            ("NamespaceContentRemaining", true, reason, message)
        } else {
            (
                "NamespaceContentRemaining",
                false,
                "ContentRemoved",
                "All content successfully removed".to_owned(),
            )
        },
        if held {
            let listed = listed(&remaining.finalizers, "in");
            let message =
                format!("Some content in the namespace has finalizers remaining: {listed}");
            let reason = "SomeFinalizersRemain";
            ("NamespaceFinalizersRemaining", true, reason, message)
        } else {
            (
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".to_owned(),
            )
        },
    ];
    let ours = all.map(|(kind, is, reason, message)| {
        let new = NamespaceCondition {
            type_: kind.to_owned(),
            status: if is { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(objects::now()),
        };
        let old = before.iter().find(|held| held.type_ == kind);
        match old {
            Some(old) if old.status == new.status && old.message == new.message => old.clone(),
            _ => new,
        }
    });
    let mut conditions: Vec<NamespaceCondition> = before
        .iter()
        .filter(|held| ours.iter().all(|new| new.type_ != held.type_))
        .cloned()
        .collect();
    conditions.extend(ours);
    conditions
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

//! Writes the `NodeResourceTopology` object (rte.md 5).
//!
//! If nothing changed, nothing is written. Each cycle still checks the object on the server, so that a deleted or edited object is
//! repaired. Patches carry the resource version that they were computed for, so a change by others causes a conflict instead of a mixture.

use api::nrt::v1alpha2::NodeResourceTopology;
use daemon::log::chain;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, GetParams, ListParams, Patch, PatchParams, PostParams, Request};
use kube::{Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;

use super::call::{self, MAX_CONFLICTS, bounded};
use super::content::{Content, desired, without_managed_fields};
use super::merge_patch;
use crate::metrics::Metrics;

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object did not exist.
    Created,
    /// The whole object was written.
    Updated,
    /// A patch was written.
    Patched,
    /// The object on the server is up to date.
    Unchanged,
}

/// A publication failed.
#[derive(Debug, thiserror::Error)]
#[error("{action} failed for NRT instance")]
pub struct Error {
    /// The last action: `get`, `create`, `update`, `patch`.
    pub action: &'static str,
    /// The cause.
    #[source]
    source: Cause,
}

/// Why a publication failed.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Call(#[from] call::Error),
    #[error("the object changes faster than it can be written")]
    Conflicts,
}

/// Options for writing the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the object, and of the node that may be its owner.
    pub name: String,
    /// Send patches where possible.
    pub patch_mode: bool,
    /// Read and write the whole object after this many patches; 0 or less: never.
    pub patch_resync: i64,
    /// Whether the node becomes the owner.
    pub set_owner: bool,
}

/// The part of an object that shows whether it changed.
#[derive(Clone, Deserialize)]
struct Versioned {
    metadata: VersionedMetadata,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata {
    resource_version: Option<String>,
}

/// Writes one object and remembers its last content.
pub struct Publisher {
    client: Client,
    objects: Api<NodeResourceTopology>,
    nodes: Api<Node>,
    options: Options,
    metrics: Metrics,
    last: Option<NodeResourceTopology>,
    patches: i64,
    owner: Option<OwnerReference>,
}

impl Publisher {
    /// Creates a publisher that writes with `client`.
    pub fn new(client: Client, options: Options, metrics: Metrics) -> Self {
        let mode = if options.patch_mode {
            "patch"
        } else {
            "get+update"
        };
        tracing::info!(mode, "Operation mode");
        Self {
            objects: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            client,
            options,
            metrics,
            last: None,
            patches: 0,
            owner: None,
        }
    }

    /// Updates the object on the server to `content`.
    pub async fn publish(&mut self, content: &Content) -> Result<Outcome, Error> {
        let outcome = match self.patch(content).await {
            Some(outcome) => Ok(outcome),
            None => self.get_and_update(content).await,
        };
        match &outcome {
            Ok(Outcome::Unchanged) => {}
            Ok(Outcome::Created) => self.metrics.count_write("create", content.trigger.as_str()),
            Ok(Outcome::Updated) => self.metrics.count_write("update", content.trigger.as_str()),
            Ok(Outcome::Patched) => self.metrics.count_write("patch", content.trigger.as_str()),
            Err(error) => {
                // the state on the server is unknown after a failure
                self.last = None;
                self.metrics.write_failed(error.action);
            }
        }
        outcome
    }

    /// Writes only the difference to the last write. Returns `None` if that is not possible for any reason.
    async fn patch(&mut self, content: &Content) -> Option<Outcome> {
        if !self.options.patch_mode {
            return None;
        }
        let resync = self.options.patch_resync;
        if resync > 0 && self.patches >= resync {
            tracing::debug!(patches = self.patches, "Forcing resync after patches");
            return None;
        }
        let last = self.last.as_ref()?;
        let desired = desired(last.clone(), content, self.owner.as_ref());
        if desired == *last {
            return self.confirm(last).await;
        }
        let (before, after) = match (serde_json::to_value(last), serde_json::to_value(&desired)) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(_), _) => return self.give_up_patch("marshal_previous"),
            (_, Err(_)) => return self.give_up_patch("marshal_current"),
        };
        let Some(mut patch) = merge_patch::diff(&before, &after) else {
            return self.give_up_patch("make_patch");
        };
        // makes the server refuse the patch as a conflict if the object has changed
        if let Some(version) = &last.metadata.resource_version {
            patch["metadata"]["resourceVersion"] = Value::String(version.clone());
        }
        self.metrics
            .record_patch_size(patch.to_string().len(), after.to_string().len());
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let call = self.objects.patch(&self.options.name, &parameters, &patch);
        match bounded(call).await {
            Ok(object) => {
                self.patches += 1;
                self.last = Some(without_managed_fields(object));
                Some(Outcome::Patched)
            }
            Err(error) => {
                if error.code() == Some(403) {
                    tracing::warn!("Not allowed to patch, writing whole objects from now on");
                    self.options.patch_mode = false;
                }
                tracing::info!(error = %chain(&error), "Failed to send a patch to the APIServer");
                self.give_up_patch("send_patch")
            }
        }
    }

    fn give_up_patch(&self, reason: &'static str) -> Option<Outcome> {
        self.metrics.patch_failed(reason);
        None
    }

    /// Checks by the resource version whether the server still has the content of the last write. Reads from the server's cache, which is
    /// cheap; a stale answer costs only one further read.
    async fn confirm(&self, last: &NodeResourceTopology) -> Option<Outcome> {
        let any = GetParams {
            resource_version: Some("0".to_owned()),
        };
        let request = Request::new(self.objects.resource_url())
            .get_metadata(&self.options.name, &any)
            .ok()?;
        let found: Versioned = bounded(self.client.request(request)).await.ok()?;
        let version = found.metadata.resource_version?;
        (last.metadata.resource_version == Some(version)).then_some(Outcome::Unchanged)
    }

    async fn get_and_update(&mut self, content: &Content) -> Result<Outcome, Error> {
        self.patches = 0;
        self.find_owner().await;
        for _ in 0..MAX_CONFLICTS {
            let failed = |action| {
                move |error| Error {
                    action,
                    source: Cause::Call(error),
                }
            };
            let found = match bounded(self.objects.get(&self.options.name)).await {
                Ok(object) => Some(without_managed_fields(object)),
                Err(error) if error.code() == Some(404) => None,
                Err(error) => return Err(failed("get")(error)),
            };
            let base = found
                .clone()
                .unwrap_or_else(|| NodeResourceTopology::new(&self.options.name));
            let desired = desired(base, content, self.owner.as_ref());
            if found.as_ref() == Some(&desired) {
                self.last = found;
                return Ok(Outcome::Unchanged);
            }
            let parameters = PostParams::default();
            let (action, outcome, written) = if found.is_some() {
                let call = self
                    .objects
                    .replace(&self.options.name, &parameters, &desired);
                ("update", Outcome::Updated, bounded(call).await)
            } else {
                let call = self.objects.create(&parameters, &desired);
                ("create", Outcome::Created, bounded(call).await)
            };
            match written {
                Ok(object) => {
                    self.last = Some(without_managed_fields(object));
                    return Ok(outcome);
                }
                // the object was written between our two calls
                Err(error) if error.code() == Some(409) => self.metrics.retried(action),
                // the object was deleted between our two calls
                Err(error) if action == "update" && error.code() == Some(404) => {
                    self.metrics.retried(action);
                }
                Err(error) => return Err(failed(action)(error)),
            }
        }
        Err(Error {
            action: "update",
            source: Cause::Conflicts,
        })
    }

    /// Reads the node if it is to own the object, again for each full write: a node that was removed and has joined again has another uid,
    /// and an object whose owner is gone is deleted.
    async fn find_owner(&mut self) {
        if !self.options.set_owner {
            return;
        }
        // uses a list, because that is what the exporter's role allows
        let only = ListParams::default().fields(&format!("metadata.name={}", self.options.name));
        match bounded(self.nodes.list_metadata(&only)).await {
            Ok(nodes) => {
                self.owner = nodes.items.first().map(|node| OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: node.name_any(),
                    uid: node.uid().unwrap_or_default(),
                    ..OwnerReference::default()
                });
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "Cannot find the node that is to own the object");
            }
        }
    }
}

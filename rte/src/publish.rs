//! Writes the `NodeResourceTopology` object (rte.md 5).
//!
//! If nothing changed, nothing is written. Each cycle still checks the object on the server, so that a deleted or edited object is
//! repaired. Patches carry the resource version that they were computed for, so a change by others causes a conflict instead of a mixture.

use std::time::Duration;

use api::annotations;
use api::duration::GoDuration;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::nrt::{AttributeInfo, Zone};
use daemon::log::distinct_chain;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, GetParams, ListParams, Patch, PatchParams, PostParams, Request};
use kube::{Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;

use crate::merge_patch;
use crate::metrics::Metrics;

/// Time limit of one call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How many conflicts one publication resolves by reading and writing again.
const MAX_CONFLICTS: usize = 4;

/// What caused a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The timer.
    Periodic,
    /// The start, or a notification.
    Reactive,
}

impl Trigger {
    /// Returns the value of the annotation and of the metrics' label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => annotations::UPDATE_PERIODIC,
            Self::Reactive => annotations::UPDATE_REACTIVE,
        }
    }
}

/// Values of the two timing annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time since the previous event.
    pub since_previous: Duration,
    /// Period of the timer; zero if another event caused the scan.
    pub interval: GoDuration,
}

/// What to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// All zones.
    pub zones: Vec<Zone>,
    /// All attributes of the object.
    pub attributes: Vec<AttributeInfo>,
    /// The fingerprint for the annotation; `None` when fingerprints are disabled.
    pub fingerprint: Option<String>,
    /// What caused the scan.
    pub trigger: Trigger,
    /// Timing, if enabled.
    pub timing: Option<Timing>,
}

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
    source: CallError,
}

/// A call to the API server failed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Client(#[from] Box<kube::Error>),
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout,
    #[error("the object changes faster than it can be written")]
    Conflicts,
}

impl CallError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Client(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Timeout | Self::Conflicts => None,
        }
    }
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
                tracing::info!(error = %distinct_chain(&error), "Failed to send a patch to the APIServer");
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
            let failed = |action| move |source| Error { action, source };
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
            source: CallError::Conflicts,
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
                tracing::warn!(error = %distinct_chain(&error), "Cannot find the node that is to own the object");
            }
        }
    }
}

/// Returns `base` with our fields set; all others stay.
fn desired(
    mut base: NodeResourceTopology,
    content: &Content,
    owner: Option<&OwnerReference>,
) -> NodeResourceTopology {
    let notes = base.metadata.annotations.get_or_insert_default();
    let mut set = |key: &str, value: Option<String>| match value {
        Some(value) => drop(notes.insert(key.to_owned(), value)),
        // an outdated annotation must not stay: readers would believe it
        None => drop(notes.remove(key)),
    };
    set(
        annotations::RTE_UPDATE,
        Some(content.trigger.as_str().to_owned()),
    );
    set(annotations::POD_FINGERPRINT, content.fingerprint.clone());
    let slept = content.timing.map(|timing| {
        let nanos = i64::try_from(timing.since_previous.as_nanos()).unwrap_or(i64::MAX);
        let seconds = GoDuration::from_nanos(nanos).rounded_seconds();
        GoDuration::from_seconds(seconds).to_string()
    });
    set(annotations::SLEEP_DURATION, slept);
    set(
        annotations::UPDATE_INTERVAL,
        content.timing.map(|timing| timing.interval.to_string()),
    );
    if let Some(owner) = owner {
        base.metadata.owner_references = Some(vec![owner.clone()]);
    }
    base.attributes.clone_from(&content.attributes);
    base.zones.clone_from(&content.zones);
    base
}

/// Removes the managed fields, which the server maintains itself and which make up most of the object.
fn without_managed_fields(mut object: NodeResourceTopology) -> NodeResourceTopology {
    object.metadata.managed_fields = None;
    object
}

async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| CallError::Client(Box::new(error))),
        Err(_elapsed) => Err(CallError::Timeout),
    }
}

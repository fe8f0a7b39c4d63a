//! Writes the `NodeResourceTopology` object (rte.md 5).
//!
//! Nothing is written when nothing changed; what is on the server is looked at in each cycle nevertheless, so that a deleted or
//! edited object is put right. Patches carry the version that they were made for: what somebody else changed meanwhile is
//! noticed instead of mixed.

use std::time::Duration;

use api::annotations;
use api::duration::GoDuration;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::nrt::{AttributeInfo, Zone};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, GetParams, ListParams, Patch, PatchParams, PostParams, Request};
use kube::{Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::Value;

use crate::merge_patch;
use crate::metrics::Metrics;

/// How long one call of the API server may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a conflict is answered by reading and writing once more, within one publication.
const CONFLICTS: usize = 4;

/// What caused a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The timer.
    Periodic,
    /// The start, or a notification.
    Reactive,
}

impl Trigger {
    /// The value of the annotation and of the metrics' label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => annotations::UPDATE_PERIODIC,
            Self::Reactive => annotations::UPDATE_REACTIVE,
        }
    }
}

/// What the two timing annotations say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time since the event before.
    pub since_previous: Duration,
    /// The timer's period; zero when it was not the timer.
    pub interval: GoDuration,
}

/// What is to be published.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// All zones.
    pub zones: Vec<Zone>,
    /// All attributes of the object.
    pub attributes: Vec<AttributeInfo>,
    /// The fingerprint, once more as annotation; none when fingerprints are off.
    pub fingerprint: Option<String>,
    /// What caused the scan.
    pub trigger: Trigger,
    /// Only if it was asked for.
    pub timing: Option<Timing>,
}

/// What a publication did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was no object.
    Created,
    /// The whole object was written.
    Updated,
    /// A patch was written.
    Patched,
    /// The server has it all.
    Unchanged,
}

/// Why a publication failed.
#[derive(Debug, thiserror::Error)]
#[error("{action} failed for NRT instance")]
pub struct Error {
    /// The last thing tried: `get`, `create`, `update`, `patch`.
    pub action: &'static str,
    /// The reason.
    #[source]
    source: CallError,
}

/// Why a call of the API server failed.
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

/// How to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Name of the object, and of the node that may own it.
    pub name: String,
    /// Send patches where possible.
    pub patch_mode: bool,
    /// Read and write the whole object after so many patches; 0 or less: never.
    pub patch_resync: i64,
    /// Make the node the owner.
    pub own: bool,
}

/// As much of an object as tells whether it changed.
#[derive(Clone, Deserialize)]
struct Versioned {
    metadata: VersionedMetadata,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata {
    resource_version: Option<String>,
}

/// Writes one object, and knows what it wrote last.
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
    /// Writes through `client`.
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

    /// Makes the object on the server what `content` says.
    pub async fn publish(&mut self, content: &Content) -> Result<Outcome, Error> {
        let outcome = match self.patch(content).await {
            Some(outcome) => Ok(outcome),
            None => self.get_and_update(content).await,
        };
        match &outcome {
            Ok(Outcome::Unchanged) => {}
            Ok(Outcome::Created) => self.metrics.wrote("create", content.trigger.as_str()),
            Ok(Outcome::Updated) => self.metrics.wrote("update", content.trigger.as_str()),
            Ok(Outcome::Patched) => self.metrics.wrote("patch", content.trigger.as_str()),
            Err(error) => {
                // What the server has now is not known.
                self.last = None;
                self.metrics.write_failed(error.action);
            }
        }
        outcome
    }

    /// Writes only what differs from the last write. Nothing if that is not possible, for whatever reason.
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
        let wanted = wanted(last.clone(), content, self.owner.as_ref());
        if wanted == *last {
            return self.confirm(last).await;
        }
        let (before, after) = match (serde_json::to_value(last), serde_json::to_value(&wanted)) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(_), _) => return self.give_up_patch("marshal_previous"),
            (_, Err(_)) => return self.give_up_patch("marshal_current"),
        };
        let Some(mut patch) = merge_patch::diff(&before, &after) else {
            return self.give_up_patch("make_patch");
        };
        // A patch of an older object is refused as a conflict.
        if let Some(version) = &last.metadata.resource_version {
            patch["metadata"]["resourceVersion"] = Value::String(version.clone());
        }
        self.metrics
            .patch_sized(patch.to_string().len(), after.to_string().len());
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

    /// Whether the server still has what was written last, by its version. Its cache is asked: that is cheap, and what is older
    /// than our last write only costs one more look.
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
        for _ in 0..CONFLICTS {
            let failed = |action| move |source| Error { action, source };
            let found = match bounded(self.objects.get(&self.options.name)).await {
                Ok(object) => Some(without_managed_fields(object)),
                Err(error) if error.code() == Some(404) => None,
                Err(error) => return Err(failed("get")(error)),
            };
            let base = found
                .clone()
                .unwrap_or_else(|| NodeResourceTopology::new(&self.options.name));
            let wanted = wanted(base, content, self.owner.as_ref());
            if found.as_ref() == Some(&wanted) {
                self.last = found;
                return Ok(Outcome::Unchanged);
            }
            let parameters = PostParams::default();
            let (action, outcome, written) = if found.is_some() {
                let call = self
                    .objects
                    .replace(&self.options.name, &parameters, &wanted);
                ("update", Outcome::Updated, bounded(call).await)
            } else {
                let call = self.objects.create(&parameters, &wanted);
                ("create", Outcome::Created, bounded(call).await)
            };
            match written {
                Ok(object) => {
                    self.last = Some(without_managed_fields(object));
                    return Ok(outcome);
                }
                // Somebody wrote between our two calls.
                Err(error) if error.code() == Some(409) => self.metrics.retried(action),
                // Somebody removed it between our two calls.
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

    /// Looks the node up, if it is to own the object. It is looked up again with each full write: a node that was removed and
    /// joined again has another UID, and an owner that is gone takes the object with it.
    async fn find_owner(&mut self) {
        if !self.options.own {
            return;
        }
        // By list: that is what the exporter's role allows.
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

/// `base` with everything that is ours made as it should be; the rest stays.
fn wanted(
    mut base: NodeResourceTopology,
    content: &Content,
    owner: Option<&OwnerReference>,
) -> NodeResourceTopology {
    let notes = base.metadata.annotations.get_or_insert_default();
    let mut set = |key: &str, value: Option<String>| match value {
        Some(value) => drop(notes.insert(key.to_owned(), value)),
        // One that is not written any more would be believed for ever.
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

/// The server keeps those by itself, and they are most of the object.
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

/// An error with everything below it, as one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let source_text = source.to_string();
        // Some libraries repeat what is below in their own text.
        if !text.contains(&source_text) {
            text.push_str(": ");
            text.push_str(&source_text);
        }
        below = source.source();
    }
    text
}

//! What the `NodeResourceTopology` object is to contain (rte.md 5). Pure.

use std::time::Duration;

use api::annotations;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::nrt::{AttributeInfo, Zone};
use goflags::GoDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::triggers::Trigger;

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

/// Returns `base` with our fields set; all others stay.
pub(super) fn desired(
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
pub(super) fn without_managed_fields(mut object: NodeResourceTopology) -> NodeResourceTopology {
    object.metadata.managed_fields = None;
    object
}

//! The labels of the metrics.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use topology::resource::{MEMORY, ResourceName};

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the names are the label values")]
pub enum AttemptResult {
    /// Bound.
    scheduled,
    /// No node fits.
    unschedulable,
    /// Binding failed.
    error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AttemptLabels {
    pub(super) result: AttemptResult,
    pub(super) profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TriesLabel {
    attempts: String,
}

impl TriesLabel {
    /// Names a number of attempts. Large ones share a value, as in kube-scheduler: each value is a time series.
    pub(super) fn new(attempts: u32) -> Self {
        const MANY: u32 = 15;
        Self {
            attempts: if attempts < MANY {
                attempts.to_string()
            } else {
                format!("{MANY}+")
            },
        }
    }
}

/// An extension point whose duration is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Point {
    Filter,
    PostFilter,
    Score,
    Bind,
}

/// How an extension point ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Status {
    Success,
    Unschedulable,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PointLabels {
    pub(super) extension_point: Point,
    pub(super) status: Status,
    pub(super) profile: String,
}

/// The kind of object that was written to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Written {
    Event,
    Condition,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WriteLabels {
    pub(super) kind: Written,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QueueLabel {
    pub(super) queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct MoveLabels {
    pub(super) queue: &'static str,
    pub(super) event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct UnschedulableLabels {
    pub(super) plugin: &'static str,
    pub(super) profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TypeLabel {
    pub(super) r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StateLabel {
    pub(super) state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabel {
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RejectionLabels {
    pub(super) plugin: &'static str,
    pub(super) resource: &'static str,
}

/// Returns the class of a resource: there are too many resource names for labels.
pub(super) fn class(resource: Option<&ResourceName>) -> &'static str {
    match resource {
        None => "",
        Some(name) if name.is_cpu() => "cpu",
        Some(name) if name.as_str() == MEMORY => "memory",
        Some(name) if name.is_memory_like() => "hugepages",
        Some(name) if name.is_native() => "storage",
        Some(_) => "device",
    }
}

//! Writes an Event about one of the two resources whenever its conditions change, so that `kubectl describe` shows the history.
//!
//! The original writes none (operator.md 8, 10). Both resources are cluster-wide, so their Events are in the namespace `default`.

use api::conditions::{AVAILABLE, DEGRADED, PROGRESSING};
use apply::Cause;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::conditions::Outcome;
use crate::context::Context;

/// Action of every Event.
const ACTION: &str = "Reconcile";
/// Maximum length of a note that the API server accepts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Reason of Events about the kubelet configuration controller, whose failures show in no condition.
const REASON_KUBELET_CONFIG: &str = "FailedKubeletConfigSync";

/// Publishes an outcome that the conditions do not show yet.
pub(crate) async fn publish_transition<K>(
    controller: &'static str,
    object: &K,
    conditions: &[Condition],
    outcome: &Outcome,
    context: &Context,
) where
    K: Resource<DynamicType = ()>,
{
    let (kind, condition) = match outcome {
        Outcome::Available => (EventType::Normal, AVAILABLE),
        Outcome::Progressing { .. } => (EventType::Normal, PROGRESSING),
        Outcome::Invalid { .. } | Outcome::Failed { .. } => (EventType::Warning, DEGRADED),
    };
    let (reason, message) = (outcome.reason(condition), outcome.message());
    let is_published = conditions.iter().any(|existing| {
        existing.type_ == condition
            && existing.status == "True"
            && existing.reason == reason
            && existing.message == message
    });
    if !is_published {
        publish(controller, object, kind, reason, message, context).await;
    }
}

/// Publishes that the settings of kubelets cannot be passed to the exporters.
pub(crate) async fn publish_kubelet_config_failure<K>(
    controller: &'static str,
    object: &K,
    message: &str,
    context: &Context,
) where
    K: Resource<DynamicType = ()>,
{
    let kind = EventType::Warning;
    publish(
        controller,
        object,
        kind,
        REASON_KUBELET_CONFIG,
        message,
        context,
    )
    .await;
}

/// Writes an Event. If that fails, the Event is lost; the conditions and the log contain the same information.
async fn publish<K>(
    controller: &'static str,
    object: &K,
    type_: EventType,
    reason: &str,
    message: &str,
    context: &Context,
) where
    K: Resource<DynamicType = ()>,
{
    let reporter = Reporter {
        controller: controller.into(),
        instance: Some(context.instance.clone()),
    };
    let event = Event {
        type_,
        reason: reason.into(),
        note: (!message.is_empty()).then(|| shortened(message).into()),
        action: ACTION.into(),
        secondary: None,
    };
    // a long-lived recorder would count a second message with the same reason as a repetition of the first
    let recorder = Recorder::new(context.client.clone(), reporter);
    if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
        context.metrics.lost_events.inc();
        tracing::warn!(reason, error = %daemon::log::chain(&Cause::from(error)), "Event lost");
    }
}

/// Cuts a text to the maximum length of a note, at a character boundary.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NOTE_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_end_where_the_api_server_wants_and_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = format!("a{}", "\u{e9}".repeat(MAX_NOTE_BYTES));
        assert_eq!(shortened(&long).len(), MAX_NOTE_BYTES - 1);
    }
}

//! Who a pod of a StatefulSet is: its ordinal, name and labels, and the volumes of its claims.

use std::ops::Range;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};

use crate::controllers::{objects, pods};

/// Label of a pod with its name.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Label of a pod with its ordinal.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Label of a pod with the name of its revision.
const REVISION: &str = "controller-revision-hash";

/// Returns the ordinal of a pod, or `None` if its name is not one of the set.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let rest = objects::name(pod).strip_prefix(objects::name(set))?;
    let number: i32 = rest.strip_prefix('-')?.parse().ok()?;
    (number >= 0 && pod_name(set, number) == objects::name(pod)).then_some(number)
}

/// Returns the ordinals that a set wants.
pub(super) fn range(set: &StatefulSet) -> Range<i32> {
    let spec = set.spec.as_ref();
    let start = spec
        .and_then(|spec| spec.ordinals.as_ref()?.start)
        .unwrap_or(0);
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0);
    start..start.saturating_add(replicas)
}

/// Returns the name of the pod with an ordinal.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", objects::name(set))
}

/// Returns the name of the revision that a pod was made of.
pub(super) fn revision(pod: &Pod) -> Option<&str> {
    objects::labels(pod).get(REVISION).map(String::as_str)
}

/// Returns the claims of the pod with an ordinal, each with the name of its volume.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<(String, PersistentVolumeClaim)> {
    let spec = set.spec.clone().unwrap_or_default();
    let selector = spec.selector.match_labels.unwrap_or_default();
    let templates = spec.volume_claim_templates.unwrap_or_default();
    templates
        .into_iter()
        .map(|mut claim| {
            let volume = claim.metadata.name.take().unwrap_or_default();
            claim.metadata.name = Some(format!("{volume}-{}", pod_name(set, ordinal)));
            claim.metadata.namespace.clone_from(&set.metadata.namespace);
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.extend(selector.clone());
            (volume, claim)
        })
        .collect()
}

fn claim_volume(name: String, claim: &PersistentVolumeClaim) -> Volume {
    Volume {
        name,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: objects::name(claim).to_owned(),
            read_only: None,
        }),
        ..Volume::default()
    }
}

/// Returns a new pod with an ordinal, made of the template of a revision.
pub(super) fn pod(
    set: &StatefulSet,
    template: &PodTemplateSpec,
    revision: &str,
    ordinal: i32,
) -> Pod {
    let mut pod = pods::from_template(template, set);
    let name = pod_name(set, ordinal);
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    let service = set
        .spec
        .as_ref()
        .and_then(|spec| spec.service_name.as_ref());
    spec.subdomain = service.filter(|name| !name.is_empty()).cloned();
    pod.metadata.name = Some(name);
    conform(set, ordinal, &mut pod);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION.to_owned(), revision.to_owned());
    pod
}

/// Gives a pod the labels and volumes of its ordinal.
pub(super) fn conform(set: &StatefulSet, ordinal: i32, pod: &mut Pod) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), pod_name(set, ordinal));
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    let claims = claims(set, ordinal);
    if claims.is_empty() {
        return;
    }
    let spec = pod.spec.get_or_insert_default();
    let own = spec.volumes.take().into_iter().flatten();
    let own = own.filter(|volume| claims.iter().all(|(name, _)| *name != volume.name));
    let own: Vec<Volume> = own.collect();
    let volumes = claims
        .iter()
        .map(|(name, claim)| claim_volume(name.clone(), claim));
    spec.volumes = Some(volumes.chain(own).collect());
}

/// Returns whether a pod has the labels and volumes of its ordinal.
pub(super) fn conforms(set: &StatefulSet, ordinal: i32, pod: &Pod) -> bool {
    let is_named = objects::labels(pod)
        .get(POD_NAME)
        .is_some_and(|name| name == objects::name(pod));
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let volumes = volumes.unwrap_or_default();
    is_named
        && claims(set, ordinal).iter().all(|(name, claim)| {
            let volume = volumes.iter().find(|volume| volume.name == *name);
            let source = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
            source.is_some_and(|source| source.claim_name == objects::name(claim))
        })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::a_member("web-3", Some(3))]
    #[case::a_number_written_otherwise("web-03", None)]
    #[case::a_negative_number("web--3", None)]
    #[case::a_pod_of_another_set("web-a-3", None)]
    #[case::no_number("web-x", None)]
    #[case::a_number_too_large("web-4294967296", None)]
    fn the_ordinal_is_the_end_of_the_name(#[case] name: &str, #[case] expected: Option<i32>) {
        let set = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        let pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        assert_eq!(ordinal(&set, &pod), expected);
    }
}

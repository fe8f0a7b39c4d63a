//! The claims of the pods of a StatefulSet: made before the pod, and owned as the retention policy says.

use std::fmt::Write as _;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use super::{Controller, identity};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

/// Why a pod does not have its claims.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    /// The server refused a claim.
    #[error("failed to create PVC {name}: {}", objects::message(source))]
    Refused {
        /// Name of the claim.
        name: String,
        /// The server's answer.
        source: kube::Error,
    },
    /// A claim from before is still being deleted.
    #[error("pvc {0} is being deleted")]
    Leaving(String),
}

/// Returns whether a claim is deleted when the set is, and when the set scales down below its pod.
fn policy(set: &StatefulSet) -> (bool, bool) {
    let spec = set.spec.as_ref();
    let policy = spec.and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let when_deleted = policy.and_then(|policy| policy.when_deleted.as_ref());
    let when_scaled = policy.and_then(|policy| policy.when_scaled.as_ref());
    (deletes(when_deleted), deletes(when_scaled))
}

fn names<K: Resource<DynamicType = ()>>(owner: &OwnerReference, object: &K) -> bool {
    owner.api_version == K::api_version(&())
        && owner.kind == K::kind(&())
        && owner.name == objects::name(object)
}

/// Returns whether a claim is owned by an earlier pod of the same name: it goes soon, and a new pod must not use it.
fn is_stale(claim: &PersistentVolumeClaim, pod: &str) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == "Pod" && owner.api_version == "v1")
        .any(|owner| owner.name == pod)
}

/// Returns the owners that the retention policy of a set gives to a claim of a pod, or `None` if the claim stays as it is.
fn owners(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    pod: &Pod,
    is_condemned: bool,
) -> Option<Vec<OwnerReference>> {
    let held = claim.metadata.owner_references.as_deref();
    let held = held.unwrap_or_default();
    let (of_set, of_pod): (Vec<_>, Vec<_>) = (
        held.iter().filter(|owner| names(owner, set)).collect(),
        held.iter().filter(|owner| names(owner, pod)).collect(),
    );
    let is_of_another = |owner: &&OwnerReference, uid: &str| owner.uid != uid;
    let set_uid = objects::uid(set);
    let pod_uid = objects::uid(pod);
    if of_set.iter().any(|owner| is_of_another(owner, set_uid))
        || of_pod.iter().any(|owner| is_of_another(owner, pod_uid))
    {
        // the claim belongs to a set or pod that is gone: the garbage collector decides
        return None;
    }
    let mut rest: Vec<OwnerReference> = held
        .iter()
        .filter(|owner| !names(owner, set) && !names(owner, pod))
        .cloned()
        .collect();
    let (when_deleted, when_scaled) = policy(set);
    let is_foreign =
        (when_deleted || when_scaled) && rest.iter().any(|owner| owner.controller == Some(true));
    if is_foreign {
        return (!of_set.is_empty() || !of_pod.is_empty()).then_some(rest);
    }
    let by_pod = when_scaled && is_condemned;
    let by_set = when_deleted && !by_pod;
    let mut own = of_set.iter().chain(&of_pod);
    let controls = own.all(|owner| owner.controller == Some(true));
    if controls && by_set != of_set.is_empty() && by_pod != of_pod.is_empty() {
        return None;
    }
    if by_set {
        rest.push(objects::control(set));
    }
    if by_pod {
        rest.push(objects::control(pod));
    }
    Some(rest)
}

impl Controller {
    fn claim(
        &self,
        set: &StatefulSet,
        wanted: &PersistentVolumeClaim,
    ) -> Option<PersistentVolumeClaim> {
        let key = ObjectKey::new(objects::namespace(set), objects::name(wanted));
        self.world
            .claims
            .get(&key)
            .map(|claim| PersistentVolumeClaim::clone(&claim))
    }

    /// Returns whether a claim of a pod that does not exist yet still belongs to an earlier pod.
    pub(super) fn has_stale_claim(&self, set: &StatefulSet, ordinal: i32) -> bool {
        let pod = identity::pod_name(set, ordinal);
        let (_, when_scaled) = policy(set);
        when_scaled
            && identity::claims(set, ordinal)
                .iter()
                .filter_map(|(_, wanted)| self.claim(set, wanted))
                .any(|claim| is_stale(&claim, &pod))
    }

    /// Creates the claims of a pod that are missing.
    pub(super) async fn make_claims(
        &self,
        set: &StatefulSet,
        ordinal: i32,
    ) -> Result<(), ClaimError> {
        let mut failed = Ok(());
        for (_, wanted) in identity::claims(set, ordinal) {
            let name = objects::name(&wanted).to_owned();
            match self.claim(set, &wanted) {
                Some(held) if objects::deleting(&held) => {
                    failed = failed.and(Err(ClaimError::Leaving(name)));
                }
                Some(_) => {}
                None => {
                    let made = self
                        .world
                        .claims
                        .create(objects::namespace(set), &wanted)
                        .await;
                    let is_there = made
                        .as_ref()
                        .is_err_and(|error| objects::code(error) == 409);
                    if !is_there {
                        self.tell_claim(set, ordinal, &name, made.as_ref().err());
                    }
                    if let Err(source) = made {
                        failed = failed.and(Err(ClaimError::Refused { name, source }));
                    }
                }
            }
        }
        failed
    }

    fn tell_claim(
        &self,
        set: &StatefulSet,
        ordinal: i32,
        claim: &str,
        error: Option<&kube::Error>,
    ) {
        let pod = identity::pod_name(set, ordinal);
        let set_name = objects::name(set);
        if let Some(error) = error {
            let mut what = format!(
                "Create Claim {claim} for Pod {pod} in StatefulSet {set_name} failed error: "
            );
            // writing to a `String` cannot fail
            let _ = write!(what, "{}", objects::message(error));
            self.events.warning(set, "FailedCreate", what);
        } else {
            let what = format!("Create Claim {claim} Pod {pod} in StatefulSet {set_name} success");
            self.events.normal(set, "SuccessfulCreate", what);
        }
    }

    /// Gives the claims of a pod the owners that the retention policy wants. Returns whether one was changed.
    pub(super) async fn own_claims(
        &self,
        set: &StatefulSet,
        ordinal: i32,
        pod: &Pod,
    ) -> Result<bool, kube::Error> {
        let is_condemned = !identity::range(set).contains(&ordinal);
        let mut is_changed = false;
        for (_, wanted) in identity::claims(set, ordinal) {
            let Some(mut claim) = self.claim(set, &wanted) else {
                continue;
            };
            if let Some(owners) = owners(&claim, set, pod, is_condemned) {
                claim.metadata.owner_references = Some(owners);
                self.world.claims.replace(&claim).await?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn owner(kind: &str, uid: &str) -> Value {
        let (api_version, name) = match kind {
            "StatefulSet" => ("apps/v1", "web"),
            "Pod" => ("v1", "web-0"),
            _ => ("v1", "other"),
        };
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
    }

    #[rstest]
    #[case::kept("Retain", "Retain", false, json!([]), None)]
    #[case::kept_after_another_policy("Retain", "Retain", false, json!([owner("StatefulSet", "s")]), Some(json!([])))]
    #[case::goes_with_the_set("Delete", "Retain", false, json!([]), Some(json!([owner("StatefulSet", "s")])))]
    #[case::goes_with_the_set_already("Delete", "Retain", false, json!([owner("StatefulSet", "s")]), None)]
    #[case::no_scaling_yet("Retain", "Delete", false, json!([]), None)]
    #[case::goes_with_the_pod("Retain", "Delete", true, json!([]), Some(json!([owner("Pod", "p")])))]
    #[case::goes_with_the_pod_not_the_set("Delete", "Delete", true, json!([owner("StatefulSet", "s")]), Some(json!([owner("Pod", "p")])))]
    #[case::of_an_earlier_pod("Delete", "Delete", true, json!([owner("Pod", "earlier")]), None)]
    #[case::of_another_controller("Delete", "Retain", false, json!([owner("ConfigMap", "c")]), None)]
    #[case::of_another_controller_too("Delete", "Retain", false, json!([owner("ConfigMap", "c"), owner("StatefulSet", "s")]),
        Some(json!([owner("ConfigMap", "c")])))]
    fn the_policy_decides_who_owns_a_claim(
        #[case] when_deleted: &str,
        #[case] when_scaled: &str,
        #[case] is_condemned: bool,
        #[case] held: Value,
        #[case] expected: Option<Value>,
    ) {
        let set = json!({"metadata": {"name": "web", "uid": "s"}, "spec": {
            "selector": {}, "serviceName": "", "template": {},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled}}});
        let set = serde_json::from_value(set).unwrap();
        let pod = json!({"metadata": {"name": "web-0", "uid": "p"}});
        let pod = serde_json::from_value(pod).unwrap();
        let claim = json!({"metadata": {"name": "data-web-0", "ownerReferences": held}});
        let claim = serde_json::from_value(claim).unwrap();
        let found = owners(&claim, &set, &pod, is_condemned);
        assert_eq!(found.map(|owners| json!(owners)), expected);
    }
}

//! Binds the volumes of a pod before the pod: existing volumes are given to their claims, and claims whose volumes are to be provisioned
//! get the node. Other components do the rest, which the watches report.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::api_tasks::retry::retried;
use crate::state::pod::PodKey;
use crate::state::storage::{self, BOUND_BY_CONTROLLER, Reservation, SELECTED_NODE, Storage};

/// Why the volumes of a pod were not bound.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a change or could not be reached.
    #[error("cannot {what}{remedy}")]
    Refused {
        /// The attempted change.
        what: String,
        /// The remedy, if it is known.
        remedy: String,
        /// The reason.
        #[source]
        source: Box<kube::Error>,
    },
    /// Other components failed to do their part, or undid ours.
    #[error("binding volumes: {0}")]
    Undone(String),
    /// Other components did not do their part in time, in seconds.
    #[error("binding volumes: not bound within {0} s")]
    Timeout(u64),
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// Writes the claim that owns a volume to the volume.
    SetClaimRef { volume: String, patch: Value },
    /// Writes the selected node to a claim.
    SetSelectedNode { claim: PodKey, patch: Value },
}

/// The changes that publish a reservation, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// Computes the changes from the known objects. `None` if one of them is gone.
    pub fn new(storage: &Storage, reservation: &Reservation) -> Option<Self> {
        let mut changes = Vec::new();
        for (name, key) in &reservation.volumes {
            let (volume, claim) = (storage.volume(name)?, storage.claim(key)?);
            let mut patch = json!({
                "metadata": {"uid": volume.uid, "resourceVersion": volume.version.to_string()},
                "spec": {"claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": key.namespace,
                    "name": key.name,
                    "uid": claim.uid,
                }},
            });
            if volume.owner.is_none() {
                patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
            }
            changes.push(Change::SetClaimRef {
                volume: name.clone(),
                patch,
            });
        }
        for key in &reservation.provisions {
            let claim = storage.claim(key)?;
            changes.push(Change::SetSelectedNode {
                claim: key.clone(),
                patch: json!({"metadata": {
                    "uid": claim.uid,
                    "resourceVersion": claim.version.to_string(),
                    "annotations": {SELECTED_NODE: reservation.node},
                }}),
            });
        }
        Some(Self(changes))
    }

    /// Writes the changes. Returns the resource versions of the written objects, in order. If a change is refused, earlier ones stay: the
    /// next attempt finds them.
    ///
    /// # Errors
    /// When the API server refuses a change, which it does if an object has changed meanwhile.
    pub async fn write(&self, client: &Client) -> Result<Vec<u64>, Error> {
        let params = PatchParams::default();
        let mut versions = Vec::new();
        for change in &self.0 {
            let written = match change {
                Change::SetClaimRef { volume, patch } => {
                    let api: Api<PersistentVolume> = Api::all(client.clone());
                    let patch = Patch::Merge(patch);
                    let written = retried(|| api.patch(volume, &params, &patch)).await;
                    written.map(|volume| volume.metadata.resource_version)
                }
                Change::SetSelectedNode { claim, patch } => {
                    let api: Api<PersistentVolumeClaim> =
                        Api::namespaced(client.clone(), &claim.namespace);
                    let patch = Patch::Merge(patch);
                    let written = retried(|| api.patch(&claim.name, &params, &patch)).await;
                    written.map(|claim| claim.metadata.resource_version)
                }
            };
            let version = written.map_err(|source| change.refused(source))?;
            versions.push(storage::version(version.as_deref()));
        }
        Ok(versions)
    }
}

impl Change {
    fn refused(&self, source: kube::Error) -> Error {
        let (what, kind) = match self {
            Self::SetClaimRef { volume, patch } => {
                let claim = &patch["spec"]["claimRef"];
                let part = |name: &str| claim[name].as_str().unwrap_or_default().to_owned();
                let (namespace, name) = (part("namespace"), part("name"));
                (
                    format!("bind persistentvolume {volume:?} to the claim {namespace}/{name}"),
                    "persistentvolumes",
                )
            }
            Self::SetSelectedNode { claim, .. } => (
                format!("set the selected node of persistentvolumeclaim {claim}"),
                "persistentvolumeclaims",
            ),
        };
        let is_forbidden = matches!(&source, kube::Error::Api(status) if status.code == 403);
        let remedy = if is_forbidden {
            format!(
                " (the scheduler's account needs the verb patch on {kind}, as the ClusterRole system:volume-scheduler has it)"
            )
        } else {
            String::new()
        };
        Error::Refused {
            what,
            remedy,
            source: Box::new(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::state::storage::{Claim, Object, Owner, Volume};
    use crate::testing::mk_key;

    fn mk_storage(owner: Option<Owner>) -> Storage {
        let mut storage = Storage::default();
        let volume = Volume {
            name: "v".to_owned(),
            uid: "volume-uid".to_owned(),
            version: 7,
            owner,
            ..Volume::default()
        };
        let claim = Claim {
            key: mk_key("ns", "c"),
            uid: "claim-uid".to_owned(),
            version: 8,
            ..Claim::default()
        };
        storage.apply(mk_key("", "v"), Object::Volume(Box::new(volume)));
        storage.apply(mk_key("ns", "c"), Object::Claim(Box::new(claim)));
        storage
    }

    #[test]
    fn a_volume_is_given_to_its_claim_only_as_it_was_seen() {
        let reservation = Reservation {
            node: "n".to_owned(),
            volumes: vec![("v".to_owned(), mk_key("ns", "c"))],
            provisions: Vec::new(),
        };
        let patch = |owner| match Changes::new(&mk_storage(owner), &reservation)
            .unwrap()
            .0
            .remove(0)
        {
            Change::SetClaimRef { patch, .. } => patch,
            Change::SetSelectedNode { .. } => panic!("no claim changes"),
        };
        let fresh = patch(None);
        assert_eq!(fresh["metadata"]["resourceVersion"], "7");
        assert_eq!(fresh["metadata"]["uid"], "volume-uid");
        assert_eq!(fresh["spec"]["claimRef"]["uid"], "claim-uid");
        assert_eq!(fresh["metadata"]["annotations"][BOUND_BY_CONTROLLER], "yes");
        // an administrator reserved it for the claim, so no controller may undo that
        let meant = patch(Some(Owner {
            claim: mk_key("ns", "c"),
            uid: None,
        }));
        assert!(meant["metadata"]["annotations"].is_null(), "{meant}");
    }

    #[test]
    fn what_is_missing_is_said_when_a_change_is_forbidden() {
        let change = Change::SetSelectedNode {
            claim: mk_key("ns", "c"),
            patch: Value::Null,
        };
        let status = |code| kube::Error::Api(Box::new(Status::failure("no", "").with_code(code)));
        let text = change.refused(status(403)).to_string();
        assert!(text.contains("persistentvolumeclaim ns/c"), "{text}");
        assert!(
            text.contains("verb patch on persistentvolumeclaims"),
            "{text}"
        );
        let text = change.refused(status(409)).to_string();
        assert!(!text.contains("verb"), "{text}");
    }
}

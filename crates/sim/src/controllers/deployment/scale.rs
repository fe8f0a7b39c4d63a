//! Sizes of the ReplicaSets of a deployment.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::sets::{Sets, replicas};
use super::{Controller, annotations, desired, limits, rolling};
use crate::controllers::objects;

/// Returns the size that the ReplicaSet of the current template should have now.
pub(super) fn of_new(deployment: &Deployment, sets: &Sets, now: i32) -> i32 {
    let wanted = desired(deployment);
    if !rolling(deployment) {
        return wanted;
    }
    let total: i32 = sets.all().map(|set| replicas(set)).sum();
    let most = wanted + limits(deployment).0;
    if total >= most {
        return now;
    }
    now + (most - total).min(wanted - now)
}

impl Controller {
    /// Changes the size of a ReplicaSet; returns whether the size differs from before.
    pub(super) async fn resize(
        &self,
        deployment: &Deployment,
        sets: &mut Sets,
        set: &Arc<ReplicaSet>,
        size: i32,
    ) -> Result<bool, kube::Error> {
        let before = replicas(set);
        let mut wanted = ReplicaSet::clone(set);
        let recorded = annotations::record_size(deployment, &mut wanted.metadata);
        if before == size && !recorded {
            return Ok(false);
        }
        wanted.spec.get_or_insert_default().replicas = Some(size);
        let written = self.world.replica_sets.replace(&wanted).await?;
        sets.update(&written);
        if before != size {
            let way = if before < size { "up" } else { "down" };
            let name = objects::name(&*written);
            self.events.normal(
                deployment,
                "ScalingReplicaSet",
                format!("Scaled {way} replica set {name} from {before} to {size}"),
            );
        }
        Ok(before != size)
    }

    /// Applies a change of the deployment's size: the only active ReplicaSet takes all of it; during a rollout it is shared in proportion.
    pub(super) async fn scale(
        &self,
        deployment: &Deployment,
        sets: &mut Sets,
    ) -> Result<(), kube::Error> {
        let wanted = desired(deployment);
        let active = sets.active();
        let only = match active.as_slice() {
            [] => sets.new.clone().or_else(|| sets.old.last().cloned()),
            [only] => Some(Arc::clone(only)),
            _ => None,
        };
        if let Some(only) = only {
            if replicas(&only) != wanted {
                self.resize(deployment, sets, &only, wanted).await?;
            }
            return Ok(());
        }
        if sets
            .new
            .as_ref()
            .is_some_and(|new| saturated(deployment, new))
        {
            for old in sets.old.clone() {
                if replicas(&old) > 0 {
                    self.resize(deployment, sets, &old, 0).await?;
                }
            }
            return Ok(());
        }
        if rolling(deployment) {
            for (set, size) in proportions(deployment, active) {
                self.resize(deployment, sets, &set, size).await?;
            }
        }
        Ok(())
    }
}

/// Returns whether the new ReplicaSet provides all desired pods and all of them are available.
fn saturated(deployment: &Deployment, new: &ReplicaSet) -> bool {
    let wanted = desired(deployment);
    let status = new.status.as_ref();
    replicas(new) == wanted
        && status.and_then(|status| status.available_replicas) == Some(wanted)
        && annotations::of(&new.metadata, "deployment.kubernetes.io/desired-replicas")
            .is_some_and(|recorded| recorded == wanted.to_string())
}

/// Distributes the pods to add or remove over the active ReplicaSets in proportion, the largest first.
fn proportions(
    deployment: &Deployment,
    mut active: Vec<Arc<ReplicaSet>>,
) -> Vec<(Arc<ReplicaSet>, i32)> {
    let wanted = desired(deployment);
    let most = if wanted > 0 {
        wanted + limits(deployment).0
    } else {
        0
    };
    let total: i32 = active.iter().map(|set| replicas(set)).sum();
    let change = most - total;
    let created = |set: &Arc<ReplicaSet>| {
        let time = set.metadata.creation_timestamp.clone().map(|time| time.0);
        (time, set.metadata.name.clone())
    };
    if change > 0 {
        active.sort_by_key(|set| {
            (
                std::cmp::Reverse(replicas(set)),
                std::cmp::Reverse(created(set)),
            )
        });
    } else if change < 0 {
        active.sort_by_key(|set| (std::cmp::Reverse(replicas(set)), created(set)));
    }
    let mut done = 0;
    let mut sizes: Vec<(Arc<ReplicaSet>, i32)> = Vec::new();
    for set in active {
        let size = replicas(&set);
        let part = if size == 0 || change == 0 || change == done {
            0
        } else if change > 0 {
            fraction(deployment, &set).min(change - done)
        } else {
            fraction(deployment, &set).max(change - done)
        };
        done += part;
        sizes.push((set, size + part));
    }
    if let Some((_, size)) = sizes.first_mut() {
        *size = (*size + change - done).max(0);
    }
    sizes
}

/// Returns by how many pods a ReplicaSet changes to keep its share.
fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    let wanted = desired(deployment);
    let size = replicas(set);
    if wanted == 0 {
        return -size;
    }
    let before = annotations::recorded_max(&set.metadata).or_else(|| {
        let status = deployment.status.as_ref()?;
        status.replicas.filter(|replicas| *replicas > 0)
    });
    let Some(before) = before else { return 0 };
    let most = f64::from(wanted + limits(deployment).0);
    (f64::from(size) * most / f64::from(before)).round() as i32 - size
}

//! The two strategies of a rollout: `RollingUpdate` and `Recreate`.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::sets::{Sets, replicas};
use super::{Controller, desired, limits, scale, status};
use crate::controllers::objects;

fn available(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

impl Controller {
    /// Takes one step of a rolling update.
    pub(super) async fn roll(
        &self,
        deployment: &mut Deployment,
        claimed: &[Arc<ReplicaSet>],
    ) -> Result<(), kube::Error> {
        let mut sets = self.find_sets(deployment, claimed, true).await?;
        if self.grow(deployment, &mut sets).await? || self.shrink(deployment, &mut sets).await? {
            return self.store_rollout(deployment, &sets).await;
        }
        if status::complete(deployment, &deployment.status.clone().unwrap_or_default()) {
            self.clean_up(deployment, &sets.old).await?;
        }
        self.store_rollout(deployment, &sets).await
    }

    /// Scales the new ReplicaSet up as far as the surge allows.
    async fn grow(&self, deployment: &Deployment, sets: &mut Sets) -> Result<bool, kube::Error> {
        let Some(new) = sets.new.clone() else {
            return Ok(false);
        };
        let (now, wanted) = (replicas(&new), desired(deployment));
        if now == wanted {
            return Ok(false);
        }
        let size = if now > wanted {
            wanted
        } else {
            scale::of_new(deployment, sets, now)
        };
        if size == now {
            return Ok(false);
        }
        self.resize(deployment, sets, &new, size).await
    }

    /// Scales the old ReplicaSets down as far as availability allows, unhealthy pods first.
    async fn shrink(&self, deployment: &Deployment, sets: &mut Sets) -> Result<bool, kube::Error> {
        let old: i32 = sets.old.iter().map(|set| replicas(set)).sum();
        let Some(new) = sets.new.clone() else {
            return Ok(false);
        };
        if old == 0 {
            return Ok(false);
        }
        let least = desired(deployment) - limits(deployment).1;
        let unavailable = replicas(&new) - available(&new);
        let mut most = old + replicas(&new) - least - unavailable;
        let mut shrunk = false;
        for set in sets.old.clone() {
            let unhealthy = replicas(&set) - available(&set);
            if most <= 0 {
                break;
            }
            if replicas(&set) == 0 || unhealthy <= 0 {
                continue;
            }
            let taken = unhealthy.min(most);
            self.resize(deployment, sets, &set, replicas(&set) - taken)
                .await?;
            most -= taken;
            shrunk = true;
        }
        if old + replicas(&new) - least - unavailable <= 0 {
            return Ok(false);
        }
        let there: i32 = sets.all().map(|set| available(set)).sum();
        let mut spare = there - least;
        for set in sets.old.clone() {
            if spare <= 0 {
                break;
            }
            if replicas(&set) == 0 {
                continue;
            }
            let taken = replicas(&set).min(spare);
            self.resize(deployment, sets, &set, replicas(&set) - taken)
                .await?;
            spare -= taken;
            shrunk = true;
        }
        Ok(shrunk)
    }

    /// Removes all old pods, waits until they are gone, then creates the new ones.
    pub(super) async fn recreate(
        &self,
        deployment: &mut Deployment,
        claimed: &[Arc<ReplicaSet>],
    ) -> Result<(), kube::Error> {
        let mut sets = self.find_sets(deployment, claimed, false).await?;
        let mut shrunk = false;
        for set in sets.old.clone() {
            if replicas(&set) > 0 {
                shrunk |= self.resize(deployment, &mut sets, &set, 0).await?;
            }
        }
        let still = sets.old.iter().any(|set| {
            set.status
                .as_ref()
                .is_some_and(|status| status.replicas > 0)
                || self
                    .world
                    .pods
                    .indexed(objects::uid(&**set))
                    .iter()
                    .any(|pod| !objects::terminal(pod))
        });
        if shrunk || still {
            return self.store_rollout(deployment, &sets).await;
        }
        if sets.new.is_none() {
            sets = self.find_sets(deployment, claimed, true).await?;
        }
        if let Some(new) = sets.new.clone() {
            let wanted = desired(deployment);
            if replicas(&new) != wanted {
                self.resize(deployment, &mut sets, &new, wanted).await?;
            }
        }
        if status::complete(deployment, &deployment.status.clone().unwrap_or_default()) {
            self.clean_up(deployment, &sets.old).await?;
        }
        self.store_rollout(deployment, &sets).await
    }
}

//! VolumeRestrictions: disks and claims that not every pod may share (scheduler.md 7.3).

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::plugins::volumes::Volumes;
use crate::state::node::NodeState;
use crate::state::pod;

const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";
pub(super) const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
const NO_DISK: &str = "node(s) had no available disk";

impl Volumes<'_> {
    /// Returns whether a claim that only one pod may use is in use.
    pub(super) fn is_in_use(&self) -> Result<bool, String> {
        let mut in_use = false;
        for claim in self.named() {
            let claim = claim?;
            in_use |= claim
                .access_modes
                .iter()
                .any(|mode| mode == READ_WRITE_ONCE_POD)
                && self.cluster.is_claim_in_use(&claim.key);
        }
        Ok(in_use)
    }

    /// Runs VolumeRestrictions on a node.
    pub fn restrictions(&self, state: &NodeState) -> Result<(), Rejection> {
        let plugin = Plugin::VolumeRestrictions;
        let clashing = self.pods_with_volumes(state).find_map(|other| {
            let volumes = other.volumes.as_ref()?;
            let disks = &self.requested.disks;
            let clashes = |disk: &pod::Disk| volumes.disks.iter().any(|other| disk.clashes(other));
            disks.iter().find(|disk| clashes(disk)).map(|_| &other.key)
        });
        if let Some(other) = clashing {
            return Err(Rejection {
                detail: Some(format!("pod {other} has the disk")),
                ..Rejection::new(plugin, NO_DISK)
            });
        }
        if self.in_use {
            return Err(Rejection::new(plugin, IN_USE));
        }
        Ok(())
    }
}

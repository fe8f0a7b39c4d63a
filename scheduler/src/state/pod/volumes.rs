//! Volumes of a pod that restrict its nodes.

use k8s_openapi::api::core::v1::{PodSpec, Volume as WireVolume};

use crate::state::volume_source::Source;

/// Volumes of a pod that restrict its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Claims, in the order of the pod.
    pub claims: Vec<VolumeClaim>,
    /// Disks that pods can share only with restrictions.
    pub disks: Vec<Disk>,
    /// Volumes that the pod defines inline and that a CSI driver may have to attach.
    pub inline: Vec<Source>,
}

impl Volumes {
    /// Iterates over the claims that the pod refers to by name.
    pub fn named_claims(&self) -> impl Iterator<Item = &VolumeClaim> {
        self.claims.iter().filter(|claim| !claim.is_ephemeral)
    }

    /// Returns whether they cannot be examined without other objects.
    pub fn need_objects(&self) -> bool {
        !(self.claims.is_empty() && self.inline.is_empty())
    }
}

/// A PersistentVolumeClaim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Its name, in the namespace of the pod.
    pub name: String,
    /// Whether it is created for the pod and deleted with it.
    pub is_ephemeral: bool,
}

/// A disk that a pod defines inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    id: DiskId,
    read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DiskId {
    Gce(String),
    Aws(String),
    Iscsi(String),
    Rbd {
        monitors: Vec<String>,
        pool: Option<String>,
        image: String,
    },
}

impl Disk {
    pub(super) fn read(volume: &WireVolume) -> Option<Self> {
        let new = |id, read_only: Option<bool>| Self {
            id,
            read_only: read_only == Some(true),
        };
        if let Some(disk) = &volume.gce_persistent_disk {
            Some(new(DiskId::Gce(disk.pd_name.clone()), disk.read_only))
        } else if let Some(disk) = &volume.aws_elastic_block_store {
            // usable by one pod only, even read-only
            Some(new(DiskId::Aws(disk.volume_id.clone()), None))
        } else if let Some(disk) = &volume.iscsi {
            Some(new(DiskId::Iscsi(disk.iqn.clone()), disk.read_only))
        } else {
            let disk = volume.rbd.as_ref()?;
            let id = DiskId::Rbd {
                monitors: disk.monitors.clone(),
                pool: disk.pool.clone(),
                image: disk.image.clone(),
            };
            Some(new(id, disk.read_only))
        }
    }

    /// Returns whether both cannot be used on one node.
    pub fn clashes(&self, other: &Self) -> bool {
        let is_same = match (&self.id, &other.id) {
            (
                DiskId::Rbd {
                    monitors,
                    pool,
                    image,
                },
                DiskId::Rbd {
                    monitors: others,
                    pool: other_pool,
                    image: other_image,
                },
            ) => {
                let mut monitors = monitors.iter();
                pool == other_pool
                    && image == other_image
                    && monitors.any(|monitor| others.contains(monitor))
            }
            (mine, theirs) => mine == theirs,
        };
        is_same && !(self.read_only && other.read_only)
    }
}

/// Reads the volumes of the pod of that name; `None` if none of them restricts its nodes.
pub(super) fn read(pod: &str, spec: &PodSpec) -> Option<Box<Volumes>> {
    let mut found = Volumes::default();
    for volume in spec.volumes.iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            found.claims.push(VolumeClaim {
                name: claim.claim_name.clone(),
                is_ephemeral: false,
            });
        } else if volume.ephemeral.is_some() {
            found.claims.push(VolumeClaim {
                name: format!("{pod}-{}", volume.name),
                is_ephemeral: true,
            });
        } else {
            found.disks.extend(Disk::read(volume));
            found.inline.extend(Source::of_inline(volume));
        }
    }
    (found != Volumes::default()).then(|| Box::new(found))
}

//! What a node attaches for a volume.

use k8s_openapi::api::core::v1::{PersistentVolumeSpec, Volume as WireVolume};

/// In-tree plugins with the CSI driver that serves their volumes on nodes that say so.
pub(super) const IN_TREE: [(&str, &str); 5] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    (PORTWORX, "pxd.portworx.com"),
];
pub(super) const PORTWORX: &str = "kubernetes.io/portworx-volume";
/// What a node attaches for a volume, in a form that is equal for equal volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The in-tree plugin; `None` for volumes of CSI drivers. A CSI driver serves an in-tree volume only where the node says so.
    pub plugin: Option<&'static str>,
    /// The CSI driver.
    pub driver: String,
    /// The driver's name of the volume.
    pub handle: String,
}

impl Source {
    /// Returns the source of the first handle that is given; the handles are in the order of [`IN_TREE`].
    fn in_tree(handles: [Option<&String>; IN_TREE.len()]) -> Option<Self> {
        let (handle, (plugin, driver)) = handles
            .into_iter()
            .zip(IN_TREE)
            .find_map(|(handle, names)| Some((handle?, names)))?;
        Some(Self {
            plugin: Some(plugin),
            driver: (*driver).to_owned(),
            // some names begin with the zone
            handle: handle.rsplit('/').next().unwrap_or(handle).to_owned(),
        })
    }

    /// Returns the source of a volume; `None` if no CSI driver ever serves it.
    pub(super) fn of_volume(spec: &PersistentVolumeSpec) -> Option<Self> {
        if let Some(csi) = &spec.csi {
            return Some(Self {
                plugin: None,
                driver: csi.driver.clone(),
                handle: csi.volume_handle.clone(),
            });
        }
        Self::in_tree([
            spec.aws_elastic_block_store
                .as_ref()
                .map(|disk| &disk.volume_id),
            spec.gce_persistent_disk.as_ref().map(|disk| &disk.pd_name),
            spec.azure_disk.as_ref().map(|disk| &disk.disk_uri),
            spec.cinder.as_ref().map(|disk| &disk.volume_id),
            spec.portworx_volume.as_ref().map(|disk| &disk.volume_id),
        ])
    }

    /// Returns the source of a volume that a pod defines inline; `None` if no CSI driver ever serves it.
    pub fn of_inline(volume: &WireVolume) -> Option<Self> {
        Self::in_tree([
            volume
                .aws_elastic_block_store
                .as_ref()
                .map(|disk| &disk.volume_id),
            volume
                .gce_persistent_disk
                .as_ref()
                .map(|disk| &disk.pd_name),
            volume.azure_disk.as_ref().map(|disk| &disk.disk_uri),
            volume.cinder.as_ref().map(|disk| &disk.volume_id),
            volume.portworx_volume.as_ref().map(|disk| &disk.volume_id),
        ])
    }
}

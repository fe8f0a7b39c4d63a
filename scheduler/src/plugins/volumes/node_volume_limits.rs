//! NodeVolumeLimits: how many volumes of a CSI driver a node can have attached.

use std::collections::{BTreeMap, BTreeSet};

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::plugins::volumes::{Volumes, check_owner, claim_of};
use crate::state::node::{Node, NodeState};
use crate::state::pod::{self, Pod, PodKey};
use crate::state::storage::{Claim, CsiNode, Storage, driver_of, is_counted};
use crate::state::volume_source::Source;

const TOO_MANY: &str = "node(s) exceed max volume count";

/// A volume as the limits count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counted<'a> {
    /// An existing volume, by driver and handle.
    Existing(&'a str, &'a str),
    /// A volume that is yet to be provisioned, by driver and claim.
    Unprovisioned(&'a str, &'a PodKey),
}

impl<'a> Counted<'a> {
    fn driver(self) -> &'a str {
        match self {
            Self::Existing(driver, _) | Self::Unprovisioned(driver, _) => driver,
        }
    }
}

impl Volumes<'_> {
    /// Runs NodeVolumeLimits on a node.
    pub fn limits(&self, node: &Node, state: &NodeState) -> Result<(), Rejection> {
        filter(
            self.storage(),
            (self.pod, self.requested),
            node,
            self.pods_with_volumes(state),
        )
    }
}

/// Checks whether the node can attach the pod's volumes in addition to those of its pods and those already attached.
fn filter<'a>(
    storage: &'a Storage,
    (pod, volumes): (&'a Pod, &'a pod::Volumes),
    node: &Node,
    others: impl Iterator<Item = &'a Pod>,
) -> Result<(), Rejection> {
    let plugin = Plugin::NodeVolumeLimits;
    let drivers = storage.node(&node.name);
    let refuse = |reason: String| Rejection::unresolvable(plugin, reason);
    let mut new = BTreeSet::new();
    for wanted in &volumes.claims {
        let claim = claim_of(storage, pod, &wanted.name).map_err(|reason| {
            refuse(format!(
                "looking up PVC {}/{}: {reason}",
                pod.key.namespace, wanted.name
            ))
        })?;
        if wanted.is_ephemeral {
            check_owner(pod, claim).map_err(refuse)?;
        }
        new.extend(counted(storage, claim, drivers));
    }
    new.extend(inline(volumes, drivers));
    let Some(limits) = drivers.map(|drivers| &drivers.limits) else {
        return Ok(());
    };
    if new.is_empty() || limits.is_empty() {
        return Ok(());
    }
    let mut on_node = BTreeSet::new();
    for other in others {
        let Some(volumes) = &other.volumes else {
            continue;
        };
        for claim in &volumes.claims {
            if let Ok(claim) = claim_of(storage, other, &claim.name) {
                on_node.extend(counted(storage, claim, drivers));
            }
        }
        on_node.extend(inline(volumes, drivers));
    }
    new.retain(|volume| !on_node.contains(volume));
    for attachment in storage.attachments(&node.name) {
        let volume = attachment.volume.as_ref();
        let volume = volume.and_then(|name| storage.volume(name));
        let source = volume.and_then(|volume| volume.source.as_ref());
        if let Some(source) = source.filter(|source| source.plugin.is_none()) {
            on_node.insert(Counted::Existing(&attachment.driver, &source.handle));
        }
    }
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for volume in new {
        *wanted.entry(volume.driver()).or_default() += 1;
    }
    for (driver, count) in wanted {
        let Some(limit) = limits.get(driver) else {
            continue;
        };
        let attached = on_node.iter().filter(|it| it.driver() == driver).count();
        if (attached + count) as i64 > *limit {
            return Err(Rejection {
                detail: Some(format!(
                    "{attached} of {limit} volumes of {driver} are attached, {count} more are wanted"
                )),
                ..Rejection::new(plugin, TOO_MANY)
            });
        }
    }
    Ok(())
}

/// Returns the volume of a claim, if a CSI driver attaches it to the node.
fn counted<'a>(
    storage: &'a Storage,
    claim: &'a Claim,
    node: Option<&CsiNode>,
) -> Option<Counted<'a>> {
    let volume = claim.volume.as_ref();
    if let Some(volume) = volume.and_then(|name| storage.volume(name)) {
        return existing(volume.source.as_ref()?, node);
    }
    let class = storage.class(&claim.class)?;
    let driver = driver_of(&class.provisioner, node)?;
    Some(Counted::Unprovisioned(driver, &claim.key))
}

fn inline<'a>(
    volumes: &'a pod::Volumes,
    node: Option<&CsiNode>,
) -> impl Iterator<Item = Counted<'a>> {
    let volumes = volumes.inline.iter();
    volumes.filter_map(move |source| existing(source, node))
}

fn existing<'a>(source: &'a Source, node: Option<&CsiNode>) -> Option<Counted<'a>> {
    let is_served = source.plugin.is_none_or(|plugin| is_counted(plugin, node));
    is_served.then_some(Counted::Existing(&source.driver, &source.handle))
}

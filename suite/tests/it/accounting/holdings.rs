//! Who holds what on a node: each entry of the state files with its owner's standing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::ResourceExt;

use super::machine::NodeFacts;
use super::state::NodeState;

/// Whether an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// An app container or sidecar of a pod that is not over: it counts.
    Active,
    /// A plain init container that has ended, of a pod that is not over: the kubelet keeps its CPUs and devices until the pod is over, but
    /// does not tell about them (kubelet-node.md 6.6, 10), so they show as available.
    FinishedInit,
    /// A container of a pod that is over or gone: the kubelet drops it when it needs to know what is free (kubelet-node.md 9).
    Stale,
}

/// What one container holds of one resource in one zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holding {
    /// Whether it counts.
    pub(crate) standing: Standing,
    /// Resource.
    pub(crate) resource: String,
    /// Id of the zone.
    pub(crate) zone: usize,
    /// `pod/container`.
    pub(crate) owner: String,
    /// Units or bytes.
    pub(crate) amount: i64,
    /// Which CPUs or devices; none for memory.
    pub(crate) ids: Vec<String>,
    /// All zones of memory that lies on several: then this is one of as many holdings, each of the whole amount.
    pub(crate) spans: Vec<usize>,
}

impl Holding {
    /// What it is, for lists by name.
    pub(crate) fn by_name(&self) -> String {
        let what = if self.ids.is_empty() {
            self.amount.to_string()
        } else {
            self.ids.join(",")
        };
        let zones: Vec<String> = if self.spans.is_empty() {
            vec![format!("node-{}", self.zone)]
        } else {
            self.spans
                .iter()
                .map(|zone| format!("node-{zone}"))
                .collect()
        };
        format!(
            "{}: {} {what} in {}",
            self.owner,
            self.resource,
            zones.join("+")
        )
    }

    /// Whether this is the one of the holdings of an entry by which the entry is counted once.
    pub(crate) fn is_first(&self) -> bool {
        self.spans.first().is_none_or(|first| *first == self.zone)
    }
}

impl fmt::Display for Holding {
    /// As a term of a sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.amount, self.owner)?;
        if !self.ids.is_empty() {
            write!(f, ": {}", self.ids.join(","))?;
        }
        write!(f, ")")
    }
}

/// The pods of the API, and the names of all that ever were.
#[derive(Debug)]
pub(crate) struct Pods<'a> {
    /// Pods that exist, by UID.
    pub(crate) existing: BTreeMap<String, &'a Pod>,
    /// Names of all pods that were created, by UID.
    pub(crate) names: &'a BTreeMap<String, String>,
}

impl<'a> Pods<'a> {
    /// From the pods that the API lists.
    pub(crate) fn new(list: &'a [Pod], names: &'a BTreeMap<String, String>) -> Self {
        Self {
            existing: list
                .iter()
                .filter_map(|pod| Some((pod.uid()?, pod)))
                .collect(),
            names,
        }
    }

    /// Name of a pod, for people.
    fn name(&self, uid: &str) -> String {
        let listed = self.existing.get(uid).map(|pod| pod.name_any());
        listed
            .or_else(|| self.names.get(uid).cloned())
            .unwrap_or_else(|| format!("unknown pod {uid}"))
    }

    /// Whether an entry of this container counts.
    fn standing(&self, uid: &str, container: &str) -> Result<Standing, String> {
        let Some(pod) = self.existing.get(uid).filter(|pod| !is_over(pod)) else {
            return Ok(Standing::Stale);
        };
        let spec = pod.spec.clone().unwrap_or_default();
        if spec.containers.iter().any(|one| one.name == container) {
            return Ok(Standing::Active);
        }
        let Some(init) = spec
            .init_containers
            .iter()
            .flatten()
            .find(|one| one.name == container)
        else {
            return Err(format!("{} has no container {container}", pod.name_any()));
        };
        if is_sidecar(init) {
            Ok(Standing::Active)
        } else if has_ended(pod, container) {
            Ok(Standing::FinishedInit)
        } else {
            Err(format!(
                "init container {container} of {} still runs",
                pod.name_any()
            ))
        }
    }

    /// Finished plain init containers of pods that are not over and that asked for memory of their own, as `pod/container`.
    pub(crate) fn finished_inits_with_memory(&self, node: &str) -> BTreeSet<String> {
        let on_node = |pod: &&&Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
        };
        let guaranteed = |pod: &&&Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.qos_class.as_deref())
                == Some("Guaranteed")
        };
        let live = self.existing.values().filter(|pod| !is_over(pod));
        live.filter(on_node)
            .filter(guaranteed)
            .flat_map(|pod| {
                let init = pod
                    .spec
                    .iter()
                    .flat_map(|spec| spec.init_containers.iter().flatten());
                init.filter(|one| !is_sidecar(one) && has_ended(pod, &one.name))
                    .map(|one| format!("{}/{}", pod.name_any(), one.name))
            })
            .collect()
    }
}

/// Whether a pod has come to its end: nothing of it counts any more.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn has_ended(pod: &Pod, container: &str) -> bool {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.init_container_statuses.iter().flatten());
    let ended = |status: &ContainerStatus| {
        status
            .state
            .as_ref()
            .is_some_and(|state| state.terminated.is_some())
    };
    statuses
        .into_iter()
        .any(|status| status.name == container && ended(status))
}

/// CPUs or devices of one container: zone and id.
type Ids = BTreeSet<(usize, String)>;

/// All that is held on a node. The error says which entry makes no sense (yet).
pub(crate) fn read(
    node: &NodeFacts,
    state: &NodeState,
    pods: &Pods<'_>,
) -> Result<Vec<Holding>, String> {
    // by resource, pod and container
    let mut ids: BTreeMap<(String, String), BTreeMap<String, Ids>> = BTreeMap::new();
    for (uid, containers) in &state.cpus.entries {
        for (container, list) in containers {
            let zoned: Result<Ids, String> = list
                .0
                .iter()
                .map(|&cpu| {
                    let zone = node.zone_of_cpu(cpu).ok_or_else(|| {
                        format!(
                            "{}/{container} has CPU {cpu}, which the machine has not",
                            pods.name(uid)
                        )
                    })?;
                    Ok((zone, cpu.to_string()))
                })
                .collect();
            ids.entry(("cpu".to_owned(), uid.clone()))
                .or_default()
                .insert(container.clone(), zoned?);
        }
    }
    for entry in &state.devices {
        let all = ids
            .entry((entry.resource.clone(), entry.pod.clone()))
            .or_default();
        let zoned = all.entry(entry.container.clone()).or_default();
        for (&numa, devices) in &entry.ids {
            let zone = usize::try_from(numa).map_err(|_| {
                format!(
                    "{}/{} has {} without a zone",
                    pods.name(&entry.pod),
                    entry.container,
                    entry.resource
                )
            })?;
            zoned.extend(devices.iter().map(|id| (zone, id.clone())));
        }
    }
    let mut holdings = Vec::new();
    for ((resource, uid), containers) in &ids {
        exclusive(&mut holdings, pods, resource, uid, containers)?;
    }
    for (uid, containers) in &state.memory.entries {
        for (container, blocks) in containers {
            let owner = format!("{}/{container}", pods.name(uid));
            for block in blocks.iter().filter(|block| block.size > 0) {
                let zones = &block.numa_affinity;
                if zones.is_empty() || (zones.len() > 1 && !node.spans_zones()) {
                    return Err(format!(
                        "{owner} has {} over zones {zones:?}, which {} does not allow",
                        block.resource, node.policy
                    ));
                }
                let standing = pods.standing(uid, container)?;
                // a block of several zones is charged in full to each (rte.md 4.4)
                holdings.extend(zones.iter().map(|&zone| Holding {
                    standing,
                    resource: block.resource.clone(),
                    zone,
                    owner: owner.clone(),
                    amount: block.size,
                    ids: Vec::new(),
                    spans: if zones.len() > 1 {
                        zones.clone()
                    } else {
                        Vec::new()
                    },
                }));
            }
        }
    }
    holdings.sort();
    Ok(holdings)
}

/// Holdings of one pod of a resource whose units have names. An app container may have got what an init container of its pod had: then it
/// is the app container's.
fn exclusive(
    holdings: &mut Vec<Holding>,
    pods: &Pods<'_>,
    resource: &str,
    uid: &str,
    containers: &BTreeMap<String, Ids>,
) -> Result<(), String> {
    let mut ordered = Vec::new();
    for (container, ids) in containers {
        ordered.push((pods.standing(uid, container)?, container, ids));
    }
    // what counts comes first; the names of app containers come before those of init containers
    ordered.sort();
    let mut seen = Ids::new();
    for (standing, container, ids) in ordered {
        let owner = format!("{}/{container}", pods.name(uid));
        let mut zones: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (zone, id) in ids {
            if seen.insert((*zone, id.clone())) {
                zones.entry(*zone).or_default().push(id.clone());
            } else if standing == Standing::Active {
                return Err(format!(
                    "{owner} has {resource} {id}, and so has another container of its pod"
                ));
            }
        }
        for (zone, ids) in zones {
            holdings.push(Holding {
                standing,
                resource: resource.to_owned(),
                zone,
                owner: owner.clone(),
                amount: ids.len() as i64,
                ids,
                spans: Vec::new(),
            });
        }
    }
    Ok(())
}

//! What is left in the zones of every node, computed from the last NRT and the pods placed since (scheduler.md 5).
//!
//! An NRT publishes what was left when its exporter looked, and the fingerprint of the pods that it accounts for. Between a placement
//! and the NRT that shows it, the pod must be charged here. So each node keeps the newest NRT whose pod set is understood (its *base*),
//! and which of the node's pods that base accounts for. Every other pod that lives is charged to *all* zones that it may be on. If the
//! kubelet's managers are known, these are the zones where the base leaves room for it; otherwise they are all zones. Every NRT or pod
//! event recomputes the result at once: nothing polls.
//!
//! The pod set of an NRT may differ from the one known here: a pod may not be admitted yet, or be gone already. So the cache searches
//! for the fingerprint among the sets that differ from the known set in those few pods. A set that is found says exactly which pods the
//! amounts contain. An NRT whose set is not found changes only the kubelet's settings, and the base stays until a later NRT is understood.
//!
//! A fingerprint covers only the names of pods. So a pod with the name of a recent one is accounted for only by NRTs that arrive after
//! it was seen running.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use nrt::decode::NodeTopology;
use nrt::fingerprint::Method;
use scheduler_config::args::{
    ForeignPodsDetect, NodeResourceTopologyMatchArgs, PreemptionMode, ResyncMethod,
};
use tokio::time::Instant;
use topology::fit::FreeZone;
use topology::mask::{NumaMask, ZoneId};
use topology::policy::ManagerConfig;
use topology::request::Pod as Request;
use topology::resource::{ResourceName, Resources};
use topology::zone::{Amounts, Zone};

use crate::state::pod::{Phase, Pod, PodKey};
use crate::state::touched::Touched;
use charge::{Charge, Unadmitted, is_zoned, total_charge, unlisted};
use search::{Candidate, fingerprint_of, search};
use simulate::ZoneAmounts;

mod charge;
mod search;
pub mod simulate;

/// How many pods are remembered for a node that are gone but may still be in an NRT.
const MAX_DEPARTED: usize = 32;
/// The longest time for which a pod that was deleted without waiting for its kubelet still holds its resources.
const MAX_CHARGE_AFTER_DELETION: Duration = Duration::from_secs(3);

/// How much the cache accounts for (scheduler.md 5.1, 5.2, 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// NRTs are used as they are.
    Passthrough,
    /// NRTs are used as they are, but a node is closed from reservation to binding.
    DiscardReserved,
    /// Pods are charged until an NRT accounts for them.
    OverReserve,
}

/// The configuration of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much it accounts for.
    pub mode: Mode,
    /// Which pods of other schedulers close a node.
    pub foreign: ForeignPodsDetect,
    /// Which pods a fingerprint covers.
    pub method: ResyncMethod,
    /// Names of our profiles: pods of any other scheduler are foreign.
    pub profiles: BTreeSet<String>,
    /// Record the comparisons, for [`Cache::take_checks`].
    pub trace: bool,
    /// Read where containers are, so that preemption knows which zones become free (`preemptionMode: Enabled`).
    pub placement: bool,
}

impl Settings {
    /// Creates the settings from the arguments of the plugin.
    pub fn new(args: &NodeResourceTopologyMatchArgs, profiles: BTreeSet<String>) -> Self {
        let mode = if args.discard_reserved_nodes {
            Mode::DiscardReserved
        } else if args.cache_resync_period_seconds > 0 {
            Mode::OverReserve
        } else {
            Mode::Passthrough
        };
        Self {
            mode,
            foreign: args.cache.foreign_pods_detect,
            method: args.cache.resync_method,
            profiles,
            trace: false,
            placement: mode == Mode::OverReserve && args.preemption_mode == PreemptionMode::Enabled,
        }
    }
}

/// A comparison of a published fingerprint with the known pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The node.
    pub node: String,
    /// The fingerprint in its NRT.
    pub expected: String,
    /// The computed fingerprint: of the set that explains the NRT, or if there is none, of all pods that should be in it.
    pub computed: String,
    /// The pods of that set.
    pub pods: Vec<PodKey>,
}

/// What filters and scores may read of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// The node has no NRT.
    Absent,
    /// The amounts cannot be trusted at the moment.
    Stale,
    /// The amounts, after all charges.
    Fresh(Fresh),
}

/// Usable amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fresh {
    /// The kubelet's settings.
    pub config: ManagerConfig,
    /// What is left, in the order of the NRT.
    pub free: Vec<FreeZone>,
    /// The zones with their distances, in the same order.
    pub zones: Vec<Zone>,
    /// Pods that may be admitted after the next one, if there are any.
    unadmitted: Option<Unadmitted>,
}

impl Fresh {
    /// Creates the amounts of a node to which no pod is on its way.
    pub fn new(config: ManagerConfig, free: Vec<FreeZone>, zones: Vec<Zone>) -> Self {
        Self {
            config,
            free,
            zones,
            unadmitted: None,
        }
    }
}

/// Numbers for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of nodes with an NRT.
    pub nodes: usize,
    /// Number of these nodes that are closed.
    pub stale: usize,
    /// Number of these nodes whose newest NRT has a pod set that is not understood.
    pub unmatched: usize,
    /// Number of pods charged to zones in addition to what NRTs contain.
    pub charged: usize,
}

/// The topology of every node.
#[derive(Debug)]
pub struct Cache {
    settings: Settings,
    /// Looked up for every node at every attempt. Attackers cannot choose node names, and the hash has a seed.
    entries: HashMap<String, Entry, RandomState>,
    /// Number of NRTs received. It orders events.
    received: u64,
    checks: Vec<Check>,
    next_expiry: Option<Instant>,
    touched: Touched,
}

#[derive(Debug, Default)]
struct Entry {
    latest: Option<Numbered>,
    base: Option<Numbered>,
    /// Whether the pod set of `base` is known.
    understood: bool,
    pods: BTreeMap<PodKey, Tracked>,
    /// What the pods that `base` accounts for hold in which zone, if the base publishes it.
    held_by_pod: simulate::HeldByPod,
    /// What pods that ended and were deleted held by zone, as long as the base still contains it.
    released_by_ended: Vec<ZoneAmounts>,
    /// Pods that are gone but may still be in an NRT, oldest first.
    departed: Vec<DepartedPod>,
    /// Requests of pods that were deleted while they were charged, and until when they remain charged at most.
    charged_after_deletion: Vec<(Arc<Request>, Instant)>,
    /// Pods between reservation and binding.
    reserved: BTreeSet<PodKey>,
    view: Option<View>,
}

#[derive(Clone, Debug)]
struct Numbered {
    topology: Arc<NodeTopology>,
    number: u64,
}

impl Numbered {
    /// Returns a copy to which the amounts held in these zones are added, at most up to what is allocatable.
    fn with_amounts_added<'a>(&self, held: impl Iterator<Item = &'a ZoneAmounts>) -> Self {
        let mut more = self.clone();
        for (id, amounts) in held.flatten() {
            let zones = &mut Arc::make_mut(&mut more.topology).zones;
            let Some(zone) = zones.iter_mut().find(|zone| zone.id == *id) else {
                continue;
            };
            for (name, amount) in amounts.iter() {
                if let Some(resource) = zone.resources.get_mut(name) {
                    let left = resource.available.saturating_add(amount);
                    resource.available = left.min(resource.allocatable).max(resource.available);
                }
            }
        }
        more
    }
}

/// A pod that is gone.
#[derive(Debug)]
struct DepartedPod {
    key: PodKey,
    hash: u64,
    request: Arc<Request>,
    /// Its kubelet reported before the deletion that it ended, so what it held is free.
    ended: bool,
    /// The base contains what it held, and it is unknown when or where that becomes free.
    is_held: bool,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
struct Tracked {
    uid: String,
    hash: u64,
    foreign: bool,
    phase: Phase,
    /// The kubelet is known to have admitted or refused the pod.
    seen_by_kubelet: bool,
    deleting: bool,
    request: Arc<Request>,
    /// The base contains what this pod holds.
    accounted: bool,
    /// Only NRTs with at least this number can account for it.
    not_before: u64,
}

impl Tracked {
    fn lives(&self) -> bool {
        self.phase != Phase::Terminal
    }
}

impl Cache {
    /// Creates an empty cache.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            entries: HashMap::default(),
            received: 0,
            checks: Vec::new(),
            next_expiry: None,
            touched: Touched::default(),
        }
    }

    /// Returns what is known of a node.
    pub fn view(&self, node: &str) -> &View {
        self.entries
            .get(node)
            .and_then(|entry| entry.view.as_ref())
            .unwrap_or(&View::Absent)
    }

    /// Returns the nodes whose view changed since the last call.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.take()
    }

    /// Returns whether the newest NRT of a node is in use and understood. Nodes that the cache does not know are settled.
    pub fn is_settled(&self, node: &str) -> bool {
        self.entries.get(node).is_none_or(Entry::is_settled)
    }

    /// Adds or updates an NRT. Returns whether its content or the view changed.
    pub fn apply_nrt(&mut self, node: &str, topology: NodeTopology) -> bool {
        self.received += 1;
        let number = self.received;
        let mut differs = true;
        let changed = self.change(node, |entry| {
            differs = entry
                .latest
                .as_ref()
                .is_none_or(|latest| *latest.topology != topology);
            entry.latest = Some(Numbered {
                topology: Arc::new(topology),
                number,
            });
        });
        changed || differs
    }

    /// Removes an NRT. Returns whether the view changed.
    pub fn delete_nrt(&mut self, node: &str) -> bool {
        self.change(node, |entry| {
            (entry.latest, entry.base, entry.understood) = (None, None, false);
            entry.held_by_pod = simulate::HeldByPod::default();
            entry.released_by_ended.clear();
            for pod in entry.pods.values_mut() {
                pod.accounted = false;
            }
        })
    }

    /// Adds or updates a pod that is on a node or assumed there. Returns whether the view changed.
    pub fn apply_pod(&mut self, node: &str, pod: &Pod) -> bool {
        let foreign = !self.settings.profiles.contains(&pod.scheduler);
        let received = self.received;
        self.change(node, |entry| entry.apply_pod(pod, foreign, received))
    }

    /// Removes a pod that was deleted at `now`. Returns whether the view changed.
    pub fn delete_pod(&mut self, node: &str, key: &PodKey, now: Instant) -> bool {
        let until = now + MAX_CHARGE_AFTER_DELETION;
        let mut stays_charged = false;
        let changed = self.change(node, |entry| {
            entry.reserved.remove(key);
            let Some(pod) = entry.pods.remove(key) else {
                return;
            };
            if pod.lives() && !pod.accounted && entry.latest.is_some() {
                entry
                    .charged_after_deletion
                    .push((Arc::clone(&pod.request), until));
                stays_charged = true;
            }
            entry.remember(key, pod);
        });
        if stays_charged {
            self.next_expiry = Some(self.next_expiry.map_or(until, |next| next.min(until)));
        }
        changed
    }

    /// Stops charging deleted pods whose time is over. Returns whether any view changed.
    pub fn expire(&mut self, now: Instant) -> bool {
        if self.next_expiry.is_none_or(|next| now < next) {
            return false;
        }
        let due = |entry: &Entry| {
            entry
                .charged_after_deletion
                .iter()
                .any(|(_, until)| *until <= now)
        };
        let nodes: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, entry)| due(entry))
            .map(|(node, _)| node.clone())
            .collect();
        let mut changed = false;
        for node in nodes {
            changed |= self.change(&node, |entry| {
                entry
                    .charged_after_deletion
                    .retain(|(_, until)| *until > now);
            });
        }
        let left = self
            .entries
            .values()
            .flat_map(|entry| &entry.charged_after_deletion);
        self.next_expiry = left.map(|(_, until)| *until).min();
        changed
    }

    /// Returns when [`Cache::expire`] has something to do next.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry
    }

    /// Returns the comparisons since the last call, oldest first. Empty unless they are traced.
    pub fn take_checks(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.checks)
    }

    /// Records that a pod is about to be bound to a node (scheduler.md 5.2, 5.3).
    pub fn reserve(&mut self, node: &str, pod: &Pod) {
        let foreign = !self.settings.profiles.contains(&pod.scheduler);
        let received = self.received;
        self.change(node, |entry| {
            entry.reserved.insert(pod.key.clone());
            entry.apply_pod(pod, foreign, received);
        });
    }

    /// Records that binding succeeded: a node that was closed for it opens again. Returns whether the view changed.
    pub fn bound(&mut self, node: &str, key: &PodKey) -> bool {
        self.change(node, |entry| {
            entry.reserved.remove(key);
        })
    }

    /// Records that binding failed and removes the pod from the node. Returns whether the view changed.
    pub fn unreserve(&mut self, node: &str, key: &PodKey) -> bool {
        self.change(node, |entry| {
            entry.reserved.remove(key);
            entry.pods.remove(key);
        })
    }

    /// Returns the numbers for the metrics.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for entry in self.entries.values() {
            let Some(latest) = &entry.latest else {
                continue;
            };
            let zoned = |name: &ResourceName| is_zoned(&latest.topology.zones, name);
            stats.nodes += 1;
            stats.stale += usize::from(entry.view == Some(View::Stale));
            stats.unmatched += usize::from(!entry.is_settled());
            stats.charged += entry
                .charged()
                .filter(|pod| pod.request.is_exclusive(zoned))
                .count();
        }
        stats
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut Entry)) -> bool {
        let entry = self.entries.entry(node.to_owned()).or_default();
        change(entry);
        self.checks.extend(entry.resync(node, &self.settings));
        let view = entry.compute(&self.settings);
        let changed = entry.view.as_ref().unwrap_or(&View::Absent) != &view;
        entry.view = Some(view);
        if changed {
            self.touched.note(node);
        }
        if entry.latest.is_none()
            && entry.pods.is_empty()
            && entry.reserved.is_empty()
            && entry.charged_after_deletion.is_empty()
        {
            self.entries.remove(node);
        }
        changed
    }
}

impl Entry {
    fn is_settled(&self) -> bool {
        let number =
            |numbered: &Option<Numbered>| numbered.as_ref().map(|numbered| numbered.number);
        self.understood && number(&self.base) == number(&self.latest)
    }

    fn apply_pod(&mut self, pod: &Pod, foreign: bool, received: u64) {
        let after_now = |phase| {
            if phase == Phase::Pending {
                u64::MAX
            } else {
                received + 1
            }
        };
        if let Some(known) = self.pods.get_mut(&pod.key)
            && known.uid == pod.uid
        {
            if known.not_before == u64::MAX {
                known.not_before = after_now(pod.phase);
            }
            (known.phase, known.deleting, known.foreign) = (pod.phase, pod.deleting, foreign);
            known.seen_by_kubelet |= is_seen_by_kubelet(pod);
            known.request = Arc::clone(&pod.request);
            return;
        }
        if let Some(predecessor) = self.pods.remove(&pod.key) {
            self.remember(&pod.key, predecessor);
        }
        let namesake = self
            .departed
            .iter()
            .any(|departed| departed.hash == pod.hash);
        self.pods.insert(
            pod.key.clone(),
            Tracked {
                uid: pod.uid.clone(),
                hash: pod.hash,
                foreign,
                phase: pod.phase,
                seen_by_kubelet: is_seen_by_kubelet(pod),
                deleting: pod.deleting,
                request: Arc::clone(&pod.request),
                accounted: false,
                not_before: if namesake { after_now(pod.phase) } else { 0 },
            },
        );
    }

    /// Remembers a pod that is gone, because NRTs may contain it for a while.
    fn remember(&mut self, key: &PodKey, pod: Tracked) {
        if self.latest.is_none() {
            return;
        }
        let ended = !pod.lives();
        let zones = if pod.accounted && ended {
            self.held_by_pod.0.remove(key)
        } else {
            None
        };
        let is_held = pod.accounted && zones.is_none();
        self.released_by_ended.extend(zones);
        if self.departed.len() == MAX_DEPARTED {
            self.departed.remove(0);
        }
        self.departed.push(DepartedPod {
            key: key.clone(),
            hash: pod.hash,
            request: pod.request,
            ended,
            is_held,
        });
    }

    /// Adopts the newest NRT as the base if it is known which pods it accounts for.
    fn resync(&mut self, node: &str, settings: &Settings) -> Option<Check> {
        let latest = self.latest.as_ref()?;
        if self.is_settled() {
            return None;
        }
        if settings.mode != Mode::OverReserve {
            self.base = Some(latest.clone());
            self.understood = true;
            return None;
        }
        let Some(published) = latest.topology.fingerprint.clone() else {
            self.accept_without_fingerprint();
            return None;
        };
        let (keys, candidates) = self.candidates(settings.fingerprint_method(published.method));
        let found = search(&candidates, &published.text);
        let understood = found.is_some();
        let set = found.unwrap_or_else(|| {
            candidates
                .iter()
                .map(|candidate| candidate.certain || candidate.likely)
                .collect()
        });
        let check = settings.trace.then(|| Check {
            node: node.to_owned(),
            expected: published.text.clone(),
            computed: if understood {
                published.text.clone()
            } else {
                fingerprint_of(&candidates, &set)
            },
            pods: keys
                .iter()
                .zip(&set)
                .filter(|(_, included)| **included)
                .map(|(key, _)| key.clone())
                .collect(),
        });
        if understood {
            tracing::debug!(node, published = %published.text, pods = keys.len(), "Flushing");
            self.flush(&keys, &set);
            self.read_placement();
        } else {
            tracing::debug!(node, published = %published.text, pods = keys.len(), "NodeTopology podset fingerprint mismatch");
            // Until an NRT is understood, the newest amounts are the best available; every pod is charged in addition.
            if !self.understood {
                self.base.clone_from(&self.latest);
            }
        }
        check
    }

    /// Returns the pods that the newest NRT may cover, by key, followed by those that are gone.
    fn candidates(&mut self, method: Method) -> (Vec<PodKey>, Vec<Candidate>) {
        let Some(Numbered { topology, number }) = &self.latest else {
            return Default::default();
        };
        let relevant = |pod: &Tracked| match method {
            Method::All => true,
            Method::WithExclusiveResources => pod
                .request
                .is_exclusive(|name| is_zoned(&topology.zones, name)),
        };
        // Once an NRT may mean a pod, it no longer means a predecessor of the same name.
        let namesakes = self
            .pods
            .values()
            .filter(|pod| pod.not_before != 0 && pod.not_before <= *number);
        let meant: Vec<u64> = namesakes.map(|pod| pod.hash).collect();
        self.departed.retain(|pod| !meant.contains(&pod.hash));
        let (keys, mut candidates): (Vec<PodKey>, Vec<Candidate>) = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.not_before <= *number && relevant(pod))
            .map(|(key, pod)| {
                let candidate = Candidate {
                    hash: pod.hash,
                    certain: pod.accounted && pod.lives() && !pod.deleting,
                    likely: pod.lives(),
                    running: pod.phase == Phase::Running && !pod.deleting,
                };
                (key.clone(), candidate)
            })
            .unzip();
        candidates.extend(self.departed.iter().map(|pod| Candidate {
            hash: pod.hash,
            certain: false,
            likely: false,
            running: false,
        }));
        (keys, candidates)
    }

    /// Makes the newest NRT the base. It accounts for the pods of `set` and no others.
    fn flush(&mut self, keys: &[PodKey], set: &[bool]) {
        let (in_pods, in_departed) = set.split_at(keys.len());
        for pod in self.pods.values_mut() {
            pod.accounted = false;
        }
        for (key, included) in keys.iter().zip(in_pods) {
            if let Some(pod) = self.pods.get_mut(key) {
                pod.accounted = *included;
                // The pod ended, so no later NRT contains it. Jobs leave such pods behind by the hundreds.
                if !included && !pod.lives() {
                    pod.not_before = u64::MAX;
                }
            }
        }
        let mut kept = in_departed.iter().copied();
        self.departed.retain(|_| kept.next().unwrap_or(false));
        for pod in &mut self.departed {
            pod.is_held = true;
        }
        self.charged_after_deletion.clear();
        self.released_by_ended.clear();
        self.base.clone_from(&self.latest);
        self.understood = true;
    }

    /// Adopts an NRT without a fingerprint, whose pods are unknown. The first NRT is assumed to contain every known pod. A later one is
    /// assumed to contain the pods that are no longer pending when it arrives.
    fn accept_without_fingerprint(&mut self) {
        let first = self.base.is_none();
        for pod in self.pods.values_mut() {
            pod.accounted |= first || pod.phase != Phase::Pending;
        }
        self.departed.clear();
        self.charged_after_deletion.clear();
        self.held_by_pod = simulate::HeldByPod::default();
        self.released_by_ended.clear();
        self.base.clone_from(&self.latest);
        self.understood = true;
    }

    /// Iterates over the pods that live and are not in the base.
    fn charged(&self) -> impl Iterator<Item = &Tracked> {
        self.pods
            .values()
            .filter(|pod| !pod.accounted && pod.lives())
    }

    fn compute(&self, settings: &Settings) -> View {
        match &self.base {
            Some(base) => self.compute_from(settings, &self.with_released(base), &[]),
            None => View::Absent,
        }
    }

    /// Returns the base plus what ended pods held, where the NRT published the zone. A kubelet reports that a pod ended once its containers
    /// have, and from then on gives what they held to others, so there is no need to wait for an exporter.
    fn with_released(&self, base: &Numbered) -> Numbered {
        let ended = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.accounted && !pod.lives())
            .filter_map(|(key, _)| self.held_by_pod.0.get(key));
        base.with_amounts_added(ended.chain(&self.released_by_ended))
    }

    /// Returns the view for this base, with `added` charged in addition.
    fn compute_from(&self, settings: &Settings, base: &Numbered, added: &[Arc<Request>]) -> View {
        let Some(latest) = &self.latest else {
            return View::Absent;
        };
        if settings.mode == Mode::DiscardReserved && !self.reserved.is_empty() {
            return View::Stale;
        }
        let (zones, config) = (&latest.topology.zones, &latest.topology.config);
        let mut charges = Vec::new();
        if settings.mode == Mode::OverReserve {
            for (key, pod) in self.pods.iter().filter(|(_, pod)| pod.lives()) {
                if pod.accounted {
                    let left = unlisted(config, &pod.request, pod.phase);
                    charges.push(Charge::everywhere(left));
                    continue;
                }
                if pod.foreign && self.closes_node(pod, settings, &latest.topology) {
                    return View::Stale;
                }
                charges.push(Charge {
                    request: Some(Arc::clone(&pod.request)),
                    amounts: total_charge(zones, config, &pod.request),
                    unadmitted: (!pod.seen_by_kubelet).then(|| key.clone()),
                });
            }
            let others = self
                .charged_after_deletion
                .iter()
                .map(|(request, _)| request);
            let others = others.chain(added);
            charges.extend(
                others.map(|request| Charge::everywhere(total_charge(zones, config, request))),
            );
            charges.retain(|charge| !charge.amounts.is_zero());
        }
        let bounds = self.bounds(base, &latest.topology);
        let charges_by_zone = charge::charges_by_zone(config) && self.understood;
        let masks: Vec<NumaMask> = charges
            .iter()
            .map(|charge| match &charge.request {
                Some(request) if charges_by_zone => {
                    let most = bounds.iter().map(|(zone, most)| (*zone, most));
                    charge::possible_zones(zones, config, request, most)
                }
                _ => NumaMask::ALL,
            })
            .collect();
        let before = || by_zone(&base.topology, |amounts| amounts.available);
        let free = before()
            .zip(bounds)
            .map(|((id, mut available), bound)| {
                for (charge, mask) in charges.iter().zip(&masks) {
                    if mask.contains(id) {
                        available.subtract_listed(&charge.amounts);
                    }
                }
                let is_known = config.managers.is_none() || bound.1 == available;
                FreeZone {
                    id,
                    available,
                    at_most: (!is_known).then_some(bound.1),
                }
            })
            .collect();
        // where everything is charged to all zones, there is room for all pods in any order
        let unadmitted = charges_by_zone.then(|| Unadmitted::new(before(), &charges, &masks));
        View::Fresh(Fresh {
            unadmitted: unadmitted.flatten(),
            ..Fresh::new(*config, free, base.topology.zones.clone())
        })
    }

    /// Returns the most that each zone may have left: the base plus what terminating pods hold there, or all that is allocatable where the
    /// latter is not known.
    fn bounds(&self, base: &Numbered, latest: &NodeTopology) -> Vec<(ZoneId, Resources)> {
        let follows = latest.config.managers.is_some();
        let has_unknown_releases = follows && self.has_unknown_releases(latest);
        let going = self
            .pods
            .iter()
            .filter(|(_, pod)| follows && pod.accounted && pod.lives() && pod.deleting)
            .filter_map(|(key, _)| self.held_by_pod.0.get(key));
        let most = base.with_amounts_added(going);
        let zones = by_zone(&most.topology, |amounts| {
            if has_unknown_releases {
                amounts.allocatable
            } else {
                amounts.available
            }
        });
        zones.collect()
    }

    /// Returns whether a pod in the base is gone or terminating and it is unknown where it holds resources. Then every zone may have more
    /// room than the base says.
    fn has_unknown_releases(&self, latest: &NodeTopology) -> bool {
        let holds =
            |request: &Request| !total_charge(&latest.zones, &latest.config, request).is_zero();
        let goes = |(key, pod): (&PodKey, &Tracked)| {
            pod.accounted
                && (pod.deleting || !pod.lives())
                && !self.held_by_pod.0.contains_key(key)
                && holds(&pod.request)
        };
        let is_held = |pod: &DepartedPod| pod.is_held && holds(&pod.request);
        !self.understood || self.departed.iter().any(is_held) || self.pods.iter().any(goes)
    }

    /// Returns whether a foreign pod that no NRT accounts for makes the amounts unusable.
    fn closes_node(&self, pod: &Tracked, settings: &Settings, topology: &NodeTopology) -> bool {
        let exclusive = || {
            pod.request
                .is_exclusive(|name| is_zoned(&topology.zones, name))
        };
        match settings.foreign {
            ForeignPodsDetect::None => false,
            ForeignPodsDetect::OnlyExclusiveResources => exclusive(),
            // A settled node has accounted for all that its fingerprint covers. What the fingerprint does not cover takes nothing.
            ForeignPodsDetect::All => {
                !self.understood || exclusive() || fingerprint_covers_all(settings, topology)
            }
        }
    }
}

impl Settings {
    fn fingerprint_method(&self, published: Method) -> Method {
        match self.method {
            ResyncMethod::Autodetect => published,
            ResyncMethod::All => Method::All,
            ResyncMethod::OnlyExclusiveResources => Method::WithExclusiveResources,
        }
    }
}

/// Iterates over the zones with one of the amounts of each resource.
fn by_zone(
    topology: &NodeTopology,
    one: impl Fn(&Amounts) -> i64 + Copy,
) -> impl Iterator<Item = (ZoneId, Resources)> {
    topology.zones.iter().map(move |zone| {
        let amounts = zone.resources.iter();
        let ones = amounts.map(|(name, amounts)| (name.clone(), one(amounts)));
        (zone.id, ones.collect())
    })
}

fn fingerprint_covers_all(settings: &Settings, topology: &NodeTopology) -> bool {
    topology
        .fingerprint
        .as_ref()
        .is_some_and(|published| settings.fingerprint_method(published.method) == Method::All)
}

/// Returns whether the kubelet has seen a pod: the kubelet's first status sets the start time.
fn is_seen_by_kubelet(pod: &Pod) -> bool {
    pod.started.is_some() || pod.phase != Phase::Pending
}

#[cfg(test)]
mod tests;

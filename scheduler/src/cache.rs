//! What is left in the zones of every node, when the last NRT and the pods placed since are put together (scheduler.md 5).
//!
//! An NRT tells what was left when its exporter looked, and the fingerprint of the pods that it accounts for. Between a placement
//! and the NRT that shows it, the pod must be charged here. So each node keeps the newest NRT whose pod set is understood (its
//! *base*), and which of the node's pods that base accounts for; every other pod that lives is charged to *all* zones that it may be on: those
//! where the base leaves room for it, if the kubelet's managers are known, else every one. All of it is recomputed on the NRT or pod event
//! itself: nothing polls.
//!
//! The pod set of an NRT need not be the one known here: a pod may not be admitted yet, or be gone already. So the fingerprint is
//! searched for among the sets that differ from the known one in those few pods. A set that is found says exactly which pods the
//! amounts contain. An NRT whose set is not found changes nothing but the kubelet's settings; a later one will do.
//!
//! Names are all that a fingerprint knows. A pod that has the name of a recent one is therefore accounted for only by NRTs that came
//! after it was seen running.

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

use crate::pod::{Phase, Pod, PodKey};
use crate::touched::Touched;
use charge::{Charge, Unadmitted, is_zoned, unlisted, whole};
use search::{Candidate, fingerprint_of, search};
use simulate::Zones;

mod charge;
mod search;
pub mod simulate;

/// Pods that are gone but may still be in an NRT; more of them on one node are not remembered.
const GHOSTS: usize = 32;
/// A pod that is deleted without waiting for its kubelet holds its resources a little longer, at most this long.
const LINGER: Duration = Duration::from_secs(3);

/// How much the cache does by itself (scheduler.md 5.1, 5.2, 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// NRTs are taken as they are.
    Passthrough,
    /// NRTs are taken as they are, but a node is closed from reservation to binding.
    DiscardReserved,
    /// Pods are charged until an NRT accounts for them.
    OverReserve,
}

/// What the configuration says about the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much it does.
    pub mode: Mode,
    /// Which pods of other schedulers close a node.
    pub foreign: ForeignPodsDetect,
    /// Which pods a fingerprint covers.
    pub method: ResyncMethod,
    /// Names of our profiles: pods of any other scheduler are foreign.
    pub profiles: BTreeSet<String>,
    /// Remember what was compared, for [`Cache::take_checks`].
    pub trace: bool,
    /// Read where containers are, so that preemption can tell what would become free (`preemptionMode: Enabled`).
    pub placement: bool,
}

impl Settings {
    /// From the arguments of the plugin.
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

/// A comparison of a published fingerprint with the pods that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The node.
    pub node: String,
    /// What its NRT says.
    pub expected: String,
    /// What was computed: of the set that explains the NRT, or of all pods that should be in it if none does.
    pub computed: String,
    /// That set.
    pub pods: Vec<PodKey>,
}

/// What a filter or score may look at.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// The node has no NRT.
    Absent,
    /// The amounts cannot be trusted now.
    Stale,
    /// The amounts, with everything known charged.
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
    /// Pods that may be admitted later than the next one, if there are any.
    unadmitted: Option<Unadmitted>,
}

impl Fresh {
    /// Amounts of a node that no pod is on its way to.
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
    /// Nodes with an NRT.
    pub nodes: usize,
    /// Of those, closed ones.
    pub stale: usize,
    /// Of those, nodes whose newest NRT has a pod set that is not understood.
    pub unmatched: usize,
    /// Pods charged to zones beside what NRTs say.
    pub charged: usize,
}

/// The topology of every node.
#[derive(Debug)]
pub struct Cache {
    settings: Settings,
    /// Looked up for every node at every attempt; names of nodes are not chosen by enemies, and the hash has a seed.
    entries: HashMap<String, Entry, RandomState>,
    /// Number of NRTs received: tells which of two events was first.
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
    /// What the pods that `base` accounts for hold in which zone, if the base tells.
    held: simulate::Held,
    /// What pods held by zone that ended and were deleted, but that the base still has.
    released: Vec<Zones>,
    /// Pods that are gone but may still be in an NRT, oldest first.
    ghosts: Vec<Ghost>,
    /// What pods held that were deleted while they were charged, and until when it is charged at most.
    lingering: Vec<(Arc<Request>, Instant)>,
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
    /// The same with what was held in these zones, as far as there is so much.
    fn with_room<'a>(&self, held: impl Iterator<Item = &'a Zones>) -> Self {
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
struct Ghost {
    key: PodKey,
    hash: u64,
    request: Arc<Request>,
    /// Its kubelet said that it ended, before it was deleted: what it held is free.
    ended: bool,
    /// The base has what it held, and nobody knows when or where it becomes free.
    is_held: bool,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, told by others"
)]
struct Tracked {
    uid: String,
    hash: u64,
    foreign: bool,
    phase: Phase,
    /// Its kubelet is known to have taken it on, or refused it.
    judged: bool,
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
    /// A cache that knows nothing yet.
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

    /// What is known of a node.
    pub fn view(&self, node: &str) -> &View {
        self.entries
            .get(node)
            .and_then(|entry| entry.view.as_ref())
            .unwrap_or(&View::Absent)
    }

    /// Nodes whose view changed since the last call.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.take()
    }

    /// Whether the newest NRT of a node is the one in use. Nodes without NRT have nothing to wait for.
    pub fn is_settled(&self, node: &str) -> bool {
        self.entries.get(node).is_none_or(Entry::is_settled)
    }

    /// An NRT was added or changed. True if it says anything new.
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

    /// An NRT is gone. True if the view changed.
    pub fn delete_nrt(&mut self, node: &str) -> bool {
        self.change(node, |entry| {
            (entry.latest, entry.base, entry.understood) = (None, None, false);
            entry.held = simulate::Held::default();
            entry.released.clear();
            for pod in entry.pods.values_mut() {
                pod.accounted = false;
            }
        })
    }

    /// A pod on a node was added or changed, or is assumed there. True if the view changed.
    pub fn apply_pod(&mut self, node: &str, pod: &Pod) -> bool {
        let foreign = !self.settings.profiles.contains(&pod.scheduler);
        let received = self.received;
        self.change(node, |entry| entry.apply_pod(pod, foreign, received))
    }

    /// A pod was deleted at `now`. True if the view changed.
    pub fn delete_pod(&mut self, node: &str, key: &PodKey, now: Instant) -> bool {
        let until = now + LINGER;
        let mut lingers = false;
        let changed = self.change(node, |entry| {
            entry.reserved.remove(key);
            let Some(pod) = entry.pods.remove(key) else {
                return;
            };
            if pod.lives() && !pod.accounted && entry.latest.is_some() {
                entry.lingering.push((Arc::clone(&pod.request), until));
                lingers = true;
            }
            entry.remember(key, pod);
        });
        if lingers {
            self.next_expiry = Some(self.next_expiry.map_or(until, |next| next.min(until)));
        }
        changed
    }

    /// Forgets what deleted pods held long enough ago. True if any view changed.
    pub fn expire(&mut self, now: Instant) -> bool {
        if self.next_expiry.is_none_or(|next| now < next) {
            return false;
        }
        let due = |entry: &Entry| entry.lingering.iter().any(|(_, until)| *until <= now);
        let nodes: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, entry)| due(entry))
            .map(|(node, _)| node.clone())
            .collect();
        let mut changed = false;
        for node in nodes {
            changed |= self.change(&node, |entry| {
                entry.lingering.retain(|(_, until)| *until > now);
            });
        }
        let left = self.entries.values().flat_map(|entry| &entry.lingering);
        self.next_expiry = left.map(|(_, until)| *until).min();
        changed
    }

    /// When [`Cache::expire`] has something to do.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry
    }

    /// The comparisons since the last call, oldest first; none unless they are traced.
    pub fn take_checks(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.checks)
    }

    /// A pod is about to be bound to a node (scheduler.md 5.2, 5.3).
    pub fn reserve(&mut self, node: &str, pod: &Pod) {
        let foreign = !self.settings.profiles.contains(&pod.scheduler);
        let received = self.received;
        self.change(node, |entry| {
            entry.reserved.insert(pod.key.clone());
            entry.apply_pod(pod, foreign, received);
        });
    }

    /// Binding worked: a node that was closed for it opens again. True if the view changed.
    pub fn bound(&mut self, node: &str, key: &PodKey) -> bool {
        self.change(node, |entry| {
            entry.reserved.remove(key);
        })
    }

    /// Binding failed: the pod is not there after all. True if the view changed.
    pub fn unreserve(&mut self, node: &str, key: &PodKey) -> bool {
        self.change(node, |entry| {
            entry.reserved.remove(key);
            entry.pods.remove(key);
        })
    }

    /// Numbers for the metrics.
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
            && entry.lingering.is_empty()
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
            known.judged |= is_judged(pod);
            known.request = Arc::clone(&pod.request);
            return;
        }
        if let Some(predecessor) = self.pods.remove(&pod.key) {
            self.remember(&pod.key, predecessor);
        }
        let namesake = self.ghosts.iter().any(|ghost| ghost.hash == pod.hash);
        self.pods.insert(
            pod.key.clone(),
            Tracked {
                uid: pod.uid.clone(),
                hash: pod.hash,
                foreign,
                phase: pod.phase,
                judged: is_judged(pod),
                deleting: pod.deleting,
                request: Arc::clone(&pod.request),
                accounted: false,
                not_before: if namesake { after_now(pod.phase) } else { 0 },
            },
        );
    }

    /// A pod is gone; NRTs may have it for a while.
    fn remember(&mut self, key: &PodKey, pod: Tracked) {
        if self.latest.is_none() {
            return;
        }
        let ended = !pod.lives();
        let told = if pod.accounted && ended {
            self.held.0.remove(key)
        } else {
            None
        };
        let is_held = pod.accounted && told.is_none();
        self.released.extend(told);
        if self.ghosts.len() == GHOSTS {
            self.ghosts.remove(0);
        }
        self.ghosts.push(Ghost {
            key: key.clone(),
            hash: pod.hash,
            request: pod.request,
            ended,
            is_held,
        });
    }

    /// Takes over the newest NRT if it can be told which pods it accounts for.
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
            // Before the first understood one, the newest amounts are the best there are; every pod is charged on top.
            if !self.understood {
                self.base.clone_from(&self.latest);
            }
        }
        check
    }

    /// The pods that the newest NRT may cover, by key, and after them those that are gone.
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
        // From the moment that a namesake may be meant, its predecessor no longer is.
        let namesakes = self
            .pods
            .values()
            .filter(|pod| pod.not_before != 0 && pod.not_before <= *number);
        let meant: Vec<u64> = namesakes.map(|pod| pod.hash).collect();
        self.ghosts.retain(|ghost| !meant.contains(&ghost.hash));
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
        candidates.extend(self.ghosts.iter().map(|ghost| Candidate {
            hash: ghost.hash,
            certain: false,
            likely: false,
            running: false,
        }));
        (keys, candidates)
    }

    /// The newest NRT becomes the base: it accounts for the pods of `set` and no others.
    fn flush(&mut self, keys: &[PodKey], set: &[bool]) {
        let (in_pods, in_ghosts) = set.split_at(keys.len());
        for pod in self.pods.values_mut() {
            pod.accounted = false;
        }
        for (key, included) in keys.iter().zip(in_pods) {
            if let Some(pod) = self.pods.get_mut(key) {
                pod.accounted = *included;
                // It ended, and no NRT will have it again. Jobs leave such pods behind by the hundreds.
                if !included && !pod.lives() {
                    pod.not_before = u64::MAX;
                }
            }
        }
        let mut kept = in_ghosts.iter().copied();
        self.ghosts.retain(|_| kept.next().unwrap_or(false));
        for ghost in &mut self.ghosts {
            ghost.is_held = true;
        }
        self.lingering.clear();
        self.released.clear();
        self.base.clone_from(&self.latest);
        self.understood = true;
    }

    /// Without a fingerprint nobody can tell. The first NRT is believed to contain every pod there is; later ones contain what is
    /// seen to run when they arrive.
    fn accept_without_fingerprint(&mut self) {
        let first = self.base.is_none();
        for pod in self.pods.values_mut() {
            pod.accounted |= first || pod.phase != Phase::Pending;
        }
        self.ghosts.clear();
        self.lingering.clear();
        self.held = simulate::Held::default();
        self.released.clear();
        self.base.clone_from(&self.latest);
        self.understood = true;
    }

    /// Pods that the base does not contain but that live.
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

    /// The base with what ended pods held, where the NRT told in which zone that was. A kubelet says that a pod ended when its containers have, and
    /// from then on gives to others what they held: nobody has to wait for an exporter to say so.
    fn with_released(&self, base: &Numbered) -> Numbered {
        let ended = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.accounted && !pod.lives())
            .filter_map(|(key, _)| self.held.0.get(key));
        base.with_room(ended.chain(&self.released))
    }

    /// The view if the base were this one, and `guests` were charged as well.
    fn compute_from(&self, settings: &Settings, base: &Numbered, guests: &[Arc<Request>]) -> View {
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
                if pod.foreign && self.closes(pod, settings, &latest.topology) {
                    return View::Stale;
                }
                charges.push(Charge {
                    request: Some(Arc::clone(&pod.request)),
                    amounts: whole(zones, config, &pod.request),
                    unadmitted: (!pod.judged).then(|| key.clone()),
                });
            }
            let lingering = self.lingering.iter().map(|(request, _)| request);
            let lingering = lingering.chain(guests);
            charges
                .extend(lingering.map(|request| Charge::everywhere(whole(zones, config, request))));
            charges.retain(|charge| !charge.amounts.is_zero());
        }
        let bounds = self.bounds(base, &latest.topology);
        let is_narrow = charge::is_narrow(config) && self.understood;
        let places: Vec<NumaMask> = charges
            .iter()
            .map(|charge| match &charge.request {
                Some(request) if is_narrow => {
                    let most = bounds.iter().map(|(zone, most)| (*zone, most));
                    charge::place(zones, config, request, most)
                }
                _ => NumaMask::ALL,
            })
            .collect();
        let before = || by_zone(&base.topology, |amounts| amounts.available);
        let free = before()
            .zip(bounds)
            .map(|((id, mut available), bound)| {
                for (charge, place) in charges.iter().zip(&places) {
                    if place.contains(id) {
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
        // where everything is charged everywhere there is room for all in any order
        let unadmitted = is_narrow.then(|| Unadmitted::new(before(), &charges, &places));
        View::Fresh(Fresh {
            unadmitted: unadmitted.flatten(),
            ..Fresh::new(*config, free, base.topology.zones.clone())
        })
    }

    /// The most that each zone may have left: what the base says and what pods hold there that are about to end, or all where that is not known.
    fn bounds(&self, base: &Numbered, latest: &NodeTopology) -> Vec<(ZoneId, Resources)> {
        let follows = latest.config.managers.is_some();
        let is_blurred = follows && self.is_blurred(latest);
        let going = self
            .pods
            .iter()
            .filter(|(_, pod)| follows && pod.accounted && pod.lives() && pod.deleting)
            .filter_map(|(key, _)| self.held.0.get(key));
        let most = base.with_room(going);
        let zones = by_zone(&most.topology, |amounts| {
            if is_blurred {
                amounts.allocatable
            } else {
                amounts.available
            }
        });
        zones.collect()
    }

    /// Whether a pod that the base contains is gone or going and holds what nobody can tell where: every zone may have more room than the base
    /// says.
    fn is_blurred(&self, latest: &NodeTopology) -> bool {
        let holds = |request: &Request| !whole(&latest.zones, &latest.config, request).is_zero();
        let goes = |(key, pod): (&PodKey, &Tracked)| {
            pod.accounted
                && (pod.deleting || !pod.lives())
                && !self.held.0.contains_key(key)
                && holds(&pod.request)
        };
        let is_held = |ghost: &Ghost| ghost.is_held && holds(&ghost.request);
        !self.understood || self.ghosts.iter().any(is_held) || self.pods.iter().any(goes)
    }

    /// Whether a foreign pod that no NRT accounts for makes the amounts useless.
    fn closes(&self, pod: &Tracked, settings: &Settings, topology: &NodeTopology) -> bool {
        let exclusive = || {
            pod.request
                .is_exclusive(|name| is_zoned(&topology.zones, name))
        };
        match settings.foreign {
            ForeignPodsDetect::None => false,
            ForeignPodsDetect::OnlyExclusiveResources => exclusive(),
            // A settled node has accounted for all that its fingerprint covers; what it does not cover takes nothing.
            ForeignPodsDetect::All => {
                !self.understood || exclusive() || covers_all(settings, topology)
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

/// One of the amounts of each resource of each zone.
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

fn covers_all(settings: &Settings, topology: &NodeTopology) -> bool {
    topology
        .fingerprint
        .as_ref()
        .is_some_and(|published| settings.fingerprint_method(published.method) == Method::All)
}

/// Whether the kubelet has seen a pod: its first status has the time.
fn is_judged(pod: &Pod) -> bool {
    pod.started.is_some() || pod.phase != Phase::Pending
}

#[cfg(test)]
mod tests;

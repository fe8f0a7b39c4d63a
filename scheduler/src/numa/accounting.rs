//! Which pods the newest NRT accounts for.

use nrt::fingerprint::Method;

use super::charge::is_zoned;
use super::ledger::{Base, Ledger, Numbered};
use super::search::{Candidate, fingerprint_of, search};
use super::settings::{Mode, Settings};
use super::tracked::{AccountedBy, Tracked};
use crate::numa::held::HeldByPod;
use crate::state::pod::{Phase, PodKey};

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

impl Ledger {
    /// Adopts the newest NRT as the base if it is known which pods it accounts for.
    pub(super) fn resync(&mut self, node: &str, settings: &Settings) -> Option<Check> {
        let latest = self.latest.clone()?;
        if self.is_settled() {
            return None;
        }
        if settings.mode != Mode::OverReserve {
            self.base = Base::Understood(latest);
            return None;
        }
        let Some(published) = latest.topology.fingerprint.clone() else {
            self.accept_without_fingerprint(latest);
            return None;
        };
        let (keys, candidates) =
            self.candidates(&latest, settings.fingerprint_method(published.method));
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
            self.flush(latest, &keys, &set);
            self.read_placement();
        } else {
            tracing::debug!(node, published = %published.text, pods = keys.len(), "NodeTopology podset fingerprint mismatch");
            if !self.base.is_understood() {
                self.base = Base::Unexplained(latest);
            }
        }
        check
    }

    /// Returns the pods that the newest NRT may cover, by key, followed by those that are gone.
    fn candidates(&mut self, latest: &Numbered, method: Method) -> (Vec<PodKey>, Vec<Candidate>) {
        let Numbered { topology, number } = latest;
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
            .filter(|pod| pod.accounted_by.excludes_predecessors(*number));
        let meant: Vec<u64> = namesakes.map(|pod| pod.hash).collect();
        self.departed.retain(|pod| !meant.contains(&pod.hash));
        let (keys, mut candidates): (Vec<PodKey>, Vec<Candidate>) = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.accounted_by.includes(*number) && relevant(pod))
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
    fn flush(&mut self, latest: Numbered, keys: &[PodKey], set: &[bool]) {
        let (in_pods, in_departed) = set.split_at(keys.len());
        for pod in self.pods.values_mut() {
            pod.accounted = false;
        }
        for (key, included) in keys.iter().zip(in_pods) {
            if let Some(pod) = self.pods.get_mut(key) {
                pod.accounted = *included;
                // The pod ended, so no later NRT contains it. Jobs leave such pods behind by the hundreds.
                if !included && !pod.lives() {
                    pod.accounted_by = AccountedBy::None;
                }
            }
        }
        let mut kept = in_departed.iter().copied();
        self.departed.retain(|_| kept.next().unwrap_or(false));
        for pod in &mut self.departed {
            pod.is_held = true;
        }
        self.lingering.clear();
        self.released_by_ended.clear();
        self.base = Base::Understood(latest);
    }

    /// Adopts an NRT without a fingerprint, whose pods are unknown. The first NRT is assumed to contain every known pod. A later one is
    /// assumed to contain the pods that are no longer pending when it arrives.
    fn accept_without_fingerprint(&mut self, latest: Numbered) {
        let first = self.base.nrt().is_none();
        for pod in self.pods.values_mut() {
            pod.accounted |= first || pod.phase != Phase::Pending;
        }
        self.departed.clear();
        self.lingering.clear();
        self.held_by_pod = HeldByPod::default();
        self.released_by_ended.clear();
        self.base = Base::Understood(latest);
    }
}

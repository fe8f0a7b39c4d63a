//! Pods on their way to a node all find room, whoever is first: a model of a node and its kubelet judges the cache.

use super::*;

/// The next event on a node.
#[derive(Clone, Debug)]
enum Step {
    /// A pod with this many CPUs is placed if it fits.
    Place(i64),
    /// Like `Place`, and an NRT accounts for the pod at once.
    Settle(i64),
    /// The kubelet admits one of the pods on their way.
    Admit(prop::sample::Index),
    /// A pod ends; the flag says whether the kubelet reports it at once.
    End(prop::sample::Index, bool),
    /// The kubelet reports the status of a pod.
    ReportStatus(prop::sample::Index),
    /// A pod is marked for deletion.
    MarkForDeletion(prop::sample::Index),
    /// A pod that was reported to have ended is deleted.
    Delete(prop::sample::Index),
    /// The exporter reads the node.
    Observe,
    /// What the exporter read arrives.
    Publish,
}

fn mk_step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (2..=8_i64).prop_map(Step::Place),
        3 => index().prop_map(Step::Admit),
        3 => (index(), any::<bool>()).prop_map(|(index, reported)| Step::End(index, reported)),
        3 => index().prop_map(Step::ReportStatus),
        1 => index().prop_map(Step::MarkForDeletion),
        1 => index().prop_map(Step::Delete),
        1 => Just(Step::Observe),
        1 => Just(Step::Publish),
    ]
}

/// A node as its kubelet knows it, and the information in transit between it and the scheduler.
struct Model {
    /// CPUs left in each zone.
    left: Vec<i64>,
    coming: Vec<(Pod, i64)>,
    admitted: Vec<Admitted>,
    observed: Option<NodeTopology>,
    cache: Cache,
}

struct Admitted {
    pod: Pod,
    cpus: i64,
    zone: usize,
    ended: bool,
}

impl Model {
    fn new(left: Vec<i64>) -> Self {
        let mut model = Self {
            left,
            coming: Vec::new(),
            admitted: Vec::new(),
            observed: None,
            cache: mk_cache(),
        };
        model.take(&Step::Observe, 0);
        model.take(&Step::Publish, 0);
        model
    }

    /// Picks one of the admitted pods for which `holds` returns true.
    fn pick(
        &mut self,
        index: prop::sample::Index,
        holds: impl Fn(&Admitted) -> bool,
    ) -> Option<&mut Admitted> {
        let mut some: Vec<_> = self.admitted.iter_mut().filter(|pod| holds(pod)).collect();
        if some.is_empty() {
            return None;
        }
        Some(some.remove(index.index(some.len())))
    }

    /// Performs a step. Returns false if the kubelet has no room for a pod that it received.
    fn take(&mut self, step: &Step, number: usize) -> bool {
        match step {
            Step::Place(cpus) => {
                let pod = mk_pod(&format!("p{number}"), &format!("cpu={cpus} memory=1Gi"));
                if accepts(&self.cache, &pod).is_ok() {
                    let pod = on_node(&pod, Phase::Pending);
                    self.cache.reserve(NODE, &pod);
                    self.coming.push((pod, *cpus));
                }
            }
            Step::Settle(cpus) => {
                self.take(&Step::Place(*cpus), number);
                let admitted = self.coming.is_empty() || self.admit(0);
                self.take(&Step::Observe, number);
                self.take(&Step::Publish, number);
                return admitted;
            }
            Step::Admit(index) if !self.coming.is_empty() => {
                return self.admit(index.index(self.coming.len()));
            }
            Step::Admit(_) => {}
            Step::End(index, reported) => {
                if let Some(known) = self.pick(*index, |known| !known.ended) {
                    known.ended = true;
                    let (key, zone, cpus) = (known.pod.key.clone(), known.zone, known.cpus);
                    self.left[zone] += cpus;
                    if *reported {
                        self.report_status(&key);
                    }
                }
            }
            Step::ReportStatus(index) => {
                let key = self
                    .pick(*index, |_| true)
                    .map(|known| known.pod.key.clone());
                if let Some(key) = key {
                    self.report_status(&key);
                }
            }
            Step::MarkForDeletion(index) => {
                if let Some(known) = self.pick(*index, |_| true) {
                    known.pod.deleting = true;
                    let pod = known.pod.clone();
                    self.cache.apply_pod(NODE, &pod);
                }
            }
            Step::Delete(index) => {
                let is_over = |known: &Admitted| known.pod.phase == Phase::Terminal;
                if let Some(known) = self.pick(*index, is_over) {
                    let key = known.pod.key.clone();
                    self.admitted.retain(|known| known.pod.key != key);
                    self.cache.delete_pod(NODE, &key, Instant::now());
                }
            }
            Step::Observe => self.observed = Some(self.observe()),
            Step::Publish => {
                if let Some(nrt) = self.observed.take() {
                    self.cache.apply_nrt(NODE, nrt);
                }
            }
        }
        true
    }

    /// kubelet-node.md 5.3: with policy single-numa-node the kubelet takes the lowest zone with room.
    fn admit(&mut self, index: usize) -> bool {
        let (pod, cpus) = self.coming.remove(index);
        let Some(zone) = self.left.iter().position(|left| *left >= cpus) else {
            return false;
        };
        self.left[zone] -= cpus;
        self.admitted.push(Admitted {
            pod,
            cpus,
            zone,
            ended: false,
        });
        true
    }

    fn report_status(&mut self, key: &PodKey) {
        let mut admitted = self.admitted.iter_mut();
        let Some(known) = admitted.find(|known| known.pod.key == *key) else {
            return;
        };
        known.pod.started = Some(jiff::Timestamp::UNIX_EPOCH);
        known.pod.phase = if known.ended {
            Phase::Terminal
        } else {
            Phase::Running
        };
        self.cache.apply_pod(NODE, &known.pod);
    }

    fn observe(&self) -> NodeTopology {
        let running = self.admitted.iter().filter(|known| !known.ended);
        let placed: Vec<(&str, usize)> = running
            .map(|known| (known.pod.key.name.as_str(), known.zone))
            .collect();
        let left: Vec<String> = (0..self.left.len())
            .map(|zone| {
                let pods = placed.iter().filter(|(_, of)| *of == zone).count();
                format!("cpu={} memory={}Gi", self.left[zone], 80 - pods)
            })
            .collect();
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        let mut nrt = mk_placed_nrt(&left, &placed);
        nrt.config.managers = Some(MANAGERS);
        nrt
    }
}

proptest! {
    #[test]
    fn pods_on_their_way_all_find_room_whoever_is_first_and_whatever_ends(
        zones in prop::collection::vec(2..=10_i64, 1..=3),
        first in prop::collection::vec(2..=8_i64, 0..=4),
        steps in prop::collection::vec(mk_step(), 1..=30),
        rest in prop::collection::vec(any::<prop::sample::Index>(), 34),
    ) {
        let mut model = Model::new(zones);
        let mut steps = steps;
        steps.splice(0..0, first.into_iter().map(Step::Settle));
        for (number, step) in steps.iter().enumerate() {
            prop_assert!(model.take(step, number));
        }
        for index in rest {
            prop_assert!(model.take(&Step::Admit(index), 0));
        }
    }
}

//! Whether a pod can be aligned to single zones, and if not, why (scheduler.md 3.3, 3.4, 3.5).

use std::cell::Cell;
use std::fmt;

use self::rules::Rules;
use self::state::{Room, State};
use crate::mask::{NumaMask, ZoneId};
use crate::policy::{ManagerConfig, Scope};
use crate::request::{Container, ContainerKind, Pod};
use crate::resource::{CPU, ResourceName, Resources};

pub mod explain;
mod rules;
mod state;
mod unlisted;

pub use self::unlisted::unlisted;

/// What is left in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeZone {
    /// Its id.
    pub id: ZoneId,
    /// What is certainly left of each resource that the zone holds. A resource that is used up is listed with 0.
    pub available: Resources,
    /// What may be left at most, where that is more. The zone that the kubelet takes for a container depends on it.
    pub at_most: Option<Resources>,
}

impl FreeZone {
    /// Creates a zone that has exactly `available` left.
    pub fn exactly(id: ZoneId, available: Resources) -> Self {
        Self {
            id,
            available,
            at_most: None,
        }
    }

    /// Returns what may be left at most.
    pub fn most(&self) -> &Resources {
        self.at_most.as_ref().unwrap_or(&self.available)
    }
}

/// What could not be aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The pod as a whole.
    Pod,
    /// A single container.
    Container {
        /// Its name.
        name: String,
        /// Its kind.
        kind: ContainerKind,
    },
}

/// Why a pod cannot be aligned: the first resource, in order of name, that left no zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Detail(self))]
pub struct Misfit {
    /// What could not be aligned.
    pub subject: Subject,
    /// The resource that ruled out the last zone.
    pub resource: ResourceName,
    /// How much of it was requested.
    pub wanted: i64,
    /// What each zone had left of it at that time; `None` if the zone does not hold it.
    pub zones: Vec<(ZoneId, Option<i64>)>,
    /// The obstacle other than the amounts.
    pub obstacle: Option<Obstacle>,
}

/// What can prevent a placement although the amounts suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// An earlier init container holds some of the resource there, and the kubelet takes the rest from there too (kubelet-node.md 6.7, 8.2).
    #[error("tied to zone {0} by an init container")]
    TiedTo(ZoneId),
    /// The kubelet assigns whole cores of this many CPUs.
    #[error("only whole cores of {0} CPUs are assigned")]
    WholeCores(u16),
    /// Init containers of the pod hold CPUs that do not count as free when the kubelet looks for whole cores (kubelet-node.md 6.3).
    #[error("init containers hold the rest")]
    HeldByInit,
    /// There are too many ways in which the kubelet might place the earlier containers.
    #[error("too many possible placements of the earlier containers")]
    TooManyPlacements,
}

impl Misfit {
    /// Returns the reason in the words that other programs match (scheduler.md 3.5).
    pub fn reason(&self) -> &'static str {
        match &self.subject {
            Subject::Pod => "cannot align pod",
            Subject::Container {
                kind: ContainerKind::App,
                ..
            } => "cannot align container",
            Subject::Container {
                kind: ContainerKind::Init,
                ..
            } => "cannot align init container",
            Subject::Container {
                kind: ContainerKind::Sidecar,
                ..
            } => "cannot align sidecar container",
        }
    }
}

struct Detail<'a>(&'a Misfit);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit {
            subject,
            resource,
            wanted,
            zones,
            obstacle,
        } = self.0;
        f.write_str(self.0.reason())?;
        if let Subject::Container { name, .. } = subject {
            write!(f, " {name}")?;
        }
        let unit = if resource.is_cpu() { "m" } else { "" };
        write!(f, ": {resource} wanted {wanted}{unit}")?;
        for (zone, available) in zones {
            match available {
                Some(amount) => write!(f, ", zone {zone} has {amount}{unit}")?,
                None => write!(f, ", zone {zone} has none")?,
            }
        }
        if let Some(obstacle) = obstacle {
            write!(f, " ({obstacle})")?;
        }
        Ok(())
    }
}

/// Decides whether the kubelet can align `pod` on a node with these zones under policy single-numa-node. `node_has` says which
/// resources the node as a whole lists.
///
/// Container scope tries the containers in spec order, each on the zone with the lowest id that suffices. Init containers need room
/// only while they run; sidecars keep what they took. Where the kubelet's managers are known, this follows their own rules, including
/// what finished init containers keep and which zone later containers are tied to. If it is uncertain which zone the kubelet takes,
/// every possible zone has to work. A pod that the original filter refuses is refused here too: conformance suites expect that
/// fractional CPUs are looked for in one zone, although the kubelet takes them from anywhere.
pub fn fit(
    pod: &Pod,
    config: &ManagerConfig,
    zones: &[FreeZone],
    node_has: impl Fn(&str) -> bool,
) -> Result<(), Misfit> {
    let search = Search::new(pod, config, &node_has);
    if search.rules.differ_from_original(pod) {
        search.with_original_rules().run(zones)?;
    }
    search.run(zones)
}

/// The search state that all branches share.
struct Search<'a, F> {
    pod: &'a Pod,
    config: ManagerConfig,
    rules: Rules,
    node_has: &'a F,
    /// Number of placements that may still be tried.
    budget: Cell<u32>,
}

impl<'a, F: Fn(&str) -> bool> Search<'a, F> {
    /// Limit of placements, more than any sensible pod needs. A pod that needs more is refused.
    const BUDGET: u32 = 4096;

    fn new(pod: &'a Pod, config: &ManagerConfig, node_has: &'a F) -> Self {
        Self {
            pod,
            config: *config,
            rules: Rules::new(pod, config),
            node_has,
            budget: Cell::new(Self::BUDGET),
        }
    }

    /// Returns the same search by the rules of the original filter.
    fn with_original_rules(&self) -> Self {
        let config = ManagerConfig {
            managers: None,
            ..self.config
        };
        Self::new(self.pod, &config, self.node_has)
    }

    fn run(&self, zones: &[FreeZone]) -> Result<(), Misfit> {
        match self.config.scope {
            Scope::Pod => self.pod(zones).map(drop),
            Scope::Container => self.containers(self.pod.containers(), State::new(zones)),
        }
    }

    /// Returns the zone of the whole pod (pod scope). Where the kubelet may take a lower zone than the one that certainly suffices, what
    /// produces no hint has to be there, too.
    fn pod(&self, zones: &[FreeZone]) -> Result<ZoneId, Misfit> {
        let state = State::new(zones);
        let (hinted, unhinted) = self.rules.of_pod(self.pod);
        let misfit = |lack: Lack| lack.into_misfit(Subject::Pod, zones);
        let choice = self.choose(&state, &hinted).map_err(misfit)?;
        for zone in choice.preferred().iter().chain([choice.certain]) {
            self.pod_in(zone, state.clone(), &unhinted)
                .map_err(misfit)?;
        }
        Ok(choice.certain)
    }

    /// Checks that the pod can run in the zone that the kubelet has chosen by its hints (pod scope).
    fn pod_in(&self, zone: ZoneId, mut state: State<'_>, unhinted: &Resources) -> Result<(), Lack> {
        // Resources that only init containers and sidecars request produce no hint, but the chosen zone needs them (kubelet-node.md 7.2).
        self.choose_among(NumaMask::from_iter([zone]), &state, unhinted)?;
        if self.rules.are_exact() {
            for container in self.pod.containers() {
                self.rules
                    .whole_cores(container, || state.untouched_cpus())?;
                state.take(container, zone, self.rules);
            }
        }
        Ok(())
    }

    /// Places the containers in order (container scope). Where the kubelet may take a lower zone than the one that certainly suffices, the
    /// containers after it have to fit with either.
    fn containers(&self, containers: &[Container], state: State<'_>) -> Result<(), Misfit> {
        // on the heap: a pod may have thousands of containers
        let mut open = Vec::new();
        self.place(containers, state, &mut open)?;
        while let Some(last) = open.last_mut() {
            let Some(zone) = last.zones.take_lowest() else {
                open.pop();
                continue;
            };
            let (mut state, later) = (last.state.clone(), last.later);
            state.take(last.container, zone, self.rules);
            self.place(later, state, &mut open)?;
        }
        Ok(())
    }

    /// Places containers on the zones that certainly suffice, and notes which others are possible.
    fn place<'p, 'z>(
        &self,
        containers: &'p [Container],
        mut state: State<'z>,
        open: &mut Vec<Open<'p, 'z>>,
    ) -> Result<(), Misfit> {
        for (index, container) in containers.iter().enumerate() {
            let choice = self.container(&state, container)?;
            let zones = choice.preferred();
            if !zones.is_empty() {
                open.push(Open {
                    state: state.clone(),
                    container,
                    zones,
                    later: &containers[index + 1..],
                });
            }
            state.take(container, choice.certain, self.rules);
        }
        Ok(())
    }

    fn container(&self, state: &State<'_>, container: &Container) -> Result<Choice, Misfit> {
        let choice = self
            .rules
            .whole_cores(container, || state.untouched_cpus())
            .and_then(|()| self.choose(state, &container.requests));
        choice.map_err(|lack| lack.into_misfit(subject(container), &state.left))
    }

    /// Returns the zones that the kubelet may take for a request (scheduler.md 3.4). Zone 0 if no requested resource is tied to zones.
    fn choose(&self, state: &State<'_>, request: &Resources) -> Result<Choice, Lack> {
        self.choose_among(NumaMask::ALL, state, request)
    }

    fn choose_among(
        &self,
        zones: NumaMask,
        state: &State<'_>,
        request: &Resources,
    ) -> Result<Choice, Lack> {
        let (mut sure, mut possible) = (zones, zones);
        for (name, wanted) in request.iter().filter(|(_, wanted)| *wanted != 0) {
            let lack = || Lack {
                resource: name.clone(),
                wanted,
                obstacle: state.tied_zone_of(request).map(Obstacle::TiedTo),
            };
            if !(self.node_has)(name.as_str()) {
                return Err(lack());
            }
            let mut listed = false;
            let (mut suits, mut may_suit) = (NumaMask::NONE, NumaMask::NONE);
            for zone in state.left.iter() {
                if zone.available.get(name.as_str()).is_none() {
                    continue;
                }
                listed = true;
                let room = if self.rules.compares(name, wanted) {
                    state.room(zone, name, wanted)
                } else {
                    Room::Enough
                };
                if room != Room::None {
                    may_suit.insert(zone.id);
                }
                if room == Room::Enough {
                    suits.insert(zone.id);
                }
            }
            if !listed && name.is_host_level() {
                continue;
            }
            sure = sure & suits;
            possible = possible & may_suit;
            if sure.is_empty() {
                return Err(lack());
            }
        }
        let spent = self.budget.get().checked_sub(1);
        match (sure.lowest(), spent) {
            (Some(certain), Some(left)) => {
                self.budget.set(left);
                Ok(Choice { certain, possible })
            }
            _ => Err(Lack {
                resource: ResourceName::from(CPU),
                wanted: request.amount(CPU),
                obstacle: Some(Obstacle::TooManyPlacements),
            }),
        }
    }
}

/// A container that the kubelet may place on zones that have not been tried.
struct Open<'p, 'z> {
    /// The zones before it is placed.
    state: State<'z>,
    container: &'p Container,
    zones: NumaMask,
    /// The containers after it.
    later: &'p [Container],
}

/// Candidate zones for one container.
#[derive(Clone, Copy, Debug)]
struct Choice {
    /// The lowest zone that certainly suffices.
    certain: ZoneId,
    /// All zones that may suffice.
    possible: NumaMask,
}

impl Choice {
    /// Returns the zones that the kubelet prefers to the certain one, if they suffice.
    fn preferred(self) -> NumaMask {
        self.possible & NumaMask::below(self.certain)
    }
}

fn subject(container: &Container) -> Subject {
    Subject::Container {
        name: container.name.clone(),
        kind: container.kind,
    }
}

/// The resource for which no zone is left.
#[derive(Debug)]
struct Lack {
    resource: ResourceName,
    wanted: i64,
    obstacle: Option<Obstacle>,
}

impl Lack {
    fn into_misfit(self, subject: Subject, zones: &[FreeZone]) -> Misfit {
        let zones = zones
            .iter()
            .map(|zone| (zone.id, zone.available.get(self.resource.as_str())))
            .collect();
        Misfit {
            subject,
            resource: self.resource,
            wanted: self.wanted,
            zones,
            obstacle: self.obstacle,
        }
    }
}

#[cfg(test)]
mod tests;

//! Examines every node for a pod and says what was found.

use std::collections::BTreeMap;
use std::sync::Arc;

use topology::fit::Subject;
use topology::fit::explain::{Lacking, Trial, ZoneTrial};
use topology::policy::Policy;
use topology::request::Qos;
use topology::resource::{ResourceName, Resources};

use super::form::{
    Explanation, FORMAT, Lack, NodeVerdict, PodFacts, PreemptionVerdict, Score, Topology,
    TrialVerdict, VictimFacts, ZoneVerdict,
};
use crate::framework::extension_points::{Attempt, Weighted, scores};
use crate::framework::profile::Profile;
use crate::framework::{cycle, default_preemption};
use crate::numa::cache::Cache;
use crate::numa::view::View;
use crate::plugins::node_info::NodeInfo;
use crate::plugins::node_resource_topology_match;
use crate::plugins::rejection::{Rejection, RuledOut};
use crate::state::cluster::Cluster;
use crate::state::node::Node;
use crate::state::pod::Pod;

impl Explanation {
    /// Examines every node. The cluster is unchanged afterwards, except for the pod's own nomination.
    pub fn new(profile: &Profile, cluster: &mut Cluster, cache: &Cache, pod: &Pod) -> Self {
        let unbound = Pod {
            node: None,
            ..pod.clone()
        };
        let nominated = pod.nominated.clone().filter(|_| pod.node.is_none());
        cluster.nominate(&pod.key, nominated.clone());
        let blocked = cycle::blocked_by_nominations(profile, cluster, cache, &unbound);
        let (mut explanation, rejected) =
            Self::of_nodes(profile, cluster, cache, (pod, &unbound), &blocked);
        if let Some(nominated) = nominated {
            let fits = |node: &&NodeVerdict| node.name == nominated && node.feasible;
            if explanation.nodes.iter().any(|node| fits(&node)) {
                explanation.best = vec![nominated.clone()];
            }
            explanation.pod.nominated_to = Some(nominated);
        }
        if !explanation.schedulable {
            explanation.explain_preemption(profile, cluster, cache, &unbound, &rejected);
        }
        explanation
    }

    fn explain_preemption(
        &mut self,
        profile: &Profile,
        cluster: &mut Cluster,
        cache: &Cache,
        pod: &Pod,
        rejected: &[RuledOut],
    ) {
        let Some(args) = profile.preemption.filter(|_| !rejected.is_empty()) else {
            return;
        };
        let outcome =
            default_preemption::preempt(&profile.filters, args, cluster, cache, pod, rejected, 0);
        if let (Some(message), Err(refusal)) = (&mut self.message, &outcome) {
            *message = format!("{message} preemption: {}", refusal.message);
        }
        self.preemption = Some(match outcome {
            Ok(candidate) => PreemptionVerdict {
                node: Some(candidate.node),
                victims: candidate
                    .victims
                    .into_iter()
                    .map(|victim| VictimFacts {
                        namespace: victim.key.namespace,
                        name: victim.key.name,
                        priority: victim.priority,
                    })
                    .collect(),
                budgets_violated: candidate.violations,
                message: None,
            },
            Err(refusal) => PreemptionVerdict {
                node: None,
                victims: Vec::new(),
                budgets_violated: 0,
                message: Some(refusal.message),
            },
        });
    }

    fn of_nodes(
        profile: &Profile,
        cluster: &Cluster,
        cache: &Cache,
        (pod, unbound): (&Pod, &Pod),
        blocked: &BTreeMap<String, Rejection>,
    ) -> (Self, Vec<RuledOut>) {
        let attempt = Attempt::new(&profile.filters, cluster, unbound);
        let mut nodes = Vec::new();
        let mut feasible = Vec::new();
        let mut rejected: Vec<RuledOut> = Vec::new();
        for info in NodeInfo::all(cluster, cache) {
            let outcome = match blocked.get(&info.node.name) {
                Some(rejection) => Err(rejection.clone()),
                None => attempt.examine(&info),
            };
            nodes.push(NodeVerdict::new(pod, &info, outcome.as_ref().err()));
            match outcome {
                Ok(()) => feasible.push(info),
                Err(rejection) => rejected.push((Arc::from(&*info.node.name), Arc::new(rejection))),
            }
        }
        add_scores(profile, unbound, &feasible, cluster, &mut nodes);
        let highest = nodes.iter().filter_map(|node| node.total).max();
        let best = nodes
            .iter()
            .filter(|node| node.total.is_some() && node.total == highest)
            .map(|node| node.name.clone())
            .collect();
        let schedulable = !feasible.is_empty();
        let message = (!schedulable).then(|| cycle::verdict(rejected.clone()).message);
        let explanation = Self {
            format: FORMAT,
            pod: PodFacts {
                namespace: pod.key.namespace.clone(),
                name: pod.key.name.clone(),
                scheduler_name: pod.scheduler.clone(),
                qos: qos(pod.request.qos()),
                bound_to: pod.node.clone(),
                nominated_to: None,
                priority: pod.priority,
                request: quantities(&pod.node_request),
            },
            profile: profile.name.clone(),
            schedulable,
            best,
            message,
            preemption: None,
            nodes,
        };
        (explanation, rejected)
    }
}

fn add_scores(
    profile: &Profile,
    pod: &Pod,
    feasible: &[NodeInfo<'_>],
    cluster: &Cluster,
    nodes: &mut [NodeVerdict],
) {
    let of_plugins: Vec<(&Weighted, Vec<i64>)> = profile
        .scores
        .iter()
        .map(|weighted| (weighted, scores(&weighted.plugin, pod, feasible, cluster)))
        .collect();
    for (index, node) in nodes.iter_mut().filter(|node| node.feasible).enumerate() {
        node.scores = of_plugins
            .iter()
            .map(|(weighted, scores)| Score {
                plugin: weighted.plugin.name(),
                score: scores[index],
                weight: weighted.weight,
            })
            .collect();
        let total = node.scores.iter().map(|score| score.score * score.weight);
        node.total = Some(total.sum());
    }
}

impl NodeVerdict {
    fn new(pod: &Pod, info: &NodeInfo<'_>, rejection: Option<&Rejection>) -> Self {
        Self {
            name: info.node.name.clone(),
            feasible: rejection.is_none(),
            rejected_by: rejection.map(|rejection| rejection.plugin.name()),
            reasons: rejection
                .map(|rejection| {
                    let reasons = rejection.reasons.iter();
                    reasons.map(|reason| reason.clone().into_owned()).collect()
                })
                .unwrap_or_default(),
            detail: rejection.and_then(|rejection| rejection.detail.clone()),
            topology: Topology::new(pod, info.node, info.view()),
            scores: Vec::new(),
            total: None,
        }
    }
}

impl Topology {
    fn new(pod: &Pod, node: &Node, view: &View) -> Self {
        let fresh = match view {
            View::Absent => return Self::unknown("absent"),
            View::Stale => return Self::unknown("stale"),
            View::Fresh(fresh) => fresh,
        };
        let aligned = pod.request.qos() != Qos::BestEffort || pod.request.asks_for_devices();
        let trials =
            topology::fit::explain::explain(&pod.request, &fresh.config, &fresh.free, |name| {
                node_resource_topology_match::lists(node, name)
            });
        Self {
            state: "fresh",
            policy: Some(fresh.config.policy.to_string()),
            scope: Some(fresh.config.scope.to_string()),
            decides: aligned && fresh.config.policy == Policy::SingleNumaNode,
            trials: trials.iter().map(TrialVerdict::new).collect(),
        }
    }

    fn unknown(state: &'static str) -> Self {
        Self {
            state,
            policy: None,
            scope: None,
            decides: false,
            trials: Vec::new(),
        }
    }
}

impl TrialVerdict {
    fn new(trial: &Trial) -> Self {
        let (subject, container, kind) = match &trial.subject {
            Subject::Pod => ("pod", None, None),
            Subject::Container { name, kind } => {
                use topology::request::ContainerKind;
                let kind = match kind {
                    ContainerKind::App => "app",
                    ContainerKind::Init => "init",
                    ContainerKind::Sidecar => "sidecar",
                };
                ("container", Some(name.clone()), Some(kind))
            }
        };
        Self {
            subject,
            container,
            kind,
            wanted: quantities(&trial.wanted),
            unknown: trial.unknown.iter().map(ToString::to_string).collect(),
            zone: trial.chosen.map(topology::mask::ZoneId::get),
            obstacle: trial.obstacle.map(|obstacle| obstacle.to_string()),
            zones: trial.zones.iter().map(ZoneVerdict::new).collect(),
        }
    }
}

impl ZoneVerdict {
    fn new(zone: &ZoneTrial) -> Self {
        let lack = |lacking: &Lacking| Lack {
            resource: lacking.resource.to_string(),
            wanted: quantity(&lacking.resource, lacking.wanted),
            available: lacking
                .available
                .map(|available| quantity(&lacking.resource, available)),
        };
        Self {
            id: zone.id.get(),
            available: quantities(&zone.available),
            fits: zone.lacking.is_empty(),
            lacking: zone.lacking.iter().map(lack).collect(),
        }
    }
}

fn qos(qos: Qos) -> &'static str {
    match qos {
        Qos::Guaranteed => "Guaranteed",
        Qos::Burstable => "Burstable",
        Qos::BestEffort => "BestEffort",
    }
}

fn quantities(resources: &Resources) -> BTreeMap<String, String> {
    resources
        .iter()
        .map(|(name, amount)| (name.to_string(), quantity(name, amount)))
        .collect()
}

/// Formats an amount in Kubernetes notation: CPU in cores, memory and similar resources with binary suffixes where they are exact.
fn quantity(name: &ResourceName, amount: i64) -> String {
    use api::quantity::{Amount, Format};
    let format = if name.is_memory_like() || name.as_str() == "ephemeral-storage" {
        Format::BinarySi
    } else {
        Format::DecimalSi
    };
    Amount::of(name.as_str(), amount, format).to_string()
}

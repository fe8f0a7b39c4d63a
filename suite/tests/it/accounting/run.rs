//! Runs the random pod sets on a cluster, one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use local_cluster::NodeHandle;
use reports::event::Failure;
use suite::context::{Context, chain};
use suite::recorder::PollResult;
use suite::step::StepError;

use super::generate::{self, PodSet, Target};
use super::holdings::Pods;
use super::machine::NodeFacts;
use super::oracle::{self, Difference, Uncounted};
use super::pods::{all_final, all_gone, describe_fully};
use super::state::{NodeState, Texts};

/// Time for the state files and the NRTs to agree once the NRTs are settled. The kubelet writes its files at once, an exporter looks every
/// second.
const AGREE: Duration = Duration::from_secs(30);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Seed of all sets.
    pub(crate) seed: u64,
    /// Number of sequences. Each set adds one to every node.
    pub(crate) sequences: u32,
}

impl Plan {
    /// Returns how many sets make at least the requested number of sequences.
    pub(crate) fn sets(self, nodes: usize) -> u32 {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        self.sequences.div_ceil(nodes)
    }
}

/// A node and what it has for pods.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Access to its files.
    pub(crate) handle: NodeHandle,
    /// What it has.
    pub(crate) facts: NodeFacts,
}

/// What a run has seen.
#[derive(Debug, Default)]
struct Totals {
    /// Names of all pods by UID.
    names: BTreeMap<String, String>,
    /// Numbers of pods by outcome.
    outcomes: BTreeMap<String, u32>,
    /// Entries that do not count, by kind.
    uncounted: BTreeMap<&'static str, Entries>,
}

/// Entries of one kind.
#[derive(Debug, Default)]
struct Entries {
    /// Number of sets that had some.
    sets: u32,
    /// All of them, by name.
    list: BTreeSet<String>,
}

/// Kinds of entries that do not count, each of which must occur.
const KINDS: [&str; 4] = ["finished init", "released init", "stale", "spanning"];

/// Runs all sets. Fails at the first difference, and if no entry of some kind that does not count has occurred. The entries are listed in
/// the file `listing`.
pub(crate) async fn all(
    context: &Context,
    nodes: &[Node],
    plan: Plan,
    listing: &Path,
) -> Result<(), StepError> {
    let (seed, sets) = (plan.seed, plan.sets(nodes.len()));
    let mut totals = Totals::default();
    context.recorder.note(&format!(
        "seed {seed} (NUMARESOURCES_SEED), {} sequences in {sets} sets over {} nodes (NUMARESOURCES_POD_SEQUENCES)",
        plan.sequences,
        nodes.len()
    ));
    for node in nodes {
        let NodeFacts {
            name,
            zones,
            policy,
            scope,
            manages_memory,
        } = &node.facts;
        context.recorder.note(&format!(
            "{name}: {} zones, policy {policy}, scope {scope}, memory {}",
            zones.len(),
            if *manages_memory {
                "pinned"
            } else {
                "not pinned"
            }
        ));
    }
    for number in 1..=sets {
        context
            .step(
                format!("pod set {number} of seed {seed}"),
                one(context, nodes, seed, number, &mut totals),
            )
            .await?;
    }
    context
        .step("entries that do not count were seen", async {
            not_vacuous(context, seed, &totals, listing)
        })
        .await
}

/// Lists the entries that do not count. It is an error if a kind has not occurred.
fn not_vacuous(
    context: &Context,
    seed: u64,
    totals: &Totals,
    listing: &Path,
) -> Result<(), StepError> {
    let mut text = String::new();
    for (kind, Entries { sets, list }) in &totals.uncounted {
        context
            .recorder
            .note(&format!("{kind}: {} entries in {sets} sets", list.len()));
        for entry in list {
            // writing to a string cannot fail
            let _ = writeln!(text, "{kind}: {entry}");
        }
    }
    std::fs::write(listing, text)
        .map_err(|error| StepError::fail(format!("{}: {error}", listing.display())))?;
    context
        .recorder
        .note(&format!("all of them: {}", listing.display()));
    let outcomes: Vec<String> = totals
        .outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    context.recorder.saw(outcomes.join(", "));
    match KINDS
        .iter()
        .find(|kind| !totals.uncounted.contains_key(*kind))
    {
        None => Ok(()),
        Some(kind) => Err(StepError::mismatch(
            format!("seed {seed} had no {kind}, so nothing is proven about them"),
            "at least one entry",
            "none",
        )),
    }
}

async fn one(
    context: &Context,
    nodes: &[Node],
    seed: u64,
    number: u32,
    totals: &mut Totals,
) -> Result<(), StepError> {
    let targets: Vec<Target> = nodes.iter().map(|node| Target::new(&node.facts)).collect();
    let PodSet {
        pods,
        delete_first,
        later,
    } = generate::pod_set(seed, number, &targets);
    create(context, pods, totals).await?;
    let mut uncounted = Uncounted::default();
    let outcomes = all_final(context).await?;
    add(
        &mut uncounted,
        agree(context, nodes, totals, "all pods").await?,
    );
    if !delete_first.is_empty() {
        let api = context.api::<Pod>();
        try_join_all(
            delete_first
                .iter()
                .map(async |name| match api.delete(name, &now()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    other => other.map(drop),
                }),
        )
        .await?;
        // pods that did not fit may fit now
        all_final(context).await?;
        add(
            &mut uncounted,
            agree(context, nodes, totals, "some pods deleted").await?,
        );
    }
    if !later.is_empty() {
        create(context, later, totals).await?;
        all_final(context).await?;
        add(
            &mut uncounted,
            agree(context, nodes, totals, "some pods more").await?,
        );
    }
    context
        .api::<Pod>()
        .delete_collection(&now(), &ListParams::default())
        .await?;
    all_gone(context).await?;
    add(
        &mut uncounted,
        agree(context, nodes, totals, "all pods deleted").await?,
    );

    context.recorder.saw(tally(totals, outcomes, uncounted));
    Ok(())
}

async fn create(context: &Context, pods: Vec<Pod>, totals: &mut Totals) -> Result<(), StepError> {
    let created = try_join_all(pods.into_iter().map(|pod| context.create(pod))).await?;
    totals.names.extend(
        created
            .iter()
            .filter_map(|pod| Some((pod.uid()?, pod.name_any()))),
    );
    Ok(())
}

/// Adds what one set has shown to the totals, and describes it.
fn tally(totals: &mut Totals, outcomes: BTreeMap<String, u32>, uncounted: Uncounted) -> String {
    let mut seen: Vec<String> = outcomes
        .iter()
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    for (outcome, count) in outcomes {
        *totals.outcomes.entry(outcome).or_default() += count;
    }
    let lists = [
        uncounted.finished_init,
        uncounted.released_init,
        uncounted.stale,
        uncounted.spanning,
    ];
    for (kind, list) in KINDS.into_iter().zip(lists) {
        let Some(first) = list.first() else {
            continue;
        };
        seen.push(format!("{} {kind} (such as {first})", list.len()));
        let entries = totals.uncounted.entry(kind).or_default();
        entries.sets += 1;
        entries.list.extend(list);
    }
    seen.join("; ")
}

fn now() -> DeleteParams {
    DeleteParams::default().grace_period(0)
}

fn add(all: &mut Uncounted, more: Uncounted) {
    all.finished_init.extend(more.finished_init);
    all.released_init.extend(more.released_init);
    all.stale.extend(more.stale);
    all.spanning.extend(more.spanning);
}

/// A difference and everything that explains it.
struct Mismatch {
    difference: Difference,
    details: Vec<String>,
}

/// Waits until the cluster is settled and each NRT equals what machine and state files say.
async fn agree(
    context: &Context,
    nodes: &[Node],
    totals: &Totals,
    stage: &str,
) -> Result<Uncounted, StepError> {
    context.settle().await?;
    let mut last: Option<Mismatch> = None;
    let result = context
        .until(
            "every NRT equals what machine and state files say",
            AGREE,
            async || {
                let nrts = Api::<NodeResourceTopology>::all(context.client())
                    .list(&ListParams::default())
                    .await?
                    .items;
                let pods = Api::<Pod>::all(context.client())
                    .list(&ListParams::default())
                    .await?
                    .items;
                let mut all = Uncounted::default();
                for node in nodes {
                    match compare(node, &nrts, &pods, &totals.names)? {
                        Ok(uncounted) => add(&mut all, uncounted),
                        Err(mismatch) => {
                            let text = format!(
                                "{}: {}",
                                mismatch.difference.place, mismatch.difference.seen
                            );
                            last = Some(mismatch);
                            return Ok(PollResult::NotYet(text));
                        }
                    }
                }
                Ok(PollResult::Ready(all))
            },
        )
        .await;
    match (result, last) {
        (Err(StepError::Failed(failure)), Some(mismatch)) => {
            Err(StepError::Failed(Box::new(Failure {
                message: format!(
                    "{stage}: not as machine and state files say: {}",
                    mismatch.difference.place
                ),
                expected: Some(mismatch.difference.expected),
                seen: Some(mismatch.difference.seen),
                details: mismatch.details,
                ..*failure
            })))
        }
        (result, _) => result,
    }
}

fn compare(
    node: &Node,
    nrts: &[NodeResourceTopology],
    pods: &[Pod],
    names: &BTreeMap<String, String>,
) -> Result<Result<Uncounted, Mismatch>, StepError> {
    let name = &node.facts.name;
    let read = |file: &str| {
        node.handle
            .state_file(file)
            .map_err(|error| StepError::fail(chain(&error)))
    };
    let texts = Texts {
        cpus: read("cpu_manager_state")?,
        memory: read("memory_manager_state")?,
        devices: read("device-plugins/kubelet_internal_checkpoint")?,
    };
    let state = NodeState::parse(&texts).map_err(StepError::fail)?;
    let nrt = nrts
        .iter()
        .find(|nrt| nrt.metadata.name.as_ref() == Some(name))
        .ok_or_else(|| StepError::fail(format!("there is no NRT of {name}")))?;
    Ok(
        oracle::compare(&node.facts, &state, &Pods::new(pods, names), nrt).map_err(|difference| {
            let mut details = vec![format!("pods of {name}:")];
            let on_node = |pod: &&Pod| {
                pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(name)
            };
            details.extend(
                pods.iter()
                    .filter(on_node)
                    .map(|pod| format!("  {}", describe_fully(pod))),
            );
            details.push(format!("cpu_manager_state: {}", texts.cpus));
            details.push(format!("memory_manager_state: {}", texts.memory));
            details.push(format!("kubelet_internal_checkpoint: {}", texts.devices));
            Mismatch {
                difference,
                details,
            }
        }),
    )
}

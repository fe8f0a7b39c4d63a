//! The end of the set-up: the stack proves that it works.
//!
//! Conditions say what the operator believes. A scheduler that ends 0.2 s after each start has a Deployment that is available now and then, and
//! each scenario would wait for its pods until its time is over.

use std::rc::Rc;

use api::names;

use super::verdicts;
use crate::context::checks::node_of;
use crate::context::{Cluster, Context};
use crate::health::{self, FirstLook, Restarts};
use crate::ledger::Undo;
use crate::recorder::{PollResult, Recorder};
use crate::resources::Resources;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Name of the pod that has to be placed.
const PROBE: &str = "probe";

/// Has a Guaranteed pod placed, counted and removed, then checks that the leases are held and that no container ended since `before`. The stack's own
/// scheduler has to refuse pods that fit nowhere, too; of another one that a run names, the scenarios show it.
pub(super) async fn works(
    cluster: &Rc<Cluster>,
    recorder: &Recorder,
    before: &Restarts,
    own_scheduler: bool,
) -> Result<(), StepError> {
    let namespace = format!("e2e-setup-{}", cluster.run);
    let context = Context::new(Rc::clone(cluster), recorder.clone(), namespace);
    let title = format!("{} places a Guaranteed pod", context.scheduler());
    let node = context.step(title, probe(&context)).await?;
    let limit = context.deadlines().running;
    context
        .step("the exporters count the pod while it is there", async {
            let what = "every NRT accounts for the API's pods, this one too";
            context
                .until(what, limit, async || context.poll_settled().await)
                .await
        })
        .await?;
    if own_scheduler {
        context
            .step(
                "what fits is placed, what fits nowhere is refused",
                verdicts::are_right(&context, &node),
            )
            .await?;
    }
    context
        .step("without the pods, the NRTs are as before", async {
            let name = context.namespace.clone();
            context.undo(&Undo::DeleteNamespace { name }).await?;
            // the first scenario takes the NRTs of its start for those of a cluster without pods
            context
                .all_restored_within(limit, &cluster.facts.nodes)
                .await
        })
        .await?;
    context
        .step("the leases of the stack are held", leases(&context))
        .await?;
    context
        .step("no container of the stack has ended", async {
            let ended = health::ended(&cluster.client, before).await?;
            if ended.is_empty() {
                return Ok(());
            }
            Err(StepError::mismatch(
                format!(
                    "the stack in namespace {} does not run without interruption; the logs of these containers say why",
                    names::NAMESPACE
                ),
                "containers that have run since they were started",
                ended.join("; "),
            ))
        })
        .await
}

/// Returns the node of the pod.
async fn probe(context: &Context) -> Result<String, StepError> {
    context.create_namespace().await?;
    let request = ResourceRequest::Limits(Resources::literal("1c 64Mi"));
    let plan = PodPlan::new(PROBE, context.scheduler(), [request]);
    let pod = context.create(plan.pod()).await?;
    let running = context.pods_running(&[PROBE.to_owned()]).await?;
    context.scheduled_by_stack(&pod).await?;
    let nodes = running.iter().filter_map(node_of);
    let node = nodes.collect::<String>();
    context.recorder.saw(node.clone());
    Ok(node)
}

async fn leases(context: &Context) -> Result<(), StepError> {
    let mut first = FirstLook::new();
    let limit = context.deadlines().installed;
    context
        .until("the leases of the stack are held", limit, async || {
            let missing = health::lease_not_held(&context.client(), &mut first).await?;
            Ok(missing.map_or(PollResult::Ready(()), PollResult::NotYet))
        })
        .await
}

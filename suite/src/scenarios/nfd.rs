//! Placement by NRTs that node-feature-discovery's topology updater writes in place of the exporters (deployer.md 6). Their form is that of a
//! recorded one: its attributes, its policy in one word, its zones and resources, no fingerprint. Their amounts are those of the cluster's nodes.

use api::attributes::{POD_FINGERPRINT, TOPOLOGY_MANAGER_SCOPE};
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::Api;
use serde::Deserialize;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::ledger::Undo;
use crate::needs::Need;
use crate::observed::Scope;
use crate::resources::{CPU, Resources};
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const NEEDS: &[Need] = &[Need::nodes(2)];
/// What the updater wrote of a node with two zones, policy `single-numa-node` and scope `pod`. `docs/deployer.md` says how it is recorded.
const RECORDING: &str = include_str!("../../../scheduler/corpus/nfd.json");
const REQUEST: &str = "4c 1Gi";
/// What the NRTs say that each zone has left of nodes without room.
const NO_ROOM: &str = "1";

/// The part of the recording that is used.
#[derive(Deserialize)]
struct Recording {
    /// The object without a fingerprint.
    without: NodeResourceTopology,
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let placed = body(|ctx| Box::pin(placed(ctx)));
    vec![scenario("nfd/placed", NEEDS, placed)]
}

async fn placed(ctx: &Context) -> Result<(), StepError> {
    let request = Resources::literal(REQUEST);
    let title = format!("two nodes have a zone with {request}");
    let fit = Fit::Zone(request.clone());
    let (arena, scope) = steps::arena_of_one_scope(ctx, &title, &fit).await?;
    let before = steps::target_is_last_choice(ctx, &arena).await?;
    let groups = steps::exporters_pause(ctx).await?;
    let undos = ctx
        .step(
            "the NRTs are as the updater writes them, and only the target has room",
            replace(ctx, &arena, scope),
        )
        .await?;

    let resources = [ResourceRequest::Limits(request.clone())];
    let title = format!("a pod with {request} runs");
    let pod = steps::pod_runs(ctx, title, &arena.plan(ctx, "testpod", resources)).await?;
    let title = "it is on the node whose NRT has room";
    steps::pod_is_on(ctx, title, &pod, &before.node).await?;
    steps::stack_placed(ctx, &pod).await?;

    let zones = arena.nodes().iter().flat_map(|node| &node.zones);
    let largest = zones.map(|zone| zone.allocatable().milli(CPU)).max();
    let mut too_large = request.clone();
    too_large.set(CPU, largest.unwrap_or_default() + 1000);
    let reason = scope.alignment_failure();
    let title = format!("a pod with {too_large}, more than any zone has, stays pending: {reason}");
    let resources = [ResourceRequest::Limits(too_large)];
    let plan = arena.plan(ctx, "too-large", resources);
    steps::pod_stays_pending(ctx, title, &plan, reason).await?;

    ctx.step("the NRTs are those of the exporters again", async {
        for undo in &undos {
            ctx.undo(undo).await?;
        }
        Ok(())
    })
    .await?;
    steps::exporters_publish_again(ctx, &groups).await?;
    steps::one_zone_accounts_for(ctx, &before, &request).await
}

/// Puts the updater's objects in place of those of the exporters. All nodes but the target have no room in them.
async fn replace(ctx: &Context, arena: &Arena, scope: Scope) -> Result<Vec<Undo>, StepError> {
    let recording: Recording = serde_json::from_str(RECORDING)
        .map_err(|error| StepError::fail(format!("the recording is not readable: {error}")))?;
    let target = &arena.target().node;
    let objects = Api::<NodeResourceTopology>::all(ctx.client());
    let mut undos = Vec::new();
    for node in arena.names() {
        let published = objects.get(&node).await?;
        let mut written = in_form_of(&recording.without, &published, scope);
        if node != *target {
            let zones = written.zones.iter_mut();
            for cpu in zones.flat_map(|zone| &mut zone.resources) {
                if cpu.name == CPU {
                    cpu.available = Quantity(NO_ROOM.to_owned());
                }
            }
        }
        undos.push(ctx.replace_topology(&published, &written).await?);
        let now = ctx.topology(&node).await?;
        if let Some(fingerprint) = now.attribute(POD_FINGERPRINT) {
            let message = format!("the NRT of {node} has a fingerprint");
            return Err(StepError::mismatch(message, "none", fingerprint));
        }
    }
    Ok(undos)
}

/// Returns the object of a node as the updater writes it: everything but the amounts is as recorded.
fn in_form_of(
    recorded: &NodeResourceTopology,
    published: &NodeResourceTopology,
    scope: Scope,
) -> NodeResourceTopology {
    let mut written = recorded.clone();
    written.metadata = published.metadata.clone();
    written.metadata.annotations = None;
    let policy = match scope {
        Scope::Container => "SingleNUMANodeContainerLevel",
        Scope::Pod => "SingleNUMANodePodLevel",
    };
    written.topology_policies = vec![policy.to_owned()];
    for one in &mut written.attributes {
        if one.name == TOPOLOGY_MANAGER_SCOPE {
            scope.as_str().clone_into(&mut one.value);
        }
    }
    for zone in &mut written.zones {
        let known = published.zones.iter().find(|one| one.name == zone.name);
        let known = known.map_or(&[][..], |zone| &zone.resources);
        // a node may lack a resource that the recorded one has
        zone.resources
            .retain(|one| known.iter().any(|known| known.name == one.name));
        for one in &mut zone.resources {
            if let Some(known) = known.iter().find(|known| known.name == one.name) {
                one.clone_from(known);
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use api::nrt::attribute;
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn an_object_has_the_form_of_the_recorded_one_and_the_amounts_of_its_node() {
        let Recording { without } = serde_json::from_str(RECORDING).expect("a recording");
        let mut published = without.clone();
        published.metadata.name = Some("n".to_owned());
        published.attributes.clear();
        published.topology_policies.clear();
        let annotations = published.annotations_mut();
        annotations.insert(
            api::annotations::POD_FINGERPRINT.to_owned(),
            "pfp0".to_owned(),
        );
        for zone in &mut published.zones {
            zone.resources.retain(|one| one.name == CPU);
            zone.resources[0].available = Quantity("7".to_owned());
        }
        let written = in_form_of(&without, &published, Scope::Container);
        assert_eq!(written.name_any(), "n");
        assert!(written.annotations().is_empty());
        let of = |name| attribute(&written.attributes, name);
        assert_eq!(of("topologyManagerPolicy"), Some("single-numa-node"));
        assert_eq!(of("topologyManagerScope"), Some("container"));
        assert_eq!(written.attributes.len(), 2);
        assert_eq!(written.topology_policies, ["SingleNUMANodeContainerLevel"]);
        assert_eq!(written.zones, published.zones);
        assert_eq!(in_form_of(&without, &without, Scope::Pod), without);
    }
}

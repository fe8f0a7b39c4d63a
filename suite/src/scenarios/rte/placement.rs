//! What an NRT says of the zones of containers: the attributes of numaplacement (rte.md 7).
//!
//! The original sleeps for some periods where nothing may change. Here a barrier proves that the exporter has looked again.

use std::collections::BTreeMap;

use api::attributes::{NUMA_PLACEMENT_METADATA, NUMA_PLACEMENT_VECTOR};
use api::nrt::attribute;
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;

use super::NEEDS;
use super::published::some_node;
use crate::context::Context;
use crate::needs::Need;
use crate::observed::{NodeTopology, Zone, topology_of};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// Containers in the catalogue's notation; those that request nothing are empty.
enum Container {
    Limits(&'static str),
    Requests(&'static str),
    Nothing,
}

/// A pod, and how many of its containers hold something of a zone exclusively.
struct Row {
    id: &'static str,
    qos: &'static str,
    containers: [Container; 2],
    placed: usize,
    /// The sample device that a container holds.
    device: Option<&'static str>,
}

static ROWS: &[Row] = &[
    Row {
        id: "rte/placement-gu",
        qos: "Guaranteed",
        // the second one holds memory
        containers: [
            Container::Limits("1000m 250Mi"),
            Container::Limits("500m 250Mi"),
        ],
        placed: 2,
        device: None,
    },
    Row {
        id: "rte/placement-bu",
        qos: "Burstable",
        containers: [
            Container::Requests("1000m 250Mi"),
            Container::Requests("500m 32Mi"),
        ],
        placed: 0,
        device: None,
    },
    Row {
        id: "rte/placement-bu-exclusive",
        qos: "Burstable",
        containers: [
            Container::Limits("1000m d1=1"),
            Container::Requests("500m 32Mi"),
        ],
        placed: 1,
        device: Some("d1"),
    },
    Row {
        id: "rte/placement-be",
        qos: "BestEffort",
        containers: [Container::Nothing, Container::Nothing],
        placed: 0,
        device: None,
    },
    Row {
        id: "rte/placement-be-exclusive",
        qos: "BestEffort",
        containers: [Container::Limits("d1=1"), Container::Nothing],
        placed: 1,
        device: Some("d1"),
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let needs: Vec<Need> = NEEDS
            .iter()
            .cloned()
            .chain(row.device.map(Need::Device))
            .collect();
        scenario(row.id, &needs, body(move |ctx| Box::pin(follows(ctx, row))))
    };
    let stable = scenario(
        "rte/placement-stable",
        NEEDS,
        body(|ctx| Box::pin(is_stable(ctx))),
    );
    std::iter::once(stable)
        .chain(ROWS.iter().map(build))
        .collect()
}

/// What an NRT says of the zones of the containers on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placement {
    /// The attribute of the node.
    metadata: String,
    /// Number of containers that hold something of a zone.
    containers: usize,
    /// Number of zones.
    zones: usize,
    /// Zone with the most of these containers.
    busiest: u32,
    /// Attributes of the zones, by number of the zone.
    vectors: BTreeMap<u32, String>,
}

impl Placement {
    /// Reads the attributes of an NRT; `None` if it has none. The error says what is wrong with them.
    fn of(object: &NodeResourceTopology) -> Result<Option<Self>, String> {
        let Some(metadata) = attribute(&object.attributes, NUMA_PLACEMENT_METADATA) else {
            return Ok(None);
        };
        let flaw = |what: &str| format!("{NUMA_PLACEMENT_METADATA}={metadata}: {what}");
        let fields = metadata
            .strip_prefix("npv0v001::")
            .ok_or_else(|| flaw("does not begin with npv0v001"))?;
        let fields: BTreeMap<&str, &str> = fields
            .split("::")
            .filter_map(|field| field.split_once('='))
            .collect();
        if fields.get("ve") != Some(&"leb89") {
            return Err(flaw("has no encoding leb89"));
        }
        let number = |key: &str| -> Result<u32, String> {
            let found = fields.get(key).and_then(|value| value.parse().ok());
            found.ok_or_else(|| flaw(&format!("has no number {key}")))
        };
        let mut vectors = BTreeMap::new();
        for zone in &object.zones {
            let Some(vector) = attribute(&zone.attributes, NUMA_PLACEMENT_VECTOR) else {
                continue;
            };
            let id = zone
                .name
                .strip_prefix("node-")
                .and_then(|id| id.parse().ok());
            let id = id.ok_or_else(|| format!("zone {} has no number", zone.name))?;
            vectors.insert(id, vector.to_owned());
        }
        let wide = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Some(Self {
            containers: wide(number("cc")?),
            zones: wide(number("nn")?),
            busiest: number("bn")?,
            vectors,
            metadata: metadata.to_owned(),
        }))
    }

    /// Returns whether there are containers in a zone.
    fn has(&self, zone: u32) -> bool {
        self.vectors.contains_key(&zone) || (zone == self.busiest && self.containers > 0)
    }

    /// Returns what is wrong whatever the containers are (rte.md 7.2).
    fn flaw(&self) -> Option<String> {
        if let Some(vector) = self.vectors.get(&self.busiest) {
            return Some(format!(
                "the busiest zone {} has a vector {vector}",
                self.busiest
            ));
        }
        let vectors = self.vectors.len();
        (vectors >= self.containers.max(1)).then(|| {
            format!(
                "{vectors} zones have vectors for {} containers",
                self.containers
            )
        })
    }
}

/// Reads what the NRT of a node says now, and its zones at the same time.
async fn read(ctx: &Context, node: &str) -> Result<(Placement, NodeTopology), StepError> {
    find(ctx, node).await?.ok_or_else(|| {
        StepError::fail(format!(
            "the NRT of {node} has no attribute {NUMA_PLACEMENT_METADATA}"
        ))
    })
}

/// Like [`read`]; `None` if the NRT has no such attributes.
async fn find(ctx: &Context, node: &str) -> Result<Option<(Placement, NodeTopology)>, StepError> {
    let object = Api::<NodeResourceTopology>::all(ctx.client())
        .get(node)
        .await?;
    let Some(placement) = Placement::of(&object).map_err(StepError::fail)? else {
        return Ok(None);
    };
    let topology =
        NodeTopology::read(&object).map_err(|error| StepError::fail(error.to_string()))?;
    if placement.zones != topology.zones.len() {
        return Err(StepError::mismatch(
            format!("zones in {NUMA_PLACEMENT_METADATA}"),
            topology.zones.len(),
            placement.zones,
        ));
    }
    match placement.flaw() {
        None => Ok(Some((placement, topology))),
        Some(flaw) => Err(StepError::fail(format!("the NRT of {node}: {flaw}"))),
    }
}

/// Checks that an NRT has containers in every zone that has less than in the unloaded cluster. Exporters without numaplacement do not tell them.
pub(in crate::scenarios) async fn is_in_zones_that_gave(
    ctx: &Context,
    node: &str,
) -> Result<(), StepError> {
    let Some((placement, now)) = find(ctx, node).await? else {
        ctx.recorder.saw(format!("no {NUMA_PLACEMENT_METADATA}"));
        return Ok(());
    };
    let unloaded = topology_of(&ctx.facts().nodes, node)?;
    let without = zones_that_gave(unloaded, &now).find(|id| !placement.has(*id));
    match without {
        None => Ok(()),
        Some(id) => Err(StepError::mismatch(
            format!("the NRT of {node} tells of no container in zone {id}"),
            "containers in every zone that has less than without pods",
            format!("{placement:?}; {}", now.describe()),
        )),
    }
}

/// Takes a node, and what its NRT says of the containers there.
async fn begin(ctx: &Context) -> Result<(NodeTopology, Placement), StepError> {
    let node = ctx.step("the cluster is settled", some_node(ctx)).await?;
    let before = ctx
        .step("the NRT says in which zones containers are", async {
            let (placement, _) = read(ctx, &node.node).await?;
            ctx.recorder.saw(placement.metadata.clone());
            Ok(placement)
        })
        .await?;
    Ok((node, before))
}

async fn is_stable(ctx: &Context) -> Result<(), StepError> {
    let (node, before) = begin(ctx).await?;
    ctx.step("the exporter looked again and says the same", async {
        ctx.barrier(&node).await?;
        let (now, _) = read(ctx, &node.node).await?;
        if now == before {
            return Ok(());
        }
        let [before, now] = [before, now].map(|one| format!("{one:?}"));
        Err(StepError::mismatch("placement of containers", before, now))
    })
    .await
}

async fn follows(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let (node, before) = begin(ctx).await?;
    let devices = &ctx.facts().devices;
    let list = |text: &str| Resources::literal(text).with_devices(devices);
    let containers = row.containers.iter().map(|container| match container {
        Container::Limits(text) => ResourceRequest::Limits(list(text)),
        Container::Requests(text) => ResourceRequest::Requests(list(text)),
        Container::Nothing => ResourceRequest::Nothing,
    });
    let plan = PodPlan::new("testpod", "", containers).bound_to(&node.node);
    ctx.step(format!("a {} pod runs", row.qos), async {
        ctx.create(plan.pod()).await?;
        let pods = ctx.pods_running(&[plan.name().to_owned()]).await?;
        let status = pods.first().and_then(|pod| pod.status.as_ref());
        let seen = status.and_then(|status| status.qos_class.as_deref());
        if seen == Some(row.qos) {
            return Ok(());
        }
        Err(StepError::mismatch(
            "QoS class",
            row.qos,
            seen.unwrap_or_default(),
        ))
    })
    .await?;
    let expected = before.containers + row.placed;
    let title = format!("the NRT knows the zone of {} of its containers", row.placed);
    let (now, topology) = ctx
        .step(title, async {
            if row.placed == 0 {
                // nothing else shows that the exporter has seen the pod
                ctx.barrier(&node).await?;
            }
            let what = format!("the NRT counts {expected} containers");
            ctx.until(&what, ctx.deadlines().settled, async || {
                let (now, topology) = read(ctx, &node.node).await?;
                let is_so = now.containers == expected && (row.placed > 0 || now == before);
                Ok(if is_so {
                    PollResult::Ready((now, topology))
                } else {
                    PollResult::NotYet(format!("{now:?}"))
                })
            })
            .await
        })
        .await?;
    if let (Some(device), 0, 1) = (row.device, before.containers, row.placed) {
        let device = devices.0.get(device).map_or(device, String::as_str);
        ctx.step("it is the zone that gave the device", async {
            let held = zone_that_gave(device, &node, &topology);
            if held == Some(now.busiest) {
                return Ok(());
            }
            let held = held.map_or_else(|| "none".to_owned(), |id| id.to_string());
            Err(StepError::mismatch(
                "zone of the container",
                held,
                now.busiest,
            ))
        })
        .await?;
    }
    ctx.step(
        "after its deletion the NRT says what it said before",
        async {
            ctx.delete::<Pod>(plan.name()).await?;
            let settled = ctx.settle().await?;
            topology_of(&settled, &node.node)?;
            let limit = ctx.deadlines().settled;
            ctx.until("the attributes are as before", limit, async || {
                let (now, _) = read(ctx, &node.node).await?;
                Ok(if now == before {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("{now:?}"))
                })
            })
            .await
        },
    )
    .await
}

/// Returns the zone that has less of a resource than before.
fn zone_that_gave(resource: &str, before: &NodeTopology, now: &NodeTopology) -> Option<u32> {
    pairs(before, now)
        .find(|(old, new)| new.available().milli(resource) < old.available().milli(resource))
        .map(|(zone, _)| zone.id)
}

/// Returns the zones that have less of some resource than before.
fn zones_that_gave<'a>(
    before: &'a NodeTopology,
    now: &'a NodeTopology,
) -> impl Iterator<Item = u32> + 'a {
    pairs(before, now)
        .filter(|(old, new)| !old.available().fits_in(&new.available()))
        .map(|(zone, _)| zone.id)
}

/// Returns each zone as it was and as it is.
fn pairs<'a>(
    before: &'a NodeTopology,
    now: &'a NodeTopology,
) -> impl Iterator<Item = (&'a Zone, &'a Zone)> {
    before.zones.iter().filter_map(|old| {
        let new = now.zones.iter().find(|new| new.name == old.name)?;
        Some((old, new))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn mk(metadata: &str, vectors: [&str; 2]) -> NodeResourceTopology {
        let attribute = |name: &str, value: &str| match value {
            "" => json!([]),
            value => json!([{"name": name, "value": value}]),
        };
        let zone = |index: usize| {
            let attributes = attribute(NUMA_PLACEMENT_VECTOR, vectors[index]);
            json!({"name": format!("node-{index}"), "type": "Node", "attributes": attributes})
        };
        serde_json::from_value(json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": {"name": "n"}, "zones": [zone(0), zone(1)],
            "attributes": attribute(NUMA_PLACEMENT_METADATA, metadata),
        }))
        .unwrap()
    }

    #[test]
    fn attributes_are_read() {
        // rte.md 7.3, the case with five containers
        let object = mk("npv0v001::ve=leb89::cc=5::nn=2::bn=1", ["!'", ""]);
        let placement = Placement::of(&object).unwrap().unwrap();
        assert_eq!(placement.containers, 5);
        assert_eq!((placement.zones, placement.busiest), (2, 1));
        assert_eq!(placement.vectors, BTreeMap::from([(0, "!'".to_owned())]));
        assert_eq!(placement.flaw(), None);
        assert_eq!(Placement::of(&mk("", ["", ""])), Ok(None));
    }

    #[rstest]
    #[case::prefix("npv9v001::ve=leb89::cc=0::nn=2::bn=0", "does not begin with npv0v001")]
    #[case::encoding("npv0v001::ve=plain::cc=0::nn=2::bn=0", "has no encoding leb89")]
    #[case::number("npv0v001::ve=leb89::cc=x::nn=2::bn=0", "has no number cc")]
    fn unreadable_metadata_is_told(#[case] metadata: &str, #[case] flaw: &str) {
        let error = Placement::of(&mk(metadata, ["", ""])).unwrap_err();
        assert!(error.ends_with(flaw), "{error}");
    }

    #[rstest]
    #[case::busiest("npv0v001::ve=leb89::cc=2::nn=2::bn=1", ["", "#"], "the busiest zone 1 has a vector")]
    #[case::one_container("npv0v001::ve=leb89::cc=1::nn=2::bn=1", ["#", ""], "1 zones have vectors for 1 containers")]
    #[case::no_container("npv0v001::ve=leb89::cc=0::nn=2::bn=1", ["#", ""], "1 zones have vectors for 0 containers")]
    fn vectors_that_cannot_be_are_told(
        #[case] metadata: &str,
        #[case] vectors: [&str; 2],
        #[case] flaw: &str,
    ) {
        let placement = Placement::of(&mk(metadata, vectors)).unwrap().unwrap();
        assert!(placement.flaw().is_some_and(|seen| seen.starts_with(flaw)));
    }
}

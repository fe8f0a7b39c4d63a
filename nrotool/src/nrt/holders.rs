//! Which container holds what in which zone (rte.md 7; scheduler.md 6).

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use nrt::placement::{self, Container};
use serde::Serialize;
use topology::mask::ZoneId;
use topology::resource::Resources;

use super::amount;
use super::place::Place;

/// A container with what it holds exclusively.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Holder {
    /// Namespace of its pod.
    pub(crate) namespace: String,
    /// Name of its pod.
    pub(crate) pod: String,
    /// Its name.
    pub(crate) container: String,
    /// What it holds.
    #[serde(serialize_with = "quantities")]
    pub(crate) holds: Resources,
}

fn quantities<S: serde::Serializer>(list: &Resources, serializer: S) -> Result<S::Ok, S::Error> {
    amount::all_exact(list).serialize(serializer)
}

/// The holders of a node.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Those of which the zone is known.
    pub(super) by_zone: BTreeMap<ZoneId, Vec<Holder>>,
    /// The others.
    pub(super) elsewhere: Vec<Holder>,
    /// Why zones are not known, if there is a holder.
    pub(super) note: Option<String>,
}

/// Finds the holders of a node. Their zones are known if the NodeResourceTopology publishes a placement of exactly these containers.
pub(super) fn of(place: &Place<'_>) -> Held {
    let mut all: Vec<Holder> = Vec::new();
    for known in &place.pods {
        let containers = known.request.exclusive_containers(place.zoned());
        all.extend(containers.into_iter().map(|(container, holds)| Holder {
            namespace: known.pod.namespace().unwrap_or_default(),
            pod: known.pod.name_any(),
            container: container.name.clone(),
            holds,
        }));
    }
    all.sort_by(|one, other| one.key().cmp(&other.key()));
    let unknown = |all: Vec<Holder>, note: String| Held {
        note: (!all.is_empty()).then_some(note),
        elsewhere: all,
        by_zone: BTreeMap::new(),
    };
    let Some(encoded) = &place.topology.placement else {
        return unknown(
            all,
            "its exporter does not say in which zone containers are".to_owned(),
        );
    };
    let zones: BTreeMap<(String, String, String), usize> =
        match placement::decode(encoded, all.iter().map(Holder::key)) {
            Ok(zones) => zones
                .into_iter()
                .map(|(container, zone)| (owned(&container), zone))
                .collect(),
            Err(error) => {
                return unknown(
                    all,
                    format!("the zones of containers are not known: {error}"),
                );
            }
        };
    let mut held = Held::default();
    for holder in all {
        let zone = zones.get(&owned(&holder.key()));
        match zone.and_then(|zone| ZoneId::new(*zone as u64)) {
            Some(zone) => held.by_zone.entry(zone).or_default().push(holder),
            None => held.elsewhere.push(holder),
        }
    }
    held
}

impl Holder {
    fn key(&self) -> Container<'_> {
        Container {
            namespace: &self.namespace,
            pod: &self.pod,
            container: &self.container,
        }
    }
}

fn owned(container: &Container<'_>) -> (String, String, String) {
    let Container {
        namespace,
        pod,
        container,
    } = container;
    (
        (*namespace).to_owned(),
        (*pod).to_owned(),
        (*container).to_owned(),
    )
}

//! Slices that mirror Endpoints which users wrote for services without a selector.
//!
//! Follows the endpoint slice mirroring controller of Kubernetes 1.35.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use super::shape::slice_ports;
use super::{
    Controller, MANAGED_BY, SERVICE_NAME, TRIGGER, has_selector, ignore_terminating, is_managed_by,
};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

/// Value of the label of slices with their controller.
pub(super) const MIRROR_MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Label of Endpoints that are not mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of Endpoints that only hold a lock.
const LOCK: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotation of `kubectl apply`.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most addresses of a subset that are mirrored.
const MOST: usize = 1000;

/// What the endpoints of one slice have in common: kind of address, and ports.
type Group = (&'static str, String);

/// The endpoints that are mirrored, and how many were left out.
#[derive(Default)]
struct Mirrored {
    slices: BTreeMap<Group, (Vec<SlicePort>, Vec<Endpoint>)>,
    invalid: usize,
    surplus: usize,
}

fn group(kind: &'static str, ports: &[SlicePort]) -> Group {
    let texts: BTreeSet<String> = ports.iter().map(objects::canonical).collect();
    (kind, objects::canonical(&texts))
}

/// Returns an address as an endpoint, with its kind; `None` if it is no IP address.
fn endpoint(address: &EndpointAddress, ready: bool) -> Option<(&'static str, Endpoint)> {
    let ip: IpAddr = address.ip.parse().ok()?;
    let kind = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((kind, endpoint))
}

fn mirrored(endpoints: &Endpoints) -> Mirrored {
    let mut mirrored = Mirrored::default();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = slice_ports(subset.ports.as_deref().unwrap_or_default());
        let ready = subset.addresses.iter().flatten().map(|one| (one, true));
        let waiting = subset.not_ready_addresses.iter().flatten();
        let mut taken = 0;
        for (address, is_ready) in ready.chain(waiting.map(|one| (one, false))) {
            if taken == MOST {
                mirrored.surplus += 1;
                continue;
            }
            let Some((kind, endpoint)) = endpoint(address, is_ready) else {
                mirrored.invalid += 1;
                continue;
            };
            taken += 1;
            let slice = mirrored.slices.entry(group(kind, &ports));
            let (_, endpoints) = slice.or_insert_with(|| (ports.clone(), Vec::new()));
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
    }
    mirrored
}

fn slice(
    endpoints: &Endpoints,
    kind: &str,
    ports: Vec<SlicePort>,
    all: Vec<Endpoint>,
) -> EndpointSlice {
    let name = endpoints.name_any();
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MIRROR_MANAGER.to_owned());
    let mut annotations = endpoints.annotations().clone();
    annotations.retain(|key, _| key != TRIGGER && key != APPLIED);
    EndpointSlice {
        address_type: kind.to_owned(),
        endpoints: all,
        ports: Some(ports).filter(|ports| !ports.is_empty()),
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|map| !map.is_empty()),
            owner_references: Some(vec![objects::control(endpoints)]),
            ..ObjectMeta::default()
        },
    }
}

impl Controller {
    /// Brings the slices that mirror the Endpoints of a key up to date.
    pub(super) async fn mirror(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let held = self.world.slices.indexed(&key.to_string());
        let ours = held
            .into_iter()
            .filter(|slice| is_managed_by(slice, MIRROR_MANAGER));
        let mut left: Vec<Arc<EndpointSlice>> = ours.collect();
        let service = self.world.services.get(key);
        let is_for_users = service.is_some_and(|service| !has_selector(&service));
        let endpoints = self.world.endpoints.get(key).filter(|endpoints| {
            let is_skipped = endpoints
                .labels()
                .get(SKIP)
                .is_some_and(|skip| skip == "true");
            is_for_users && !is_skipped && !endpoints.annotations().contains_key(LOCK)
        });
        if let Some(endpoints) = endpoints {
            self.write_mirrored(&endpoints, &mut left).await?;
        }
        for slice in left {
            self.world
                .slices
                .delete(&slice, &DeleteParams::default())
                .await?;
        }
        Ok(())
    }

    /// Writes the slices of Endpoints; takes those that stay out of `held`.
    async fn write_mirrored(
        &self,
        endpoints: &Endpoints,
        held: &mut Vec<Arc<EndpointSlice>>,
    ) -> Result<(), kube::Error> {
        let Mirrored {
            slices,
            invalid,
            surplus,
        } = mirrored(endpoints);
        if invalid > 0 {
            let what =
                format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.events.warning(endpoints, "InvalidIPAddress", what);
        }
        if surplus > 0 {
            let what = format!(
                "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {surplus} addresses were skipped"
            );
            self.events
                .warning(endpoints, "TooManyAddressesToMirror", what);
        }
        let mut missing = Vec::new();
        for ((kind, ports), (list, all)) in slices {
            let mut wanted = slice(endpoints, kind, list, all);
            let same = held.iter().position(|slice| {
                let own = slice.ports.as_deref().unwrap_or_default();
                slice.address_type == kind && group(kind, own).1 == ports
            });
            let Some(place) = same else {
                missing.push(wanted);
                continue;
            };
            let found = held.swap_remove(place);
            let meta = &found.metadata;
            let is_same = found.endpoints == wanted.endpoints
                && meta.labels == wanted.metadata.labels
                && meta.annotations == wanted.metadata.annotations
                && meta.owner_references == wanted.metadata.owner_references;
            if !is_same {
                replaced_meta(&mut wanted, &found);
                self.world.slices.replace(&wanted).await?;
            }
        }
        for mut wanted in missing {
            // a slice that is no longer wanted is used again
            let spare = held
                .iter()
                .position(|slice| slice.address_type == wanted.address_type);
            if let Some(place) = spare {
                replaced_meta(&mut wanted, &held.swap_remove(place));
                self.world.slices.replace(&wanted).await?;
            } else {
                let namespace = objects::namespace(endpoints);
                let made = self.world.slices.create(namespace, &wanted).await;
                ignore_terminating(made.map(|_| ()))?;
            }
        }
        Ok(())
    }
}

/// Gives a slice the identity of the one that it replaces.
fn replaced_meta(wanted: &mut EndpointSlice, held: &EndpointSlice) {
    wanted.metadata = ObjectMeta {
        labels: wanted.metadata.labels.take(),
        annotations: wanted.metadata.annotations.take(),
        owner_references: wanted.metadata.owner_references.take(),
        ..held.metadata.clone()
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slice_has_the_addresses_of_one_kind_and_the_same_ports() {
        let endpoints = json!({"metadata": {"name": "db"}, "subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "nonsense"}], "notReadyAddresses": [{"ip": "fd00::1"}],
                "ports": [{"port": 1, "protocol": "TCP"}]},
            {"addresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 1, "protocol": "TCP"}]},
            {"addresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 2, "protocol": "TCP"}]},
        ]});
        let found = mirrored(&serde_json::from_value(endpoints).unwrap());
        assert_eq!((found.invalid, found.surplus), (1, 0));
        let addresses = found.slices.into_iter().map(|((kind, _), (_, endpoints))| {
            let addresses = endpoints.into_iter().flat_map(|one| one.addresses);
            (kind, addresses.collect::<Vec<_>>())
        });
        let expected = [
            ("IPv4", vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()]),
            ("IPv4", vec!["10.0.0.3".to_owned()]),
            ("IPv6", vec!["fd00::1".to_owned()]),
        ];
        assert_eq!(addresses.collect::<Vec<_>>(), expected);
    }
}

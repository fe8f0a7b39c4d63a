//! Applies everything that the operator installs to an API server, twice.

use api::operator::v1::{NodeGroup, NumaResourcesOperator};
use apply::{Applier, Outcome};
use manifests::platform::Platform;
use manifests::rte::{NodeSelection, Pool};
use manifests::{operator, rte, scheduler, to_value};
use rstest::rstest;
use serde_json::Value;

use crate::server;

const NAMESPACE: &str = "numaresources";

fn objects() -> Vec<Value> {
    let rte_options = rte::Options::new(NAMESPACE, Platform::Kubernetes, "i");
    let pool = |name: &str, nodes| Pool {
        name: name.into(),
        nodes,
        config: NodeGroup::default().normalized_config(),
        config_hash: String::new(),
        config_is_partial: false,
        custom_selinux_policy: false,
    };
    let labels = [("node-role.kubernetes.io/numa".to_owned(), String::new())].into();
    let pools = [
        pool("a", NodeSelection::Labels(labels)),
        pool("b", NodeSelection::NotControlPlane),
    ];
    let scheduler_options = scheduler::Options {
        guaranteed: true,
        ..scheduler::Options::new(NAMESPACE, Platform::Kubernetes, "i")
    };
    let mut all: Vec<Value> = api::crd::all().iter().map(to_value).collect();
    all.extend(operator::Set::new(&operator::Options::default()).objects());
    all.extend(rte::Set::new(&rte_options, &pools).objects());
    all.extend(scheduler::Set::new(&scheduler_options).unwrap().objects());
    all.extend(operator::users::roles().iter().map(to_value));
    all
}

fn exporter_alone() -> Vec<Value> {
    let mut all = vec![to_value(&api::crd::node_resource_topology())];
    all.extend(rte::standalone::objects("registry.example/stack:1"));
    all
}

#[rstest]
#[case::operator_and_operands(objects())]
#[case::exporter_alone(exporter_alone())]
#[tokio::test]
async fn every_object_is_accepted_and_is_right_at_once(#[case] all: Vec<Value>) {
    let plane = server().await;
    let client = plane.client().await.unwrap();
    let applied = Applier::new(client.clone()).apply_all(&all).await.unwrap();
    assert!(
        applied
            .iter()
            .all(|applied| applied.outcome == Outcome::Created)
    );
    // the stored object contains every field that was sent: the server knows all of them
    for (object, applied) in all.iter().zip(&applied) {
        let stored = serde_json::to_value(&applied.object).unwrap();
        assert!(
            apply::merge::covers(&stored, object),
            "sent:\n{object:#}\nstored:\n{stored:#}"
        );
    }
    let again = Applier::new(client.clone()).apply_all(&all).await.unwrap();
    let changed: Vec<&Value> = all
        .iter()
        .zip(&again)
        .filter(|(_, applied)| applied.outcome != Outcome::Unchanged)
        .map(|(object, _)| object)
        .collect();
    assert!(changed.is_empty(), "written again: {changed:#?}");
    let applier = Applier::new(client);
    assert_eq!(applier.delete_all(&all).await.unwrap(), all.len());
}

#[test]
fn owners_are_controllers_and_need_an_identity() {
    let mut cr = NumaResourcesOperator::new(
        "numaresourcesoperator",
        api::operator::v1::NumaResourcesOperatorSpec::default(),
    );
    assert_eq!(apply::controller_reference(&cr), None);
    cr.metadata.uid = Some("u".into());
    let owner = apply::controller_reference(&cr).unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.api_version.as_str()),
        ("NUMAResourcesOperator", "nodetopology.openshift.io/v1")
    );
    assert_eq!(owner.controller, Some(true));
    let mut object =
        to_value(&manifests::operator::Set::new(&operator::Options::default()).service);
    apply::set_owner(&mut object, &owner);
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u");
}

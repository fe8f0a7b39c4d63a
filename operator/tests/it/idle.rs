//! Checks that the operator writes nothing when nothing changes. Runs on the embedded server, which counts requests.

use api::operator::v1::NumaResourcesOperator;
use cluster_faults::{Fault, Rule, Selector};
use cluster_spec::flavour::Flavour;
use kube::api::{Api, PostParams};
use rstest::rstest;
use serde_json::json;
use testbed::lane::Lane;

use crate::cluster::{Cluster, its, within};
use crate::exporters::{CR, DS_A, DS_B, conditions, cr, make_ready};

/// Groups in which the operator writes, except the one of its lease.
const GROUPS: [&str; 10] = [
    "",
    "admissionregistration.k8s.io",
    "apps",
    "apiextensions.k8s.io",
    "events.k8s.io",
    "machineconfiguration.openshift.io",
    "networking.k8s.io",
    "nodetopology.openshift.io",
    "rbac.authorization.k8s.io",
    "security.openshift.io",
];
const RECONCILIATIONS: u64 = 100;

/// Selects the operator's requests in a group with these verbs.
fn its_in(group: &str, verbs: &[&str]) -> Selector {
    Selector {
        group: Some(group.to_owned()),
        ..its(verbs)
    }
}

/// Returns a rule that counts requests and changes nothing.
fn counted(select: Selector) -> Rule {
    Rule::new(select, Fault::Delay { milliseconds: 0 })
}

#[rstest]
#[case::kubernetes(None)]
#[case::openshift(Some(Flavour::Openshift))]
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reconciliations_without_a_change_write_nothing(
    #[case] flavour: Option<Flavour>,
) {
    let cluster = Cluster::start_with(Lane::Embedded, flavour).await;
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let pools = json!({"nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-b"}]});
    crs.create(&PostParams::default(), &cr(&pools))
        .await
        .unwrap();
    make_ready(&cluster, DS_A).await;
    make_ready(&cluster, DS_B).await;
    cluster
        .condition(&crs, CR, conditions, ("Available", "Available", ""))
        .await;

    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    let resource = Selector {
        resource: Some("numaresourcesoperators".to_owned()),
        ..its_in("nodetopology.openshift.io", &["get"])
    };
    let reconciliations = faults.add(counted(resource));
    let touch = async |moment: u64| {
        let annotations = json!({"metadata": {"annotations": {"touched": moment.to_string()}}});
        cluster.merge(&crs, CR, annotations).await;
        let struck = faults.wait_for_hits(reconciliations, moment);
        within("the operator looks at what was touched", struck).await;
    };
    // objects that were written last are read once more, because they are not yet known to be up to date
    for moment in 1..=2 {
        touch(moment).await;
    }
    let writes = ["create", "update", "patch", "delete"];
    let rules: Vec<_> = GROUPS
        .iter()
        .map(|group| faults.add(counted(its_in(group, &writes))))
        .collect();
    let before = faults.hits(reconciliations);
    // a reconciliation is known to be complete when the next one begins
    for moment in 1..=RECONCILIATIONS + 1 {
        touch(before + moment).await;
    }
    for rule in rules {
        let status = faults.remove(rule).unwrap();
        assert_eq!(status.hits, 0, "{status:?}");
    }
}

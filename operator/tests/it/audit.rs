//! Compares the operator's permissions with its requests from start to end. Runs on the embedded server, which records the decisions of its
//! authorizers.

use std::collections::BTreeSet;

use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::api::{Api, DeleteParams, PostParams};
use rstest::rstest;
use serde_json::json;
use testbed::api_server::Decision;
use testbed::configz::ConfigzKubelet;
use testbed::permissions::{self, Findings, Permission, RequiredPermission};

use crate::cluster::NAMESPACE;
use crate::exporters::CR;
use crate::installation::{Installation, SCHEDULER_CR, hosted_settings, simulate_controllers};

/// What no request uses, but what admission plugins ask for: with OwnerReferencesPermissionEnforcement, which OpenShift has, whoever writes a
/// reference that blocks the deletion of an owner must be able to write the owner's finalizers.
const FINALIZERS: RequiredPermission = RequiredPermission {
    line: "operator.md 6.7: both CRs /finalizers update",
    verbs: &["update"],
    groups: &["nodetopology.openshift.io"],
    resources: &[
        "numaresourcesoperators/finalizers",
        "numaresourcesschedulers/finalizers",
    ],
};
/// The same for the owners of ConfigMaps with the settings of kubelets.
const FINALIZERS_OF_KUBELET_CONFIGS: RequiredPermission = RequiredPermission {
    line: "operator.md 6.7: kubeletconfigs/finalizers update",
    verbs: &["update"],
    groups: &["machineconfiguration.openshift.io"],
    resources: &["kubeletconfigs/finalizers"],
};

/// Returns the permissions in the roles of the operator's account.
async fn granted(installation: &Installation) -> BTreeSet<Permission> {
    let client = &installation.cluster.client;
    let cluster_roles: Api<ClusterRole> = Api::all(client.clone());
    let role = cluster_roles
        .get("numaresources-manager-role")
        .await
        .unwrap();
    let mut permissions = Permission::all_of(&role.rules.unwrap(), None);
    let reader = cluster_roles
        .get_opt("numaresources-kubelet-reader-role")
        .await
        .unwrap();
    if let Some(rules) = reader.and_then(|reader| reader.rules) {
        permissions.extend(Permission::all_of(&rules, None));
    }
    let roles: Api<Role> = installation.cluster.namespaced();
    for name in [
        "numaresources-manager-role",
        "numaresources-leader-election-role",
    ] {
        let role = roles.get(name).await.unwrap();
        permissions.extend(Permission::all_of(&role.rules.unwrap(), Some(NAMESPACE)));
    }
    permissions
}

/// The decisions about an operator's requests, and the permissions that it has and passes on.
struct Life {
    decisions: Vec<Decision>,
    granted: BTreeSet<Permission>,
    handed_on: BTreeSet<Permission>,
}

/// Runs an operator that installs, follows changes, repairs damage, deletes what is dropped, and stops.
async fn life(flavour: Option<Flavour>) -> Life {
    let mut installation = Installation::new(flavour).await;
    let kubelet = ConfigzKubelet::start(json!({"topologyManagerPolicy": "single-numa-node"}));
    let kubelet = kubelet.await.unwrap();
    let nodes: Api<Node> = Api::all(installation.cluster.client.clone());
    match flavour {
        // the installation has a KubeletConfig already
        Some(Flavour::Openshift) => {}
        Some(Flavour::Hypershift) => {
            // the schedulers of a hosted cluster run on its workers (operator.md 5.5)
            let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}});
            installation.cluster.merge(&nodes, "worker-0", role).await;
            let maps: Api<ConfigMap> = Api::namespaced(
                installation.cluster.client.clone(),
                "openshift-config-managed",
            );
            let map = serde_json::from_value(hosted_settings()).unwrap();
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
        None => {
            let status = kubelet.node_status();
            installation
                .cluster
                .report(&nodes, "worker-0", status)
                .await;
        }
    }
    let granted = granted(&installation).await;
    let client = installation.cluster.client.clone();
    installation.cluster.record_decisions();
    installation.cluster.start_operator(&[]);
    let course = async {
        installation.create_resources().await;
        installation.is_available().await;
        let installed = installation.objects().await;

        // without owner references every object needs a repair
        installation.disown().await;
        installation.becomes(&installed).await;

        let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
        let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
        let excluded = json!([{"namespace": "a", "name": "b"}]);
        let changed = json!({"spec": {"logLevel": "Trace", "podExcludes": excluded}});
        installation.cluster.merge(&operators, CR, changed).await;
        let changed = json!({"spec": {"logLevel": "Trace"}});
        installation
            .cluster
            .merge(&schedulers, SCHEDULER_CR, changed)
            .await;
        let dropped = json!({"spec": {"nodeGroups": [{"poolName": "numa-b"}]}});
        installation.cluster.merge(&operators, CR, dropped).await;
        installation.has_no("numaresourcesoperator-numa-a").await;
        installation.is_available().await;

        let handed_on = handed_on(&installation).await;
        let at_once = DeleteParams::default();
        operators.delete(CR, &at_once).await.unwrap();
        schedulers.delete(SCHEDULER_CR, &at_once).await.unwrap();
        handed_on
    };
    let handed_on = tokio::select! {
        handed_on = course => handed_on,
        () = simulate_controllers(client.clone()) => unreachable!("it never ends"),
    };
    assert_eq!(installation.cluster.stop(), Some(0));
    Life {
        decisions: installation.cluster.decisions(),
        granted,
        handed_on,
    }
}

/// Returns the permissions in the operands' roles. The operator must have each permission that it grants.
async fn handed_on(installation: &Installation) -> BTreeSet<Permission> {
    let client = &installation.cluster.client;
    let cluster_roles: Api<ClusterRole> = Api::all(client.clone());
    let roles: Api<Role> = installation.cluster.namespaced();
    let mut permissions = BTreeSet::new();
    for name in ["rte", "topology-aware-scheduler"] {
        let role = cluster_roles.get(name).await.unwrap();
        permissions.extend(Permission::all_of(&role.rules.unwrap(), None));
    }
    for name in ["rte", "topology-aware-scheduler-leader-elect"] {
        let role = roles.get(name).await.unwrap();
        permissions.extend(Permission::all_of(&role.rules.unwrap(), Some(NAMESPACE)));
    }
    permissions
}

#[rstest]
#[case::kubernetes(None, &[FINALIZERS])]
#[case::openshift(Some(Flavour::Openshift), &[FINALIZERS, FINALIZERS_OF_KUBELET_CONFIGS])]
#[case::hosted(Some(Flavour::Hypershift), &[FINALIZERS])]
#[tokio::test(flavor = "multi_thread")]
async fn permissions_on_a_platform_are_used_there_handed_on_or_demanded(
    #[case] flavour: Option<Flavour>,
    #[case] demanded: &[RequiredPermission],
) {
    let life = life(flavour).await;
    let own = life.granted.difference(&life.handed_on).cloned().collect();
    assert_eq!(
        permissions::compare(&own, &life.decisions, demanded),
        Findings::default()
    );
}

//! Follows the operator resource from its creation until a pool is dropped and the operator stops.

use api::operator::v1::NumaResourcesOperator;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, within};

pub(crate) const CR: &str = "numaresourcesoperator";
pub(crate) const DS_A: &str = "numaresourcesoperator-numa-a";
pub(crate) const DS_B: &str = "numaresourcesoperator-numa-b";

pub(crate) fn conditions(cr: &NumaResourcesOperator) -> Vec<Condition> {
    cr.status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default()
}

pub(crate) fn cr(spec: &Value) -> NumaResourcesOperator {
    serde_json::from_value(json!({"metadata": {"name": CR}, "spec": spec})).unwrap()
}

fn args(set: &DaemonSet) -> Vec<String> {
    set.spec
        .as_ref()
        .unwrap()
        .template
        .spec
        .as_ref()
        .unwrap()
        .containers[0]
        .args
        .clone()
        .unwrap()
}

/// Reports one ready pod on one node.
pub(crate) async fn make_ready(cluster: &Cluster, name: &str) {
    let sets: Api<DaemonSet> = cluster.namespaced();
    let generation = cluster.appears(&sets, name).await.metadata.generation;
    let status = json!({
        "observedGeneration": generation, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0,
        "numberReady": 1, "updatedNumberScheduled": 1,
    });
    cluster.report(&sets, name, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_resource_is_installed_kept_and_reported() {
    let mut cluster = Cluster::start().await;
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let pools = json!({"nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-b"}]});
    crs.create(&PostParams::default(), &cr(&pools))
        .await
        .unwrap();
    creates_everything_and_reports_progress(&cluster, &crs).await;
    waits_for_every_daemon_set(&cluster, &crs).await;
    changes_only_what_depends_on_an_edit(&cluster, &crs).await;
    repairs_foreign_changes(&cluster).await;
    reports_errors_and_recovers(&cluster, &crs).await;
    deletes_the_daemon_set_of_a_dropped_pool(&cluster, &crs).await;

    healthy(&cluster).await;
    assert_eq!(cluster.stop(), Some(0));
    let leases: Api<Lease> = cluster.namespaced();
    let lease = leases.get("0e2a6bd3.openshift-kni.io").await.unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
    assert_eq!(holder, "", "the lease is given back");
}

async fn creates_everything_and_reports_progress(
    cluster: &Cluster,
    crs: &Api<NumaResourcesOperator>,
) {
    let message = format!("numaresources/{DS_A} is updating");
    cluster
        .condition(
            crs,
            CR,
            conditions,
            ("Progressing", "Progressing", &message),
        )
        .await;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    cluster
        .appears(&definitions, "noderesourcetopologies.topology.node.k8s.io")
        .await;
    let sets: Api<DaemonSet> = cluster.namespaced();
    let set = cluster.appears(&sets, DS_A).await;
    let template = set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(
        template.node_selector.as_ref().unwrap()["node-role.kubernetes.io/numa-a"],
        ""
    );
    assert_eq!(set.owner_references()[0].name, CR);
}

/// Checks that one ready DaemonSet of two does not make the resource available.
async fn waits_for_every_daemon_set(cluster: &Cluster, crs: &Api<NumaResourcesOperator>) {
    make_ready(cluster, DS_B).await;
    cluster
        .eventually(|| async {
            let status = crs.get(CR).await.unwrap().status.unwrap_or_default();
            let ready: Vec<&str> = status
                .daemonsets
                .iter()
                .map(|set| set.name.as_str())
                .collect();
            if ready == [DS_B] {
                Ok(())
            } else {
                Err(format!("{ready:?}"))
            }
        })
        .await;
    make_ready(cluster, DS_A).await;
    let live = cluster
        .condition(crs, CR, conditions, ("Available", "Available", ""))
        .await;
    let status = live.status.unwrap();
    let types: Vec<&str> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(
        types,
        [
            "Available",
            "Upgradeable",
            "Progressing",
            "Degraded",
            "MachineConfigPoolPaused"
        ]
    );
    let groups: Vec<(&str, &str)> = status
        .node_groups
        .iter()
        .map(|group| (group.pool_name.as_str(), group.daemon_set.name.as_str()))
        .collect();
    assert_eq!(groups, [("numa-a", DS_A), ("numa-b", DS_B)]);
    assert_eq!(
        status.node_groups[0].config.info_refresh_period.as_deref(),
        Some("10s")
    );
    assert_eq!(status.related_objects.len(), 6);
}

async fn deletes_the_daemon_set_of_a_dropped_pool(
    cluster: &Cluster,
    crs: &Api<NumaResourcesOperator>,
) {
    let sets: Api<DaemonSet> = cluster.namespaced();
    cluster
        .merge(
            crs,
            CR,
            json!({"spec": {"nodeGroups": [{"poolName": "numa-b"}]}}),
        )
        .await;
    cluster
        .eventually(|| async {
            if sets.get_opt(DS_A).await.unwrap().is_none() {
                Ok(())
            } else {
                Err("still there".into())
            }
        })
        .await;
    assert!(sets.get_opt(DS_B).await.unwrap().is_some());
}

async fn changes_only_what_depends_on_an_edit(cluster: &Cluster, crs: &Api<NumaResourcesOperator>) {
    let sets: Api<DaemonSet> = cluster.namespaced();
    let accounts: Api<ServiceAccount> = cluster.namespaced();
    let cluster_roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let account = accounts.get("rte").await.unwrap().resource_version();
    let cluster_role = cluster_roles.get("rte").await.unwrap().resource_version();
    cluster
        .merge(crs, CR, json!({"spec": {"logLevel": "Trace"}}))
        .await;
    cluster
        .eventually(|| async {
            let args = args(&sets.get(DS_A).await.unwrap());
            if args.contains(&"-v=6".to_owned()) {
                Ok(())
            } else {
                Err(format!("{args:?}"))
            }
        })
        .await;
    assert_eq!(
        accounts.get("rte").await.unwrap().resource_version(),
        account
    );
    assert_eq!(
        cluster_roles.get("rte").await.unwrap().resource_version(),
        cluster_role
    );
}

/// Checks that foreign changes are reverted: a deleted role, an edited ClusterRole, an edited DaemonSet.
async fn repairs_foreign_changes(cluster: &Cluster) {
    let sets: Api<DaemonSet> = cluster.namespaced();
    let cluster_roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let roles: Api<Role> = cluster.namespaced();
    let old = roles.get("rte").await.unwrap().uid();
    roles.delete("rte", &DeleteParams::default()).await.unwrap();
    cluster
        .eventually(|| async {
            let found = roles
                .get_opt("rte")
                .await
                .unwrap()
                .and_then(|role| role.uid());
            if found.is_some() && found != old {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    let granted = cluster_roles.get("rte").await.unwrap().rules;
    assert!(granted.as_ref().is_some_and(|rules| !rules.is_empty()));
    cluster
        .merge(&cluster_roles, "rte", json!({"rules": []}))
        .await;
    cluster
        .eventually(|| async {
            let rules = cluster_roles.get("rte").await.unwrap().rules;
            if rules == granted {
                Ok(())
            } else {
                Err(format!("{rules:?}"))
            }
        })
        .await;
    cluster
        .merge(
            &sets,
            DS_B,
            json!({"spec": {"template": {"spec": {"nodeSelector": {"foreign": "1"}}}}}),
        )
        .await;
    cluster
        .eventually(|| async {
            let set = sets.get(DS_B).await.unwrap();
            let selector = set
                .spec
                .unwrap()
                .template
                .spec
                .unwrap()
                .node_selector
                .unwrap();
            if selector.len() == 1 {
                Ok(())
            } else {
                Err(format!("{selector:?}"))
            }
        })
        .await;
}

async fn reports_errors_and_recovers(cluster: &Cluster, crs: &Api<NumaResourcesOperator>) {
    let duplicates =
        json!({"spec": {"nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-a"}]}});
    cluster.merge(crs, CR, duplicates).await;
    let wanted = (
        "Degraded",
        "ValidationErrorUnderNodeGroups",
        "the pool name \"numa-a\" has duplicates",
    );
    let live = cluster.condition(crs, CR, conditions, wanted).await;
    assert_eq!(
        live.status.unwrap().conditions[3].observed_generation,
        live.metadata.generation
    );
    cluster
        .merge(crs, CR, json!({"spec": {"imageSpec": "some/image:tag"}}))
        .await;
    let wanted = (
        "Degraded",
        "CustomUserImage",
        "custom operand image is not supported: some/image:tag",
    );
    cluster.condition(crs, CR, conditions, wanted).await;
    let sound = json!({"spec": {"imageSpec": null, "nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-b"}]}});
    cluster.merge(crs, CR, sound).await;
    make_ready(cluster, DS_A).await;
    make_ready(cluster, DS_B).await;
    cluster
        .condition(crs, CR, conditions, ("Available", "Available", ""))
        .await;
}

async fn healthy(cluster: &Cluster) {
    for path in ["/healthz", "/readyz"] {
        let asked = async {
            let mut stream = TcpStream::connect(cluster.health()).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = within("the operator answers the health check", asked).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

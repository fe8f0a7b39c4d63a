//! Tests the operator on OpenShift: machine config pools, and hosted clusters without them.

use api::openshift::machine_config::{MachineConfig, MachineConfigPool};
use api::operator::v1::{NumaResourcesOperator, NumaResourcesOperatorStatus};
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use rstest::rstest;
use serde_json::{Value, json};
use testbed::lane::Lane;

use crate::cluster::Cluster;
use crate::exporters::{CR, DS_A, DS_B, conditions, cr, make_ready};

mod kubelet_configs;
mod machine_configs;

const MACHINE_CONFIG_A: &str = "51-numaresourcesoperator-numa-a";
const SELECTS_A: &str = "pools.operator.machineconfiguration.openshift.io/numa-a";
const CUSTOM_POLICY: &str = "config.node.openshift-kni.io/selinux-policy";

/// Returns the conditions except the one about paused pools, which may be True together with any of them.
fn base(cr: &NumaResourcesOperator) -> Vec<Condition> {
    let all = conditions(cr).into_iter();
    all.filter(|condition| condition.type_ != "MachineConfigPoolPaused")
        .collect()
}

/// Returns status and message of the condition about paused pools.
fn paused(cr: &NumaResourcesOperator) -> (String, String) {
    let mut all = conditions(cr).into_iter();
    let found = all.find(|condition| condition.type_ == "MachineConfigPoolPaused");
    let found = found.unwrap();
    (found.status, found.message)
}

/// Selects `numa-a` by the labels of its pool and `numa-b` by name.
fn groups() -> Value {
    json!({"nodeGroups": [
        {"machineConfigPoolSelector": {"matchLabels": {SELECTS_A: ""}}},
        {"poolName": "numa-b"},
    ]})
}

struct OpenShift {
    cluster: Cluster,
    crs: Api<NumaResourcesOperator>,
    pools: Api<MachineConfigPool>,
    sets: Api<DaemonSet>,
}

impl OpenShift {
    async fn start(flavour: Flavour, spec: &Value) -> Self {
        let cluster = Cluster::start_openshift(flavour).await;
        let client = cluster.client.clone();
        let this = Self {
            crs: Api::all(client.clone()),
            pools: Api::all(client),
            sets: cluster.namespaced(),
            cluster,
        };
        this.crs
            .create(&PostParams::default(), &cr(spec))
            .await
            .unwrap();
        this
    }

    async fn reports(&self, condition: &str, reason: &str, message: &str) -> NumaResourcesOperator {
        self.cluster
            .condition(&self.crs, CR, base, (condition, reason, message))
            .await
    }

    async fn becomes_available(&self) -> NumaResourcesOperator {
        make_ready(&self.cluster, DS_A).await;
        make_ready(&self.cluster, DS_B).await;
        self.reports("Available", "Available", "").await
    }

    async fn edit(&self, spec: Value) {
        self.cluster
            .merge(&self.crs, CR, json!({"spec": spec}))
            .await;
    }

    /// Reports the status that the machine config operator would write: these configurations on all machines.
    async fn pool_has(&self, pool: &str, sources: &[&str], updated: &str) {
        let sources: Vec<Value> = sources.iter().map(|name| json!({"name": name})).collect();
        let status = json!({
            "configuration": {"name": "rendered", "source": sources},
            "conditions": [{"type": "Updated", "status": updated}],
        });
        self.cluster.report(&self.pools, pool, status).await;
    }

    /// Waits until the pod template of a DaemonSet has the annotation with a value that `is_right` accepts. Returns the value.
    async fn pods_carry(&self, set: &str, key: &str, is_right: impl Fn(&str) -> bool) -> String {
        self.cluster
            .eventually(|| async {
                let set = self.sets.get(set).await.unwrap();
                let metadata = set.spec.unwrap().template.metadata.unwrap();
                let value = metadata.annotations.unwrap_or_default().remove(key);
                let value = value.unwrap_or_default();
                if is_right(&value) {
                    Ok(value)
                } else {
                    Err(value)
                }
            })
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_machines_get_exporters_and_are_told_of() {
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    let message = format!("numaresources/{DS_A} is updating");
    openshift
        .reports("Progressing", "Progressing", &message)
        .await;
    let set = openshift.cluster.appears(&openshift.sets, DS_A).await;
    let template = set.spec.unwrap().template;
    let selector = template.spec.as_ref().unwrap().node_selector.clone();
    let role = [("node-role.kubernetes.io/numa-a".to_owned(), String::new())];
    assert_eq!(selector.unwrap(), role.into());
    let security = template.spec.unwrap().containers[0]
        .security_context
        .clone()
        .unwrap();
    let selinux = security.se_linux_options.unwrap();
    assert_eq!(selinux.type_.as_deref(), Some("container_device_plugin_t"));

    let live = openshift.becomes_available().await;
    assert_eq!(paused(&live), ("False".to_owned(), String::new()));
    names_pools_groups_and_objects(&live.status.unwrap());
    creates_constraints_again(&openshift).await;
    deletes_exporters_of_a_dropped_pool(&openshift).await;
}

fn names_pools_groups_and_objects(status: &NumaResourcesOperatorStatus) {
    let pools: Vec<(&str, bool, usize)> = status
        .machineconfigpools
        .iter()
        .map(|pool| {
            (
                pool.name.as_str(),
                pool.config.is_some(),
                pool.conditions.len(),
            )
        })
        .collect();
    assert_eq!(pools, [("numa-a", true, 0), ("numa-b", true, 0)]);
    let groups: Vec<(&str, String)> = status
        .node_groups
        .iter()
        .map(|group| (group.pool_name.as_str(), group.daemon_set.to_string()))
        .collect();
    assert_eq!(
        groups,
        [
            ("numa-a", format!("numaresources/{DS_A}")),
            ("numa-b", format!("numaresources/{DS_B}"))
        ]
    );
    let related: Vec<&str> = status
        .related_objects
        .iter()
        .map(|object| object.resource.as_str())
        .collect();
    assert_eq!(
        related,
        [
            "namespaces",
            "kubeletconfigs",
            "machineconfigs",
            "noderesourcetopologies",
            "daemonsets",
            "daemonsets"
        ]
    );
}

/// Checks that the resource owns the constraints, and that the operator creates them again.
async fn creates_constraints_again(openshift: &OpenShift) {
    let kind = GroupVersionKind::gvk("security.openshift.io", "v1", "SecurityContextConstraints");
    let resource = ApiResource::from_gvk_with_plural(&kind, "securitycontextconstraints");
    let constraints: Api<DynamicObject> =
        Api::all_with(openshift.cluster.client.clone(), &resource);
    for name in [
        "resource-topology-exporter",
        "resource-topology-exporter-v2",
    ] {
        let found = constraints.get(name).await.unwrap();
        assert_eq!(found.owner_references()[0].name, CR);
        constraints
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        openshift
            .cluster
            .eventually(|| async {
                let again = constraints.get_opt(name).await.unwrap();
                let again = again.and_then(|object| object.uid());
                if again.is_some() && again != found.uid() {
                    Ok(())
                } else {
                    Err(format!("{again:?}"))
                }
            })
            .await;
    }
}

async fn deletes_exporters_of_a_dropped_pool(openshift: &OpenShift) {
    openshift
        .edit(json!({"nodeGroups": [{"poolName": "numa-a"}]}))
        .await;
    openshift
        .cluster
        .eventually(|| async {
            let found = openshift.sets.get_opt(DS_B).await.unwrap();
            let live = openshift.crs.get(CR).await.unwrap().status.unwrap();
            if found.is_none() && live.machineconfigpools.len() == 1 {
                Ok(())
            } else {
                Err(format!("{:?}", live.machineconfigpools))
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_policy_is_installed_awaited_and_removed() {
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    let configs: Api<MachineConfig> = Api::all(openshift.cluster.client.clone());
    let custom = json!({"nodeGroups": [
        {"poolName": "numa-a", "annotations": {CUSTOM_POLICY: "custom"}},
        {"poolName": "numa-b"},
    ]});
    openshift.edit(custom).await;
    let waiting = ("Progressing", "Progressing", "numa-a is updating");
    openshift.reports(waiting.0, waiting.1, waiting.2).await;
    let config = openshift.cluster.appears(&configs, MACHINE_CONFIG_A).await;
    assert_eq!(
        config.labels()["machineconfiguration.openshift.io/role"],
        "numa-a"
    );
    assert_eq!(config.owner_references()[0].name, CR);
    // the list of pools ends at the one that is still updating, and its exporters are unchanged
    let status = openshift.crs.get(CR).await.unwrap().status.unwrap();
    assert_eq!(status.machineconfigpools.len(), 1);
    let scc = "openshift.io/required-scc";
    let is_v2 = |value: &str| value == "resource-topology-exporter-v2";
    openshift.pods_carry(DS_A, scc, is_v2).await;

    openshift
        .pool_has("numa-a", &["00-worker", MACHINE_CONFIG_A], "True")
        .await;
    let is_v1 = |value: &str| value == "resource-topology-exporter";
    openshift.pods_carry(DS_A, scc, is_v1).await;
    openshift.pods_carry(DS_B, scc, is_v2).await;
    openshift.becomes_available().await;

    openshift.edit(groups()).await;
    openshift.reports(waiting.0, waiting.1, waiting.2).await;
    assert!(configs.get_opt(MACHINE_CONFIG_A).await.unwrap().is_none());
    openshift.pool_has("numa-a", &["00-worker"], "True").await;
    openshift.pods_carry(DS_A, scc, is_v2).await;
    openshift.becomes_available().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_pools_are_named_and_not_waited_for() {
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    openshift.pool_has("numa-b", &[], "False").await;
    openshift
        .reports("Progressing", "Progressing", "numa-b is updating")
        .await;
    let spec = |paused: bool| json!({"spec": {"paused": paused}});
    for pool in ["numa-b", "numa-a"] {
        openshift
            .cluster
            .merge(&openshift.pools, pool, spec(true))
            .await;
    }
    let wanted = |status: &str, message: &str| (status.to_owned(), message.to_owned());
    let reports_paused = async |wanted: (String, String)| {
        openshift
            .cluster
            .eventually(|| async {
                let live = openshift.crs.get(CR).await.unwrap();
                let seen = paused(&live);
                if seen == wanted {
                    Ok(())
                } else {
                    Err(format!("{seen:?}"))
                }
            })
            .await;
    };
    reports_paused(wanted("True", "detected paused MCPs: numa-a, numa-b")).await;
    openshift.reports("Available", "Available", "").await;
    for pool in ["numa-a", "numa-b"] {
        openshift
            .cluster
            .merge(&openshift.pools, pool, spec(false))
            .await;
    }
    reports_paused(wanted("False", "")).await;
    openshift.pool_has("numa-b", &[], "True").await;
    openshift.reports("Available", "Available", "").await;
}

#[rstest]
#[case::no_specifier(json!([{}]), "node group 0 missing any pool specifier")]
#[case::both(
    json!([{"poolName": "numa-a", "machineConfigPoolSelector": {}}]),
    "node group 0 must have only a single specifier set: either PoolName or MachineConfigPoolSelector"
)]
#[case::empty_name(json!([{"poolName": ""}]), "pool name for pool #0 cannot be empty")]
#[case::same_selector(
    json!([
        {"machineConfigPoolSelector": {"matchLabels": {"a": "1"}}},
        {"machineConfigPoolSelector": {"matchLabels": {"a": "1"}}},
    ]),
    "the node group with the machineConfigPoolSelector \"&LabelSelector{MatchLabels:map[string]string{a: 1,},\
     MatchExpressions:[]LabelSelectorRequirement{},}\" has duplicates"
)]
#[case::operator(
    json!([{"machineConfigPoolSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]),
    "\"Near\" is not a valid label selector operator"
)]
#[case::no_such_pool(
    json!([{"poolName": "numa-c"}]),
    "failed to find MachineConfigPool for the node group numa-c"
)]
#[case::one_pool_twice(
    json!([{"poolName": "numa-a"}, {"machineConfigPoolSelector": {"matchLabels": {SELECTS_A: ""}}}]),
    "the MachineConfigPool \"numa-a\" selected by at least two node groups"
)]
#[tokio::test(flavor = "multi_thread")]
async fn wrong_groups_are_told_leave_exporters_alone_and_heal(
    #[case] wrong: Value,
    #[case] message: &str,
) {
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    let before = openshift.sets.get(DS_A).await.unwrap();
    openshift.edit(json!({"nodeGroups": wrong})).await;
    openshift
        .reports("Degraded", "ValidationErrorUnderNodeGroups", message)
        .await;
    openshift.edit(groups()).await;
    openshift.reports("Available", "Available", "").await;
    let after = openshift.sets.get(DS_A).await.unwrap();
    assert_eq!(
        (before.uid(), before.metadata.generation),
        (after.uid(), after.metadata.generation)
    );
}

/// The last check: the pools are served first, then the message is reported.
#[tokio::test(flavor = "multi_thread")]
async fn group_with_two_pools_is_served_and_degraded_unless_that_is_wanted() {
    let everything = json!({"nodeGroups": [
        {"machineConfigPoolSelector": {"matchExpressions": [{"key": SELECTS_A, "operator": "DoesNotExist"}]}},
    ]});
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    openshift
        .cluster
        .merge(
            &openshift.pools,
            "numa-a",
            json!({"metadata": {"labels": {SELECTS_A: null}}}),
        )
        .await;
    openshift.edit(everything).await;
    let message = format!(
        "found multiple pools matches for node group &LabelSelector{{MatchLabels:map[string]string{{}},\
         MatchExpressions:[]LabelSelectorRequirement{{LabelSelectorRequirement{{Key:{SELECTS_A},Operator:DoesNotExist,Values:[],}},}},}} \
         but expected one. Pools found [numa-a numa-b]"
    );
    openshift
        .reports("Degraded", "ValidationErrorUnderNodeGroups", &message)
        .await;
    let tolerate = json!({"metadata": {"annotations": {"config.node.openshift-kni.io/multiple-pools-per-tree": "enabled"}}});
    openshift.cluster.merge(&openshift.crs, CR, tolerate).await;
    openshift.reports("Available", "Available", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_without_a_node_selector_fails_until_it_has_one() {
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    let selector = json!({"matchLabels": {"node-role.kubernetes.io/numa-a": ""}});
    for (selector, condition, reason, message) in [
        (
            Value::Null,
            "Degraded",
            "InternalError",
            "the machine config pool \"numa-a\" does not have node selector",
        ),
        (selector, "Available", "Available", ""),
    ] {
        let spec = json!({"spec": {"nodeSelector": selector}});
        openshift
            .cluster
            .merge(&openshift.pools, "numa-a", spec)
            .await;
        openshift.reports(condition, reason, message).await;
    }
}

/// Nothing was asked of its machines, so that nothing has to be waited for.
#[tokio::test(flavor = "multi_thread")]
async fn pool_that_takes_no_machine_configurations_gets_exporters_at_once() {
    let custom = json!({"nodeGroups": [
        {"poolName": "numa-a", "annotations": {CUSTOM_POLICY: "custom"}},
        {"poolName": "numa-b"},
    ]});
    let openshift = OpenShift::start(Flavour::Openshift, &json!({"nodeGroups": []})).await;
    let takes_none = json!({"spec": {"machineConfigSelector": null}});
    openshift
        .cluster
        .merge(&openshift.pools, "numa-a", takes_none)
        .await;
    openshift.pool_has("numa-a", &["00-worker"], "False").await;
    openshift.edit(custom).await;
    let live = openshift.becomes_available().await;
    let pools = live.status.unwrap().machineconfigpools;
    assert_eq!(pools.len(), 2);
    let configs: Api<MachineConfig> = Api::all(openshift.cluster.client.clone());
    assert!(configs.get_opt(MACHINE_CONFIG_A).await.unwrap().is_none());
}

#[rstest]
#[case::machines(Flavour::Openshift, true)]
#[case::hosted(Flavour::Hypershift, false)]
#[tokio::test(flavor = "multi_thread")]
async fn rendering_follows_the_platform_of_the_cluster(
    #[case] flavour: Flavour,
    #[case] has_machines: bool,
) {
    let lane = Lane::from_environment().unwrap();
    let cluster = Cluster::without_operator(lane, Some(flavour)).await;
    let text = cluster.prints(&["-render", "-enable-scheduler=false"]);
    assert!(text.contains("kind: SecurityContextConstraints"), "{text}");
    assert_eq!(text.contains("kind: MachineConfig\n"), has_machines);
    let plain = cluster.prints(&["-render", "-enable-scheduler=false", "-platform=kubernetes"]);
    assert!(!plain.contains("SecurityContextConstraints"), "{plain}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_tls_profile_restarts_the_operator_and_reaches_the_exporters() {
    let mut openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    let servers: Api<api::openshift::config::ApiServer> =
        Api::all(openshift.cluster.client.clone());
    let modern = json!({"spec": {"tlsSecurityProfile": {"type": "Modern"}}});
    openshift.cluster.merge(&servers, "cluster", modern).await;
    assert_eq!(openshift.cluster.restarted(), Some(0));
    openshift
        .cluster
        .eventually(|| async {
            let set = openshift.sets.get(DS_A).await.unwrap();
            let args = set.spec.unwrap().template.spec.unwrap().containers[0]
                .args
                .clone()
                .unwrap();
            let is_modern = args
                .iter()
                .any(|arg| arg == "--metrics-tls-min-version=VersionTLS13")
                && !args.iter().any(|arg| arg.contains("cipher-suites"));
            if is_modern {
                Ok(())
            } else {
                Err(format!("{args:?}"))
            }
        })
        .await;
}

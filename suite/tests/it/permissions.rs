//! Compares the permissions of the exporters and of the scheduler with the requests that they make while scenarios run, from their
//! installation to their end. It uses the embedded lane, whose API server records the decisions of its authorizers. The operator's own test
//! covers the operator.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use api::names;
use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Client;
use kube::api::Api;
use suite::binaries;
use suite::run::Outcome;
use suite::select::Selection;
use suite::setup::{self, Options};
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};
use testbed::lane;
use testbed::permissions::{self, Findings, Permission, RequiredPermission};

use crate::harness::{eventually, run_scenarios};

/// Placement, preemption, elections, exporters that are created and deleted, and readers of metrics: what uses each right once.
const FOCUS: &str = "^(fundamentals/all-gu|metrics/rte|preempt/default-vs-snc|sched/replicas-1|rtetols/on-cr-creation|unsched/ds-one-node-fits)$";
/// More of the same, to find requests that are refused.
const MORE: &str = "^(fundamentals/all-gu|metrics/|preempt/|sched/replicas-1|rtetols/|unsched/)";
/// Workers, half of them with each scope.
const WORKERS: usize = 4;
/// Longer than the installation of the stack takes.
const TIMEOUT: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exporters_and_scheduler_have_no_right_that_they_do_not_use_unless_the_original_has_it() {
    are_used_or_demanded(FOCUS).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: a minute and a half"]
    async fn exporters_and_scheduler_need_no_other_rights_in_more_scenarios() {
        are_used_or_demanded(MORE).await;
    }
}

async fn are_used_or_demanded(focus: &str) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let [exporters, scheduler] = observe(focus).await;
    assert_eq!(
        (
            exporters.compare(&EXPORTER_DEMANDS),
            scheduler.compare(&SCHEDULER_DEMANDS)
        ),
        (Findings::default(), Findings::default())
    );
}

/// What an account may do, and what it requested.
struct Account {
    granted: BTreeSet<Permission>,
    asked: Vec<testbed::api_server::Decision>,
}

impl Account {
    fn compare(&self, demands: &[RequiredPermission]) -> Findings {
        permissions::compare(&self.granted, &self.asked, demands)
    }
}

/// Runs the scenarios on a cluster that does not have the stack before and after. Returns the accounts of exporters and scheduler.
async fn observe(focus: &str) -> [Account; 2] {
    let dir = tempfile::tempdir().expect("temporary directory");
    let bin_dir = binaries::locate(None, |_| {})
        .await
        .expect("the programs are built");
    let nodes = NodePlan::all(WORKERS, &Machine::default_profile());
    let spec = EmbeddedSpec::new("rights", dir.path(), &bin_dir, nodes);
    let cluster = EmbeddedCluster::up(spec, &|_| {})
        .await
        .expect("the cluster comes up");
    cluster.server().record_decisions();
    setup::allow(&cluster.client())
        .await
        .expect("the cluster can be marked");
    let roles = roles(cluster.client());
    let kubeconfig = cluster.kubeconfig();
    let (outcome, [exporters, scheduler]) = tokio::join!(scenarios(&kubeconfig, focus), roles);
    assert_eq!(outcome, Outcome::Passed);
    let asked = |account: &str| {
        let namespace = names::NAMESPACE;
        cluster
            .server()
            .decisions(&format!("system:serviceaccount:{namespace}:{account}"))
    };
    let accounts =
        [(exporters, names::RTE), (scheduler, names::SCHEDULER)].map(|(granted, account)| {
            Account {
                granted,
                asked: asked(account),
            }
        });
    cluster.down().expect("nothing is left");
    accounts
}

async fn scenarios(kubeconfig: &Path, focus: &str) -> Outcome {
    let selection = Selection {
        focus: Some(focus.to_owned()),
        ..Selection::default()
    };
    let options = Options {
        cluster: setup::ClusterSource::Kubeconfig(kubeconfig.to_owned().into()),
        ..Options::own(lane::Lane::Embedded, &[]).expect("no flag is wrong")
    };
    let completed = run_scenarios("permissions", &options, &selection, async |_| Ok(())).await;
    completed.outcome
}

/// Reads the roles of both accounts as soon as they exist, because they are deleted at the end of the run.
async fn roles(client: Client) -> [BTreeSet<Permission>; 2] {
    let everywhere = Api::<ClusterRole>::all(client.clone());
    let here = Api::<Role>::namespaced(client, names::NAMESPACE);
    let accounts = [
        (names::RTE, names::RTE),
        (names::SCHEDULER_CLUSTER_ROLE, names::SCHEDULER_LEADER_ROLE),
    ];
    eventually("both accounts have their roles", TIMEOUT, async || {
        let mut both = accounts.map(|_| BTreeSet::new());
        for (permissions, (cluster_role, role)) in both.iter_mut().zip(accounts) {
            let wide = everywhere.get_opt(cluster_role).await;
            let narrow = here.get_opt(role).await;
            let (Some(wide), Some(narrow)) = (
                wide.expect("roles can be read"),
                narrow.expect("roles can be read"),
            ) else {
                return Err(format!("{cluster_role} or {role} is missing"));
            };
            permissions.extend(Permission::all_of(&wide.rules.unwrap_or_default(), None));
            permissions.extend(Permission::all_of(
                &narrow.rules.unwrap_or_default(),
                Some(names::NAMESPACE),
            ));
        }
        Ok(both)
    })
    .await
}

const READ: &[&str] = &["get", "list", "watch"];
const COORDINATION: &[&str] = &["coordination.k8s.io"];
const CORE: &[&str] = &[""];

const EXPORTER_DEMANDS: [RequiredPermission; 1] = [RequiredPermission {
    line: "operator.md 6.3: ClusterRole rte, noderesourcetopologies list, nodes list",
    verbs: &["list"],
    groups: &["", "topology.node.k8s.io"],
    resources: &["nodes", "noderesourcetopologies"],
}];

/// Lines of the reference's tables with permissions that are not all used.
const SCHEDULER_DEMANDS: [RequiredPermission; 14] = [
    RequiredPermission {
        line: "operator.md 6.6: events (core and events.k8s.io)",
        verbs: &["create", "patch", "update"],
        groups: &["", "events.k8s.io"],
        resources: &["events"],
    },
    RequiredPermission {
        line: "operator.md 6.6: nodes; replicationcontrollers, services, namespaces; persistentvolumeclaims, persistentvolumes",
        verbs: READ,
        groups: CORE,
        resources: &[
            "nodes",
            "replicationcontrollers",
            "services",
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
        ],
    },
    RequiredPermission {
        line: "operator.md 6.6: pods",
        verbs: &["get"],
        groups: CORE,
        resources: &["pods"],
    },
    RequiredPermission {
        line: "operator.md 6.6: bindings, pods/binding",
        verbs: &["create"],
        groups: CORE,
        resources: &["bindings"],
    },
    RequiredPermission {
        line: "operator.md 6.6: pods/status",
        verbs: &["update"],
        groups: CORE,
        resources: &["pods/status"],
    },
    RequiredPermission {
        line: "operator.md 6.6: apps and extensions replicasets; apps statefulsets; policy poddisruptionbudgets",
        verbs: READ,
        groups: &["apps", "extensions", "policy"],
        resources: &["replicasets", "statefulsets", "poddisruptionbudgets"],
    },
    RequiredPermission {
        line: "operator.md 6.6: leases, name numa-scheduler-leader",
        verbs: &["list", "update", "watch"],
        groups: COORDINATION,
        resources: &["leases"],
    },
    RequiredPermission {
        line: "operator.md 6.6: leasecandidates",
        verbs: &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
        groups: COORDINATION,
        resources: &["leasecandidates"],
    },
    RequiredPermission {
        line: "operator.md 6.6: tokenreviews, which only a reader of metrics causes",
        verbs: &["create"],
        groups: &["authentication.k8s.io"],
        resources: &["tokenreviews"],
    },
    RequiredPermission {
        line: "operator.md 6.6: subjectaccessreviews, which only a reader of metrics causes",
        verbs: &["create"],
        groups: &["authorization.k8s.io"],
        resources: &["subjectaccessreviews"],
    },
    RequiredPermission {
        line: "operator.md 6.6: storage.k8s.io csinodes, storageclasses, csidrivers, csistoragecapacities, volumeattachments",
        verbs: READ,
        groups: &["storage.k8s.io"],
        resources: &[
            "csinodes",
            "storageclasses",
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
        ],
    },
    RequiredPermission {
        line: "operator.md 6.6: resource.k8s.io deviceclasses, resourceclaims, resourceslices",
        verbs: READ,
        groups: &["resource.k8s.io"],
        resources: &["deviceclasses", "resourceclaims", "resourceslices"],
    },
    RequiredPermission {
        line: "operator.md 6.6: noderesourcetopologies",
        verbs: &["get"],
        groups: &["topology.node.k8s.io"],
        resources: &["noderesourcetopologies"],
    },
    RequiredPermission {
        line: "operator.md 6.6: Role topology-aware-scheduler-leader-elect, endpoints create, get, update",
        verbs: &["create", "get", "update"],
        groups: CORE,
        resources: &["endpoints"],
    },
];

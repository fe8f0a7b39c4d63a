//! Faults of whole embedded clusters: their effects, and the recovery afterwards. Root is not needed.

use std::path::Path;
use std::time::Duration;

use cluster_faults::socket::SocketFault;
use cluster_faults::{Disturbance, Error, Faults, Process, Schedule, Step, Targets};
use cluster_spec::kubelet::TopologyScope;
use cluster_spec::plan::NodePlan;
use cri_runtime::control::Target;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use podresources::client::PodResources;
use podresources::socket::Socket;
use serde_json::{Value, json};
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};

use crate::cluster::harness::HELPER;

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// Duration in milliseconds of a disturbance that the test ends itself.
const UNTIL_STOPPED: u64 = 3_600_000;

/// A cluster whose nodes soon count as silent, and the directory of its files.
struct TestCluster {
    inner: EmbeddedCluster,
    _dir: tempfile::TempDir,
}

impl TestCluster {
    async fn up(workers: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::default_profile();
        let nodes = (0..workers).map(|i| NodePlan::worker(i, TopologyScope::Container, &machine));
        let bin_dir = Path::new(HELPER).parent().unwrap();
        let spec = EmbeddedSpec {
            node_grace: Duration::from_secs(12),
            ..EmbeddedSpec::new("disturbed", dir.path(), bin_dir, nodes.collect())
        };
        let cluster = Box::pin(EmbeddedCluster::up(spec, &|_| {})).await.unwrap();
        Self {
            inner: cluster,
            _dir: dir,
        }
    }

    fn faults(&self) -> Faults {
        self.inner.faults()
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.inner.client())
    }

    /// Creates a Guaranteed pod on a node.
    async fn pod(&self, name: &str, node: Option<&str>, tolerations: Value) {
        let amounts = json!({"cpu": "2", "memory": "64Mi"});
        let pod = json!({"metadata": {"name": name}, "spec": {
            "nodeName": node, "tolerations": tolerations, "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": api::names::STACK_IMAGE, "command": ["/bin/sleep", "infinity"],
                "resources": {"limits": amounts, "requests": amounts}}],
        }});
        let pod = serde_json::from_value(pod).unwrap();
        // Admission needs the service account, which is created soon after the namespace.
        eventually("the pod is taken", async || {
            match self.pods().create(&PostParams::default(), &pod).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    async fn runs(&self, name: &str) -> Pod {
        eventually(&format!("{name} runs"), async || {
            let pod = self.pods().get(name).await;
            let pod = pod.map_err(|error| error.to_string())?;
            let status = pod.status.clone().unwrap_or_default();
            let ready = status.conditions.iter().flatten();
            if ready
                .clone()
                .any(|held| held.type_ == "Ready" && held.status == "True")
            {
                Ok(pod)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await
    }

    /// Waits until a node has this Ready status and these taints.
    async fn node_is(&self, name: &str, ready: &str, taints: &[&str]) {
        let nodes: Api<Node> = Api::all(self.inner.client());
        eventually(&format!("{name} is {ready}"), async || {
            let node = nodes.get(name).await.map_err(|error| error.to_string())?;
            let spec = node.spec.unwrap_or_default();
            let keys = spec.taints.iter().flatten();
            let mut keys: Vec<String> = keys
                .map(|taint| format!("{}:{}", taint.key, taint.effect))
                .collect();
            keys.sort();
            let conditions = node.status.unwrap_or_default().conditions;
            let held = conditions.into_iter().flatten();
            let held = held.into_iter().find(|held| held.type_ == "Ready");
            if held.as_ref().is_some_and(|held| held.status == ready) && keys == taints {
                Ok(())
            } else {
                Err(format!("{held:?} {keys:?}"))
            }
        })
        .await;
    }

    fn process(name: &str) -> Process {
        Process {
            node: "worker-0".into(),
            namespace: "default".into(),
            pod: name.into(),
            container: "c".into(),
        }
    }

    /// Returns the process id of a pod's container.
    fn pid(&self, name: &str) -> Option<i32> {
        let node = self.inner.node("worker-0").unwrap();
        let target = Target::new("default", name, "c");
        let containers = node.containers();
        containers.into_iter().find(|one| one.target == target)?.pid
    }
}

async fn eventually<T>(what: &str, check: impl AsyncFn() -> Result<T, String>) -> T {
    let found = testbed::eventually(PATIENCE, check).await;
    found.map_err(|seen| format!("{what}: {seen}")).unwrap()
}

/// Returns a schedule of one disturbance, which lasts until the test ends it.
fn only(what: Disturbance) -> Schedule {
    let step = Step {
        after_milliseconds: 0,
        lasting_milliseconds: UNTIL_STOPPED,
        what,
    };
    Schedule {
        seed: 0,
        steps: vec![step],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_doubted_loses_who_may_not_stay_and_comes_back() {
    let cluster = TestCluster::up(1).await;
    let unreachable = |seconds: Option<i64>| {
        json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds}])
    };
    cluster
        .pod("leaves", Some("worker-0"), unreachable(Some(1)))
        .await;
    cluster
        .pod("stays", Some("worker-0"), unreachable(None))
        .await;
    cluster.runs("leaves").await;
    cluster.runs("stays").await;
    let before = cluster.pid("stays");
    let faults = cluster.faults();
    let silence = only(Disturbance::Silence {
        node: "worker-0".into(),
    });
    let outcome = faults.play_until(&silence, async {
        let taints = [
            "node.kubernetes.io/unreachable:NoExecute",
            "node.kubernetes.io/unreachable:NoSchedule",
        ];
        cluster.node_is("worker-0", "Unknown", &taints).await;
        eventually("the pod is deleted", async || {
            let pod = cluster.pods().get("leaves").await.unwrap();
            pod.metadata
                .deletion_timestamp
                .map(|_| ())
                .ok_or_else(|| "it may stay".to_owned())
        })
        .await;
        // The kubelet is stopped, so nothing ends the container.
        assert!(cluster.pid("leaves").is_some());
        eventually("the pod that stays is not ready", async || {
            let stays = cluster.pods().get("stays").await.unwrap();
            let conditions = stays.status.unwrap().conditions.unwrap();
            let ready = conditions.into_iter().find(|held| held.type_ == "Ready");
            let ready = ready.unwrap();
            if ready.status == "False" {
                Ok(())
            } else {
                Err(format!("{ready:?}"))
            }
        })
        .await;
    });
    assert!(matches!(outcome.await[..], [Some(Ok(1))]));
    cluster.node_is("worker-0", "True", &[]).await;
    eventually("the pod is gone", async || {
        let pod = cluster.pods().get_opt("leaves").await.unwrap();
        pod.map_or(Ok(()), |pod| Err(format!("{:?}", pod.status)))
    })
    .await;
    let stays = cluster.runs("stays").await;
    assert_eq!(
        stays.status.unwrap().container_statuses.unwrap()[0].restart_count,
        0
    );
    assert_eq!(cluster.pid("stays"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_container_is_started_again_and_a_stopped_one_goes_on() {
    let cluster = TestCluster::up(1).await;
    cluster.pod("p", Some("worker-0"), json!([])).await;
    cluster.runs("p").await;
    let first = cluster.pid("p").unwrap();
    let faults = cluster.faults();
    let stop = only(Disturbance::Stop {
        process: TestCluster::process("p"),
    });
    let stopped = faults.play_until(&stop, async {
        eventually("it stands still", async || state(first, 'T')).await;
    });
    assert!(matches!(stopped.await[..], [Some(Ok(1))]));
    eventually("it goes on", async || state(first, 'S')).await;
    assert_eq!(cluster.pid("p"), Some(first));

    let kill = Disturbance::Kill {
        process: TestCluster::process("p"),
    };
    cluster
        .faults()
        .inject(&kill, Duration::ZERO)
        .await
        .unwrap();
    eventually("it is started again", async || {
        let pod = cluster.pods().get("p").await.unwrap();
        let status = pod.status.unwrap_or_default();
        let restarts = status.container_statuses.unwrap_or_default()[0].restart_count;
        match cluster.pid("p") {
            Some(now) if now != first && restarts == 1 => Ok(()),
            now => Err(format!("{now:?}, {restarts} restarts")),
        }
    })
    .await;
    cluster.runs("p").await;
}

/// Checks that a process is in a state, as `/proc/<pid>/stat` names it.
fn state(pid: i32, wanted: char) -> Result<(), String> {
    let text = fs_err::read_to_string(format!("/proc/{pid}/stat"));
    let text = text.map_err(|error| error.to_string())?;
    let after = text.rsplit_once(") ").ok_or("no name")?.1;
    if after.starts_with(wanted) {
        Ok(())
    } else {
        Err(text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_podresources_socket_hangs_lies_or_refuses_and_is_right_again() {
    let cluster = TestCluster::up(1).await;
    cluster.pod("p", Some("worker-0"), json!([])).await;
    cluster.runs("p").await;
    let node = cluster.inner.node("worker-0").unwrap();
    let socket = node.host_path(Path::new("/var/lib/kubelet/pod-resources/kubelet.sock"));
    // One connection serves the whole test, as in an exporter.
    let client = PodResources::new(&Socket::new(socket).unwrap(), Duration::from_secs(3));
    let held = async || {
        let list = client.list().await.map_err(|error| error.to_string())?;
        let pods = list.pod_resources.into_iter();
        let mut pods = pods.filter(|pod| pod.name == "p");
        pods.next()
            .map(|pod| pod.containers[0].cpu_ids.len())
            .ok_or_else(|| "no pod".to_owned())
    };
    let two = async || {
        held().await.and_then(|count| {
            if count == 2 {
                Ok(())
            } else {
                Err(format!("{count}"))
            }
        })
    };
    eventually("calls succeed", two).await;
    let faults = cluster.faults();
    for fault in [
        SocketFault::Hangs,
        SocketFault::Garbage,
        SocketFault::Refuses,
    ] {
        let bad = only(Disturbance::PodResources {
            node: "worker-0".into(),
            fault,
        });
        let affected = faults.play_until(&bad, async {
            // the first failure may be the end of the connection that was there before; the next call makes one that meets the fault
            eventually("two calls in a row fail", async || {
                for _ in 0..2 {
                    if let Ok(count) = held().await {
                        return Err(format!("{count} CPUs"));
                    }
                }
                Ok(())
            })
            .await;
        });
        let affected = affected.await;
        let [Some(Ok(affected))] = affected[..] else {
            panic!("{fault:?} did not happen");
        };
        assert!(affected > 0, "no connection was affected by {fault:?}");
        eventually("calls succeed again", two).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disturbances_of_one_kubelet_take_turns() {
    let cluster = TestCluster::up(1).await;
    let node = || "worker-0".to_owned();
    let what = [
        Disturbance::PodResources {
            node: node(),
            fault: SocketFault::Hangs,
        },
        Disturbance::RestartKubelet { node: node() },
        Disturbance::Silence { node: node() },
        Disturbance::RestartKubelet { node: node() },
    ];
    let steps = what.into_iter().map(|what| Step {
        after_milliseconds: 0,
        lasting_milliseconds: 100,
        what,
    });
    let schedule = Schedule {
        seed: 0,
        steps: steps.collect(),
    };
    for answer in cluster.faults().play(&schedule).await {
        answer.unwrap();
    }
    cluster.node_is("worker-0", "True", &[]).await;
    cluster.pod("p", Some("worker-0"), json!([])).await;
    cluster.runs("p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_in_the_end_whatever_a_seed_brings() {
    let cluster = TestCluster::up(2).await;
    let core = |name: &str| (String::new(), name.to_owned());
    let targets = Targets {
        resources: vec![
            core("pods"),
            core("nodes"),
            core("events"),
            ("apps".to_owned(), "daemonsets".to_owned()),
            ("coordination.k8s.io".to_owned(), "leases".to_owned()),
        ],
        users: vec!["system:*".to_owned()],
        processes: vec![TestCluster::process("p0"), TestCluster::process("p1")],
        nodes: vec!["worker-0".into(), "worker-1".into()],
        outages: true,
        ..Targets::default()
    };
    let length = Duration::from_secs(15);
    let schedule = Schedule::random(7, 120, length, &targets);
    let faults = cluster.faults();
    let names: Vec<String> = (0..6).map(|number| format!("p{number}")).collect();
    let create = async {
        for (number, name) in names.iter().enumerate() {
            // Two pods run on the node where their processes are targets; the scheduler places the others.
            cluster
                .pod(name, (number < 2).then_some("worker-0"), json!([]))
                .await;
            tokio::time::sleep(length / 10).await;
        }
    };
    let (answers, ()) = tokio::join!(faults.play(&schedule), create);
    for (step, answer) in schedule.steps.iter().zip(answers) {
        // A process fault may fail, because a container in restart backoff has no process.
        let is_process_fault = matches!(
            step.what,
            Disturbance::Kill { .. } | Disturbance::Stop { .. }
        );
        assert!(is_process_fault || answer.is_ok(), "{step:?}: {answer:?}");
    }
    for node in ["worker-0", "worker-1"] {
        cluster.node_is(node, "True", &[]).await;
    }
    for name in &names {
        cluster.runs(name).await;
    }
    let all = cluster.pods().list(&ListParams::default()).await.unwrap();
    let mut there: Vec<String> = all.items.iter().map(kube::ResourceExt::name_any).collect();
    there.sort();
    assert_eq!(there, names);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_outlive_their_cluster_and_then_do_nothing() {
    let cluster = TestCluster::up(1).await;
    let faults = cluster.faults();
    cluster.inner.down().unwrap();
    let silence = Disturbance::Silence {
        node: "worker-0".into(),
    };
    let refused = faults.inject(&silence, Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, Error::NoNode(_)), "{refused}");
}

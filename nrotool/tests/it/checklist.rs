//! What a support engineer needs to find a fault is in what must-gather collects: the checklists of `docs/tools.md`.

use std::time::Duration;

use api::names::{NAMESPACE, RTE_CONTAINER, SCHEDULER};
use api::scheduler::v1::NumaResourcesScheduler;
use cluster_faults::{Disturbance, Process};
use cluster_spec::kubelet::{KubeletSettings, TopologyPolicy, TopologyScope};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::eventually;

use crate::stack::{Stack, assert_nothing_planted};

const WITHIN: Duration = Duration::from_mins(1);
/// An image that the operator refuses, because a tag may move to another image.
const BY_TAG: &str = "example.com/scheduler:1";
/// An exporter that stands still does not answer: must-gather need not wait long for it.
const IMPATIENT: [&str; 2] = ["--request-timeout", "5"];

/// What shows a fault: a path of a collection as the documentation has it, with `NODE` and the like in place of names, and what the file says.
struct Sign {
    path: &'static str,
    says: &'static str,
}

const fn sign(path: &'static str, says: &'static str) -> Sign {
    Sign { path, says }
}

const FITS_NOWHERE: [Sign; 2] = [
    sign("explain/NAMESPACE/POD.txt", "Insufficient cpu"),
    sign("nrt.txt", "wanted 400"),
];
const WRONG_POLICY: [Sign; 2] = [
    sign(
        "kubelets/NODE/configz.json",
        "\"topologyManagerPolicy\": \"best-effort\"",
    ),
    sign("nrt.txt", "policy best-effort"),
];
const STANDS_STILL: [Sign; 2] = [
    sign(
        "nrt.txt",
        "pods came or went since these amounts were published",
    ),
    sign("errors.txt", "no answer within 5 s"),
];
const DEGRADED: [Sign; 1] = [sign(
    "cluster-scoped-resources/nodetopology.openshift.io/numaresourcesschedulers/NAME.yaml",
    "must be referenced by digest, not by tag",
)];
const CRASH_LOOP: [Sign; 3] = [
    sign(
        "namespaces/NAMESPACE/core/pods.yaml",
        "reason: CrashLoopBackOff",
    ),
    sign(
        "namespaces/NAMESPACE/core/events.yaml",
        "Back-off restarting failed container",
    ),
    sign(
        "namespaces/NAMESPACE/pods/POD/CONTAINER/CONTAINER/logs/previous.log",
        "scheduler",
    ),
];
const NODE_GONE: [Sign; 1] = [sign("nrt.txt", "there is no such node")];

/// Checks that files say what shows a fault.
fn shows(files: &[(String, String)], signs: &[Sign], names: &[(&str, &str)]) {
    for sign in signs {
        let path = names
            .iter()
            .fold(sign.path.to_owned(), |path, (word, name)| {
                path.replace(word, name)
            });
        let found = files.iter().find(|(file, _)| *file == path);
        let paths: Vec<&String> = files.iter().map(|(file, _)| file).collect();
        let errors = files.iter().find(|(file, _)| file == "errors.txt");
        assert!(
            found.is_some(),
            "{path} is not among {paths:#?}, with {errors:?}"
        );
        let (_, text) = found.unwrap();
        assert!(
            text.contains(sign.says),
            "{:?} is not in {path}:\n{text}",
            sign.says
        );
    }
}

/// Returns the process of the exporter on a node.
async fn exporter(stack: &Stack, node: &str) -> Process {
    let pods: Api<Pod> = Api::namespaced(stack.client(), NAMESPACE);
    let selected = ListParams::default()
        .labels("name=resource-topology")
        .fields(&format!("spec.nodeName={node}"));
    let found = pods.list(&selected).await.unwrap();
    Process {
        node: node.to_owned(),
        namespace: NAMESPACE.to_owned(),
        pod: found.items[0].name_any(),
        container: RTE_CONTAINER.to_owned(),
    }
}

/// Returns the node of a pod, once it runs.
async fn running(stack: &Stack, name: &str) -> String {
    let pods: Api<Pod> = Api::default_namespaced(stack.client());
    let node = eventually(WITHIN, async || {
        let pod = pods.get(name).await.unwrap();
        let status = pod.status.unwrap_or_default();
        match status.phase.as_deref() {
            Some("Running") => Ok(pod.spec.and_then(|spec| spec.node_name).unwrap()),
            _ => Err(format!("{status:?}")),
        }
    });
    node.await.unwrap()
}

async fn delete(stack: &Stack, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(stack.client());
    let now = DeleteParams::default().grace_period(0);
    pods.delete(name, &now).await.unwrap();
    let gone = eventually(WITHIN, async || match pods.get_opt(name).await.unwrap() {
        Some(_) => Err(format!("{name} is still there")),
        None => Ok(()),
    });
    gone.await.unwrap();
}

/// Waits until the picture of the zones is as it should be.
async fn picture(stack: &Stack, is_so: impl Fn(&Value) -> bool) {
    let seen = eventually(WITHIN, async || {
        let text = stack.tool(&["nrt", "-o", "json"]).await.stdout;
        let picture: Value = serde_json::from_str(&text).unwrap();
        if is_so(&picture) { Ok(()) } else { Err(text) }
    });
    seen.await.unwrap();
}

fn node_is(picture: &Value, node: &str, key: &str, expected: &str) -> bool {
    let nodes = picture["nodes"].as_array().unwrap();
    let mut nodes = nodes.iter().filter(|it| it["name"] == node);
    nodes.any(|it| it[key] == expected)
}

#[tokio::test]
async fn each_fault_shows_where_the_documentation_says() {
    let stack = Stack::up().await;
    stack.plant().await;
    stack.create("aligned", "4").await;
    // more than a node has: the node that gets the policy `best-effort` takes what only no zone has
    stack.create("too-large", "400").await;
    let node = running(&stack, "aligned").await;
    let other = if node == "worker-0" {
        "worker-1"
    } else {
        "worker-0"
    };
    picture(&stack, |picture| {
        node_is(picture, &node, "fingerprint", "matches")
    })
    .await;
    // a kubelet with another policy than the pool's
    let wrong = KubeletSettings {
        topology_manager_policy: TopologyPolicy::BestEffort,
        ..KubeletSettings::with_scope(TopologyScope::Container)
    };
    let machines = stack.cluster.machines();
    machines.restart_kubelet(other, &wrong).await.unwrap();
    picture(&stack, |picture| {
        node_is(picture, other, "policy", "best-effort")
    })
    .await;
    // an image that the operator refuses
    let schedulers: Api<NumaResourcesScheduler> = Api::all(stack.client());
    let name = schedulers.list(&ListParams::default()).await.unwrap().items[0].name_any();
    let image = Patch::Merge(json!({"spec": {"imageSpec": BY_TAG}}));
    schedulers
        .patch(&name, &PatchParams::default(), &image)
        .await
        .unwrap();
    let degraded = eventually(WITHIN, async || {
        let status = json!(schedulers.get(&name).await.unwrap().status).to_string();
        if status.contains("must be referenced by digest") {
            Ok(())
        } else {
            Err(status)
        }
    });
    degraded.await.unwrap();
    // an exporter that stands still while a pod goes
    let process = exporter(&stack, &node).await;
    let stopped = Disturbance::Stop { process };
    let mut files = Vec::new();
    let meanwhile = async {
        delete(&stack, "aligned").await;
        files = stack.gather("first", &IMPATIENT).await;
    };
    stack
        .cluster
        .faults()
        .inject_until(&stopped, meanwhile)
        .await
        .unwrap();
    shows(
        &files,
        &FITS_NOWHERE,
        &[("NAMESPACE", "default"), ("POD", "too-large")],
    );
    shows(&files, &WRONG_POLICY, &[("NODE", other)]);
    shows(&files, &STANDS_STILL, &[]);
    shows(&files, &DEGRADED, &[("NAME", &name)]);
    assert_nothing_planted(&files);
}

#[tokio::test]
async fn a_scheduler_that_does_not_stay_up_and_a_node_that_is_gone_show_where_the_documentation_says()
 {
    let stack = Stack::up().await;
    stack.plant().await;
    let pods: Api<Pod> = Api::namespaced(stack.client(), NAMESPACE);
    let of_scheduler = ListParams::default().labels(&format!("app={SCHEDULER}"));
    let mut killed = None;
    let pod = eventually(WITHIN, async || {
        let pod = pods.list(&of_scheduler).await.unwrap().items.remove(0);
        let status = pod.status.clone().unwrap_or_default();
        let container = status.container_statuses.iter().flatten().next();
        let is_ready = container.is_some_and(|container| container.ready);
        let state = container
            .and_then(|container| container.state.clone())
            .unwrap_or_default();
        let waits = state.waiting.and_then(|waiting| waiting.reason);
        if waits.as_deref() == Some("CrashLoopBackOff") {
            return Ok(pod);
        }
        // before it is ready it may have logged nothing, and one that was killed is said to be ready until its kubelet has told
        let id = container.and_then(|container| container.container_id.clone());
        if state.running.is_some() && is_ready && id != killed {
            killed = id;
            let process = Process {
                node: pod
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.node_name.clone())
                    .unwrap(),
                namespace: NAMESPACE.to_owned(),
                pod: pod.name_any(),
                container: SCHEDULER.to_owned(),
            };
            // it may have ended by itself
            drop(
                stack
                    .cluster
                    .faults()
                    .inject(&Disturbance::Kill { process }, Duration::ZERO)
                    .await,
            );
        }
        Err(format!("{status:?}"))
    });
    let pod = pod.await.unwrap().name_any();
    // an NRT that nobody keeps: it is of a node that was never there
    let topologies: Api<api::nrt::v1alpha2::NodeResourceTopology> = Api::all(stack.client());
    let mut left = topologies.get("worker-0").await.unwrap();
    left.metadata = kube::core::ObjectMeta {
        name: Some("gone".to_owned()),
        ..kube::core::ObjectMeta::default()
    };
    topologies
        .create(&kube::api::PostParams::default(), &left)
        .await
        .unwrap();
    let files = stack.gather("second", &[]).await;
    let names = [
        ("NAMESPACE", NAMESPACE),
        ("POD", &pod),
        ("CONTAINER", SCHEDULER),
    ];
    shows(&files, &CRASH_LOOP, &names);
    shows(&files, &NODE_GONE, &[]);
    assert_nothing_planted(&files);
}

#[test]
fn the_documentation_names_every_file_that_shows_a_fault() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tools.md");
    let page = fs_err::read_to_string(page).unwrap();
    let (_, checklists) = page.split_once("### Where a fault shows").unwrap();
    for (fault, signs) in [
        ("A pod fits nowhere", FITS_NOWHERE.as_slice()),
        ("A kubelet has another policy", WRONG_POLICY.as_slice()),
        ("An exporter stands still", STANDS_STILL.as_slice()),
        ("The operator refuses an image", DEGRADED.as_slice()),
        ("The scheduler does not stay up", CRASH_LOOP.as_slice()),
        ("An NRT is of a node that is gone", NODE_GONE.as_slice()),
    ] {
        let row = checklists.lines().find(|line| line.contains(fault));
        let row = row.unwrap_or_else(|| panic!("{fault:?} has no row"));
        for sign in signs {
            assert!(
                row.contains(&format!("`{}`", sign.path)),
                "{}: {row}",
                sign.path
            );
        }
    }
}

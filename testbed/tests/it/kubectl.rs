//! The real kubectl against a whole embedded cluster: the usual operations of people and scripts.

mod harness;

use serde_json::json;

use harness::{TestCluster, daemon_set, deployment, image, sleeper};

const IMAGE_OF_POD: &str = "jsonpath={.spec.template.spec.containers[0].image}";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn cordoned_node_takes_no_pods_until_it_is_uncordoned() {
    let cluster = TestCluster::up(1).await;
    assert_eq!(
        cluster.ok(&["cordon", "worker-0"]).await,
        "node/worker-0 cordoned\n"
    );
    assert_eq!(
        cluster.ok(&["cordon", "worker-0"]).await,
        "node/worker-0 already cordoned\n"
    );
    let nodes = cluster.ok(&["get", "nodes", "--no-headers"]).await;
    assert!(nodes.contains("Ready,SchedulingDisabled"), "{nodes}");
    cluster.apply(&deployment("web", 1)).await;
    let unschedulable = ["get", "events", "--field-selector=reason=FailedScheduling"];
    let message = cluster
        .eventually(&unschedulable, |out| out.contains("pod/web-"))
        .await;
    assert!(
        message.contains("1 node(s) were unschedulable"),
        "{message}"
    );
    assert_eq!(
        cluster.ok(&["uncordon", "worker-0"]).await,
        "node/worker-0 uncordoned\n"
    );
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=30s"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn drain_moves_pods_as_far_as_their_budget_lets_it_and_leaves_daemons() {
    let cluster = TestCluster::up(2).await;
    cluster.apply(&daemon_set("agent")).await;
    cluster
        .ok(&["rollout", "status", "ds/agent", "--timeout=30s"])
        .await;
    // All pods of the Deployment run on the node to be drained.
    cluster.ok(&["cordon", "worker-1"]).await;
    cluster.apply(&deployment("web", 2)).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=30s"])
        .await;
    cluster.ok(&["uncordon", "worker-1"]).await;
    cluster
        .ok(&[
            "create",
            "pdb",
            "web",
            "--selector=app=web",
            "--min-available=2",
        ])
        .await;
    let covered = [
        "get",
        "pdb",
        "web",
        "-o",
        "jsonpath={.status.currentHealthy}",
    ];
    cluster.eventually(&covered, |out| out == "2").await;

    let refused = cluster.refused(&["drain", "worker-0"]).await;
    let daemons =
        "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): default/agent-";
    assert!(refused.contains(daemons), "{refused}");
    let drain = ["drain", "worker-0", "--ignore-daemonsets"];
    let refused = cluster
        .refused(&[&drain[..], &["--timeout=2s"]].concat())
        .await;
    assert!(
        refused.contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{refused}"
    );
    assert!(
        refused.contains("ignoring DaemonSet-managed Pods: default/agent-"),
        "{refused}"
    );
    let on = |node: &str| format!("--field-selector=spec.nodeName={node}");
    let there = cluster
        .ok(&[
            "get",
            "pods",
            "-l",
            "app=web",
            &on("worker-0"),
            "-o",
            "name",
        ])
        .await;
    assert_eq!(there.lines().count(), 2, "{there}");

    let patch = r#"{"spec":{"minAvailable":1}}"#;
    cluster
        .ok(&["patch", "pdb", "web", "--type=merge", "-p", patch])
        .await;
    let drained = cluster.ok(&[&drain[..], &["--timeout=50s"]].concat()).await;
    assert!(
        drained.starts_with("node/worker-0 already cordoned\n"),
        "{drained}"
    );
    assert!(drained.ends_with("node/worker-0 drained\n"), "{drained}");
    assert_eq!(drained.matches(" evicted\n").count(), 2, "{drained}");
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=30s"])
        .await;
    let moved = cluster
        .ok(&[
            "get",
            "pods",
            "-l",
            "app=web",
            &on("worker-1"),
            "-o",
            "name",
        ])
        .await;
    assert_eq!(moved.lines().count(), 2, "{moved}");
    let stays = cluster
        .ok(&["get", "pods", &on("worker-0"), "-o", "name"])
        .await;
    assert!(
        stays.lines().count() == 1 && stays.starts_with("pod/agent-"),
        "{stays}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn drain_takes_pods_that_nobody_brings_back_only_by_force() {
    let cluster = TestCluster::up(1).await;
    let mut spec = sleeper("v1");
    spec["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    let bare =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec});
    cluster.apply(&bare).await;
    cluster
        .ok(&["wait", "--for=condition=Ready", "pod/bare", "--timeout=30s"])
        .await;
    let refused = cluster.refused(&["drain", "worker-0"]).await;
    let local = "cannot delete Pods with local storage (use --delete-emptydir-data to override): default/bare";
    assert!(refused.contains(local), "{refused}");
    let drain = [
        "drain",
        "worker-0",
        "--delete-emptydir-data",
        "--timeout=50s",
    ];
    let refused = cluster.refused(&drain).await;
    let alone = "cannot delete cannot delete Pods that declare no controller (use --force to override): default/bare";
    assert!(refused.contains(alone), "{refused}");
    cluster.ok(&[&drain[..], &["--force"]].concat()).await;
    let gone = cluster.refused(&["get", "pod", "bare"]).await;
    assert_eq!(
        gone,
        "Error from server (NotFound): pods \"bare\" not found\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn rollouts_of_a_deployment_are_followed_listed_undone_and_repeated() {
    let cluster = TestCluster::up(2).await;
    cluster.apply(&deployment("web", 2)).await;
    let status = ["rollout", "status", "deployment/web", "--timeout=50s"];
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("deployment \"web\" successfully rolled out\n"),
        "{result}"
    );
    let second = format!("main={}", image("v2"));
    cluster
        .ok(&["set", "image", "deployment/web", &second])
        .await;
    cluster
        .ok(&[
            "annotate",
            "deployment/web",
            "kubernetes.io/change-cause=the second",
        ])
        .await;
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("deployment \"web\" successfully rolled out\n"),
        "{result}"
    );
    let known = |out: &str| out.contains("the second");
    let history = cluster
        .eventually(&["rollout", "history", "deployment/web"], known)
        .await;
    assert_eq!(
        history,
        "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         the second\n\n"
    );
    let one = cluster
        .ok(&["rollout", "history", "deployment/web", "--revision=1"])
        .await;
    assert!(
        one.starts_with("deployment.apps/web with revision #1\nPod Template:\n"),
        "{one}"
    );
    assert!(one.contains(&image("v1")), "{one}");

    let undone = cluster.ok(&["rollout", "undo", "deployment/web"]).await;
    assert_eq!(undone, "deployment.apps/web rolled back\n");
    cluster.ok(&status).await;
    let now = cluster
        .ok(&["get", "deployment/web", "-o", IMAGE_OF_POD])
        .await;
    assert_eq!(now, image("v1"));
    let third = |out: &str| out.contains("\n3 ") && !out.contains("\n1 ");
    cluster
        .eventually(&["rollout", "history", "deployment/web"], third)
        .await;
    let refused = cluster
        .refused(&["rollout", "undo", "deployment/web", "--to-revision=9"])
        .await;
    assert_eq!(
        refused,
        "error: unable to find specified revision 9 in history\n"
    );

    let names = ["get", "pods", "-l", "app=web", "-o", "name"];
    let before = cluster
        .eventually(&names, |out| out.lines().count() == 2)
        .await;
    cluster.ok(&["rollout", "pause", "deployment/web"]).await;
    let refused = cluster
        .refused(&["rollout", "restart", "deployment/web"])
        .await;
    assert!(
        refused.contains("can't restart paused deployment"),
        "{refused}"
    );
    cluster.ok(&["rollout", "resume", "deployment/web"]).await;
    let restarted = cluster.ok(&["rollout", "restart", "deployment/web"]).await;
    assert_eq!(restarted, "deployment.apps/web restarted\n");
    cluster.ok(&status).await;
    cluster
        .eventually(&names, |out| {
            out.lines().count() == 2 && !out.lines().any(|pod| before.contains(pod))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn rollouts_of_a_daemon_set_are_followed_listed_undone_and_repeated() {
    let cluster = TestCluster::up(2).await;
    cluster.apply(&daemon_set("agent")).await;
    let status = ["rollout", "status", "ds/agent", "--timeout=50s"];
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("daemon set \"agent\" successfully rolled out\n"),
        "{result}"
    );
    let second = format!("main={}", image("v2"));
    cluster.ok(&["set", "image", "ds/agent", &second]).await;
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("daemon set \"agent\" successfully rolled out\n"),
        "{result}"
    );
    let history = cluster.ok(&["rollout", "history", "ds/agent"]).await;
    assert_eq!(
        history,
        "daemonset.apps/agent \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n"
    );
    let one = cluster
        .ok(&["rollout", "history", "ds/agent", "--revision=1"])
        .await;
    assert!(one.contains(&image("v1")), "{one}");
    let undone = cluster
        .ok(&["rollout", "undo", "ds/agent", "--to-revision=1"])
        .await;
    assert_eq!(undone, "daemonset.apps/agent rolled back\n");
    cluster.ok(&status).await;
    let now = cluster.ok(&["get", "ds/agent", "-o", IMAGE_OF_POD]).await;
    assert_eq!(now, image("v1"));
    let third = |out: &str| out.contains("\n3 ") && !out.contains("\n1 ");
    cluster
        .eventually(&["rollout", "history", "ds/agent"], third)
        .await;
    let restarted = cluster.ok(&["rollout", "restart", "ds/agent"]).await;
    assert_eq!(restarted, "daemonset.apps/agent restarted\n");
    cluster.ok(&status).await;
    let updated = cluster
        .ok(&[
            "get",
            "ds/agent",
            "-o",
            "jsonpath={.status.updatedNumberScheduled}",
        ])
        .await;
    assert_eq!(updated, "2");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn wait_ends_when_it_is_so_and_not_before() {
    let cluster = TestCluster::up(1).await;
    let waiting = cluster.run(&["wait", "--for=create", "deployment/web", "--timeout=50s"]);
    let made = async {
        cluster.apply(&deployment("web", 2)).await;
    };
    let (created, ()) = tokio::join!(waiting, made);
    assert_eq!(
        created.out, "deployment.apps/web condition met\n",
        "{created:?}"
    );
    let available = cluster
        .ok(&[
            "wait",
            "--for=condition=Available",
            "deployment/web",
            "--timeout=50s",
        ])
        .await;
    assert_eq!(available, "deployment.apps/web condition met\n");
    let replicas = "--for=jsonpath={.status.readyReplicas}=2";
    cluster
        .ok(&["wait", replicas, "deployment/web", "--timeout=50s"])
        .await;
    let phase = "--for=jsonpath={.status.phase}=Running";
    let all = cluster
        .ok(&["wait", phase, "pod", "-l", "app=web", "--timeout=50s"])
        .await;
    assert_eq!(all.matches(" condition met\n").count(), 2, "{all}");

    let never = [
        "wait",
        "--for=condition=Progressing=False",
        "deployment/web",
        "--timeout=1s",
    ];
    // kubectl may print an extra line before this one if a watch was cut short.
    let late = "error: timed out waiting for the condition on deployments/web\n";
    let refused = cluster.refused(&never).await;
    assert!(refused.ends_with(late), "{refused}");
    let still = ["wait", "--for=delete", "deployment/web", "--timeout=1s"];
    let refused = cluster.refused(&still).await;
    assert!(refused.ends_with(late), "{refused}");
    let waiting = [
        "wait",
        "--for=delete",
        "pod",
        "-l",
        "app=web",
        "--timeout=50s",
    ];
    let waiting = cluster.run(&waiting);
    let deleted = cluster.ok(&["delete", "deployment/web", "--wait=false"]);
    let (gone, _) = tokio::join!(waiting, deleted);
    assert!(gone.succeeded, "{gone:?}");
    cluster
        .eventually(
            &["get", "pods", "-l", "app=web", "-o", "name"],
            str::is_empty,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn scale_changes_replicas_only_from_what_is_expected() {
    let cluster = TestCluster::up(1).await;
    cluster.apply(&deployment("web", 1)).await;
    let scaled = cluster
        .ok(&["scale", "deployment/web", "--replicas=3"])
        .await;
    assert_eq!(scaled, "deployment.apps/web scaled\n");
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=50s"])
        .await;
    let wrong = [
        "scale",
        "deployment/web",
        "--current-replicas=9",
        "--replicas=1",
    ];
    assert_eq!(
        cluster.refused(&wrong).await,
        "error: Expected replicas to be 9, was 3\n"
    );
    cluster
        .ok(&[
            "scale",
            "deployment/web",
            "--current-replicas=3",
            "--replicas=0",
        ])
        .await;
    cluster
        .eventually(
            &["get", "pods", "-l", "app=web", "-o", "name"],
            str::is_empty,
        )
        .await;
}

/// Directory of the manifests that install the stack.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config");

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn manifests_of_the_stack_are_applied_as_files_as_a_base_and_with_components() {
    let cluster = TestCluster::up(1).await;
    let by_file = [
        "apply",
        "--server-side",
        "-f",
        &format!("{CONFIG}/crd"),
        "-f",
        &format!("{CONFIG}/operator.yaml"),
    ];
    let applied = cluster.ok(&by_file).await;
    let mut by_file: Vec<&str> = applied.lines().collect();
    let applied = cluster.ok(&["apply", "--server-side", "-k", CONFIG]).await;
    let mut by_base: Vec<&str> = applied.lines().collect();
    by_file.sort_unstable();
    by_base.sort_unstable();
    assert_eq!(by_file, by_base);
    let overlay = cluster.dir.path().join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    let up = "../".repeat(overlay.components().count() - 1);
    let config = format!("{up}{}", &CONFIG[1..]);
    let text = format!(
        "namespace: elsewhere\nresources: [{config}]\ncomponents: [{config}/network-policies, {config}/monitoring]\n"
    );
    std::fs::write(overlay.join("kustomization.yaml"), text).unwrap();
    let rendered = cluster
        .ok(&["kustomize", &overlay.display().to_string()])
        .await;
    for wanted in [
        "kind: ServiceMonitor",
        "name: operator-default-deny-all",
        "name: elsewhere",
    ] {
        assert!(rendered.contains(wanted), "no {wanted} in {rendered}");
    }
    let left = rendered
        .lines()
        .find(|line| line.trim() == "namespace: numaresources");
    assert_eq!(left, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn edit_takes_what_the_editor_leaves() {
    let cluster = TestCluster::up(1).await;
    cluster.apply(&deployment("web", 1)).await;
    let edited = cluster
        .edit("deployment/web", "s/replicas: 1/replicas: 2/")
        .await;
    assert_eq!(edited.out, "deployment.apps/web edited\n", "{edited:?}");
    let replicas = ["get", "deployment/web", "-o", "jsonpath={.spec.replicas}"];
    assert_eq!(cluster.ok(&replicas).await, "2");
    let same = cluster.edit("deployment/web", "s/nothing/like-this/").await;
    assert_eq!(same.err, "Edit cancelled, no changes made.\n", "{same:?}");
    // kubectl writes the error into the file and opens the editor again; the second edit changes nothing.
    let wrong = cluster
        .edit("deployment/web", "s/replicas: 2/replicas: -2/")
        .await;
    assert!(!wrong.succeeded, "{wrong:?}");
    assert!(
        wrong
            .err
            .starts_with("error: deployments.apps \"web\" is invalid\n"),
        "{wrong:?}"
    );
    let (_, kept) = wrong.err.split_once("has been stored to \"").unwrap();
    let kept = fs_err::read_to_string(kept.split_once('"').unwrap().0).unwrap();
    let why = "# * spec.replicas: Invalid value: -2: must be greater than or equal to 0\n";
    assert!(kept.contains(why), "{kept}");
    assert_eq!(cluster.ok(&replicas).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn watching_get_prints_a_line_for_each_change() {
    let cluster = TestCluster::up(1).await;
    let mut watching = cluster.follow(&[
        "get",
        "pods",
        "--watch",
        "--output-watch-events",
        "--no-headers",
    ]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": sleeper("v1")});
    cluster.apply(&pod).await;
    watching
        .line(|line| line.starts_with("ADDED ") && line.contains(" one "))
        .await;
    watching
        .line(|line| {
            line.starts_with("MODIFIED ") && line.contains(" 1/1 ") && line.contains(" Running ")
        })
        .await;
    cluster.ok(&["delete", "pod", "one", "--wait=false"]).await;
    watching
        .line(|line| line.starts_with("MODIFIED ") && line.contains(" Terminating "))
        .await;
    watching.line(|line| line.starts_with("DELETED ")).await;
    let states: Vec<&str> = watching
        .seen
        .iter()
        .filter_map(|line| line.split_whitespace().nth(3))
        .collect();
    assert!(states.starts_with(&["Pending"]), "{:#?}", watching.seen);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn descriptions_tell_what_is_there_and_what_happened() {
    let cluster = TestCluster::up(1).await;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": "2", "memory": "64Mi"}});
    cluster.apply(&web).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=50s"])
        .await;

    let has = |text: &str, lines: &[&str]| {
        let squeezed: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for wanted in lines {
            assert!(
                squeezed.iter().any(|line| line.starts_with(wanted)),
                "no {wanted:?} in {text}"
            );
        }
    };
    let described = cluster.ok(&["describe", "deployment/web"]).await;
    has(
        &described,
        &[
            "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable",
            "StrategyType: RollingUpdate",
            "Available True MinimumReplicasAvailable",
            "Progressing True NewReplicaSetAvailable",
            "OldReplicaSets: <none>",
            "NewReplicaSet: web-",
            "Normal ScalingReplicaSet",
        ],
    );
    let pod = cluster
        .ok(&["get", "pods", "-l", "app=web", "-o", "name"])
        .await;
    let described = cluster.ok(&["describe", pod.lines().next().unwrap()]).await;
    has(
        &described,
        &[
            "Node: worker-0/127.",
            "Status: Running",
            "Controlled By: ReplicaSet/web-",
            "State: Running",
            "Ready True",
            "QoS Class: Guaranteed",
            "Normal Scheduled",
            "Normal Started",
        ],
    );
    let described = cluster.ok(&["describe", "node", "worker-0"]).await;
    has(
        &described,
        &[
            "Roles: numa-container,worker",
            "Unschedulable: false",
            "HolderIdentity: worker-0",
            "Ready True",
            "InternalIP: 127.",
            "example.com/deviceA: 10",
            "Kubelet Version: v1.35.4",
            "Non-terminated Pods: (2 in total)",
            "default web-",
            "cpu 4 (9%) 4 (9%)",
            "memory 128Mi (0%) 128Mi (0%)",
            "Normal NodeReady",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn explain_knows_the_fields_of_built_in_and_custom_kinds() {
    let cluster = TestCluster::up(1).await;
    let explained = cluster
        .ok(&["explain", "pod.spec.containers.resources"])
        .await;
    assert!(
        explained.starts_with(
            "KIND:       Pod\nVERSION:    v1\n\nFIELD: resources <ResourceRequirements>\n"
        ),
        "{explained}"
    );
    for field in [
        "  claims\t<[]ResourceClaim>",
        "  limits\t<map[string]Quantity>",
    ] {
        assert!(explained.contains(field), "{explained}");
    }
    let explained = cluster.ok(&["explain", "deployment", "--recursive"]).await;
    assert!(
        explained.starts_with("GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n"),
        "{explained}"
    );
    assert!(
        explained.contains("maxUnavailable\t<IntOrString>"),
        "{explained}"
    );
    let refused = cluster.refused(&["explain", "pod.spec.nothing"]).await;
    assert_eq!(refused, "error: field \"nothing\" does not exist\n");

    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "description": "What is wanted.", "required": ["size"],
        "properties": {"size": {"type": "integer", "description": "How many."}},
    }}});
    cluster
        .apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }))
        .await;
    cluster
        .ok(&[
            "wait",
            "--for=condition=Established",
            "crd/gadgets.example.com",
            "--timeout=30s",
        ])
        .await;
    let explained = cluster
        .eventually(&["explain", "gadgets.spec"], |_| true)
        .await;
    assert!(
        explained.starts_with(
            "GROUP:      example.com\nKIND:       Gadget\nVERSION:    v1\n\nFIELD: spec <Object>\n"
        ),
        "{explained}"
    );
    assert!(
        explained.contains("  size\t<integer> -required-\n    How many.\n"),
        "{explained}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn debug_adds_containers_that_the_pod_does_not_depend_on() {
    let cluster = TestCluster::up(1).await;
    let mut spec = sleeper("v1");
    let readiness = json!({"exec": {"command": ["/bin/sleep", "0"]}});
    spec["containers"][0]["readinessProbe"] = readiness;
    // The init container of one pod waits forever, because users debug pods that do not start.
    let stuck =
        json!({"name": "stuck", "image": image("v1"), "command": ["/bin/sleep", "infinity"]});
    let mut waits = spec.clone();
    waits["initContainers"] = json!([stuck]);
    for (name, spec) in [("one", spec), ("waits", waits)] {
        cluster
            .apply(&json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
            }))
            .await;
    }
    cluster
        .ok(&["wait", "--for=condition=Ready", "pod/one", "--timeout=30s"])
        .await;
    let image = format!("--image={}", image("v2"));
    for name in ["one", "waits"] {
        let sleeps = ["--", "/bin/sleep", "infinity"];
        let debug = ["debug", name, &image, "--container=look", "--quiet"];
        cluster.ok(&[&debug[..], &sleeps].concat()).await;
        let state = "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.running}";
        let pod = format!("pod/{name}");
        cluster.ok(&["wait", state, &pod, "--timeout=30s"]).await;
    }
    let there = ["exec", "waits", "-c", "look", "--", "/bin/cat", "/dev/null"];
    cluster.ok(&there).await;
    // An ephemeral container that fails is not started again, and the pod stays ready.
    let fails = ["debug", "one", &image, "--container=fails", "--quiet", "--"];
    cluster
        .ok(&[&fails[..], &["/bin/cat", "/no/such/file"]].concat())
        .await;
    let ended =
        "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=1";
    cluster
        .ok(&["wait", ended, "pod/one", "--timeout=30s"])
        .await;
    let logs = cluster.ok(&["logs", "one", "-c", "fails"]).await;
    assert!(logs.contains("No such file or directory"), "{logs}");
    let pod = cluster.ok(&["get", "pod", "one", "-o", "json"]).await;
    let pod: serde_json::Value = serde_json::from_str(&pod).unwrap();
    let statuses = pod["status"]["ephemeralContainerStatuses"]
        .as_array()
        .unwrap();
    let seen: Vec<_> = statuses
        .iter()
        .map(|status| {
            (
                status["name"].as_str().unwrap(),
                status["restartCount"].as_i64(),
            )
        })
        .collect();
    assert_eq!(seen, [("fails", Some(0)), ("look", Some(0))]);
    let ready = ["wait", "--for=condition=Ready", "pod/one", "--timeout=1s"];
    cluster.ok(&ready).await;
    let described = cluster.ok(&["describe", "pod", "one"]).await;
    assert!(
        described.contains("Ephemeral Containers:\n  look:"),
        "{described}"
    );
    // Ephemeral containers end with their pod.
    cluster
        .ok(&["delete", "pod", "one", "waits", "--timeout=30s"])
        .await;
}

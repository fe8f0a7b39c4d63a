//! The real kubectl against a whole embedded cluster: the usual operations of people and scripts.

mod describe;
mod drain;
mod harness;
mod rollout;

use serde_json::json;

use harness::{TestCluster, deployment, image, sleeper};

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
    for directory in ["openshift", "exporter"] {
        let directory = format!("{CONFIG}/{directory}");
        let applied = cluster
            .ok(&["apply", "--server-side", "-k", &directory])
            .await;
        assert!(
            applied.contains("noderesourcetopologies.topology.node.k8s.io"),
            "{applied}"
        );
    }
    let overlay = cluster.dir.path().join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    let up = "../".repeat(overlay.components().count() - 1);
    let config = format!("{up}{}", &CONFIG[1..]);
    let text = format!(
        "namespace: elsewhere\nresources: [{config}]\ncomponents: [{config}/network-policies, {config}/monitoring, {config}/user-roles]\n"
    );
    std::fs::write(overlay.join("kustomization.yaml"), text).unwrap();
    let rendered = cluster
        .ok(&["kustomize", &overlay.display().to_string()])
        .await;
    for wanted in [
        "kind: ServiceMonitor",
        "name: operator-default-deny-all",
        "name: numaresourcesoperator-editor-role",
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

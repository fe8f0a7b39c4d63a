//! Tests with kubectl of the same version, unmodified.

use serde_json::{Value, json};

use self::harness::{Kubectl, lines};

mod harness;

fn deployment(replicas: i32) -> String {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "pause", "ports": [{"containerPort": 80}]}]}}}})
    .to_string()
}

fn pod(name: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "p"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "pause"}]}})
    .to_string()
}

fn node() -> String {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.2.3"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}})
    .to_string()
}

fn definition() -> String {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
    .to_string()
}

fn widget(size: i32) -> String {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": size}})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn applies_a_list_and_creates_what_has_no_patch() {
    let kubectl = Kubectl::start().await;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}},
    ]});
    assert_eq!(
        kubectl.ok("apply -f -", &list.to_string()).await,
        "configmap/one created\nconfigmap/two created\n"
    );
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let made = kubectl
        .ok(
            "create -o jsonpath={.status.allowed} -f -",
            &review.to_string(),
        )
        .await;
    assert_eq!(made, "false");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn applies_on_the_client_side() {
    let kubectl = Kubectl::start().await;
    let apply = "apply -f -";
    assert_eq!(
        kubectl.ok(apply, &deployment(2)).await,
        "deployment.apps/web created\n"
    );
    assert_eq!(
        kubectl.ok(apply, &deployment(2)).await,
        "deployment.apps/web unchanged\n"
    );
    let differs = kubectl.run("diff -f -", &deployment(3)).await;
    assert_eq!(differs.code, 1, "{differs:?}");
    assert!(differs.out.contains("+  replicas: 3"), "{}", differs.out);
    assert_eq!(
        kubectl.ok(apply, &deployment(3)).await,
        "deployment.apps/web configured\n"
    );
    assert_eq!(kubectl.run("diff -f -", &deployment(3)).await.code, 0);
    let object = kubectl.object("deployment web").await;
    assert_eq!(object["spec"]["replicas"], 3);
    assert_eq!(
        object["metadata"]["managedFields"][0]["manager"],
        "kubectl-client-side-apply"
    );
    let unknown = deployment(3).replace("\"replicas\"", "\"repliccas\"");
    let refused = kubectl.fails(apply, &unknown).await;
    assert!(
        refused.contains("unknown field \"spec.repliccas\""),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn applies_on_the_server_side() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("apply -f -", &deployment(2)).await;
    // client-side apply hands its fields over
    assert_eq!(
        kubectl.ok("apply --server-side -f -", &deployment(3)).await,
        "deployment.apps/web serverside-applied\n"
    );
    let object = kubectl.object("deployment web").await;
    let owners: Vec<(&Value, &Value)> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["manager"], &entry["operation"]))
        .collect();
    let applies = json!("Apply");
    assert_eq!(
        owners,
        [
            (&json!("kubectl-last-applied"), &applies),
            (&json!("kubectl"), &applies)
        ]
    );
    let other = "apply --server-side --field-manager=other -f -";
    let refused = kubectl.fails(other, &deployment(4)).await;
    assert!(
        refused.starts_with(
            "error: Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas\n"
        ),
        "{refused}"
    );
    kubectl
        .ok(&format!("{other} --force-conflicts"), &deployment(4))
        .await;
    assert_eq!(
        kubectl.object("deployment web").await["spec"]["replicas"],
        4
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn changes_what_is_there() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("create -f -", &deployment(2)).await;
    let again = kubectl.fails("create -f -", &deployment(2)).await;
    assert!(again.contains("(AlreadyExists)"), "{again}");
    for command in [
        "scale deployment web --replicas=5",
        "set image deployment/web c=busybox",
        "label deployment web tier=front",
        "annotate deployment web note=done",
        "patch deployment web -p '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"c\",\"workingDir\":\"/x\"}]}}}}'",
        "patch deployment web --type=merge -p '{\"spec\":{\"paused\":true}}'",
        "patch deployment web --type=json -p '[{\"op\":\"test\",\"path\":\"/spec/replicas\",\"value\":5},{\"op\":\"add\",\"path\":\"/spec/minReadySeconds\",\"value\":7}]'",
        "set env deployment web A=B",
    ] {
        kubectl.ok(command, "").await;
    }
    let object = kubectl.object("deployment web").await;
    let (spec, container) = (
        &object["spec"],
        &object["spec"]["template"]["spec"]["containers"][0],
    );
    assert_eq!(spec["replicas"], 5);
    assert_eq!(
        (&spec["paused"], &spec["minReadySeconds"]),
        (&json!(true), &json!(7))
    );
    assert_eq!(
        (&container["image"], &container["workingDir"]),
        (&json!("busybox"), &json!("/x"))
    );
    assert_eq!(container["env"], json!([{"name": "A", "value": "B"}]));
    assert_eq!(object["metadata"]["labels"]["tier"], "front");
    assert_eq!(object["metadata"]["annotations"]["note"], "done");

    kubectl.editor("sed -i 's/replicas: 5/replicas: 6/' \"$1\"");
    assert_eq!(
        kubectl.ok("edit deployment web", "").await,
        "deployment.apps/web edited\n"
    );
    kubectl.ok("label deployment web tier-", "").await;
    kubectl.ok("replace -f -", &deployment(1)).await;
    let object = kubectl.object("deployment web").await;
    assert_eq!(object["spec"]["replicas"], 1);
    assert_eq!(object["metadata"]["annotations"], Value::Null);
    assert_eq!(
        kubectl.ok("delete deployment web", "").await,
        "deployment.apps \"web\" deleted from default namespace\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn lists_and_describes() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("create -f -", &node()).await;
    kubectl.ok("create -f -", &pod("p1")).await;
    kubectl.ok("create namespace other", "").await;
    kubectl.ok("create -f -", &deployment(2)).await;
    let wide = lines(&kubectl.ok("get pods -o wide", "").await);
    assert_eq!(
        wide[0],
        "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
    );
    assert!(wide[1].starts_with("p1 0/1 Pending 0 "), "{wide:?}");
    assert!(wide[1].ends_with("<none> n1 <none> <none>"), "{wide:?}");
    let nodes = lines(&kubectl.ok("get nodes -o wide", "").await);
    assert!(nodes[1].starts_with("n1 Ready worker"), "{nodes:?}");
    assert!(
        nodes[1].ends_with("v1.2.3 192.0.2.1 <none> <unknown> <unknown> <unknown>"),
        "{nodes:?}"
    );
    let everywhere = lines(&kubectl.ok("get services -A", "").await);
    assert!(
        everywhere[1].starts_with("default kubernetes ClusterIP 10.96.0.1"),
        "{everywhere:?}"
    );
    let selected = "get pods -l app=p --field-selector spec.nodeName=n1 -o name";
    assert_eq!(kubectl.ok(selected, "").await, "pod/p1\n");
    let none = kubectl.run("get pods -l app=q", "").await;
    assert_eq!(none.error, "No resources found in default namespace.\n");
    let shown = kubectl
        .ok("get deployment web -o jsonpath={.spec.replicas}", "")
        .await;
    assert_eq!(shown, "2");
    assert!(
        kubectl
            .ok("get pod p1 -o yaml", "")
            .await
            .contains("nodeName: n1")
    );
    for (what, prefix) in [
        ("pod p1", "Image: pause"),
        ("node n1", "Roles: worker"),
        ("node n1", "default p1 0"),
        ("deployment web", "Replicas: 2 desired"),
    ] {
        let described = lines(&kubectl.ok(&format!("describe {what}"), "").await);
        assert!(
            described.iter().any(|line| line.starts_with(prefix)),
            "{what}: {described:#?}"
        );
    }
    let resources = kubectl
        .ok("api-resources --api-group=apps -o name", "")
        .await;
    assert!(resources.contains("statefulsets.apps\n"), "{resources}");
    let missing = kubectl.fails("get pod nobody", "").await;
    assert_eq!(
        missing,
        "Error from server (NotFound): pods \"nobody\" not found\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn watches() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("create configmap seen", "").await;
    let watching = kubectl.run(
        "get configmap seen --watch --request-timeout=4s -o 'custom-columns=V:.data.a'",
        "",
    );
    let changing = async {
        for value in ["one", "two"] {
            let patch = format!(
                "patch configmap seen --type=merge -p '{{\"data\":{{\"a\":\"{value}\"}}}}'"
            );
            kubectl.ok(&patch, "").await;
        }
    };
    let (watched, ()) = tokio::join!(watching, changing);
    let seen = lines(&watched.out);
    // it depends on timing how many of the changes come after the list
    assert_eq!(seen.last().map(String::as_str), Some("two"), "{watched:?}");
    let table = kubectl
        .run("get configmaps --watch --request-timeout=1s", "")
        .await;
    assert!(
        lines(&table.out)[0].starts_with("NAME DATA AGE"),
        "{table:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn keeps_nodes_free() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("create -f -", &node()).await;
    kubectl.ok("taint node n1 key=value:NoExecute", "").await;
    kubectl.ok("cordon n1", "").await;
    let nodes = lines(&kubectl.ok("get nodes", "").await);
    assert!(
        nodes[1].starts_with("n1 Ready,SchedulingDisabled worker"),
        "{nodes:?}"
    );
    kubectl.ok("uncordon n1", "").await;
    let taints = &kubectl.object("node n1").await["spec"]["taints"];
    assert!(
        taints
            .as_array()
            .unwrap()
            .contains(&json!({"key": "key", "value": "value", "effect": "NoExecute"})),
        "{taints}"
    );
    let mut alone = serde_json::from_str::<Value>(&pod("p1")).unwrap();
    alone["spec"]["terminationGracePeriodSeconds"] = json!(0);
    kubectl.ok("create -f -", &alone.to_string()).await;
    let drained = kubectl.ok("drain n1 --force --timeout=20s", "").await;
    assert!(drained.contains("pod/p1 evicted"), "{drained}");
    kubectl
        .ok("wait --for=delete pod/p1 --timeout=5s", "")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn knows_custom_resources() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("apply -f -", &definition()).await;
    kubectl
        .ok(
            "wait --for=condition=Established crd/widgets.example.com --timeout=10s",
            "",
        )
        .await;
    assert_eq!(
        kubectl.ok("apply -f -", &widget(3)).await,
        "widget.example.com/w created\n"
    );
    kubectl.ok("scale widget w --replicas=4", "").await;
    kubectl
        .ok(
            "patch widget w --subresource=status --type=merge -p '{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}'",
            "",
        )
        .await;
    assert_eq!(
        lines(&kubectl.ok("get wd", "").await),
        ["NAME SIZE READY", "w 4 True"]
    );
    kubectl
        .ok("wait --for=condition=Ready widget/w --timeout=5s", "")
        .await;
    let explained = kubectl.ok("explain widget.spec", "").await;
    assert!(
        explained.contains("size\t<integer> -required-"),
        "{explained}"
    );
    assert!(explained.contains("color\t<string>"), "{explained}");
    let strategic = kubectl.fails("patch widget w -p '{}'", "").await;
    assert_eq!(
        strategic,
        "error: application/strategic-merge-patch+json is not supported by example.com/v1, Kind=Widget: the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml\n"
    );
    kubectl.editor("sed -i 's/size: 4/size: 7/' \"$1\"");
    kubectl.ok("edit widget w", "").await;
    assert_eq!(kubectl.object("widget w").await["spec"]["size"], 7);
    let refused = kubectl.fails("apply -f -", &widget(0)).await;
    assert!(
        refused.contains("spec.size in body should be greater than or equal to 1"),
        "{refused}"
    );
    kubectl.ok("delete widget w", "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn explains() {
    let kubectl = Kubectl::start().await;
    let explained = kubectl.ok("explain pod.spec.containers", "").await;
    assert!(
        explained.contains("FIELD: containers <[]Container>"),
        "{explained}"
    );
    let all = kubectl.ok("explain deployment --recursive", "").await;
    assert!(all.contains("maxUnavailable\t<IntOrString>"), "{all}");
    let unknown = kubectl.fails("explain pod.spec.nothing", "").await;
    assert!(
        unknown.contains("field \"nothing\" does not exist"),
        "{unknown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn creates_by_flags_and_asks_for_rights() {
    let kubectl = Kubectl::start().await;
    // kubectl sends all of these in protobuf
    for command in [
        "create configmap c --from-literal=a=b",
        "create secret generic s --from-literal=a=b",
        "create deployment d --image=pause --replicas=0",
        "create service clusterip v --tcp=80:8080",
        "create job j --image=pause",
        "create role r --verb=get --resource=pods",
        "create rolebinding rb --role=r --user=u",
        "create priorityclass pc --value=3",
        "run p --image=pause --port=80 --env=A=B",
        "create poddisruptionbudget b --selector=app=x --min-available=50%",
    ] {
        kubectl.ok(command, "").await;
    }
    assert_eq!(
        kubectl.object("configmap c").await["data"],
        json!({"a": "b"})
    );
    assert_eq!(kubectl.object("deployment d").await["spec"]["replicas"], 0);
    let service = kubectl.object("service v").await;
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8080);
    let budget = kubectl.object("poddisruptionbudget b").await;
    assert_eq!(budget["spec"]["minAvailable"], "50%");
    let asked = "auth can-i --as=u";
    assert_eq!(kubectl.ok(&format!("{asked} get pods"), "").await, "yes\n");
    let refused = kubectl.run(&format!("{asked} delete pods"), "").await;
    assert_eq!((refused.code, refused.out.as_str()), (1, "no\n"));
    let token = kubectl.ok("create token default", "").await;
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    assert!(
        kubectl
            .ok("auth whoami", "")
            .await
            .contains("system:masters")
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn follows_a_rollout() {
    let kubectl = Kubectl::start().await;
    kubectl.ok("create -f -", &deployment(2)).await;
    // the status that the deployment controller would write
    let status = json!({"status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
    let patch = format!("patch deployment web --subresource=status --type=merge -p '{status}'");
    kubectl.ok(&patch, "").await;
    assert_eq!(
        kubectl
            .ok("rollout status deployment web --timeout=10s", "")
            .await,
        "deployment \"web\" successfully rolled out\n"
    );
    assert_eq!(
        lines(&kubectl.ok("get deployment web", "").await)[1]
            .rsplit_once(' ')
            .unwrap()
            .0,
        "web 2/2 2 2"
    );
    kubectl.ok("rollout restart deployment web", "").await;
    assert_eq!(
        kubectl.object("deployment web").await["metadata"]["generation"],
        2
    );
    drop(kubectl.server);
}

//! Component `scheduler-plugin` (deployer.md 7).

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    HYPERSHIFT, KUBERNETES, OPENSHIFT, Rendered, assert_policy, item, names, plain_verbs, subject,
    verbs,
};

const SCHEDULER: &str = "topology-aware-scheduler";
const CONTROLLER: &str = "topology-aware-controller";
const NAMESPACE: &str = "tas-scheduler";
const ELECTION: &str = "topology-aware-scheduler-leader-elect";
/// Has the controller deployed, too.
const WITH_CONTROLLER: (&str, &str) = ("TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE", "example.com/c:1");

fn with_controller(flags: &str) -> Rendered {
    Rendered::with(&[WITH_CONTROLLER], flags)
}

#[rstest]
#[case::kubernetes(KUBERNETES, "tas-scheduler")]
#[case::openshift(OPENSHIFT, "openshift-topology-aware-scheduler")]
#[case::hypershift(HYPERSHIFT, "openshift-topology-aware-scheduler")]
fn the_namespace_is_that_of_the_platform(#[case] platform: &str, #[case] expected: &str) {
    let rendered = with_controller(platform);
    rendered.object("Namespace", expected);
    for (kind, name) in [
        ("ServiceAccount", SCHEDULER),
        ("ServiceAccount", CONTROLLER),
        ("ConfigMap", "scheduler-config"),
        ("Role", ELECTION),
        ("RoleBinding", ELECTION),
        ("Deployment", SCHEDULER),
        ("Deployment", CONTROLLER),
    ] {
        let namespace = &rendered.object(kind, name)["metadata"]["namespace"];
        assert_eq!(namespace, expected, "{kind} {name}");
    }
}

#[test]
fn the_controller_and_its_definition_are_there_only_with_an_image() {
    // ours: the page has both always
    let without = Rendered::new(KUBERNETES);
    assert_eq!(without.names("Deployment"), [SCHEDULER]);
    assert!(
        !without
            .names("CustomResourceDefinition")
            .iter()
            .any(|name| name.starts_with("podgroups"))
    );
    assert_eq!(
        with_controller(KUBERNETES).names("Deployment"),
        [SCHEDULER, CONTROLLER]
    );
}

#[test]
fn bindings_and_policies_are_those_of_the_table() {
    let rendered = with_controller(KUBERNETES);
    for name in [SCHEDULER, CONTROLLER] {
        let binding = rendered.object("ClusterRoleBinding", name);
        assert_eq!(binding["roleRef"]["name"], name);
        assert_eq!(subject(binding), (&json!(NAMESPACE), &json!(name)));
    }
    let binding = rendered.object("RoleBinding", ELECTION);
    assert_eq!(binding["roleRef"]["name"], ELECTION);
    assert_eq!(subject(binding), (&json!(NAMESPACE), &json!(SCHEDULER)));
    // ours: nothing of ours reads what these two allow
    for absent in [
        "topology-aware-scheduler-as-kube-scheduler",
        "topology-aware-controller-as-kube-controller",
    ] {
        assert!(!rendered.names("RoleBinding").contains(&absent));
    }
    for (name, pods) in [
        (SCHEDULER, json!({"component": "scheduler"})),
        (CONTROLLER, json!({"app": CONTROLLER})),
    ] {
        assert_policy(
            rendered.object("NetworkPolicy", &format!("{name}-default-deny-all")),
            &pods,
            &json!(["Ingress", "Egress"]),
            &Value::Null,
            &Value::Null,
        );
        assert_policy(
            rendered.object("NetworkPolicy", &format!("{name}-egress-to-api-server")),
            &pods,
            &json!(["Egress"]),
            &json!([{"ports": [{"port": 6443, "protocol": "TCP"}]}]),
            &Value::Null,
        );
    }
}

#[test]
fn the_right_to_elect_a_leader_is_for_its_lease() {
    for (flags, lease) in [
        ("", "nrtmatch-scheduler"),
        ("-R 2", "nrtmatch-scheduler"),
        ("--sched-leader-elect-resource=mine", "mine"),
    ] {
        let rendered = Rendered::new(&format!("{KUBERNETES} {flags}"));
        let role = rendered.object("Role", ELECTION);
        let named = |verb: &str| (verb.to_owned(), Some(lease.to_owned()));
        for (group, resource) in [("coordination.k8s.io", "leases"), ("", "endpoints")] {
            assert_eq!(
                verbs(role, group, resource),
                // ours: the page restricts `create`, too, and a request to create has no name
                [("create".to_owned(), None), named("get"), named("update")],
                "{flags} {resource}"
            );
        }
    }
}

#[test]
fn the_schedulers_deployment_is_as_described() {
    let rendered = Rendered::new(&format!("{KUBERNETES} -R 2"));
    let deployment = rendered.object("Deployment", SCHEDULER);
    let labels = json!({"component": "scheduler"});
    assert_eq!(deployment["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"]["replicas"], 2);
    let pods = rendered.pods("Deployment", SCHEDULER);
    assert_eq!(pods["serviceAccountName"], SCHEDULER);
    assert_eq!(names(&pods["containers"]), [SCHEDULER]);
    let container = item(&pods["containers"], SCHEDULER);
    // ours: the program is the command, and no argument
    assert_eq!(container["command"], json!(["/bin/kube-scheduler"]));
    let args = container["args"].as_array().unwrap();
    assert_eq!(args[0], "--config=/etc/kubernetes/scheduler-config.yaml");
    assert_eq!(args[1], "-v=4");
    assert_eq!(container["imagePullPolicy"], "Always");
    let probe = json!({"path": "/healthz", "port": 10259, "scheme": "HTTPS"});
    assert_eq!(container["livenessProbe"]["httpGet"], probe);
    assert_eq!(container["livenessProbe"]["initialDelaySeconds"], 15);
    assert_eq!(container["readinessProbe"]["httpGet"], probe);
    assert_eq!(
        container["readinessProbe"]["initialDelaySeconds"],
        Value::Null
    );
    // ours: no limits, because one of CPUs slows the scheduler down when many pods wait
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "150m", "memory": "500Mi"}})
    );
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    let mounts: Vec<&Value> = mounts
        .filter(|it| it["mountPath"] == "/etc/kubernetes")
        .collect();
    assert_eq!(mounts.len(), 1);
    assert_eq!(mounts[0]["readOnly"], true);
    let volume = item(&pods["volumes"], mounts[0]["name"].as_str().unwrap());
    assert_eq!(volume["configMap"], json!({"name": "scheduler-config"}));
}

#[test]
fn the_controllers_deployment_is_as_described() {
    let rendered = with_controller(&format!("{KUBERNETES} -R 2"));
    let deployment = rendered.object("Deployment", CONTROLLER);
    let labels = json!({"app": CONTROLLER});
    assert_eq!(deployment["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(deployment["spec"]["replicas"], 2);
    let pods = rendered.pods("Deployment", CONTROLLER);
    // ours: the API server fills in the deprecated alias `serviceAccount`
    assert_eq!(pods["serviceAccountName"], CONTROLLER);
    let container = item(&pods["containers"], CONTROLLER);
    assert_eq!(container["image"], "example.com/c:1");
    assert_eq!(container["args"], Value::Null);
    assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}}));
}

#[rstest]
#[case::scheduler(SCHEDULER)]
#[case::controller(CONTROLLER)]
fn pods_are_on_the_control_plane_unless_a_flag_says_otherwise(#[case] name: &str) {
    let rendered = with_controller(KUBERNETES);
    let pods = rendered.pods("Deployment", name);
    let tolerations = pods["tolerations"].as_array().unwrap();
    let keys: Vec<&Value> = tolerations.iter().map(|it| &it["key"]).collect();
    assert_eq!(
        keys,
        [
            "node-role.kubernetes.io/control-plane",
            "node-role.kubernetes.io/master"
        ]
    );
    for toleration in tolerations {
        assert_eq!(toleration["effect"], "NoSchedule");
        // ours: whatever value the taint has
        assert_eq!(toleration["operator"], "Exists");
    }
    let required =
        &pods["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        required["nodeSelectorTerms"],
        json!([{"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}])
    );
    let anywhere = with_controller(&format!("{KUBERNETES} --sched-ctrlplane-affinity=false"));
    let pods = anywhere.pods("Deployment", name);
    assert_eq!(pods["affinity"], Value::Null);
    assert_eq!(pods["tolerations"], Value::Null);
}

/// The table of the scheduler's rights (7.2).
#[test]
fn the_scheduler_may_do_what_the_table_says() {
    let rendered = Rendered::new(KUBERNETES);
    let role = rendered.object("ClusterRole", SCHEDULER);
    let read = "get list watch";
    for (group, resource, expected) in [
        ("", "events", "create patch update"),
        ("events.k8s.io", "events", "create patch update"),
        ("", "nodes", read),
        // ours: pods are never updated
        ("", "pods", "delete get list watch"),
        ("", "bindings", "create"),
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch update"),
        ("", "replicationcontrollers", read),
        ("", "services", read),
        ("", "namespaces", read),
        ("apps", "replicasets", read),
        ("extensions", "replicasets", read),
        ("apps", "statefulsets", read),
        ("policy", "poddisruptionbudgets", read),
        // ours: volumes and claims are patched, and never updated
        ("", "persistentvolumeclaims", "get list patch watch"),
        ("", "persistentvolumes", "get list patch watch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
        ("storage.k8s.io", "csinodes", read),
        ("storage.k8s.io", "storageclasses", read),
        ("storage.k8s.io", "csidrivers", read),
        ("storage.k8s.io", "csistoragecapacities", read),
        ("topology.node.k8s.io", "noderesourcetopologies", read),
        // ours: with the controller only
        ("scheduling.sigs.k8s.io", "podgroups", ""),
        ("scheduling.sigs.k8s.io", "elasticquotas", ""),
        // ours: the page has none of these, and the filters ask for them
        ("storage.k8s.io", "volumeattachments", read),
        ("resource.k8s.io", "resourceclaims", read),
    ] {
        assert_eq!(
            plain_verbs(role, group, resource),
            expected,
            "{group}/{resource}"
        );
    }
    let rendered = with_controller(KUBERNETES);
    let all = "create delete get list patch update watch";
    for name in [SCHEDULER, CONTROLLER] {
        let role = rendered.object("ClusterRole", name);
        for resource in ["podgroups", "elasticquotas"] {
            assert_eq!(
                plain_verbs(role, "scheduling.sigs.k8s.io", resource),
                all,
                "{name}"
            );
        }
    }
    let controller = rendered.object("ClusterRole", CONTROLLER);
    assert_eq!(plain_verbs(controller, "", "pods"), read);
}

/// Returns the scheduler's configuration.
fn configuration(flags: &str) -> Value {
    let rendered = Rendered::new(&format!("{KUBERNETES} {flags}"));
    let map = rendered.object("ConfigMap", "scheduler-config");
    let data = map["data"].as_object().unwrap();
    assert_eq!(data.len(), 1);
    serde_yaml::from_str(data["scheduler-config.yaml"].as_str().unwrap()).unwrap()
}

fn arguments(configuration: &Value) -> &Value {
    let profile = &configuration["profiles"][0];
    &item(&profile["pluginConfig"], "NodeResourceTopologyMatch")["args"]
}

#[test]
fn the_configuration_is_that_of_the_page() {
    let configuration = configuration("");
    // ours: a version that schedulers of today still read
    assert_eq!(
        configuration["apiVersion"],
        "kubescheduler.config.k8s.io/v1"
    );
    assert_eq!(configuration["kind"], "KubeSchedulerConfiguration");
    assert_eq!(configuration["leaderElection"]["leaderElect"], false);
    let profiles = configuration["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 1);
    assert_eq!(profiles[0]["schedulerName"], SCHEDULER);
    let plugins = &profiles[0]["plugins"];
    assert!(names(&plugins["filter"]["enabled"]).contains(&"NodeResourceTopologyMatch"));
    // ours: reserve and score by the one word for all points
    assert!(names(&plugins["multiPoint"]["enabled"]).contains(&"NodeResourceTopologyMatch"));
    let arguments = arguments(&configuration);
    assert_eq!(
        arguments["cache"],
        json!({"foreignPodsDetect": "OnlyExclusiveResources", "resyncMethod": "Autodetect"})
    );
    assert_eq!(arguments["cacheResyncPeriodSeconds"], 5);
    assert_eq!(arguments["preemptionMode"], Value::Null);
}

#[test]
fn flags_change_the_configuration_as_the_rules_say() {
    let off = configuration("--sched-resync-period=0");
    assert_eq!(arguments(&off)["cacheResyncPeriodSeconds"], Value::Null);
    let cut = configuration("--sched-resync-period=7900ms");
    assert_eq!(arguments(&cut)["cacheResyncPeriodSeconds"], 7);
    assert_eq!(
        configuration("--sched-profile-name=mine")["profiles"][0]["schedulerName"],
        "mine"
    );
    // ours: the namespace is that of the scheduler, also on OpenShift, where `tas-scheduler` does not exist
    assert_eq!(
        configuration("-R 2")["leaderElection"],
        json!({"leaderElect": true, "resourceNamespace": "tas-scheduler", "resourceName": "nrtmatch-scheduler"})
    );
    for (given, namespace, name) in [
        ("mine", "tas-scheduler", "mine"),
        ("ns/mine", "ns", "mine"),
        ("/mine", "tas-scheduler", "mine"),
        ("ns/", "ns", "nrtmatch-scheduler"),
    ] {
        let election = &configuration(&format!("-R 2 --sched-leader-elect-resource={given}"))["leaderElection"];
        assert_eq!(election["resourceNamespace"], namespace, "{given}");
        assert_eq!(election["resourceName"], name, "{given}");
    }
    let dir = tempfile::tempdir().unwrap();
    let [cache, score] = ["cache", "score"].map(|name| dir.path().join(name));
    std::fs::write(&cache, "foreignPodsDetect: All\ninformerMode: Dedicated\n").unwrap();
    std::fs::write(
        &score,
        "type: MostAllocated\nresources: [{name: cpu, weight: 3}]\n",
    )
    .unwrap();
    let flags = format!(
        "--sched-cache-params-config-file={} --sched-scoring-strat-config-file={}",
        cache.display(),
        score.display()
    );
    let given = configuration(&flags);
    assert_eq!(
        arguments(&given)["cache"],
        json!({"foreignPodsDetect": "All", "informerMode": "Dedicated", "resyncMethod": "Autodetect"})
    );
    assert_eq!(
        arguments(&given)["scoringStrategy"],
        json!({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]})
    );
}

/// The definition of pod groups (7.4).
#[test]
fn pod_groups_are_defined_as_described() {
    let rendered = with_controller(KUBERNETES);
    let definition = rendered.object(
        "CustomResourceDefinition",
        "podgroups.scheduling.sigs.k8s.io",
    );
    assert_eq!(
        definition["metadata"]["annotations"]["api-approved.kubernetes.io"],
        "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
    );
    let spec = &definition["spec"];
    assert_eq!(spec["group"], "scheduling.sigs.k8s.io");
    assert_eq!(spec["names"]["kind"], "PodGroup");
    assert_eq!(spec["names"]["plural"], "podgroups");
    assert_eq!(spec["names"]["shortNames"], json!(["pg", "pgs"]));
    assert_eq!(spec["scope"], "Namespaced");
    let version = &spec["versions"][0];
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!(
        (&version["served"], &version["storage"]),
        (&json!(true), &json!(true))
    );
    let properties = &version["schema"]["openAPIV3Schema"]["properties"];
    let group = &properties["spec"]["properties"];
    assert_eq!(group["minMember"]["type"], "integer");
    assert_eq!(group["minMember"]["minimum"], 1);
    assert_eq!(group["scheduleTimeoutSeconds"]["type"], "integer");
    assert_eq!(group["minResources"]["type"], "object");
    let status = &properties["status"]["properties"];
    for text in ["phase", "occupiedBy"] {
        assert_eq!(status[text]["type"], "string");
    }
    for tally in ["scheduled", "running", "succeeded", "failed"] {
        assert_eq!(status[tally]["type"], "integer");
        assert_eq!(status[tally]["default"], 0);
    }
    assert_eq!(status["scheduleStartTime"]["format"], "date-time");
    assert!(
        !rendered
            .names("CustomResourceDefinition")
            .iter()
            .any(|name| name.starts_with("elasticquotas"))
    );
}

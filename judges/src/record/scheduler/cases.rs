//! Random cases: a few nodes, the pods on them, and a pod that is pinned to one of the nodes.
//!
//! All cases are in one cluster at the same time, so each has its own names, namespace and topology keys. Its pod is pinned to one node,
//! either by a taint that only this pod tolerates or by an affinity to the node's name, whichever the case does not test.

mod volumes;

use judges::kubelet::random::Random;
use serde_json::{Value, json};

/// How a pod is pinned to its node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    /// Every node has a taint with its name.
    Taint,
    /// The pod has an affinity to the name.
    Name,
}

/// A plugin that is recorded.
pub(super) struct Plugin {
    pub(super) name: &'static str,
    pub(super) pin: Pin,
    fill: fn(&mut Random, &mut Case),
}

impl Plugin {
    const fn new(name: &'static str, pin: Pin, fill: fn(&mut Random, &mut Case)) -> Self {
        Self { name, pin, fill }
    }
}

/// The plugins that are recorded.
pub(super) const PLUGINS: &[Plugin] = &[
    Plugin::new("NodeUnschedulable", Pin::Name, node_unschedulable),
    Plugin::new("TaintToleration", Pin::Name, taint_toleration),
    Plugin::new("NodeAffinity", Pin::Taint, node_affinity),
    Plugin::new("NodePorts", Pin::Name, node_ports),
    Plugin::new("NodeResourcesFit", Pin::Name, node_resources_fit),
    Plugin::new("PodTopologySpread", Pin::Taint, pod_topology_spread),
    Plugin::new("InterPodAffinity", Pin::Taint, inter_pod_affinity),
    Plugin::new(
        "VolumeRestrictions",
        Pin::Name,
        volumes::volume_restrictions,
    ),
    Plugin::new("NodeVolumeLimits", Pin::Name, volumes::node_volume_limits),
    Plugin::new("VolumeBinding", Pin::Name, volumes::volume_binding),
    Plugin::new("VolumeZone", Pin::Name, volumes::volume_zone),
];

/// Returns the plugin that pins pods to nodes.
pub(super) fn pinned_by(pin: Pin) -> &'static str {
    match pin {
        Pin::Taint => "TaintToleration",
        Pin::Name => "NodeAffinity",
    }
}

/// Objects of one case.
pub(super) struct Case {
    /// Distinguishes its names from those of other cases.
    pub(super) id: String,
    pub(super) namespaces: Vec<Value>,
    pub(super) nodes: Vec<Value>,
    pub(super) pods: Vec<Value>,
    pub(super) pod: Value,
    /// Services and controllers of pods.
    pub(super) groups: Vec<Value>,
    /// Volumes, claims and the objects that they depend on.
    pub(super) storage: Vec<Value>,
    /// The node to which the pod is pinned.
    pub(super) node: String,
}

impl Case {
    /// Builds the case of a plugin and a seed.
    pub(super) fn new(plugin: usize, seed: u64) -> Self {
        let Plugin { name, pin, fill } = PLUGINS[plugin];
        let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(plugin as u64));
        let mut case = Self::empty(seed, &name.to_lowercase());
        fill(&mut random, &mut case);
        case.hold(pin);
        case
    }

    /// Builds a case with a pod in its own namespace, for the scheduler of that name.
    pub(super) fn empty(seed: u64, scheduler: &str) -> Self {
        let id = format!("c{seed}");
        let mut case = Self {
            namespaces: vec![json!({"metadata": {"name": id, "labels": {"case": id}}})],
            nodes: Vec::new(),
            pods: Vec::new(),
            pod: Value::Null,
            groups: Vec::new(),
            storage: Vec::new(),
            node: format!("{id}-0"),
            id,
        };
        case.pod = case.new_pod("pod", &json!({}));
        case.pod["spec"]["schedulerName"] = json!(scheduler);
        case
    }

    fn hold(&mut self, pin: Pin) {
        match pin {
            Pin::Taint => {
                for node in &mut self.nodes {
                    let taint = json!({"key": "pin", "value": node["metadata"]["name"], "effect": "NoSchedule"});
                    push(&mut node["spec"]["taints"], taint);
                }
                let toleration = json!({"key": "pin", "operator": "Equal", "value": self.node, "effect": "NoSchedule"});
                push(&mut self.pod["spec"]["tolerations"], toleration);
            }
            Pin::Name => {
                let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.node]}]});
                self.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!({"nodeSelectorTerms": [term]});
            }
        }
    }

    pub(super) fn new_node(&mut self, labels: &Value) -> &mut Value {
        let name = format!("{}-{}", self.id, self.nodes.len());
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        self.nodes.push(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": allocatable},
        }));
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    fn new_pod(&self, name: &str, labels: &Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": self.id, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
        })
    }

    /// Builds a pod on one of the nodes, in a phase in which it counts or no longer counts.
    pub(super) fn guest(&self, random: &mut Random, labels: &Value) -> Value {
        let mut pod = self.new_pod(&format!("guest-{}", self.pods.len()), labels);
        let node = random.between(0, self.nodes.len() as u64 - 1);
        pod["spec"]["nodeName"] = json!(format!("{}-{node}", self.id));
        match random.between(0, 9) {
            0 => pod["status"] = json!({"phase": "Succeeded"}),
            // the finalizer keeps it from being deleted
            1 => {
                pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            _ => {}
        }
        pod
    }
}

pub(super) fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

pub(super) fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.between(0, choices.len() as u64 - 1) as usize]
}

pub(super) fn toleration(random: &mut Random, keys: &[&str]) -> Value {
    let mut toleration = json!({});
    if random.chance(90) {
        toleration["key"] = json!(pick(random, keys));
    }
    if random.chance(80) {
        toleration["effect"] = json!(pick(
            random,
            &["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]
        ));
    }
    if random.chance(50) || toleration.get("key").is_none() {
        toleration["operator"] = json!("Exists");
    } else {
        if random.chance(50) {
            toleration["operator"] = json!("Equal");
        }
        toleration["value"] = json!(pick(random, &["", "a", "b"]));
    }
    toleration
}

fn node_unschedulable(random: &mut Random, case: &mut Case) {
    let unschedulable = random.chance(70);
    case.new_node(&json!({}))["spec"]["unschedulable"] = json!(unschedulable);
    let keys = ["node.kubernetes.io/unschedulable", "k"];
    for _ in 0..random.between(0, 2) {
        push(
            &mut case.pod["spec"]["tolerations"],
            toleration(random, &keys),
        );
    }
}

fn taint_toleration(random: &mut Random, case: &mut Case) {
    let mut taints = Vec::new();
    for key in ["k", "l", "example.com/m"] {
        if random.chance(50) {
            let effect = pick(random, &["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            taints.push(
                json!({"key": key, "value": pick(random, &["", "a", "b"]), "effect": effect}),
            );
        }
    }
    case.new_node(&json!({}))["spec"]["taints"] = json!(taints);
    for _ in 0..random.between(0, 3) {
        let toleration = toleration(random, &["k", "l", "example.com/m"]);
        push(&mut case.pod["spec"]["tolerations"], toleration);
    }
}

pub(super) fn expression(random: &mut Random) -> Value {
    let key = pick(random, &["colour", "size", "absent"]);
    let operator = pick(
        random,
        &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
    );
    let values = match operator {
        "In" | "NotIn" => json!(["red", pick(random, &["blue", "3", "5"])]),
        "Gt" | "Lt" => json!([pick(random, &["3", "4", "0"])]),
        _ => return json!({"key": key, "operator": operator}),
    };
    json!({"key": key, "operator": operator, "values": values})
}

fn node_affinity(random: &mut Random, case: &mut Case) {
    let mut labels = json!({});
    if random.chance(70) {
        labels["colour"] = json!(pick(random, &["red", "blue", "green"]));
    }
    if random.chance(70) {
        labels["size"] = json!(pick(random, &["3", "4", "5", "large"]));
    }
    case.new_node(&labels);
    if random.chance(30) {
        case.pod["spec"]["nodeSelector"] =
            json!({pick(random, &["colour", "size"]): pick(random, &["red", "4"])});
    }
    if random.chance(15) {
        return;
    }
    let mut terms = Vec::new();
    for _ in 0..random.between(1, 2) {
        let mut term = json!({});
        let expressions: Vec<Value> = (0..random.between(0, 2))
            .map(|_| expression(random))
            .collect();
        if !expressions.is_empty() {
            term["matchExpressions"] = json!(expressions);
        }
        let fields: Vec<Value> = (0..random.between(0, 2))
            .map(|_| {
                let other = format!("{}-9", case.id);
                let name = if random.chance(70) {
                    &case.node
                } else {
                    &other
                };
                let operator = pick(random, &["In", "In", "In", "NotIn"]);
                json!({"key": "metadata.name", "operator": operator, "values": [name]})
            })
            .collect();
        if !fields.is_empty() && random.chance(60) {
            term["matchFields"] = json!(fields);
        }
        terms.push(term);
    }
    case.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
}

fn ports(random: &mut Random) -> Value {
    let mut ports: Vec<Value> = Vec::new();
    for number in 0..random.between(1, 2) {
        let mut port = json!({
            "containerPort": 80 + number,
            "hostPort": random.between(8000, 8002),
            "protocol": pick(random, &["TCP", "TCP", "UDP"]),
        });
        if random.chance(50) {
            port["hostIP"] = json!(pick(random, &["0.0.0.0", "127.0.0.1", "10.0.0.1"]));
        }
        ports.push(port);
    }
    // one list must not contain a port twice
    ports.dedup_by_key(|port| (port["hostPort"].clone(), port["protocol"].clone()));
    json!(ports)
}

fn node_ports(random: &mut Random, case: &mut Case) {
    case.new_node(&json!({}));
    for _ in 0..random.between(0, 2) {
        let mut guest = case.guest(random, &json!({}));
        guest["spec"]["containers"][0]["ports"] = ports(random);
        case.pods.push(guest);
    }
    if random.chance(95) {
        case.pod["spec"]["containers"][0]["ports"] = ports(random);
    }
    if random.chance(20) {
        let sidecar =
            json!({"name": "s", "image": "i", "restartPolicy": "Always", "ports": ports(random)});
        case.pod["spec"]["initContainers"] = json!([sidecar]);
    }
}

pub(super) fn resources(random: &mut Random) -> Value {
    let mut requests = json!({});
    for (name, amounts) in [
        ("cpu", ["0", "500m", "1", "3"]),
        ("memory", ["128Mi", "1G", "3Gi", "7Gi"]),
        ("ephemeral-storage", ["1Gi", "2G", "4Gi", "100"]),
        ("hugepages-2Mi", ["2Mi", "4Mi", "64Mi", "0"]),
        ("example.com/nic", ["1", "2", "3", "0"]),
    ] {
        let often = matches!(name, "cpu" | "memory");
        if random.chance(if often { 70 } else { 20 }) {
            requests[name] = json!(pick(random, &amounts));
        }
    }
    // these must not be overcommitted, and huge pages need CPU or memory beside them
    let mut limits = json!({});
    for name in ["hugepages-2Mi", "example.com/nic"] {
        if requests.get(name).is_some() {
            limits[name] = requests[name].clone();
        }
    }
    if limits.get("hugepages-2Mi").is_some() && requests.get("cpu").is_none() {
        requests["cpu"] = json!("100m");
    }
    json!({"requests": requests, "limits": limits})
}

pub(super) fn sized(random: &mut Random, pod: &mut Value) {
    let container = |random: &mut Random, name: &str| json!({"name": name, "image": "i", "resources": resources(random)});
    let containers: Vec<Value> = (0..random.between(1, 2))
        .map(|number| container(random, &format!("c{number}")))
        .collect();
    pod["spec"]["containers"] = json!(containers);
    let init: Vec<Value> = (0..random.between(0, 3))
        .filter(|number| *number < 2)
        .map(|number| {
            let mut init = container(random, &format!("i{number}"));
            if random.chance(50) {
                init["restartPolicy"] = json!("Always");
            }
            init
        })
        .collect();
    if random.chance(50) {
        pod["spec"]["initContainers"] = json!(init);
    }
}

fn node_resources_fit(random: &mut Random, case: &mut Case) {
    let few = random.chance(15);
    let mut allocatable = json!({
        "cpu": pick(random, &["2", "4", "3900m"]),
        "memory": pick(random, &["4Gi", "8Gi"]),
        "pods": if few { pick(random, &["1", "2"]) } else { "110" },
    });
    for (name, amount) in [
        ("ephemeral-storage", "4Gi"),
        ("hugepages-2Mi", "64Mi"),
        ("example.com/nic", "4"),
    ] {
        if random.chance(80) {
            allocatable[name] = json!(amount);
        }
    }
    case.new_node(&json!({}))["status"]["allocatable"] = allocatable;
    for _ in 0..random.between(0, 2) {
        let mut guest = case.guest(random, &json!({}));
        sized(random, &mut guest);
        case.pods.push(guest);
    }
    let mut pod = case.pod.clone();
    sized(random, &mut pod);
    case.pod = pod;
}

/// Adds two to four nodes in up to three zones; a node may lack a label.
fn zoned(random: &mut Random, case: &mut Case) {
    for _ in 0..random.between(2, 4) {
        let mut labels = json!({});
        if random.chance(90) {
            labels[format!("zone-{}", case.id)] = json!(pick(random, &["x", "y", "z"]));
        }
        if random.chance(95) {
            labels[format!("host-{}", case.id)] = json!(format!("h{}", case.nodes.len()));
        }
        case.new_node(&labels);
    }
    let node = random.between(0, case.nodes.len() as u64 - 1);
    case.node = format!("{}-{node}", case.id);
}

pub(super) fn app(random: &mut Random) -> Value {
    let mut labels = json!({"app": pick(random, &["web", "web", "db"])});
    if random.chance(50) {
        labels["version"] = json!(pick(random, &["1", "2"]));
    }
    labels
}

pub(super) fn selector(random: &mut Random) -> Value {
    match random.between(0, 5) {
        0 => json!({}),
        1 => {
            json!({"matchExpressions": [{"key": "version", "operator": pick(random, &["Exists", "DoesNotExist"])}]})
        }
        2 => {
            json!({"matchExpressions": [{"key": "app", "operator": pick(random, &["In", "NotIn"]), "values": ["db"]}]})
        }
        _ => json!({"matchLabels": {"app": pick(random, &["web", "db"])}}),
    }
}

/// Returns whether the selector has the label `version`, which must then not be among the keys to match.
fn mentions_version(rule: &Value) -> bool {
    rule["labelSelector"].to_string().contains("version")
}

fn key(random: &mut Random, case: &Case) -> String {
    format!("{}-{}", pick(random, &["zone", "zone", "host"]), case.id)
}

/// Adds a second namespace, for some of the pods.
pub(super) fn neighbourhood(random: &mut Random, case: &mut Case) -> String {
    let other = format!("{}-other", case.id);
    let labels = json!({"case": case.id, "team": pick(random, &["a", "b"])});
    case.namespaces
        .push(json!({"metadata": {"name": other, "labels": labels}}));
    other
}

fn pod_topology_spread(random: &mut Random, case: &mut Case) {
    zoned(random, case);
    let other = neighbourhood(random, case);
    for _ in 0..random.between(2, 8) {
        let labels = app(random);
        let mut guest = case.guest(random, &labels);
        if random.chance(10) {
            guest["metadata"]["namespace"] = json!(other);
        }
        case.pods.push(guest);
    }
    case.pod["metadata"]["labels"] = app(random);
    let mut constraints: Vec<Value> = Vec::new();
    for _ in 0..random.between(1, 2) {
        let hard = random.chance(90);
        let mut constraint = json!({
            "maxSkew": if random.chance(85) { 1 } else { 2 },
            "topologyKey": key(random, case),
            "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
            "labelSelector": selector(random),
        });
        if hard && random.chance(20) {
            constraint["minDomains"] = json!(random.between(1, 4));
        }
        if random.chance(20) && !mentions_version(&constraint) {
            constraint["matchLabelKeys"] = json!(["version"]);
        }
        if random.chance(20) {
            constraint["nodeAffinityPolicy"] = json!(pick(random, &["Honor", "Ignore"]));
        }
        if random.chance(20) {
            constraint["nodeTaintsPolicy"] = json!(pick(random, &["Honor", "Ignore"]));
        }
        let repeated = constraints.iter().any(|given| {
            given["topologyKey"] == constraint["topologyKey"]
                && given["whenUnsatisfiable"] == constraint["whenUnsatisfiable"]
        });
        if !repeated {
            constraints.push(constraint);
        }
    }
    case.pod["spec"]["topologySpreadConstraints"] = json!(constraints);
    if random.chance(20) {
        let zone = format!("zone-{}", case.id);
        case.pod["spec"]["nodeSelector"] = json!({zone: pick(random, &["x", "y", "z"])});
    }
}

pub(super) fn term(random: &mut Random, case: &Case) -> Value {
    let mut term = json!({"topologyKey": key(random, case), "labelSelector": selector(random)});
    match random.between(0, 5) {
        0 => term["namespaces"] = json!([format!("{}-other", case.id)]),
        1 => {
            let labels = json!({"case": case.id, "team": pick(random, &["a", "b"])});
            term["namespaceSelector"] = json!({"matchLabels": labels});
        }
        2 => term["namespaceSelector"] = json!({}),
        _ => {}
    }
    if mentions_version(&term) {
        return term;
    }
    if random.chance(15) {
        term["matchLabelKeys"] = json!(["version"]);
    } else if random.chance(10) {
        term["mismatchLabelKeys"] = json!(["version"]);
    }
    term
}

fn inter_pod_affinity(random: &mut Random, case: &mut Case) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    zoned(random, case);
    let other = neighbourhood(random, case);
    for _ in 0..random.between(0, 4) {
        let labels = app(random);
        let mut guest = case.guest(random, &labels);
        if random.chance(25) {
            guest["metadata"]["namespace"] = json!(other);
        }
        if random.chance(30) {
            guest["spec"]["affinity"]["podAntiAffinity"][REQUIRED] = json!([term(random, case)]);
        }
        case.pods.push(guest);
    }
    case.pod["metadata"]["labels"] = app(random);
    if random.chance(60) {
        let terms: Vec<Value> = (0..random.between(1, 2))
            .map(|_| term(random, case))
            .collect();
        case.pod["spec"]["affinity"]["podAffinity"][REQUIRED] = json!(terms);
    }
    if random.chance(50) {
        case.pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED] = json!([term(random, case)]);
    }
}

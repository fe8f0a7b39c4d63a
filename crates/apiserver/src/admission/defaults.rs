//! Defaults that a real server fills into objects of built-in kinds.

use serde_json::{Map, Value, json};

use crate::registry::Resource;
use crate::storage::DEFINITIONS;
use crate::values::fields::{existing_object, items, set_default};

mod definition;
mod pod;
mod unused;
mod workloads;

/// Fills in the defaults of a pod. Kubelets do this, too, with pods that do not come through an API server.
pub fn fill_in_pod(pod: &mut Value) {
    pod::template_defaults(&mut pod["spec"]);
    pod::pod_defaults(&mut pod["spec"]);
}

/// Fills in the defaults of a built-in kind. The object has been shaped already, so empty values count as missing.
pub(crate) fn apply(resource: &Resource, object: &mut Value) {
    match resource.storage.as_str() {
        "pods" => {
            fill_in_pod(object);
            pod::addresses(object);
        }
        "podtemplates" => pod::template_defaults(&mut object["template"]["spec"]),
        "replicationcontrollers" => workloads::replication_controller(object),
        "deployments.apps" => workloads::deployment(object),
        "replicasets.apps" => workloads::replica_set(object),
        "daemonsets.apps" => workloads::daemon_set(object),
        "statefulsets.apps" => workloads::stateful_set(object),
        "jobs.batch" => workloads::job(object),
        "cronjobs.batch" => workloads::cron_job(object),
        "ingressclasses.networking.k8s.io" => {
            if let Some(parameters) = existing_object(&mut object["spec"], "parameters") {
                set_default(parameters, "scope", || json!("Cluster"));
            }
        }
        "services" => service(object),
        "secrets" => secret(object),
        "namespaces" => namespace(object),
        DEFINITIONS => definition::apply(object),
        "nodes" => node(object),
        "persistentvolumes" => {
            set_default(&mut object["status"], "phase", || json!("Pending"));
            let spec = &mut object["spec"];
            set_default(spec, "persistentVolumeReclaimPolicy", || json!("Retain"));
            set_default(spec, "volumeMode", || json!("Filesystem"));
            if let Some(source) = existing_object(spec, "hostPath") {
                set_default(source, "type", || json!(""));
            }
        }
        "persistentvolumeclaims" => {
            set_default(&mut object["status"], "phase", || json!("Pending"));
            set_default(&mut object["spec"], "volumeMode", || json!("Filesystem"));
        }
        "leases.coordination.k8s.io" => unused::of_lease(&mut object["spec"]),
        "resourceclaims.resource.k8s.io" => device_claim(&mut object["spec"]),
        "resourceclaimtemplates.resource.k8s.io" => device_claim(&mut object["spec"]["spec"]),
        "resourceslices.resource.k8s.io" => unused::of_slice(&mut object["spec"]),
        "deviceclasses.resource.k8s.io" => unused::of_class(&mut object["spec"]),
        "flowschemas.flowcontrol.apiserver.k8s.io" => {
            set_number(&mut object["spec"], "matchingPrecedence", 1000);
        }
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => priority_level(object),
        "apiservices.apiregistration.k8s.io" => {
            if let Some(service) = existing_object(&mut object["spec"], "service") {
                set_default(service, "port", || json!(443));
            }
        }
        "endpoints" => {
            for subset in items(&mut object["subsets"]) {
                for port in items(&mut subset["ports"]) {
                    protocol(port);
                }
            }
        }
        "limitranges" => {
            for item in items(&mut object["spec"]["limits"]) {
                limit_range_item(item);
            }
        }
        "endpointslices.discovery.k8s.io" => {
            for endpoint in items(&mut object["endpoints"]) {
                unused::of_endpoint(endpoint);
            }
            for port in items(&mut object["ports"]) {
                set_default(port, "name", || json!(""));
                set_default(port, "protocol", || json!("TCP"));
            }
        }
        "networkpolicies.networking.k8s.io" => network_policy(object),
        "horizontalpodautoscalers.autoscaling" => autoscaler(resource, object),
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => binding(object),
        "priorityclasses.scheduling.k8s.io" => {
            set_default(object, "preemptionPolicy", || json!("PreemptLowerPriority"));
        }
        "storageclasses.storage.k8s.io" => {
            set_default(object, "reclaimPolicy", || json!("Delete"));
            set_default(object, "volumeBindingMode", || json!("Immediate"));
        }
        "csidrivers.storage.k8s.io" => csi_driver(object),
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => webhooks(object),
        "validatingadmissionpolicies.admissionregistration.k8s.io" => {
            set_default(&mut object["spec"], "failurePolicy", || json!("Fail"));
            match_resources(object, "matchConstraints");
        }
        "validatingadmissionpolicybindings.admissionregistration.k8s.io" => {
            match_resources(object, "matchResources");
        }
        _ => {}
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "sessionAffinity", || json!("None"));
    if spec["sessionAffinity"] == "ClientIP" {
        set_default(spec, "sessionAffinityConfig", || json!({}));
        set_default(&mut spec["sessionAffinityConfig"], "clientIP", || json!({}));
        set_default(
            &mut spec["sessionAffinityConfig"]["clientIP"],
            "timeoutSeconds",
            || json!(10800),
        );
    } else if let Some(fields) = spec.as_object_mut() {
        fields.remove("sessionAffinityConfig");
    }
    set_default(spec, "type", || json!("ClusterIP"));
    if let Some(ports) = spec.get_mut("ports") {
        for port in items(ports) {
            protocol(port);
            if port["targetPort"] == 0 || port["targetPort"] == "" || port["targetPort"].is_null() {
                port["targetPort"] = port["port"].clone();
            }
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let outside = kind == "NodePort"
        || kind == "LoadBalancer"
        || kind == "ClusterIP" && spec.get("externalIPs").is_some();
    if outside {
        set_default(spec, "externalTrafficPolicy", || json!("Cluster"));
    }
    if kind != "ExternalName" {
        set_default(spec, "internalTrafficPolicy", || json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", || json!(true));
    }
}

/// Gives a port the usual protocol if it has none.
fn protocol(port: &mut Value) {
    if port["protocol"].as_str().is_none_or(str::is_empty) {
        port["protocol"] = json!("TCP");
    }
}

/// Sets a number that is missing or zero.
fn set_number(object: &mut Value, field: &str, number: i64) {
    if object[field].as_i64().unwrap_or_default() == 0 {
        object[field] = json!(number);
    }
}

/// Fills in how many devices the requests of a claim are for.
fn device_claim(spec: &mut Value) {
    let Some(devices) = existing_object(spec, "devices") else {
        return;
    };
    let Some(requests) = devices.get_mut("requests") else {
        return;
    };
    for request in items(requests) {
        if let Some(exactly) = existing_object(request, "exactly") {
            device_request(exactly);
        }
        if let Some(parts) = request.get_mut("firstAvailable") {
            items(parts).for_each(device_request);
        }
    }
}

fn device_request(request: &mut Value) {
    unused::of_request(request);
    if request["allocationMode"].as_str().is_none_or(str::is_empty) {
        request["allocationMode"] = json!("ExactCount");
    }
    if request["allocationMode"] == "ExactCount" {
        set_number(request, "count", 1);
    }
}

fn priority_level(object: &mut Value) {
    let spec = &mut object["spec"];
    for (kind, shares) in [("exempt", 0), ("limited", 30)] {
        if let Some(part) = existing_object(spec, kind) {
            set_default(part, "nominalConcurrencyShares", || json!(shares));
            set_default(part, "lendablePercent", || json!(0));
        }
    }
    let Some(limited) = existing_object(spec, "limited") else {
        return;
    };
    let response = existing_object(limited, "limitResponse");
    if let Some(queuing) = response.and_then(|response| existing_object(response, "queuing")) {
        set_number(queuing, "handSize", 8);
        set_number(queuing, "queues", 64);
        set_number(queuing, "queueLengthLimit", 50);
    }
}

/// Moves the texts of `stringData` into `data`, encoded in base64.
fn merge_string_data(object: &mut Value) {
    use base64::Engine as _;
    let Some(Value::Object(texts)) = object
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    if !object["data"].is_object() {
        object["data"] = Value::Object(Map::new());
    }
    for (name, text) in texts {
        let text = text.as_str().unwrap_or_default();
        object["data"][name] = json!(base64::engine::general_purpose::STANDARD.encode(text));
    }
}

fn secret(object: &mut Value) {
    merge_string_data(object);
    set_default(object, "type", || json!("Opaque"));
}

fn namespace(object: &mut Value) {
    if let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned)
        && !name.is_empty()
    {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
    }
    set_default(&mut object["status"], "phase", || json!("Active"));
}

fn node(object: &mut Value) {
    let first = object["spec"]["podCIDR"].clone();
    if first.is_string() {
        set_default(&mut object["spec"], "podCIDRs", || json!([first.clone()]));
        if object["spec"]["podCIDRs"][0] != first {
            object["spec"]["podCIDRs"] = json!([first]);
        }
    }
    let status = &mut object["status"];
    if let Some(capacity) = status.get("capacity").cloned() {
        set_default(status, "allocatable", || capacity);
    }
}

fn limit_range_item(item: &mut Value) {
    if item["type"] != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let Some(amounts) = item.get(from).and_then(Value::as_object).cloned() else {
            continue;
        };
        set_default(item, to, || json!({}));
        for (name, amount) in amounts {
            set_default(&mut item[to], &name, || amount);
        }
    }
}

fn network_policy(object: &mut Value) {
    let spec = &mut object["spec"];
    let outward = spec["egress"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    set_default(spec, "policyTypes", || {
        if outward {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        }
    });
    for direction in ["ingress", "egress"] {
        if let Some(rules) = spec.get_mut(direction) {
            for rule in items(rules) {
                if let Some(ports) = rule.get_mut("ports") {
                    for port in items(ports) {
                        set_default(port, "protocol", || json!("TCP"));
                    }
                }
            }
        }
    }
}

fn autoscaler(resource: &Resource, object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "minReplicas", || json!(1));
    if resource.version == "v1" {
        return;
    }
    set_default(spec, "metrics", || {
        json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}}])
    });
    if let Some(behavior) = existing_object(spec, "behavior") {
        set_default(behavior, "scaleUp", || json!({}));
        set_default(behavior, "scaleDown", || json!({}));
        let up = &mut behavior["scaleUp"];
        set_default(up, "stabilizationWindowSeconds", || json!(0));
        set_default(up, "selectPolicy", || json!("Max"));
        set_default(up, "policies", || {
            json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15}])
        });
        let down = &mut behavior["scaleDown"];
        set_default(down, "selectPolicy", || json!("Max"));
        set_default(
            down,
            "policies",
            || json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
        );
    }
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let set = |of: &mut Value| {
        if of["apiGroup"].as_str().is_none_or(str::is_empty) {
            of["apiGroup"] = json!(GROUP);
        }
    };
    set(&mut object["roleRef"]);
    if let Some(subjects) = object.get_mut("subjects") {
        for subject in items(subjects) {
            if subject["kind"] == "User" || subject["kind"] == "Group" {
                set(subject);
            }
        }
    }
}

fn csi_driver(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "attachRequired", || json!(true));
    set_default(spec, "podInfoOnMount", || json!(false));
    set_default(spec, "storageCapacity", || json!(false));
    set_default(spec, "fsGroupPolicy", || json!("ReadWriteOnceWithFSType"));
    set_default(spec, "volumeLifecycleModes", || json!(["Persistent"]));
    set_default(spec, "requiresRepublish", || json!(false));
    set_default(spec, "seLinuxMount", || json!(false));
}

fn rules(list: &mut Value) {
    for rule in items(list) {
        set_default(rule, "scope", || json!("*"));
    }
}

fn webhooks(object: &mut Value) {
    let mutating = object["kind"] == "MutatingWebhookConfiguration";
    let Some(list) = object.get_mut("webhooks") else {
        return;
    };
    for hook in items(list) {
        set_default(hook, "failurePolicy", || json!("Fail"));
        set_default(hook, "matchPolicy", || json!("Equivalent"));
        set_default(hook, "namespaceSelector", || json!({}));
        set_default(hook, "objectSelector", || json!({}));
        set_default(hook, "timeoutSeconds", || json!(10));
        if mutating {
            set_default(hook, "reinvocationPolicy", || json!("Never"));
        }
        if let Some(list) = hook.get_mut("rules") {
            rules(list);
        }
        if let Some(service) = existing_object(&mut hook["clientConfig"], "service") {
            set_default(service, "port", || json!(443));
        }
    }
}

fn match_resources(object: &mut Value, field: &str) {
    let Some(matched) = existing_object(&mut object["spec"], field) else {
        return;
    };
    set_default(matched, "matchPolicy", || json!("Equivalent"));
    set_default(matched, "namespaceSelector", || json!({}));
    set_default(matched, "objectSelector", || json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        if let Some(list) = matched.get_mut(list) {
            rules(list);
        }
    }
}

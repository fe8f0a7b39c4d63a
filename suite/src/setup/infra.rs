//! What scenarios need besides the stack: the numacell device plugin, with which a pod is tied to a zone (scenarios-serial.md 2.1).

use std::collections::BTreeMap;

use cluster_spec::images::Published;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::Api;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Options;
use crate::context::padding::NUMACELL;
use crate::context::stack::exporters::daemon_sets;
use crate::context::{RUN_LABEL, chain, creation, topologies};
use crate::images;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::{PollResult, Recorder};
use crate::step::StepError;

/// Environment variables that name another image of the device plugin.
const IMAGE_VARIABLES: [&str; 2] = [
    "E2E_NROP_URL_NUMACELL_DEVICE_PLUGIN",
    "E2E_NUMACELL_DEVICE_PLUGIN_URL",
];
const ACCOUNT: &str = "numacell-dp-sa";

/// Puts the device plugin on every node with an exporter and waits until all zones list it.
pub(super) async fn numacell(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    published: &Published,
) -> Result<(), StepError> {
    recorder
        .step("every zone has numacell devices", async {
            if zones_without(client).await?.is_empty() {
                recorder.saw("they are there already");
                return Ok(());
            }
            deploy(options, recorder, client, published).await?;
            recorder
                .until(
                    "all zones of all NRTs list numacell devices",
                    options.deadlines.installed,
                    async || {
                        let missing = zones_without(client).await?;
                        Ok(if missing.is_empty() {
                            PollResult::Ready(())
                        } else {
                            PollResult::NotYet(format!("missing in {}", missing.join(", ")))
                        })
                    },
                )
                .await
        })
        .await
}

async fn zones_without(client: &Client) -> Result<Vec<String>, StepError> {
    let nodes = topologies(client).await?;
    if nodes.is_empty() {
        return Ok(vec!["all: there is no NRT".to_owned()]);
    }
    let zones = nodes
        .iter()
        .flat_map(|node| node.zones.iter().map(move |zone| (node, zone)));
    let without =
        zones.filter(|(_, zone)| !zone.resources.keys().any(|name| name.starts_with(NUMACELL)));
    Ok(without
        .map(|(node, zone)| format!("{} {}", node.node, zone.name))
        .collect())
}

async fn deploy(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    published: &Published,
) -> Result<(), StepError> {
    let name = format!("e2e-test-infra-{}", options.run);
    let privileged = ["audit", "enforce", "warn"].map(|mode| {
        (
            format!("pod-security.kubernetes.io/{mode}"),
            json!("privileged"),
        )
    });
    let mut labels: serde_json::Map<String, Value> = privileged.into_iter().collect();
    labels.insert(RUN_LABEL.to_owned(), json!(options.run));
    let namespace: Namespace = object(json!({"metadata": {"name": name, "labels": labels}}))?;
    recorder.plan(
        &format!("create Namespace {name}"),
        Undo::DeleteNamespace { name: name.clone() },
    )?;
    creation::create(&Api::<Namespace>::all(client.clone()), &namespace).await?;

    let make = Make {
        options,
        recorder,
        client,
        namespace: &name,
    };
    make.create::<ServiceAccount>(json!({"metadata": {"name": ACCOUNT}}))
        .await?;
    make.create::<Role>(json!({
        "metadata": {"name": "numacell-dp-ro"},
        "rules": [{
            "apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"],
            "resourceNames": ["privileged"], "verbs": ["use"]
        }]
    }))
    .await?;
    make.create::<RoleBinding>(json!({
        "metadata": {"name": "numacell-dp-rb"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "numacell-dp-ro"}
    }))
    .await?;
    for (pool, selector) in pools(client).await? {
        let mut set = daemon_set(&pool, &selector);
        images::pin(published, &mut set);
        make.create::<DaemonSet>(set).await?;
    }
    Ok(())
}

/// Returns the node selectors of the exporters' daemon sets, by pool, because every node with an exporter needs numacell devices.
async fn pools(client: &Client) -> Result<BTreeMap<String, BTreeMap<String, String>>, StepError> {
    let exporters = daemon_sets(client).await?.into_iter();
    Ok(exporters
        .map(|set| {
            let pool = set
                .name_any()
                .rsplit_once("numaresourcesoperator-")
                .map_or_else(|| set.name_any(), |(_, pool)| pool.to_owned());
            let spec = set.spec.and_then(|spec| spec.template.spec);
            (
                pool,
                spec.and_then(|spec| spec.node_selector).unwrap_or_default(),
            )
        })
        .collect())
}

fn daemon_set(pool: &str, selector: &BTreeMap<String, String>) -> Value {
    let image = images::of_pods(&IMAGE_VARIABLES);
    let plugins = "/var/lib/kubelet/device-plugins";
    let labels = json!({"name": format!("numacell-dp-{pool}-pod")});
    json!({
        "metadata": {"name": format!("numacell-dp-{pool}-ds")},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 0,
                    "nodeSelector": selector,
                    "containers": [{
                        "name": format!("numacell-dp-{pool}-cnt"),
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/numacell"],
                        "args": ["-alsologtostderr", "-v", "3", "-sysfs=/host-sys"],
                        "securityContext": {"privileged": true, "runAsUser": 0},
                        "volumeMounts": [
                            {"name": "kubeletsockets", "mountPath": plugins},
                            {"name": "sys", "mountPath": "/host-sys", "readOnly": true}
                        ]
                    }],
                    "volumes": [
                        {"name": "kubeletsockets", "hostPath": {"path": plugins, "type": "Directory"}},
                        // a container has a sysfs of its own, which shows the machine even where the node shows other hardware
                        {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}}
                    ]
                }
            }
        }
    })
}

struct Make<'a> {
    options: &'a Options,
    recorder: &'a Recorder,
    client: &'a Client,
    namespace: &'a str,
}

impl Make<'_> {
    async fn create<K>(&self, value: Value) -> Result<(), StepError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let mut object: K = object(value)?;
        object.meta_mut().namespace = Some(self.namespace.to_owned());
        object
            .labels_mut()
            .insert(RUN_LABEL.to_owned(), self.options.run.clone());
        let reference = ObjectRef::of(&object);
        self.recorder.plan(
            &format!("create {reference}"),
            Undo::WithNamespace {
                object: reference.clone(),
            },
        )?;
        let api = Api::<K>::namespaced(self.client.clone(), self.namespace);
        creation::create(&api, &object).await?;
        Ok(())
    }
}

fn object<K: DeserializeOwned>(value: Value) -> Result<K, StepError> {
    serde_json::from_value(value).map_err(|error| StepError::fail(chain(&error)))
}

/// Labels each node that has an NRT with its number of zones.
pub(super) async fn label_cell_counts(
    recorder: &Recorder,
    client: &Client,
) -> Result<(), StepError> {
    for node in topologies(client).await? {
        if Api::<Node>::all(client.clone())
            .get_opt(&node.node)
            .await?
            .is_some()
        {
            let count = node.zones.len().to_string();
            crate::context::label_node(
                recorder,
                client,
                &node.node,
                crate::context::arena::CELL_COUNT_LABEL,
                &count,
            )
            .await?;
        }
    }
    Ok(())
}

//! The namespaces that the stack is in (scenarios-other.md 10.5).

use std::collections::BTreeSet;

use api::{labels, names};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use manifests::platform::Platform;

use super::Gather;
use crate::cluster;
use crate::inspectfeatures::OPERATOR_PODS;

/// The operator's subscription on OpenShift.
const SUBSCRIPTION: &str = "numaresources-operator-subscription";
/// Namespace on OpenShift when nothing is found.
const OPENSHIFT_NAMESPACE: &str = "openshift-numaresources";

/// Namespaces of the schedulers that the deployer installs, and the label of their pods, which other programs have elsewhere (deployer.md 7).
const DEPLOYED: [&str; 2] = ["tas-scheduler", "openshift-topology-aware-scheduler"];
const DEPLOYED_SCHEDULER: &str = "component=scheduler";

/// Returns what selects the exporters' pods.
pub(super) fn exporters() -> String {
    format!("{}={}", labels::RTE_POD, labels::RTE_POD_VALUE)
}

/// Returns what selects the scheduler's pods in a namespace.
pub(super) fn schedulers(namespace: &str) -> String {
    if DEPLOYED.contains(&namespace) {
        DEPLOYED_SCHEDULER.to_owned()
    } else {
        format!("{}={}", labels::APP, names::SCHEDULER)
    }
}

/// Finds the namespaces: those of the pods of exporters, schedulers and operators, that of the subscription, and the given ones.
pub(super) async fn find(gather: &Gather, platform: Platform, given: &[String]) -> Vec<String> {
    let mut found: BTreeSet<String> = given.iter().cloned().collect();
    let everywhere: Api<Pod> = Api::all(gather.client.clone());
    let (exporters, schedulers) = (exporters(), schedulers(""));
    let everywhere = [exporters.as_str(), &schedulers, OPERATOR_PODS]
        .map(|selector| (everywhere.clone(), selector));
    let deployed = DEPLOYED.map(|namespace| {
        let pods = Api::namespaced(gather.client.clone(), namespace);
        (pods, DEPLOYED_SCHEDULER)
    });
    for (pods, selector) in everywhere.into_iter().chain(deployed) {
        let listed = gather.limits.request(cluster::list(&pods, selector)).await;
        let listed = gather
            .folder
            .or_error(&format!("pods with labels {selector}"), listed);
        let listed = listed.into_iter().flatten();
        found.extend(listed.filter_map(|pod| pod.metadata.namespace));
    }
    if platform.is_openshift() {
        let listed = gather.limits.request(subscriptions(&gather.client)).await;
        found.extend(
            gather
                .folder
                .or_error("subscriptions", listed)
                .into_iter()
                .flatten(),
        );
    }
    if found.is_empty() {
        let fallback = if platform.is_openshift() {
            OPENSHIFT_NAMESPACE
        } else {
            names::NAMESPACE
        };
        found.insert(fallback.to_owned());
    }
    found.into_iter().collect()
}

/// Returns the namespaces with the operator's subscription. A cluster without the lifecycle manager has none.
async fn subscriptions(client: &Client) -> Result<Vec<String>, apply::Cause> {
    let kind = GroupVersionKind::gvk("operators.coreos.com", "v1alpha1", "Subscription");
    let kind = ApiResource::from_gvk_with_plural(&kind, "subscriptions");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list
            .items
            .into_iter()
            .filter(|subscription| subscription.name_any() == SUBSCRIPTION)
            .filter_map(|subscription| subscription.metadata.namespace)
            .collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

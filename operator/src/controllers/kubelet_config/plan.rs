//! Decides on the ConfigMap of a pool. Pure; [`majority`] has what to make of kubelets of different settings.

use std::time::Duration;

use api::annotations;
use api::operator::v1::NumaResourcesOperator;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use manifests::platform::Platform;
use manifests::rte::config_map::{self, KubeletSettings};
use manifests::to_value;
use serde_json::Value;

use crate::node_groups::Pool;

pub(super) mod majority;

/// Names of the controller in logs and metrics.
const NAME: &str = "kubeletconfig";
const HYPERSHIFT_NAME: &str = "configmap";
/// Interval between two reconciliations on plain Kubernetes: the restart of a kubelet does not reliably cause an event of its node.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// Settings of a pool's kubelets, as they were found.
#[derive(Debug)]
pub(super) struct PoolSettings {
    pub(super) settings: KubeletSettings,
    /// The owner of the ConfigMap.
    pub(super) owner: Option<OwnerReference>,
    /// The kubelets with other settings, where the kubelets themselves were asked; empty when there are none. The controller of
    /// `NUMAResourcesOperator` reads it from the ConfigMap.
    pub(super) differing: Option<String>,
}

pub(super) fn controller_name(platform: Platform) -> &'static str {
    match platform {
        Platform::HyperShift => HYPERSHIFT_NAME,
        Platform::Kubernetes | Platform::OpenShift => NAME,
    }
}

/// Returns the ConfigMap of a pool.
pub(super) fn config_map(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    found: &PoolSettings,
    namespace: &str,
) -> Value {
    let mut map = config_map::config_map(
        &cr.name_any(),
        &pool.name,
        namespace,
        &found.settings,
        &cr.spec.pod_excludes,
    );
    map.metadata.annotations = found
        .differing
        .clone()
        .map(|nodes| [(annotations::DIFFERING_KUBELETS.into(), nodes)].into());
    let mut object = to_value(&map);
    if let Some(owner) = &found.owner {
        apply::set_owner(&mut object, owner);
    }
    object
}

/// Returns whether the ConfigMap of a selected pool stays. A kubelet that does not answer now still has its settings; an object that
/// is gone configures nobody.
pub(super) fn keeps(settings_known: bool, platform: Platform) -> bool {
    settings_known || platform == Platform::Kubernetes
}

/// Returns when all pools are looked at again.
pub(super) fn next(platform: Platform) -> Action {
    match platform {
        Platform::Kubernetes => Action::requeue(SYNC_INTERVAL),
        Platform::OpenShift | Platform::HyperShift => Action::await_change(),
    }
}

#[cfg(test)]
mod tests {
    use api::operator::v1::NumaResourcesOperatorSpec;
    use api::{labels, names};
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::node_groups;

    #[rstest]
    #[case::objects(None, json!(null))]
    #[case::kubelets(Some(""), json!({annotations::DIFFERING_KUBELETS: ""}))]
    #[case::differing_kubelets(Some("n1 (x)"), json!({annotations::DIFFERING_KUBELETS: "n1 (x)"}))]
    fn map_says_which_kubelets_differ_where_they_were_asked(
        #[case] differing: Option<&str>,
        #[case] expected: Value,
    ) {
        let spec = NumaResourcesOperatorSpec::default();
        let cr = NumaResourcesOperator::new(names::OPERATOR_CR, spec);
        let group = serde_json::from_value(json!({"poolName": "a"})).unwrap();
        let pools = node_groups::pools(&[group], Platform::Kubernetes, true);
        let found = PoolSettings {
            settings: KubeletSettings::default(),
            owner: Some(OwnerReference {
                uid: "u".into(),
                ..OwnerReference::default()
            }),
            differing: differing.map(Into::into),
        };
        let map = config_map(&cr, &pools[0], &found, "ns");
        assert_eq!(map["metadata"]["name"], "numaresourcesoperator-a");
        assert_eq!(map["metadata"]["labels"][labels::POOL], "a");
        assert_eq!(map["metadata"]["annotations"], expected);
        assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    #[rstest]
    #[case::kubernetes(
        Platform::Kubernetes,
        "kubeletconfig",
        true,
        Action::requeue(SYNC_INTERVAL)
    )]
    #[case::openshift(Platform::OpenShift, "kubeletconfig", false, Action::await_change())]
    #[case::hypershift(Platform::HyperShift, "configmap", false, Action::await_change())]
    fn platforms_differ(
        #[case] platform: Platform,
        #[case] name: &str,
        #[case] keeps_unknown: bool,
        #[case] next_action: Action,
    ) {
        assert_eq!(controller_name(platform), name);
        assert!(keeps(true, platform));
        assert_eq!(keeps(false, platform), keeps_unknown);
        assert_eq!(next(platform), next_action);
    }
}

//! The exporters' objects (operator.md 4.5, 4.6).

use api::operator::NamespacedName;
use api::operator::v1::{NodeGroupStatus, NumaResourcesOperator};
use api::{annotations, names};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use manifests::hash;
use manifests::rte::{self, Image, Options, Pool as RtePool, Set};
use serde_json::Value;

use crate::installation::Installation;
use crate::node_groups::Pool;

/// What the exporters of all pools need, and what the status will say of them.
#[derive(Debug, PartialEq)]
pub(crate) struct Exporters {
    /// The objects, in the order in which they are applied.
    pub(crate) objects: Vec<Value>,
    /// The groups as the status lists them once all DaemonSets are ready.
    pub(crate) node_groups: Vec<NodeGroupStatus>,
    /// Descriptions of the pools whose kubelets have different settings.
    pub(crate) mixed: Vec<String>,
}

/// Returns what the exporters need. `configs` has the ConfigMap of each pool, if there is one.
pub(crate) fn exporters(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    configs: &[Option<ConfigMap>],
    installation: &Installation,
) -> Exporters {
    let options = Options {
        namespace: installation.namespace.clone(),
        platform: installation.platform,
        image: image(cr, installation),
        log_level: cr.spec.log_level,
        tls: installation.tls.clone(),
        api_server_ports: installation.api_server_ports.clone(),
        has_admission_policies: installation.has_admission_policies,
    };
    let rte_pools: Vec<RtePool> = pools
        .iter()
        .zip(configs)
        .map(|(pool, config)| RtePool {
            name: names::rte_daemon_set(&cr.name_any(), &pool.name),
            nodes: pool.nodes.clone(),
            config: pool.config.clone(),
            config_hash: config.as_ref().map(hash::config_map).unwrap_or_default(),
            config_is_partial: false,
            custom_selinux_policy: pool.custom_selinux_policy,
        })
        .collect();
    let mut objects = Set::new(&options, &rte_pools).objects();
    if let Some(owner) = apply::controller_reference(cr) {
        for object in &mut objects {
            apply::set_owner(object, &owner);
        }
    }
    let node_groups = pools
        .iter()
        .zip(rte_pools)
        .map(|(pool, rte)| NodeGroupStatus {
            daemon_set: NamespacedName {
                namespace: installation.namespace.clone(),
                name: rte.name,
            },
            config: rte.config,
            pool_name: pool.name.clone(),
        });
    let mixed = pools
        .iter()
        .zip(configs)
        .filter_map(|(pool, config)| mixed_pool_message(pool, config.as_ref()?));
    Exporters {
        objects,
        node_groups: node_groups.collect(),
        mixed: mixed.collect(),
    }
}

fn image(cr: &NumaResourcesOperator, installation: &Installation) -> Image {
    if cr.spec.exporter_image.is_empty() {
        return installation.image.clone();
    }
    Image {
        reference: cr.spec.exporter_image.clone(),
        pull_policy: None,
        is_own: false,
        is_stack: rte::is_stack(&cr.spec.exporter_image),
    }
}

/// Describes the nodes of a pool whose kubelets differ from the others. Exporters publish the settings of the majority for all nodes.
fn mixed_pool_message(pool: &Pool, config: &ConfigMap) -> Option<String> {
    let nodes = config.annotations().get(annotations::DIFFERING_KUBELETS)?;
    (!nodes.is_empty()).then(|| {
        format!(
            "kubelets of the pool {:?} have different settings: {nodes}",
            pool.name
        )
    })
}

#[cfg(test)]
mod tests {
    use api::operator::v1::NumaResourcesOperatorSpec;
    use manifests::platform::Platform;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::node_groups;

    fn resource(image: &str) -> NumaResourcesOperator {
        let spec = NumaResourcesOperatorSpec {
            exporter_image: image.into(),
            ..NumaResourcesOperatorSpec::default()
        };
        let mut cr = NumaResourcesOperator::new(names::OPERATOR_CR, spec);
        cr.metadata.uid = Some("u".into());
        cr
    }

    fn pools(names: &[&str]) -> Vec<Pool> {
        let groups: Vec<_> = names
            .iter()
            .map(|name| serde_json::from_value(json!({"poolName": name})).unwrap())
            .collect();
        node_groups::pools(&groups, Platform::Kubernetes, true)
    }

    fn config(differing: Option<&str>) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.annotations = differing
            .map(|nodes| [(annotations::DIFFERING_KUBELETS.to_owned(), nodes.to_owned())].into());
        map
    }

    #[test]
    fn every_pool_has_a_daemon_set_and_the_resource_owns_everything() {
        let pools = pools(&["a", "b"]);
        let wanted = exporters(
            &resource(""),
            &pools,
            &[None, Some(config(None))],
            &Installation::example(Platform::Kubernetes),
        );
        assert!(
            wanted
                .objects
                .iter()
                .all(|object| object["metadata"]["ownerReferences"][0]["uid"] == "u")
        );
        let daemon_sets: Vec<&Value> = wanted
            .objects
            .iter()
            .filter(|object| object["kind"] == "DaemonSet")
            .collect();
        let names = ["numaresourcesoperator-a", "numaresourcesoperator-b"];
        assert_eq!(daemon_sets.len(), names.len());
        for (object, name) in daemon_sets.iter().zip(names) {
            assert_eq!(object["metadata"]["name"], name);
        }
        let hash = |object: &Value| {
            let annotations = &object["spec"]["template"]["metadata"]["annotations"];
            annotations[annotations::CONFIG_MAP_HASH].clone()
        };
        assert_eq!(hash(daemon_sets[0]), "");
        assert_eq!(
            hash(daemon_sets[1]),
            hash::config_map(&ConfigMap::default())
        );
        let groups: Vec<String> = wanted
            .node_groups
            .iter()
            .map(|group| format!("{} {}", group.pool_name, group.daemon_set))
            .collect();
        assert_eq!(
            groups,
            [
                "a ns/numaresourcesoperator-a",
                "b ns/numaresourcesoperator-b"
            ]
        );
    }

    #[rstest]
    #[case::none("", "own", Some("Always"), true)]
    #[case::given("mine", "mine", None, false)]
    fn image_of_the_resource_wins(
        #[case] given: &str,
        #[case] reference: &str,
        #[case] pull_policy: Option<&str>,
        #[case] is_own: bool,
    ) {
        let expected = Image {
            reference: reference.into(),
            pull_policy: pull_policy.map(Into::into),
            is_own,
            is_stack: is_own,
        };
        assert_eq!(
            image(
                &resource(given),
                &Installation::example(Platform::Kubernetes)
            ),
            expected
        );
    }

    #[rstest]
    #[case::no_config(None, &[])]
    #[case::not_known(Some(config(None)), &[])]
    #[case::all_alike(Some(config(Some(""))), &[])]
    #[case::mixed(Some(config(Some("n1 (x)"))), &["kubelets of the pool \"a\" have different settings: n1 (x)"])]
    fn pools_with_differing_kubelets_are_named(
        #[case] config: Option<ConfigMap>,
        #[case] expected: &[&str],
    ) {
        let wanted = exporters(
            &resource(""),
            &pools(&["a"]),
            &[config],
            &Installation::example(Platform::Kubernetes),
        );
        assert_eq!(wanted.mixed, expected);
    }
}

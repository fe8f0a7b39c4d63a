//! Reads the settings of kubelets: from the kubelets themselves ([`kubelets`]), or on OpenShift from the objects that configure them
//! ([`objects`]).

use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NumaResourcesOperator;
use k8s_openapi::api::core::v1::ConfigMap;
use manifests::platform::Platform;

use super::SyncError;
use super::plan::PoolSettings;
use super::plan::majority::Majority;
use crate::context::Context;
use crate::node_groups::Pool;

mod kubelets;
mod objects;

/// Sources of kubelet settings.
pub(super) enum Sources {
    Kubelets(Vec<kubelets::Member>),
    KubeletConfigs(Vec<KubeletConfig>),
    ConfigMaps(Vec<ConfigMap>),
}

impl Sources {
    /// Reads what all pools have in common.
    pub(super) async fn read(context: &Context) -> Result<Self, SyncError> {
        let client = &context.client;
        let sources = match context.installation.platform {
            Platform::Kubernetes => kubelets::list_nodes(context).await.map(Self::Kubelets),
            Platform::OpenShift => objects::kubelet_configs(client)
                .await
                .map(Self::KubeletConfigs),
            Platform::HyperShift => objects::config_maps(client).await.map(Self::ConfigMaps),
        };
        sources.map_err(SyncError::Read)
    }

    /// Returns the settings of a pool's kubelets; `None` when they are unknown.
    pub(super) async fn pool_settings(
        &self,
        cr: &NumaResourcesOperator,
        pool: &Pool,
        context: &Context,
    ) -> Option<PoolSettings> {
        match self {
            Self::Kubelets(nodes) => {
                let answers = kubelets::ask_all(context, pool, nodes).await;
                let majority = Majority::of(&answers)?;
                if !majority.differing.is_empty() {
                    tracing::warn!(pool = %pool.name, differing = %majority.differing, "Kubelets of a pool have different settings");
                }
                Some(PoolSettings {
                    settings: majority.settings,
                    owner: apply::controller_reference(cr),
                    differing: Some(majority.differing),
                })
            }
            Self::KubeletConfigs(all) => {
                let (config, settings) =
                    objects::for_machine_config_pool(pool.machine_config_pool.as_ref()?, all)?;
                Some(PoolSettings {
                    settings,
                    owner: apply::controller_reference(config),
                    differing: None,
                })
            }
            // these ConfigMaps are in another namespace, so they cannot own objects in ours
            Self::ConfigMaps(all) => Some(PoolSettings {
                settings: objects::for_hosted_pool(&pool.name, all)?,
                owner: None,
                differing: None,
            }),
        }
    }
}

//! The stack itself: finds it, or installs it from its manifests.

use std::collections::BTreeSet;

use api::labels::HYPERSHIFT_NODE_POOL;
use api::names;
use api::operator::v1::{
    NodeGroup, NodeGroupConfig, NumaResourcesOperator, NumaResourcesOperatorSpec,
};
use api::scheduler::v1::{NumaResourcesScheduler, NumaResourcesSchedulerSpec};
use cluster_spec::images::Published;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Client, ResourceExt};

use super::{Options, connect};
use crate::context::RUN_LABEL;
use crate::environment::Platform;
use crate::images;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::{PollResult, Recorder};
use crate::step::StepError;

/// Custom resource definitions of the stack.
const DEFINITIONS: [&str; 2] = [
    "numaresourcesoperators.nodetopology.openshift.io",
    "numaresourcesschedulers.nodetopology.openshift.io",
];
const NRT_DEFINITION: &str = "noderesourcetopologies.topology.node.k8s.io";
/// Prefix of the names of pools, each of nodes with the same settings. Where the suite installs the stack, it configures exporters for
/// these pools.
const POOL_PREFIX: &str = "numa-";
/// Refresh period of the exporters where the suite installs the stack. It is short because scenarios wait for their looks.
const REFRESH_PERIOD: &str = "1s";

/// Finds the stack, or installs it.
pub(super) async fn stack(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    published: &Published,
    may_install: bool,
) -> Result<(), StepError> {
    let there = recorder
        .step("the stack is installed, or may be", async {
            let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
            let mut missing = Vec::new();
            for name in DEFINITIONS {
                if definitions.get_opt(name).await?.is_none() {
                    missing.push(name);
                }
            }
            if missing.is_empty() {
                recorder.saw("it is installed");
                return Ok(true);
            }
            if !may_install {
                let nrt = definitions.get_opt(NRT_DEFINITION).await?.is_none();
                let what = if nrt { NRT_DEFINITION } else { missing[0] };
                return Err(StepError::fail(format!(
                    "the cluster has no definition of {what}: the stack is not installed. Install it, or let this suite do it with \
                     --setup; nothing was changed"
                )));
            }
            recorder.saw("it is not installed");
            Ok(false)
        })
        .await?;
    if !there {
        recorder
            .step(
                "the operator is installed",
                operator(options, recorder, client, published),
            )
            .await?;
    }
    recorder
        .step(
            "the resources of exporters and scheduler are created",
            resources(recorder, client, published),
        )
        .await
}

async fn operator(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    published: &Published,
) -> Result<(), StepError> {
    let image = images::of_stack(published);
    let platform = connect::platform(client).await?;
    let objects = super::manifests::load(options.manifests.as_deref(), platform, image.as_deref())?;
    let count = objects.len();
    let definition = ObjectRef::named::<CustomResourceDefinition>(None, NRT_DEFINITION);
    if definition
        .api(client)
        .get_opt(&definition.name)
        .await?
        .is_none()
    {
        // unless a manifest has it, the operator brings it, and leaves it when it goes
        recorder.plan_creation(&definition)?;
    }
    for object in objects {
        create_absent(options, recorder, client, object).await?;
    }
    recorder.saw(format!("{count} objects"));
    Ok(())
}

/// Creates an object unless it exists. The API server may need a moment until it serves a new kind.
async fn create_absent(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    mut object: DynamicObject,
) -> Result<(), StepError> {
    let types = object.types.clone().unwrap_or_default();
    let kind = GroupVersionKind::try_from(&types)
        .map_err(|error| StepError::fail(format!("a manifest has no kind: {error}")))?;
    let what = format!("{} {} can be created", kind.kind, object.name_any());
    let (resource, _) = recorder
        .until(&what, options.deadlines.installed, async || {
            Ok(PollResult::Ready(
                kube::discovery::pinned_kind(client, &kind).await?,
            ))
        })
        .await?;
    let reference = ObjectRef {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
        namespace: object.namespace(),
        name: object.name_any(),
    };
    let api = reference.api(client);
    if api.get_opt(&reference.name).await?.is_some() {
        return Ok(());
    }
    object
        .labels_mut()
        .insert(RUN_LABEL.to_owned(), options.run.clone());
    let undo = if resource.kind == "Namespace" {
        Undo::DeleteNamespace {
            name: reference.name.clone(),
        }
    } else {
        Undo::Delete {
            object: reference.clone(),
        }
    };
    recorder.plan(&format!("create {reference}"), undo)?;
    // a new namespace refuses objects for a moment
    recorder
        .until(&what, options.deadlines.installed, async || {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => Ok(PollResult::Ready(())),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(PollResult::Ready(())),
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                    Err(StepError::fail(format!(
                        "the API server refuses {reference}: {}",
                        status.message
                    )))
                }
                Err(error) => Err(error.into()),
            }
        })
        .await
}

/// Creates the two resources that make the operator work, unless they exist.
async fn resources(
    recorder: &Recorder,
    client: &Client,
    published: &Published,
) -> Result<(), StepError> {
    let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
    if operators.get_opt(names::OPERATOR_CR).await?.is_none() {
        let pools = pools(client, connect::platform(client).await?).await?;
        let spec = NumaResourcesOperatorSpec {
            node_groups: pools.iter().map(|pool| group(pool)).collect(),
            ..NumaResourcesOperatorSpec::default()
        };
        let object = NumaResourcesOperator::new(names::OPERATOR_CR, spec);
        recorder.plan_creation(&ObjectRef::of(&object))?;
        created(operators.create(&PostParams::default(), &object).await)?;
    }
    let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
    if schedulers.get_opt(names::SCHEDULER_CR).await?.is_none() {
        let spec = NumaResourcesSchedulerSpec {
            scheduler_image: images::of_scheduler(published),
            ..NumaResourcesSchedulerSpec::default()
        };
        let object = NumaResourcesScheduler::new(names::SCHEDULER_CR, spec);
        recorder.plan_creation(&ObjectRef::of(&object))?;
        created(schedulers.create(&PostParams::default(), &object).await)?;
    }
    Ok(())
}

/// Returns the pools that exporters are configured for: those with the suite's prefix, or all workers; of a hosted cluster all node pools.
pub(super) async fn pools(
    client: &Client,
    platform: Platform,
) -> Result<BTreeSet<String>, StepError> {
    let nodes = Api::<Node>::all(client.clone());
    let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
    if platform == Platform::Hypershift {
        let pools = nodes
            .iter()
            .map(|node| node.labels().get(HYPERSHIFT_NODE_POOL));
        let pools: BTreeSet<String> = pools.flatten().cloned().collect();
        if pools.is_empty() {
            return Err(StepError::fail(format!(
                "no node of the hosted cluster has the label {HYPERSHIFT_NODE_POOL}, by which exporters find the nodes of their pool: the platform \
                 sets it; to run without it, label the nodes"
            )));
        }
        return Ok(pools);
    }
    let role = api::labels::node_role(POOL_PREFIX);
    let mut pools: BTreeSet<String> = nodes
        .iter()
        .flat_map(|node| node.labels().keys())
        .filter(|label| label.starts_with(&role))
        .filter_map(|label| Some(label.split_once('/')?.1.to_owned()))
        .collect();
    if pools.is_empty() {
        pools.insert("worker".to_owned());
    }
    Ok(pools)
}

fn created<K>(result: Result<K, kube::Error>) -> Result<(), StepError> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn group(pool: &str) -> NodeGroup {
    NodeGroup {
        pool_name: Some(pool.to_owned()),
        config: Some(NodeGroupConfig {
            info_refresh_period: Some(REFRESH_PERIOD.to_owned()),
            ..NodeGroupConfig::default()
        }),
        ..NodeGroup::default()
    }
}

#[cfg(test)]
mod tests {
    use testbed::lane;

    use super::*;
    use crate::setup::ClusterSource;
    use crate::testing;

    fn options() -> Options {
        Options {
            cluster: ClusterSource::Kubeconfig(std::path::PathBuf::from("x").into()),
            install: false,
            run: "run".to_owned(),
            ..Options::own(lane::Lane::Embedded, &[]).expect("no flag is wrong")
        }
    }

    #[tokio::test]
    async fn a_cluster_without_the_definitions_is_left_alone_unless_it_may_be_changed() {
        let (client, log) = testing::client(|_, _| testing::not_found());
        let (stream, _) = testing::stream();
        let recorder = Recorder::new(&stream, "setup");
        let failure = stack(&options(), &recorder, &client, &Published::default(), false)
            .await
            .expect_err("nothing is installed")
            .into_failure("");
        assert!(
            failure.message.starts_with(&format!(
                "the cluster has no definition of {NRT_DEFINITION}: the stack is not installed."
            )),
            "{}",
            failure.message
        );
        assert!(
            log.lock()
                .expect("requests")
                .iter()
                .all(|line| line.starts_with("GET "))
        );
        assert!(recorder.is_clean());
    }
}

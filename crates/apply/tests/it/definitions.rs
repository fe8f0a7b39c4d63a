//! Every field, enum, default and rule of the definitions, as the API server enforces them (operator.md 1; rte.md 1).

use std::time::Duration;

use api::nrt::{v1alpha1, v1alpha2};
use api::{operator, scheduler};
use apply::{Applier, Outcome, wait};
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::server;

mod custom_resources;
mod topologies;

const READY_WITHIN: Duration = Duration::from_secs(30);
const OPERATOR: &str = "numaresourcesoperator";
const SCHEDULER: &str = "numaresourcesscheduler";

async fn install(client: &Client) {
    let applier = Applier::new(client.clone());
    for definition in api::crd::all() {
        let applied = applier
            .apply(&manifests::to_value(&definition))
            .await
            .unwrap();
        assert_eq!(
            applied.outcome,
            Outcome::Created,
            "{}",
            definition.name_any()
        );
        wait::definition(client, &definition.name_any(), READY_WITHIN)
            .await
            .unwrap();
    }
}

struct Server {
    client: Client,
}

impl Server {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap();
        let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let plural = match gvk.kind.as_str() {
            "NodeResourceTopology" => "noderesourcetopologies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        Api::all_with(
            self.client.clone(),
            &ApiResource::from_gvk_with_plural(&gvk, &plural),
        )
    }

    /// Tries to create an object with a dry run; nothing is stored.
    async fn try_create(&self, object: &Value) -> kube::Result<Value> {
        let parsed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let created = self.api(object).create(&dry_run, &parsed).await?;
        Ok(serde_json::to_value(created).unwrap())
    }

    async fn accepts(&self, object: Value) -> Value {
        match self.try_create(&object).await {
            Ok(created) => created,
            Err(error) => panic!("refused: {error}\n{object:#}"),
        }
    }

    async fn refuses(&self, object: Value, reason: &str) {
        match self.try_create(&object).await {
            Ok(_) => panic!("accepted, though {reason:?} was expected:\n{object:#}"),
            Err(kube::Error::Api(status)) => {
                assert!(
                    status.message.contains(reason),
                    "{}\n{object:#}",
                    status.message
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn definitions_accept_and_refuse_what_the_apis_say() {
    let plane = server().await;
    let client = plane.client().await.unwrap();
    install(&client).await;
    let server = Server {
        client: client.clone(),
    };
    custom_resources::operator_v1(&server).await;
    custom_resources::nulls(&server).await;
    custom_resources::scheduler_v1(&server).await;
    custom_resources::alpha(&server).await;
    topologies::topologies(&server).await;
    discovery(&client).await;
    typed_objects_round_trip(&client).await;
}

/// Checks what discovery shows to clients: kinds, scope, short names and subresources.
async fn discovery(client: &Client) {
    let resources = client
        .list_api_group_resources("nodetopology.openshift.io/v1")
        .await
        .unwrap();
    let find = |name: &str| {
        resources
            .resources
            .iter()
            .find(|resource| resource.name == name)
            .unwrap()
    };
    let operator = find("numaresourcesoperators");
    assert_eq!(
        (operator.kind.as_str(), operator.namespaced),
        ("NUMAResourcesOperator", false)
    );
    assert_eq!(
        operator.short_names.as_deref(),
        Some(&["numaresop".to_owned()][..])
    );
    assert_eq!(
        find("numaresourcesschedulers").short_names.as_deref(),
        Some(&["numaressched".to_owned()][..])
    );
    find("numaresourcesoperators/status");
    let resources = client
        .list_api_group_resources("topology.node.k8s.io/v1alpha2")
        .await
        .unwrap();
    assert_eq!(resources.resources.len(), 1, "no subresources");
    assert_eq!(
        resources.resources[0].short_names.as_deref(),
        Some(&["node-res-topo".to_owned()][..])
    );
}

/// Checks that the server accepts what our types write, and that they can read its answers; versions differ only in `apiVersion`.
async fn typed_objects_round_trip(client: &Client) {
    let parameters = PostParams::default();
    let topologies: Api<v1alpha2::NodeResourceTopology> = Api::all(client.clone());
    let mut topology = v1alpha2::NodeResourceTopology::new("node-a");
    topology.attributes = vec![api::nrt::AttributeInfo {
        name: "a".into(),
        value: "v".into(),
    }];
    let created = topologies.create(&parameters, &topology).await.unwrap();
    assert_eq!((created.zones.len(), created.attributes.len()), (0, 1));
    let old: Api<v1alpha1::NodeResourceTopology> = Api::all(client.clone());
    assert_eq!(old.get("node-a").await.unwrap().name_any(), "node-a");

    let operators: Api<operator::v1::NumaResourcesOperator> = Api::all(client.clone());
    let group = operator::v1::NodeGroup {
        pool_name: Some("worker".into()),
        ..operator::v1::NodeGroup::default()
    };
    let spec = operator::v1::NumaResourcesOperatorSpec {
        node_groups: vec![group],
        ..operator::v1::NumaResourcesOperatorSpec::default()
    };
    let created = operators
        .create(
            &parameters,
            &operator::v1::NumaResourcesOperator::new(OPERATOR, spec.clone()),
        )
        .await
        .unwrap();
    assert_eq!(created.spec, spec);
    let old: Api<operator::v1alpha1::NumaResourcesOperator> = Api::all(client.clone());
    assert_eq!(old.get(OPERATOR).await.unwrap().spec.node_groups.len(), 1);

    let schedulers: Api<scheduler::v1::NumaResourcesScheduler> = Api::all(client.clone());
    let spec = scheduler::v1::NumaResourcesSchedulerSpec {
        scheduler_image: "i".into(),
        ..scheduler::v1::NumaResourcesSchedulerSpec::default()
    };
    let created = schedulers
        .create(
            &parameters,
            &scheduler::v1::NumaResourcesScheduler::new(SCHEDULER, spec.clone()),
        )
        .await
        .unwrap();
    assert_eq!(created.spec, spec);
}

//! Every field, enum, default and rule of the definitions, as the API server enforces them (operator.md 1; rte.md 1).

use std::time::Duration;

use api::nrt::{v1alpha1, v1alpha2};
use api::{operator, scheduler};
use apply::{Applier, Outcome, wait};
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::server;

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

fn cr(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    let api_version = format!("nodetopology.openshift.io/{version}");
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn operator_cr(spec: &Value) -> Value {
    cr("v1", "NUMAResourcesOperator", OPERATOR, spec)
}

fn scheduler_cr(spec: &Value) -> Value {
    cr("v1", "NUMAResourcesScheduler", SCHEDULER, spec)
}

fn nrt(version: &str, body: &Value) -> Value {
    let api_version = format!("topology.node.k8s.io/{version}");
    let mut object = json!({"apiVersion": api_version, "kind": "NodeResourceTopology", "metadata": {"name": "node-a"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    object
}

fn resource(quantity: &Value) -> Value {
    json!({"name": "cpu", "capacity": quantity, "allocatable": "1", "available": "500m"})
}

fn zone(fields: &Value) -> Value {
    let mut zone = json!({"name": "node-0", "type": "Node"});
    zone.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    json!({"zones": [zone]})
}

#[tokio::test]
async fn definitions_accept_and_refuse_what_the_apis_say() {
    let plane = server().await;
    let client = plane.client().await.unwrap();
    install(&client).await;
    let server = Server {
        client: client.clone(),
    };
    operator_v1(&server).await;
    scheduler_v1(&server).await;
    alpha(&server).await;
    topologies(&server).await;
    discovery(&client).await;
    typed_objects_round_trip(&client).await;
}

async fn operator_v1(server: &Server) {
    let full = json!({
        "nodeGroups": [
            {
                "poolName": "a", "annotations": {"k": "v"},
                "config": {
                    "podsFingerprinting": "EnabledExclusiveResources", "infoRefreshMode": "PeriodicAndEvents",
                    "infoRefreshPeriod": "7s", "infoRefreshPause": "Enabled",
                    "tolerations": [{"key": "k", "operator": "Anything", "effect": "Whatever", "tolerationSeconds": 3}],
                },
            },
            {"machineConfigPoolSelector": {
                "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
            }},
        ],
        "imageSpec": "i", "logLevel": "TraceAll", "podExcludes": [{"namespace": "n*", "name": "p*"}],
    });
    let created = server.accepts(operator_cr(&full)).await;
    assert_eq!(
        created["spec"], full,
        "nothing is pruned and nothing is added"
    );
    let created = server.accepts(operator_cr(&json!({}))).await;
    assert_eq!(
        created["spec"],
        json!({"logLevel": "Normal"}),
        "the only default"
    );
    let mut without_spec = operator_cr(&json!({}));
    without_spec.as_object_mut().unwrap().remove("spec");
    server.accepts(without_spec).await;
    server.accepts(operator_cr(&json!({"logLevel": ""}))).await;
    // only the controller checks these (operator.md 1)
    server
        .accepts(operator_cr(
            &json!({"nodeGroups": [{}, {"poolName": "a"}, {"poolName": "a"}]}),
        ))
        .await;
    server
        .accepts(operator_cr(
            &json!({"nodeGroups": [{"poolName": "a", "config": {"infoRefreshPeriod": "soon"}}]}),
        ))
        .await;
    server
        .refuses(
            cr("v1", "NUMAResourcesOperator", "other", &json!({})),
            "This is a singleton resource and the object name must be 'numaresourcesoperator'.",
        )
        .await;
    server
        .refuses(operator_cr(&json!({"logLevel": "Loud"})), "spec.logLevel")
        .await;
    server
        .refuses(
            operator_cr(&json!({"imageSpec": null, "logLevel": 1})),
            "spec.logLevel",
        )
        .await;
    for (field, value) in [
        ("podsFingerprinting", json!("Sometimes")),
        ("infoRefreshMode", json!("Never")),
        ("infoRefreshPause", json!("Later")),
        ("infoRefreshPeriod", json!(10)),
    ] {
        let spec = json!({"nodeGroups": [{"poolName": "a", "config": {field: value}}]});
        server
            .refuses(
                operator_cr(&spec),
                &format!("spec.nodeGroups[0].config.{field}"),
            )
            .await;
    }
    let mut with_status = operator_cr(&json!({}));
    with_status["status"] = json!({"conditions": []});
    let created = server.accepts(with_status).await;
    assert_eq!(created.get("status"), None, "the status is a subresource");
}

async fn scheduler_v1(server: &Server) {
    let full = json!({
        "imageSpec": "i", "schedulerName": "s", "logLevel": "Debug", "cacheResyncPeriod": "0s", "cacheResyncDebug": "DumpJSONFile",
        "schedulerInformer": "Shared", "cacheResyncDetection": "Aggressive", "preemptionMode": "Enabled", "replicas": -1,
        "scoringStrategy": {"type": "BalancedAllocation", "resources": [{"name": "cpu"}, {"name": "memory", "weight": 2}]},
    });
    let created = server.accepts(scheduler_cr(&full)).await;
    assert_eq!(
        created["spec"], full,
        "nothing is pruned and nothing is added"
    );
    let created = server
        .accepts(scheduler_cr(&json!({"imageSpec": "i"})))
        .await;
    assert_eq!(
        created["spec"],
        json!({"imageSpec": "i", "logLevel": "Normal"}),
        "the only default"
    );
    server
        .refuses(scheduler_cr(&json!({})), "spec.imageSpec: Required value")
        .await;
    server
        .refuses(
            cr(
                "v1",
                "NUMAResourcesScheduler",
                "other",
                &json!({"imageSpec": "i"}),
            ),
            "This is a singleton resource and the object name must be 'numaresourcesscheduler'.",
        )
        .await;
    for (field, value) in [
        ("cacheResyncDebug", "DumpXML"),
        ("schedulerInformer", "None"),
        ("cacheResyncDetection", "Strict"),
        ("preemptionMode", "Maybe"),
        ("logLevel", "Loud"),
        ("replicas", "one"),
    ] {
        let spec = json!({"imageSpec": "i", field: value});
        server
            .refuses(scheduler_cr(&spec), &format!("spec.{field}"))
            .await;
    }
    let strategy = json!({"imageSpec": "i", "scoringStrategy": {"type": "LeastNUMANodes"}});
    server
        .refuses(scheduler_cr(&strategy), "spec.scoringStrategy.type")
        .await;
    let nameless = json!({"imageSpec": "i", "scoringStrategy": {"resources": [{"weight": 1}]}});
    server
        .refuses(
            scheduler_cr(&nameless),
            "spec.scoringStrategy.resources[0].name",
        )
        .await;
}

async fn alpha(server: &Server) {
    let operator = json!({"nodeGroups": [{
        "disablePodsFingerprinting": true, "machineConfigPoolSelector": {},
        "config": {"podsFingerprinting": "Enabled", "infoRefreshMode": "Events", "infoRefreshPeriod": "1s"},
    }]});
    let created = server
        .accepts(cr(
            "v1alpha1",
            "NUMAResourcesOperator",
            "any-name",
            &operator,
        ))
        .await;
    let mut stored = operator["nodeGroups"].clone();
    stored[0]
        .as_object_mut()
        .unwrap()
        .remove("disablePodsFingerprinting");
    assert_eq!(
        created["spec"]["nodeGroups"], stored,
        "the stored version does not have the deprecated switch"
    );
    let newer = json!({"nodeGroups": [{"poolName": "a", "annotations": {"a": "b"}, "config": {"infoRefreshPause": "Enabled"}}]});
    let created = server
        .accepts(cr("v1alpha1", "NUMAResourcesOperator", "any-name", &newer))
        .await;
    assert_eq!(
        created["spec"]["nodeGroups"],
        json!([{"config": {}}]),
        "fields of v1 are pruned"
    );
    let scheduler =
        json!({"imageSpec": "i", "schedulerName": "s", "cacheResyncPeriod": "1s", "replicas": 1});
    let created = server
        .accepts(cr(
            "v1alpha1",
            "NUMAResourcesScheduler",
            "any-name",
            &scheduler,
        ))
        .await;
    assert_eq!(
        created["spec"].get("replicas"),
        None,
        "fields of v1 are pruned"
    );
    server
        .refuses(
            cr("v1alpha1", "NUMAResourcesScheduler", "any-name", &json!({})),
            "spec.imageSpec: Required value",
        )
        .await;
}

async fn topologies(server: &Server) {
    let body = json!({
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "attributes": [{"name": "a", "value": "v"}],
        "zones": [{
            "name": "node-0", "type": "Node", "parent": "socket-0", "costs": [{"name": "node-0", "value": 10}],
            "attributes": [{"name": "a", "value": "v"}],
            "resources": [{"name": "cpu", "capacity": 4, "allocatable": "3", "available": "1500m"}],
        }],
    });
    let created = server.accepts(nrt("v1alpha2", &body)).await;
    for key in ["topologyPolicies", "attributes", "zones"] {
        assert_eq!(created[key], body[key], "{key}");
    }
    let created = server.accepts(nrt("v1alpha1", &body)).await;
    assert_eq!(
        created.get("attributes"),
        None,
        "v1alpha1 has no object attributes"
    );
    server.accepts(nrt("v1alpha2", &json!({"zones": []}))).await;
    server
        .refuses(nrt("v1alpha2", &json!({})), "zones: Required value")
        .await;
    server
        .refuses(nrt("v1alpha2", &json!({"zones": null})), "zones")
        .await;
    server
        .refuses(
            nrt("v1alpha1", &json!({"zones": []})),
            "topologyPolicies: Required value",
        )
        .await;
    for quantity in [
        json!("1"),
        json!(1),
        json!("1.5Gi"),
        json!("100m"),
        json!("1e3"),
        json!("-1"),
    ] {
        server
            .accepts(nrt(
                "v1alpha2",
                &zone(&json!({"resources": [resource(&quantity)]})),
            ))
            .await;
    }
    for quantity in [
        json!("one"),
        json!("1 Gi"),
        json!(1.5),
        json!(true),
        json!(""),
    ] {
        server
            .refuses(
                nrt(
                    "v1alpha2",
                    &zone(&json!({"resources": [resource(&quantity)]})),
                ),
                "zones[0].resources[0].capacity",
            )
            .await;
    }
    for (fields, missing) in [
        (
            json!({"costs": [{"name": "a"}]}),
            "zones[0].costs[0].value: Required value",
        ),
        (
            json!({"costs": [{"value": 1}]}),
            "zones[0].costs[0].name: Required value",
        ),
        (
            json!({"attributes": [{"name": "a"}]}),
            "zones[0].attributes[0].value: Required value",
        ),
        (
            json!({"resources": [{"name": "cpu", "capacity": 1, "allocatable": 1}]}),
            "zones[0].resources[0].available: Required value",
        ),
    ] {
        server
            .refuses(nrt("v1alpha2", &zone(&fields)), missing)
            .await;
    }
    server
        .refuses(
            nrt("v1alpha2", &json!({"zones": [{"name": "a"}]})),
            "zones[0].type: Required value",
        )
        .await;
    server
        .refuses(
            nrt(
                "v1alpha2",
                &json!({"zones": [], "attributes": [{"value": "v"}]}),
            ),
            "attributes[0].name: Required value",
        )
        .await;
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

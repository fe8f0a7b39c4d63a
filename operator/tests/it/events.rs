//! Checks the Events about the resources, which `kubectl describe` shows.

use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NumaResourcesOperator;
use cluster_faults::{Fault, Rule, Selector};
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use testbed::lane::Lane;

use crate::cluster::{Cluster, NAMESPACE, within};
use crate::exporters::{CR, DS_A, conditions, cr, make_ready};

/// Returns type, reason and message of each Event about the operator resource, oldest first.
async fn published_events(cluster: &Cluster) -> Vec<(String, String, String)> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let about = ListParams::default().fields(&format!("involvedObject.name={CR}"));
    let mut all = events.list(&about).await.unwrap().items;
    all.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
    all.into_iter()
        .map(|event| {
            assert_eq!(
                event.involved_object.kind.as_deref(),
                Some("NUMAResourcesOperator")
            );
            assert!(event.involved_object.uid.is_some());
            assert_eq!(
                event.reporting_component.as_deref(),
                Some("numaresourcesoperator")
            );
            (
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_the_conditions_is_told_once() {
    let cluster = Cluster::start().await;
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let spec = json!({"nodeGroups": [{"poolName": "numa-a"}]});
    crs.create(&PostParams::default(), &cr(&spec))
        .await
        .unwrap();
    make_ready(&cluster, DS_A).await;
    let available = ("Available", "Available", "");
    cluster.condition(&crs, CR, conditions, available).await;
    let twice = json!({"spec": {"nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-a"}]}});
    cluster.merge(&crs, CR, twice).await;
    let message = "the pool name \"numa-a\" has duplicates";
    let reason = "ValidationErrorUnderNodeGroups";
    let degraded = ("Degraded", reason, message);
    cluster.condition(&crs, CR, conditions, degraded).await;
    // the same error with another log level causes no Event
    let still = json!({"spec": {"logLevel": "Debug"}});
    cluster.merge(&crs, CR, still).await;
    let generation = crs.get(CR).await.unwrap().metadata.generation;
    cluster
        .eventually(|| async {
            let seen = conditions(&crs.get(CR).await.unwrap())[3].observed_generation;
            if seen == generation {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    let sound = json!({"spec": {"logLevel": null, "nodeGroups": [{"poolName": "numa-a"}]}});
    cluster.merge(&crs, CR, sound).await;
    cluster.condition(&crs, CR, conditions, available).await;

    let updating = format!("numaresources/{DS_A} is updating");
    let expected = [
        ("Normal", "Progressing", updating.as_str()),
        ("Normal", "Available", ""),
        ("Warning", reason, message),
        ("Normal", "Available", ""),
    ];
    let published = published_events(&cluster).await;
    let published: Vec<(&str, &str, &str)> = published
        .iter()
        .map(|(a, b, c)| (&**a, &**b, &**c))
        .collect();
    assert_eq!(published, expected);
}

/// The ConfigMaps of kubelet settings have no condition of their own. Runs on the embedded server, which can refuse them.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_be_handed_on_are_told_once_and_handed_on_later() {
    let cluster = Cluster::start_with(Lane::Embedded, Some(Flavour::Openshift)).await;
    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    let creations = Selector {
        namespace: Some(NAMESPACE.to_owned()),
        ..Selector::resource("", "configmaps").verbs(&["create"])
    };
    let refused = faults.add(Rule::new(creations, Fault::InternalError));
    let configs: Api<KubeletConfig> = Api::all(cluster.client.clone());
    let label = "pools.operator.machineconfiguration.openshift.io/numa-a";
    let config = serde_json::from_value(json!({
        "metadata": {"name": "aligned"},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {label: ""}},
            "kubeletConfig": {"topologyManagerPolicy": "restricted"},
        },
    }));
    let post = PostParams::default();
    configs.create(&post, &config.unwrap()).await.unwrap();
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let spec = json!({"nodeGroups": [{"poolName": "numa-a"}]});
    crs.create(&post, &cr(&spec)).await.unwrap();
    // the first attempt and some retries
    within("the operator tries again", faults.wait_for_hits(refused, 6)).await;
    faults.remove(refused);
    let maps: Api<ConfigMap> = cluster.namespaced();
    cluster.appears(&maps, DS_A).await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let about = ListParams::default().fields("reason=FailedKubeletConfigSync");
    let published = events.list(&about).await.unwrap().items;
    let message = published[0].message.as_deref().unwrap_or_default();
    assert!(message.contains("injected fault"), "{message}");
    assert_eq!(published.len(), 1, "{published:?}");
}

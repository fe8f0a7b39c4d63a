//! Whether an API server takes what `render` prints, as it is: every object of every component, for every platform, with every flag that changes one.
//! Fields that it does not know are refused (`fieldValidation=Strict`), and nothing is stored (`dryRun=All`).

use std::collections::BTreeMap;
use std::path::Path;

use apply::{Applier, Identity};
use cluster_spec::flavour::Flavour;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use testbed::api_server::ApiServer;
use testbed::lane::Lane;

use crate::cluster::file;
use crate::process::{deployer, deployer_with};
use crate::rendered::documents;

/// Kinds of clusters, in versions of which something differs from the version before: admission policies came with Kubernetes 1.30 and OpenShift 4.17,
/// and the SELinux policy is another one from 4.11 and from 4.18 on.
const PLATFORMS: [&str; 11] = [
    "kubernetes:v1.21.0",
    "kubernetes:v1.29.15",
    "kubernetes:v1.30.0",
    "kubernetes:v1.35.4",
    "openshift:4.10.0",
    "openshift:4.11.0",
    "openshift:4.17.0",
    "openshift:4.18.0",
    "openshift:4.20.0",
    "hypershift:4.16.0",
    "hypershift:4.20.0",
];
const NEWEST: [&str; 3] = [PLATFORMS[3], PLATFORMS[8], PLATFORMS[10]];
const IMAGES: [(&str, &str); 3] = [
    (
        "TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE",
        "example.com/controller:1",
    ),
    ("TAS_RESOURCE_EXPORTER_IMAGE", "example.com/exporter:1"),
    ("TAS_IMAGES_USE_SHA", ""),
];
/// Namespace of a lease that is not the scheduler's.
const ELSEWHERE: &str = "elsewhere";

/// Returns the flags that change objects, together as they go together; the first ones have everything that depends on the version. The files are in this
/// directory.
fn flags(dir: &Path) -> Vec<String> {
    let rte = file(dir, "rte.yaml", "excludeList: {'*': [sample.com/device]}\n");
    let score = file(
        dir,
        "score.yaml",
        "type: MostAllocated\nresources: [{name: cpu, weight: 3}]\n",
    );
    let cache = file(
        dir,
        "cache.yaml",
        "resyncMethod: All\nforeignPodsDetect: None\ninformerMode: Shared\n",
    );
    vec![
        "--updater-scc=v1".to_owned(),
        String::new(),
        "--updater-type=NFD".to_owned(),
        "--updater-type=NFD --updater-sync-period=0 --updater-pfp-enable=false --updater-verbose=5 --pull-if-not-present".to_owned(),
        "--updater-notif-enable --updater-sync-period=0 --updater-pfp-enable=false --updater-verbose=5 --pull-if-not-present".to_owned(),
        format!("--rte-config-file={} --updater-sync-period=90s", rte.display()),
        "--updater-cri-hooks-enable".to_owned(),
        "--updater-scc=v1 --updater-cri-hooks-enable".to_owned(),
        "--updater-scc=v1 --updater-custom-selinux-policy=false".to_owned(),
        "-R 3".to_owned(),
        format!(
            "-R 2 --sched-verbose=9 --sched-profile-name=mine --sched-resync-period=0 --sched-ctrlplane-affinity=false \
             --sched-leader-elect-resource={ELSEWHERE}/mine --sched-scoring-strat-config-file={} --sched-cache-params-config-file={}",
            score.display(),
            cache.display()
        ),
    ]
}

/// Returns every object that is rendered, once, with a command line that renders it. All flags are tried with the newest version of a platform: what the
/// version changes, no flag changes.
fn all() -> BTreeMap<String, (Value, String)> {
    let dir = tempfile::tempdir().unwrap();
    let flags = flags(dir.path());
    let mut objects = BTreeMap::new();
    for platform in PLATFORMS {
        let flags = if NEWEST.contains(&platform) {
            &flags[..]
        } else {
            &flags[..1]
        };
        for flags in flags {
            for images in [&[][..], &IMAGES] {
                let arguments = format!("-P {platform} {flags} render");
                for object in documents(&deployer_with(images, &arguments).stdout()) {
                    objects.insert(object.to_string(), (object, arguments.clone()));
                }
            }
        }
    }
    objects
}

/// Has the API server say what it would do if an object was created, and if it was applied.
async fn would_take(client: &Client, object: &Value) -> Result<(), String> {
    const TRY: &str = "dryRun=All&fieldValidation=Strict";
    let identity = Identity::of(object).unwrap();
    let url = identity.api(client).resource_url().to_owned();
    let create = Request::post(format!("{url}?{TRY}")).header("content-type", "application/json");
    let apply = Request::patch(format!("{url}/{}?{TRY}&fieldManager=tests", identity.name))
        .header("content-type", "application/apply-patch+yaml");
    for request in [create, apply] {
        let request = request.body(object.to_string().into_bytes()).unwrap();
        let answer = client.request::<Value>(request).await;
        answer.map_err(|error| format!("{identity}: {error}"))?;
    }
    Ok(())
}

async fn every_object_is_taken(lane: Lane) {
    let server = ApiServer::start(lane).await.unwrap();
    let client = server.client().await.unwrap();
    openshift::install(&client, Flavour::Openshift, openshift::VERSION, &["worker"])
        .await
        .unwrap();
    let objects = all();
    let (of_cluster, of_namespaces): (Vec<_>, Vec<_>) = objects
        .values()
        .partition(|(object, _)| object["metadata"]["namespace"].is_null());
    let kinds = |objects: &[&(Value, String)]| {
        let kinds = objects.iter().map(|(object, _)| object["kind"].to_string());
        kinds.collect::<std::collections::BTreeSet<_>>().len()
    };
    // names of other platforms and the like make one object several: far fewer would mean that something is not rendered
    assert_eq!((kinds(&of_cluster), kinds(&of_namespaces)), (8, 8));
    let applier = Applier::new(client.clone());
    for (object, arguments) in of_cluster {
        assert_eq!(would_take(&client, object).await, Ok(()), "{arguments}");
        // the others need it
        if object["kind"] == "Namespace" {
            applier.apply(object).await.unwrap();
        }
    }
    let elsewhere =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
    applier.apply(&elsewhere).await.unwrap();
    for (object, arguments) in of_namespaces {
        assert_eq!(would_take(&client, object).await, Ok(()), "{arguments}");
    }
    let mut wrong = documents(&deployer("-P kubernetes:v1.35 render topology-updater").stdout());
    let wrong = wrong
        .iter_mut()
        .find(|object| object["kind"] == "DaemonSet")
        .unwrap();
    wrong["spec"]["template"]["spec"]["nonsense"] = json!(1);
    let refused = would_take(&client, wrong).await.unwrap_err();
    assert!(
        refused.contains("nonsense"),
        "the check can fail: {refused}"
    );
}

#[tokio::test]
async fn an_api_server_takes_every_object_of_every_platform_as_it_is() {
    every_object_is_taken(Lane::Embedded).await;
}

#[tokio::test]
#[ignore = "real: the Kubernetes programs"]
async fn a_real_api_server_takes_every_object_of_every_platform_as_it_is() {
    every_object_is_taken(Lane::Local).await;
}

#[test]
fn what_the_components_print_is_together_what_is_printed_without_one() {
    for platform in PLATFORMS {
        for updater in ["RTE", "NFD"] {
            let print = |part: &str| {
                let arguments = format!("-P {platform} --updater-type={updater} render {part}");
                deployer_with(&IMAGES, &arguments).stdout()
            };
            let parts = ["api", "topology-updater", "scheduler-plugin"].map(print);
            assert_eq!(parts.concat(), print(""), "{platform} {updater}");
        }
    }
}

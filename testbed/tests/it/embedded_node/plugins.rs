//! Device plugins with options: preferred allocation and `PreStartContainer`.

use std::sync::{Arc, Mutex};

use podresources::device_plugin::{KUBELET_SOCKET, VERSION, device};
use podresources::deviceplugin::v1beta1 as api;
use podresources::deviceplugin::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use podresources::deviceplugin::v1beta1::registration_client::RegistrationClient;
use podresources::server::Listener;
use podresources::socket::Socket;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::harness::{self, TestNode};

const RESOURCE: &str = "example.com/picky";
const DEVICES: [&str; 4] = ["d0", "d1", "d2", "d3"];

/// The behaviour of a plugin, and the calls that it received.
#[derive(Debug, Default)]
struct Log {
    preferred: Vec<String>,
    no_start: Option<String>,
    asked: Vec<api::ContainerPreferredAllocationRequest>,
    allocated: Vec<Vec<String>>,
    started: Vec<Vec<String>>,
    /// Until when allocations are not answered.
    answers_after: Option<watch::Receiver<bool>>,
}

#[derive(Clone, Default)]
struct Picky(Arc<Mutex<Log>>);

impl Picky {
    fn log<T>(&self, access: impl FnOnce(&mut Log) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    /// Serves on the node until the task is aborted, and registers.
    async fn register(&self, setup: &TestNode) -> JoinHandle<()> {
        let dir = setup
            .node
            .host_path("/var/lib/kubelet/device-plugins".as_ref());
        let own = Socket::new(dir.join("picky.sock")).unwrap();
        let listener = Listener::bind(&own, 0o600).await.unwrap();
        let service = DevicePluginServer::new(self.clone());
        let serving = tokio::spawn(async move {
            let served = listener.serve(Routes::new(service), std::future::pending());
            served.await.unwrap();
        });
        let kubelet = Socket::new(dir.join(KUBELET_SOCKET)).unwrap();
        let request = api::RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: "picky.sock".to_owned(),
            resource_name: RESOURCE.to_owned(),
            options: None,
        };
        let mut client = RegistrationClient::new(kubelet.channel());
        client.register(request).await.unwrap();
        harness::eventually("the devices are known", || {
            let state = setup
                .node
                .state_file("device-plugins/kubelet_internal_checkpoint");
            state.is_ok_and(|state| state.contains(RESOURCE))
        })
        .await;
        serving
    }
}

#[tonic::async_trait]
impl DevicePlugin for Picky {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }))
    }

    async fn list_and_watch(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<BoxStream<api::ListAndWatchResponse>>, Status> {
        let devices = DEVICES.map(|id| device(id, true, None)).to_vec();
        let list = futures::stream::iter([Ok(api::ListAndWatchResponse { devices })]);
        let list = futures::StreamExt::chain(list, futures::stream::pending());
        Ok(Response::new(Box::pin(list)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let asked = request.into_inner().container_requests;
        let preferred = self.log(|log| {
            log.asked.extend(asked);
            log.preferred.clone()
        });
        if preferred.is_empty() {
            return Err(Status::internal("no idea"));
        }
        Ok(Response::new(api::PreferredAllocationResponse {
            container_responses: vec![api::ContainerPreferredAllocationResponse {
                device_i_ds: preferred,
            }],
        }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let asked = request.into_inner().container_requests;
        let answers = vec![api::ContainerAllocateResponse::default(); asked.len()];
        let ids = asked.into_iter().map(|request| request.devices_ids);
        let answers_after = self.log(|log| {
            log.allocated.extend(ids);
            log.answers_after.clone()
        });
        if let Some(mut answers_after) = answers_after {
            // an error means that the test is over
            let _ = answers_after.wait_for(|is_time| *is_time).await;
        }
        Ok(Response::new(api::AllocateResponse {
            container_responses: answers,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        let refusal = self.log(|log| {
            log.started.push(request.into_inner().devices_ids);
            log.no_start.clone()
        });
        match refusal {
            None => Ok(Response::new(api::PreStartContainerResponse {})),
            Some(why) => Err(Status::unknown(why)),
        }
    }
}

/// Returns a pod whose container requests a number of the devices.
fn pod(name: &str, count: usize) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c", "command": ["/bin/sleep", "1000"], "resources": {"limits": {RESOURCE: count}},
            }],
        },
    })
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

async fn ready(setup: &TestNode, name: &str) {
    setup
        .until(name, "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_has_a_say_in_which_devices_are_taken() {
    let setup = TestNode::up().await;
    let picky = Picky::default();
    let _serving = picky.register(&setup).await;
    picky.log(|log| log.preferred = words(&["d2"]));
    setup.create(pod("one", 1)).await;
    ready(&setup, "one").await;
    let asked = picky.log(|log| log.asked.pop()).unwrap();
    assert_eq!(asked.available_device_i_ds, DEVICES);
    assert_eq!(asked.must_include_device_i_ds, Vec::<String>::new());
    assert_eq!(asked.allocation_size, 1);
    assert_eq!(picky.log(|log| log.allocated.pop()), Some(words(&["d2"])));
    // Preferred devices that are not free are ignored, and missing ones are chosen as without a preference.
    picky.log(|log| log.preferred = words(&["d2", "d3"]));
    setup.create(pod("two", 2)).await;
    ready(&setup, "two").await;
    let asked = picky.log(|log| log.asked.pop()).unwrap();
    assert_eq!(asked.available_device_i_ds, ["d0", "d1", "d3"]);
    let given = picky.log(|log| log.allocated.pop());
    assert_eq!(given, Some(words(&["d0", "d3"])));
    // If the plugin fails to answer, the pod is refused and the devices stay free.
    picky.log(|log| log.preferred.clear());
    setup.create(pod("three", 1)).await;
    let refused = setup
        .until("three", "failed", |pod| harness::phase(pod) == "Failed")
        .await;
    assert_eq!(
        refused.status.unwrap().message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to rpc error: code = Internal desc = no idea, which is unexpected"
        )
    );
    picky.log(|log| log.preferred = words(&["d1"]));
    setup.create(pod("four", 1)).await;
    ready(&setup, "four").await;
    assert_eq!(picky.log(|log| log.allocated.pop()), Some(words(&["d1"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_hears_of_a_container_before_it_starts_and_can_keep_it_from_it() {
    let setup = TestNode::up().await;
    let picky = Picky::default();
    let _serving = picky.register(&setup).await;
    picky.log(|log| {
        log.preferred = words(&["d1"]);
        log.no_start = Some("not now".to_owned());
    });
    setup.create(pod("p", 1)).await;
    let why = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not now";
    setup.event("Failed", &format!("Error: {why}")).await;
    let waiting = setup
        .until("p", "waits", |pod| {
            harness::waiting(pod) == "CreateContainerConfigError"
        })
        .await;
    let id = waiting.status.unwrap().container_statuses.unwrap()[0]
        .container_id
        .clone();
    assert_eq!(id, None, "there is no container yet");
    picky.log(|log| log.no_start = None);
    ready(&setup, "p").await;
    let started = picky.log(|log| log.started.clone());
    assert!(started.len() >= 2, "{started:?}");
    assert!(started.iter().all(|ids| *ids == ["d1"]), "{started:?}");
}

/// The kubelet that starts again drops the pod, because its device is unknown until the plugin registers again.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_kubelet_restarts_while_a_plugin_is_asked_is_decided_anew() {
    let setup = TestNode::up().await;
    let picky = Picky::default();
    let _serving = picky.register(&setup).await;
    let (answer, answers_after) = watch::channel(false);
    picky.log(|log| {
        log.preferred = words(&["d1"]);
        log.answers_after = Some(answers_after);
    });
    setup.create(pod("p", 1)).await;
    harness::eventually("the plugin is asked", || {
        picky.log(|log| !log.allocated.is_empty())
    })
    .await;
    setup.node.stop_kubelet();
    setup.node.start_kubelet().await.unwrap();
    answer.send_replace(true);
    let refused = setup
        .until("p", "failed", |pod| harness::phase(pod) == "Failed")
        .await;
    let reason = refused.status.unwrap().reason;
    assert_eq!(reason.as_deref(), Some("UnexpectedAdmissionError"));
}

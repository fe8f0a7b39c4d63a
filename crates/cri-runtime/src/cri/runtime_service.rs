//! The runtime service of the CRI.

use std::time::Duration;

use podresources::cri::v1 as cri;
use podresources::cri::v1::runtime_service_server::RuntimeService;
use tonic::{Request, Response, Status};

use super::convert::{
    container_item, container_stats, container_status, has_id, has_labels, sandbox_item,
    sandbox_state, sandbox_stats, sandbox_status,
};
use super::stream_server::StreamRequest;
use super::{Cri, status};
use crate::runtime::containers::not_running;
use crate::runtime::now;
use crate::runtime::records::Sandbox;

/// Error text of a request to attach to a container.
const NO_ATTACH: &str =
    "the testbed's runtime attaches to no containers: it runs commands in them (exec)";

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl RuntimeService for Cri {
    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        Ok(Response::new(cri::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "numaresources-testbed".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<cri::RunPodSandboxRequest>,
    ) -> Answer<cri::RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request
            .config
            .ok_or_else(|| Status::invalid_argument("no sandbox config"))?;
        let runtime = self.runtime.clone();
        // A task of its own finishes the work even if the kubelet disconnects.
        let made =
            tokio::spawn(async move { runtime.run_sandbox(config, request.runtime_handler).await });
        let pod_sandbox_id = joined(made).await?;
        Ok(Response::new(cri::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let runtime = self.runtime.clone();
        joined(tokio::spawn(async move { runtime.stop_sandbox(&id).await })).await?;
        Ok(Response::new(cri::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let runtime = self.runtime.clone();
        joined(tokio::spawn(
            async move { runtime.remove_sandbox(&id).await },
        ))
        .await?;
        Ok(Response::new(cri::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let sandbox = self.runtime.sandbox(&id).map_err(|error| status(&error))?;
        Ok(Response::new(cri::PodSandboxStatusResponse {
            status: Some(sandbox_status(&sandbox)),
            timestamp: now(),
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = filter.state.as_ref().map(cri::PodSandboxStateValue::state);
        let items = self
            .runtime
            .sandboxes()
            .iter()
            .filter(|sandbox| has_id(&sandbox.id, &filter.id))
            .filter(|sandbox| state.is_none_or(|state| state == sandbox_state(sandbox)))
            .filter(|sandbox| has_labels(&sandbox.config.labels, &filter.label_selector))
            .map(|sandbox| sandbox_item(sandbox))
            .collect();
        Ok(Response::new(cri::ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Answer<cri::CreateContainerResponse> {
        let request = request.into_inner();
        let config = request
            .config
            .ok_or_else(|| Status::invalid_argument("no container config"))?;
        let container_id = self
            .runtime
            .create_container(&request.pod_sandbox_id, config)
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Answer<cri::StartContainerResponse> {
        let id = request.into_inner().container_id;
        let runtime = self.runtime.clone();
        joined(tokio::spawn(
            async move { runtime.start_container(&id).await },
        ))
        .await?;
        Ok(Response::new(cri::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        let request = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        self.runtime
            .stop_container(&request.container_id, grace)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.runtime
            .remove_container(&id)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = filter.state.as_ref().map(cri::ContainerStateValue::state);
        let containers = self
            .runtime
            .containers()
            .iter()
            .filter(|container| has_id(&container.id, &filter.id))
            .filter(|container| has_id(&container.sandbox.id, &filter.pod_sandbox_id))
            .filter(|container| state.is_none_or(|state| state == container.phase().to_cri()))
            .filter(|container| has_labels(&container.config.labels, &filter.label_selector))
            .map(|container| container_item(container))
            .collect();
        Ok(Response::new(cri::ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = self
            .runtime
            .container(&request.container_id)
            .map_err(|error| status(&error))?;
        let mut info = std::collections::BTreeMap::new();
        if request.verbose {
            let pid = container
                .process()
                .map_or(0, |process| process.pid.as_raw());
            info.insert("pid".to_owned(), pid.to_string());
        }
        Ok(Response::new(cri::ContainerStatusResponse {
            status: Some(container_status(&container)),
            info,
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Answer<cri::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        self.runtime
            .update_resources(&request.container_id, request.linux.unwrap_or_default())
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<cri::ReopenContainerLogRequest>,
    ) -> Answer<cri::ReopenContainerLogResponse> {
        self.runtime
            .reopen_log(&request.into_inner().container_id)
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(
        &self,
        request: Request<cri::ExecSyncRequest>,
    ) -> Answer<cri::ExecSyncResponse> {
        let request = request.into_inner();
        let limit = u64::try_from(request.timeout)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs);
        let output = self
            .runtime
            .exec(&request.container_id, request.cmd, limit)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::ExecSyncResponse {
            stdout: output.stdout,
            stderr: output.stderr,
            exit_code: output.exit_code,
        }))
    }

    async fn exec(&self, request: Request<cri::ExecRequest>) -> Answer<cri::ExecResponse> {
        let request = request.into_inner();
        let container = self
            .runtime
            .container(&request.container_id)
            .map_err(|error| status(&error))?;
        if container.process().is_none() {
            return Err(status(&not_running(&container)));
        }
        let url = self.streaming.register(StreamRequest::Command(request));
        Ok(Response::new(cri::ExecResponse { url }))
    }

    async fn attach(&self, _: Request<cri::AttachRequest>) -> Answer<cri::AttachResponse> {
        Err(Status::unimplemented(NO_ATTACH))
    }

    async fn port_forward(
        &self,
        request: Request<cri::PortForwardRequest>,
    ) -> Answer<cri::PortForwardResponse> {
        let request = request.into_inner();
        let sandbox = self
            .runtime
            .sandbox(&request.pod_sandbox_id)
            .map_err(|error| status(&error))?;
        let namespaces = sandbox
            .namespaces()
            .ok_or_else(|| Status::failed_precondition("the pod's sandbox is not ready"))?;
        let number = |port: &i32| {
            u16::try_from(*port).map_err(|_| Status::invalid_argument(format!("{port} is no port")))
        };
        let wanted: Vec<u16> = request.port.iter().map(number).collect::<Result<_, _>>()?;
        let url = self
            .streaming
            .register(StreamRequest::Ports { namespaces, wanted });
        Ok(Response::new(cri::PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<cri::ContainerStatsRequest>,
    ) -> Answer<cri::ContainerStatsResponse> {
        let container = self
            .runtime
            .container(&request.into_inner().container_id)
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::ContainerStatsResponse {
            stats: Some(container_stats(&container)),
        }))
    }

    async fn list_container_stats(
        &self,
        request: Request<cri::ListContainerStatsRequest>,
    ) -> Answer<cri::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let stats = self
            .runtime
            .containers()
            .iter()
            .filter(|container| has_id(&container.id, &filter.id))
            .filter(|container| has_id(&container.sandbox.id, &filter.pod_sandbox_id))
            .filter(|container| has_labels(&container.config.labels, &filter.label_selector))
            .map(|container| container_stats(container))
            .collect();
        Ok(Response::new(cri::ListContainerStatsResponse { stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<cri::PodSandboxStatsRequest>,
    ) -> Answer<cri::PodSandboxStatsResponse> {
        let sandbox = self
            .runtime
            .sandbox(&request.into_inner().pod_sandbox_id)
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::PodSandboxStatsResponse {
            stats: Some(self.stats_of(&sandbox)),
        }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<cri::ListPodSandboxStatsRequest>,
    ) -> Answer<cri::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let stats = self
            .runtime
            .sandboxes()
            .iter()
            .filter(|sandbox| has_id(&sandbox.id, &filter.id))
            .filter(|sandbox| has_labels(&sandbox.config.labels, &filter.label_selector))
            .map(|sandbox| self.stats_of(sandbox))
            .collect();
        Ok(Response::new(cri::ListPodSandboxStatsResponse { stats }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Answer<cri::UpdateRuntimeConfigResponse> {
        // The pod prefix comes from the node's specification.
        Ok(Response::new(cri::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, _: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        let conditions = ["RuntimeReady", "NetworkReady"]
            .map(|name| cri::RuntimeCondition {
                r#type: name.to_owned(),
                status: true,
                ..Default::default()
            })
            .to_vec();
        let runtime_handlers = ["", "runc"]
            .map(|name| cri::RuntimeHandler {
                name: name.to_owned(),
                features: Some(cri::RuntimeHandlerFeatures {
                    recursive_read_only_mounts: true,
                    user_namespaces: false,
                }),
            })
            .to_vec();
        Ok(Response::new(cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions }),
            runtime_handlers,
            features: Some(cri::RuntimeFeatures {
                supplemental_groups_policy: true,
            }),
            ..Default::default()
        }))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<cri::ListMetricDescriptorsRequest>,
    ) -> Answer<cri::ListMetricDescriptorsResponse> {
        Ok(Response::new(cri::ListMetricDescriptorsResponse::default()))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<cri::ListPodSandboxMetricsRequest>,
    ) -> Answer<cri::ListPodSandboxMetricsResponse> {
        Ok(Response::new(cri::ListPodSandboxMetricsResponse::default()))
    }

    async fn runtime_config(
        &self,
        _: Request<cri::RuntimeConfigRequest>,
    ) -> Answer<cri::RuntimeConfigResponse> {
        Ok(Response::new(cri::RuntimeConfigResponse {
            linux: Some(cri::LinuxRuntimeConfiguration {
                cgroup_driver: cri::CgroupDriver::Cgroupfs.into(),
            }),
        }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<cri::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<cri::UpdatePodSandboxResourcesResponse> {
        // Pods have no cgroup that this could be applied to.
        self.runtime
            .sandbox(&request.into_inner().pod_sandbox_id)
            .map_err(|error| status(&error))?;
        Ok(Response::new(cri::UpdatePodSandboxResourcesResponse {}))
    }
}

impl Cri {
    fn stats_of(&self, sandbox: &Sandbox) -> cri::PodSandboxStats {
        let containers: Vec<_> = self
            .runtime
            .containers_of(&sandbox.id)
            .iter()
            .map(|container| container_stats(container))
            .collect();
        sandbox_stats(sandbox, &containers)
    }
}

/// Returns the outcome of work that continues even if the caller does not wait for it.
async fn joined<T>(
    work: tokio::task::JoinHandle<Result<T, crate::runtime::Error>>,
) -> Result<T, Status> {
    match work.await {
        Ok(outcome) => outcome.map_err(|error| status(&error)),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}

//! Creates, stops and removes sandboxes.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use podresources::cri::v1 as cri;

use super::records::{Ready, Sandbox, SharedPids};
use super::{Error, Runtime, file, handoff, new_id, now};
use crate::filter;
use crate::helper::{InitRequest, Role};
use crate::namespaces::{Namespaces, OwnNamespaces};
use crate::spawner::{self, PidNamespace};

impl Runtime {
    /// Creates a sandbox with its namespaces and its address; returns its ID.
    pub async fn run_sandbox(
        &self,
        config: cri::PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<String, Error> {
        if config.metadata.is_none() {
            return Err(Error::Invalid("sandbox config must include metadata"));
        }
        let mut sandbox = Sandbox {
            id: new_id(),
            runtime_handler,
            created_at: now(),
            host_network: false,
            address: self.spec.node_address,
            ready: Mutex::default(),
            config,
        };
        let options = sandbox.namespace_options();
        sandbox.host_network = options.network() == cri::NamespaceMode::Node;
        if !sandbox.config.log_directory.is_empty() {
            let path = std::path::Path::new(&sandbox.config.log_directory);
            std::fs::create_dir_all(path).map_err(file("create", path))?;
        }
        let own = OwnNamespaces {
            network: !sandbox.host_network,
            ipc: options.ipc() != cri::NamespaceMode::Node,
        };
        let shared_pids = if options.pid() == cri::NamespaceMode::Pod {
            Some(self.start_pid_holder().await?)
        } else {
            None
        };
        let (namespaces, inside) = Namespaces::create(own, sandbox.config.hostname.clone()).await?;
        if let (Some(network), Some(inside)) = (namespaces.network(), inside) {
            sandbox.address = self.network.attach(&sandbox.id, network, &inside).await?;
        }
        let namespaces = Arc::new(namespaces);
        if !sandbox.host_network && filter::is_available() {
            filter::apply(Arc::clone(&namespaces), filter::TRACKING.to_owned()).await?;
        }
        sandbox.ready = Mutex::new(Some(Ready {
            namespaces,
            shared_pids,
        }));
        let id = sandbox.id.clone();
        let metadata = sandbox.metadata();
        tracing::info!(sandbox = id, pod = %format_args!("{}/{}", metadata.namespace, metadata.name), address = %sandbox.address, "Sandbox is ready");
        self.records()
            .sandboxes
            .insert(id.clone(), Arc::new(sandbox));
        Ok(id)
    }

    /// Starts the process that holds a PID namespace for the containers of a pod.
    async fn start_pid_holder(&self) -> Result<SharedPids, Error> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::Spawn(spawner::Error::Spawn(error)))?;
        let mut command = Self::helper("container-init");
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = self.spawner.spawn(command, PidNamespace::New).await?;
        let path = format!("/proc/{}/ns/pid", child.id().unwrap_or_default());
        let namespace = File::open(&path).map_err(file("open", path.as_ref()))?;
        let request = InitRequest {
            namespaces: Vec::new(),
            role: Role::Pause,
        };
        handoff::send(ours, &request).await.map_err(Error::Start)?;
        Ok(SharedPids {
            namespace: Arc::new(namespace.into()),
            holder: child,
        })
    }

    /// Ends all containers of a sandbox and removes its network. Does nothing for an unknown or stopped sandbox.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        let Ok(sandbox) = self.sandbox(id) else {
            return Ok(());
        };
        for container in self.containers_of(id) {
            self.stop(&container, Duration::ZERO).await?;
        }
        let held = sandbox.ready_state().take();
        if held.is_some() {
            if !sandbox.host_network {
                self.network.detach(id, sandbox.address).await;
            }
            tracing::info!(sandbox = id, "Sandbox is stopped");
        }
        Ok(())
    }

    /// Stops a sandbox and removes it with all its containers. Does nothing for an unknown sandbox.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        self.stop_sandbox(id).await?;
        for container in self.containers_of(id) {
            self.remove_container(&container.id).await?;
        }
        self.records().sandboxes.remove(id);
        Ok(())
    }
}

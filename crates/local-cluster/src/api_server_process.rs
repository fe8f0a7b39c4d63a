//! The API server process of a cluster of real Kubernetes parts, which can be stopped and started again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_faults::{BoxError, ServerProcess};
use cluster_spec::kubernetes::Assets;
use cluster_spec::subnet::Subnet;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;

use crate::control_plane::{API_SERVER, ControlPlane};
use crate::pki::Pki;
use crate::supervise::client::Client as Holder;

/// Time limit for a graceful end; the API server waits for its connections.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The process of an API server.
#[derive(Clone, Debug)]
pub struct ApiServerProcess {
    holder: Holder,
    dir: PathBuf,
    assets: Assets,
    subnet: Subnet,
}

impl ApiServerProcess {
    /// Returns the process of the cluster in a directory.
    pub(crate) fn new(holder: Holder, dir: &Path, assets: &Assets, subnet: Subnet) -> Self {
        Self {
            holder,
            dir: dir.to_owned(),
            assets: assets.clone(),
            subnet,
        }
    }
}

impl ServerProcess for ApiServerProcess {
    fn stop(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        let holder = self.holder.clone();
        let stop = move || holder.stop(API_SERVER, Signal::SIGTERM as i32, STOP_TIMEOUT);
        Box::pin(async move { Ok(tokio::task::spawn_blocking(stop).await??) })
    }

    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        let this = self.clone();
        let start = move || {
            let plane = ControlPlane {
                dir: &this.dir,
                assets: &this.assets,
                subnet: this.subnet,
                pki: &Pki::in_dir(&this.dir.join("pki"))?,
            };
            Ok(this.holder.start(plane.api_server())?)
        };
        Box::pin(async move { tokio::task::spawn_blocking(start).await? })
    }
}

//! The API server process of a cluster of real Kubernetes parts, which can be stopped and started again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::BoxError;
use crate::local::assets::Assets;
use crate::local::control_plane::{API_SERVER, ControlPlane};
use crate::local::net::Subnet;
use crate::local::pki::Pki;
use crate::local::supervise::client::Client as Holder;

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

    /// Stops the process.
    pub(super) async fn stop(&self) -> Result<(), BoxError> {
        let holder = self.holder.clone();
        let stop = move || holder.stop(API_SERVER, Signal::SIGTERM as i32, STOP_TIMEOUT);
        Ok(tokio::task::spawn_blocking(stop).await??)
    }

    /// Starts the process without waiting until it answers.
    pub(super) async fn start(&self) -> Result<(), BoxError> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let plane = ControlPlane {
                dir: &this.dir,
                assets: &this.assets,
                subnet: this.subnet,
                pki: &Pki::in_dir(&this.dir.join("pki"))?,
            };
            Ok(this.holder.start(plane.api_server())?)
        })
        .await?
    }
}

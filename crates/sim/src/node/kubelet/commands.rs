//! Commands in the containers of the node.

use std::time::Duration;

use cri_runtime::streaming::session::Attached;

use super::Kubelet;
use super::worker::prepared::Prepared;
use crate::node::launcher::{Input, Output};

impl Kubelet {
    /// Runs a command in a container; returns its output as the error if the exit code is not 0.
    pub(crate) async fn run_in(
        &self,
        prepared: &Prepared,
        command: &[String],
        limit: Duration,
    ) -> Result<(), String> {
        let output = self.exec(prepared, command, limit).await?;
        if output.code == 0 {
            return Ok(());
        }
        let text = if output.stderr.is_empty() {
            output.stdout
        } else {
            output.stderr
        };
        Err(String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs a command in a container.
    pub(crate) async fn exec(
        &self,
        prepared: &Prepared,
        command: &[String],
        limit: Duration,
    ) -> Result<Output, String> {
        let launch = prepared
            .command(command)
            .map_err(|error| error.to_string())?;
        let run = self.launcher.run(&launch, limit).await;
        run.map_err(|error| error.to_string())
    }

    /// Starts a command with streams in a container.
    pub(crate) async fn attach(
        &self,
        prepared: &Prepared,
        command: &[String],
        with_input: bool,
    ) -> Result<Attached, String> {
        let mut launch = prepared
            .command(command)
            .map_err(|error| error.to_string())?;
        if with_input {
            launch.input = Input::Once;
        }
        let started = self.launcher.start_attached(&launch).await;
        started.map_err(|error| error.to_string())
    }
}

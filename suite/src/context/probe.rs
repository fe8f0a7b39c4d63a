//! Looking into pods: running commands in their containers.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, AttachParams};
use tokio::io::AsyncReadExt as _;

use crate::context::Context;
use crate::step::StepError;

/// The result of a command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Whether it ended with exit code 0.
    pub succeeded: bool,
}

impl Context {
    /// Runs a command in a container of a pod until it ends.
    pub async fn exec(
        &self,
        pod: &Pod,
        container: &str,
        command: &[&str],
    ) -> Result<Output, StepError> {
        let params = AttachParams::default()
            .container(container)
            .stdout(true)
            .stderr(true);
        let pods: Api<Pod> = Api::namespaced(self.client(), &pod.namespace().unwrap_or_default());
        let words = command.iter().copied();
        let mut process = pods.exec(&pod.name_any(), words, &params).await?;
        let mut output = Output::default();
        let missing = || StepError::fail("a stream of the command is missing");
        let mut stdout = process.stdout().ok_or_else(missing)?;
        let mut stderr = process.stderr().ok_or_else(missing)?;
        let status = process.take_status().ok_or_else(missing)?;
        let (read, complained, status) = tokio::join!(
            stdout.read_to_string(&mut output.stdout),
            stderr.read_to_string(&mut output.stderr),
            status
        );
        for outcome in [read, complained] {
            outcome.map_err(|error| StepError::fail(format!("output of {command:?}: {error}")))?;
        }
        output.succeeded = status.is_some_and(|status| status.status.as_deref() == Some("Success"));
        Ok(output)
    }
}

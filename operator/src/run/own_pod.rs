//! What this process knows of the pod that it runs in, above all from environment variables.

use anyhow::Context as _;
use api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use manifests::rte::{self, Image};

use super::{API_SERVER_PORT, PROGRAM};
use crate::args::Args;

/// Returns the image of the flag, or else that of the operator's own pod, or else the built-in one. All are pulled as the operator's own image
/// is (operator.md 2.3).
pub(super) async fn exporter_image(client: &Client, namespace: &str, args: &Args) -> Image {
    let own = own_container(client, namespace).await;
    let (own, pull_policy) = match own {
        Ok((reference, pull_policy)) => (Some(reference), pull_policy),
        Err(error) => {
            tracing::info!(
                error = format!("{error:#}"),
                "unable to find current image, using hardcoded"
            );
            (None, None)
        }
    };
    let given = Some(args.text("image-exporter")).filter(|given| !given.is_empty());
    let reference = given
        .map(str::to_owned)
        .or_else(|| own.clone())
        .unwrap_or_else(|| names::BUILTIN_RTE_IMAGE.into());
    Image {
        is_stack: own.as_ref() == Some(&reference) || rte::is_stack(&reference),
        reference,
        pull_policy,
        is_own: true,
    }
}

async fn own_container(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<(String, Option<String>)> {
    let name = environment("PODNAME").context("the variable PODNAME is not set")?;
    let pod = Api::<Pod>::namespaced(client.clone(), namespace)
        .get(&name)
        .await
        .context("failed to read the own pod")?;
    let container = pod
        .spec
        .and_then(|spec| spec.containers.into_iter().next())
        .context("the own pod has no container")?;
    Ok((
        container.image.context("the own container has no image")?,
        container.image_pull_policy,
    ))
}

/// Returns the API server ports that the operands may reach: the default one, and that of the service through which this process reaches
/// the API server.
pub(super) fn api_server_ports() -> Vec<u16> {
    let own = environment("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse::<u16>().ok());
    let mut ports = vec![API_SERVER_PORT];
    ports.extend(own.filter(|port| *port != API_SERVER_PORT));
    ports
}

/// Returns the name of this process: that of its pod, or else the host name, or else the program name.
pub(super) fn instance() -> String {
    environment("PODNAME")
        .or_else(|| environment("HOSTNAME"))
        .unwrap_or_else(|| PROGRAM.into())
}

/// Returns the value of a variable; `None` also when it is empty.
pub(super) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

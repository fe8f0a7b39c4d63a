//! Serves health on plain HTTP and metrics on HTTPS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use daemon::admin::Checks;
use daemon::guard::Guard;
use manifests::platform::TlsSettings;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::PROGRAM;
use crate::args::Args;
use crate::metrics::Metrics;

/// Mount path of OpenShift's certificate for the metrics endpoint.
const CERTIFICATES: &str = "/certs";

/// A server that ends with the operator.
pub(super) type Endpoint = tokio::task::JoinHandle<()>;

/// Starts the endpoints that the flags ask for. A guard says who may read the metrics; without one everybody may.
pub(super) async fn start(
    args: &Args,
    checks: Checks,
    metrics: &Metrics,
    tls: &TlsSettings,
    guard: Option<Guard>,
    stop: &CancellationToken,
) -> anyhow::Result<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    if let Some(address) = address(args.text("health-probe-bind-address"))? {
        endpoints.push(health(address, checks, stop).await?);
    }
    let wanted = if args.is_on("enable-metrics") {
        args.text("metrics-bind-address")
    } else {
        "0"
    };
    if let Some(address) = address(wanted)? {
        endpoints.push(secured_metrics(address, metrics, tls, guard, stop).await?);
    }
    Ok(endpoints)
}

async fn health(
    address: SocketAddr,
    checks: Checks,
    stop: &CancellationToken,
) -> anyhow::Result<Endpoint> {
    let listener = listen(address).await?;
    let server = daemon::serve::serve(listener, None, checks.router(), stop.clone());
    Ok(tokio::spawn(server))
}

/// Serves metrics with the TLS settings of the cluster, and with OpenShift's certificate where there is one.
async fn secured_metrics(
    address: SocketAddr,
    metrics: &Metrics,
    tls: &TlsSettings,
    guard: Option<Guard>,
    stop: &CancellationToken,
) -> anyhow::Result<Endpoint> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let directory = Path::new(CERTIFICATES);
    let certificate = daemon::tls::from_files_or_self_signed(
        &directory.join("tls.crt"),
        &directory.join("tls.key"),
        &[PROGRAM.to_owned()],
    )
    .context("failed to set up the metrics certificate")?;
    let options = daemon::tls::Options {
        min_version: tls.min_version.clone(),
        cipher_suites: tls.suites().map(str::to_owned).collect(),
        ..daemon::tls::Options::default()
    };
    let tls = daemon::tls::server_config(certificate, &options).context("failed to set up TLS")?;
    let listener = listen(address).await?;
    let router = daemon::metrics::router(Arc::new(registry));
    let router = match guard {
        Some(guard) => guard.protect(router),
        None => router,
    };
    let server = daemon::serve::serve(listener, Some(tls), router, stop.clone());
    Ok(tokio::spawn(server))
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to listen on {address}"))
}

/// Parses Go's `:8080` and `host:port`. `0` and an empty text disable the endpoint.
fn address(text: &str) -> anyhow::Result<Option<SocketAddr>> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = port
            .parse()
            .with_context(|| format!("invalid address {text:?}"))?;
        return Ok(Some(SocketAddr::new(
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port,
        )));
    }
    let text = text.replace("localhost:", "127.0.0.1:");
    text.parse()
        .map(Some)
        .with_context(|| format!("invalid address {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_writes_them() {
        assert_eq!(address("0").unwrap(), None);
        assert_eq!(
            address(":8081").unwrap().unwrap().to_string(),
            "0.0.0.0:8081"
        );
        assert_eq!(
            address("127.0.0.1:1").unwrap().unwrap().to_string(),
            "127.0.0.1:1"
        );
        assert!(address("nonsense").is_err());
    }
}

//! Connections: TLS, the client's certificate, and the faults that strike a request before it is answered.

use std::sync::Arc;
use std::time::Duration;

use http::{Request as HttpRequest, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::answers::{Body, ClosedByFault, refusal};
use super::faulty;
use super::routes::respond;
use super::shared::Shared;
use crate::access::authn;
use crate::access::identity::User;
use crate::faults::{self, Answer, Outcome};

/// Serves connections until the task is aborted, which also ends the connections.
pub(crate) async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shared.faults.wait_until_down() => {
                match faulty::outage(listener, &mut connections, &shared).await {
                    Ok(again) => listener = again,
                    Err(error) => {
                        tracing::error!(%error, "Cannot listen again");
                        return;
                    }
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "Cannot accept a connection");
                // mostly because there are no free file descriptors; other connections have to close first
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let stream = match acceptor.accept(stream).await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    return;
                }
            };
            let certificate = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| authn::user_of_certificate(chain.first()?));
            let service = service_fn(|request| answer(&shared, certificate.as_ref(), request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "Connection ended");
            }
        });
    }
}

async fn answer(
    shared: &Arc<Shared>,
    certificate: Option<&User>,
    mut request: HttpRequest<Incoming>,
) -> Result<Response<Body>, ClosedByFault> {
    let (parts, body) = request.into_parts();
    let user = || {
        authn::authenticate(&shared.store, &shared.users, &parts.headers, certificate)
            .map_or_else(|_| String::new(), |identity| identity.user.name)
    };
    let effects = match faults::apply_rules(&shared.faults, &parts, user).await {
        Outcome::Served(effects) => effects,
        Outcome::Refused(failure) => return Ok(refusal(&failure, &[])),
        Outcome::Busy(seconds) => return Ok(faulty::busy(seconds)),
        Outcome::Disconnected => return Err(ClosedByFault),
    };
    request = HttpRequest::from_parts(parts, body);
    request.extensions_mut().insert(Arc::clone(&effects));
    let response = respond(shared, certificate, request)
        .await
        .unwrap_or_else(|failure| refusal(&failure, &[]));
    match effects.answer {
        Answer::Sent => Ok(response),
        Answer::Lost => Err(ClosedByFault),
        Answer::TimedOut => Ok(refusal(&faults::timed_out(), &[])),
    }
}

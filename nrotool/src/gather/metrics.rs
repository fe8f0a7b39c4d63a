//! The metrics of exporters, schedulers and operator.
//!
//! They are read over a forwarded port: the API server's proxy to a pod passes no token on. Each pod is asked without a token first. Who is
//! refused then is asked once more, with the token of an account that may read metrics and nothing else. The caller's own token is never
//! sent: whoever can give a pod the right labels would get it.
//!
//! Reading order: `endpoint` (where a pod has its metrics), `request` (one question), `account`, here.

use futures::StreamExt as _;
use futures::stream;

use self::account::Account;
use self::endpoint::Endpoint;
use super::folder::name;
use super::{Gather, limits};

mod account;
mod endpoint;
mod request;

/// Number of pods that are asked at a time.
const CONCURRENT: usize = 8;

/// Collects from the pods of these namespaces.
pub(super) async fn collect(gather: &Gather, namespaces: &[String]) {
    let mut endpoints = Vec::new();
    for namespace in namespaces {
        endpoints.extend(endpoint::find(gather, namespace).await);
    }
    let refused = ask(gather, endpoints, None).await;
    let Some(first) = refused.first() else {
        return;
    };
    let mut account = Account::new(&gather.client, &first.namespace);
    let token = gather.limits.request(account.token()).await;
    match token {
        Ok(token) => drop(ask(gather, refused, Some(&token)).await),
        Err(error) => {
            for endpoint in &refused {
                let what = format!("metrics of {}", endpoint.pod);
                gather.folder.failed(&what, &error);
            }
        }
    }
    let removed = gather.limits.cleanup(account.remove()).await;
    gather
        .folder
        .or_error("removal of the account that reads metrics", removed);
}

/// Asks pods for their metrics and writes down what they say. Returns those that want a token, if none was sent.
async fn ask(gather: &Gather, endpoints: Vec<Endpoint>, token: Option<&str>) -> Vec<Endpoint> {
    let refused = stream::iter(endpoints)
        .map(|endpoint| async move {
            let metrics = request::metrics(&gather.client, &endpoint, token);
            let metrics = gather.limits.request(metrics).await;
            if let Err(limits::Error::Failed(request::Error::Refused { .. })) = metrics
                && token.is_none()
            {
                return Some(endpoint);
            }
            let what = format!("metrics of {}", endpoint.pod);
            if let Some(text) = gather.folder.or_error(&what, metrics) {
                let (namespace, pod) = (name(&endpoint.namespace), name(&endpoint.pod));
                let path = format!("namespaces/{namespace}/pods/{pod}/metrics.txt");
                gather.folder.text(&path, &text);
            }
            None
        })
        .buffer_unordered(CONCURRENT);
    refused
        .filter_map(|endpoint| async move { endpoint })
        .collect()
        .await
}

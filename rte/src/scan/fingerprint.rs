//! The fingerprint of an observation: which pods it covers (rte.md 6.2), and its text. Pure.

use nrt::fingerprint::{self, Method};
use podresources::v1;

use super::locality;

/// A fingerprint and the pods that it was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprinted {
    /// The published form.
    pub text: String,
    /// Which pods it covers.
    pub method: Method,
    /// Namespaces and names of the pods, in the order of the kubelet's list.
    pub pods: Vec<(String, String)>,
}

/// Computes the fingerprint of those of `pods` that the method covers.
pub(super) fn compute(method: Method, pods: &[v1::PodResources]) -> Fingerprinted {
    let covered: Vec<_> = pods
        .iter()
        .filter(|pod| covers(method, pod))
        .map(|pod| (pod.namespace.clone(), pod.name.clone()))
        .collect();
    let names = covered
        .iter()
        .map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    Fingerprinted {
        text: fingerprint::compute(names).to_string(),
        method,
        pods: covered,
    }
}

/// Returns whether a fingerprint of this method covers a pod.
pub(super) fn covers(method: Method, pod: &v1::PodResources) -> bool {
    match method {
        Method::All => true,
        Method::WithExclusiveResources => locality::is_exclusive(pod),
    }
}

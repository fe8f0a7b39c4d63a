//! Static pods and their mirror pods: which static pods run, and which mirror pod belongs to which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::MutexGuard;

use super::admission::event_text;
use super::worker::signals::Signal;
use super::{Kubelet, static_pods};
use crate::node::events::Kind;

/// Namespace and name of a pod.
pub(super) type FullName = (String, String);

pub(super) fn full_name(pod: &Pod) -> FullName {
    let metadata = &pod.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    (part(&metadata.namespace), part(&metadata.name))
}

/// Mirror pods of static pods, as the API server reports them.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    by_name: BTreeMap<FullName, Pod>,
    /// Whether the static pods are known. Only then a mirror pod without a static pod is an orphan.
    static_pods_known: bool,
}

impl Kubelet {
    fn mirrors(&self) -> MutexGuard<'_, Mirrors> {
        self.state.mirrors.lock()
    }

    /// Sends the worker of a static pod its mirror pod; returns whether there is such a worker.
    fn send_mirror(&self, name: &FullName, mirror: Option<Pod>) -> bool {
        let pods = self.lock();
        let mut owners = pods
            .values()
            .filter(|known| known.static_name.as_ref() == Some(name));
        let owner = owners.next();
        if let Some(known) = owner {
            // A worker that has ended needs no signal.
            let _ = known.sender.send(Signal::Mirror(mirror.map(Box::new)));
        }
        owner.is_some()
    }

    /// Handles a mirror pod that is new or changed.
    pub(super) async fn handle_mirror(&self, pod: Pod) {
        let name = full_name(&pod);
        let is_orphan = !self.send_mirror(&name, Some(pod.clone()));
        let are_known = {
            let mut mirrors = self.mirrors();
            mirrors.by_name.insert(name, pod.clone());
            mirrors.static_pods_known
        };
        if is_orphan && are_known {
            static_pods::remove(self, &pod).await;
        }
    }

    pub(super) fn remove_mirror(&self, pod: &Pod) {
        let name = full_name(pod);
        let known = self.mirrors().by_name.remove(&name);
        if known.is_some() {
            self.send_mirror(&name, None);
        }
    }

    /// Removes the mirror pods that a new list does not contain.
    pub(super) fn keep_mirrors(&self, present: &BTreeSet<String>) {
        let lost: Vec<Pod> = {
            let mirrors = self.mirrors();
            let mirrors = mirrors.by_name.values();
            mirrors
                .filter(|mirror| {
                    !mirror
                        .metadata
                        .uid
                        .as_ref()
                        .is_some_and(|uid| present.contains(uid))
                })
                .cloned()
                .collect()
        };
        for mirror in lost {
            self.remove_mirror(&mirror);
        }
    }

    /// Runs exactly these static pods. A pod waits while another with the same name still ends. Refused pods are recorded in `refused` and
    /// not tried again.
    pub(crate) async fn set_static_pods(
        self: &Arc<Self>,
        pods: &[Pod],
        refused: &mut BTreeSet<String>,
    ) {
        let is_wanted = |uid: &String| {
            pods.iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(uid))
        };
        for (uid, known) in self.lock().iter() {
            if known.static_name.is_some() && !is_wanted(uid) {
                // A worker that has ended needs no signal.
                let _ = known.sender.send(Signal::Removed);
            }
        }
        for pod in pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let name = full_name(pod);
            let is_there = self
                .lock()
                .iter()
                .any(|(other, known)| *other == uid || known.static_name.as_ref() == Some(&name));
            if is_there || refused.contains(&uid) {
                continue;
            }
            if let Err(refusal) = self.admit(pod).await {
                let text = event_text(&refusal);
                self.events.pod(pod, Kind::Warning, &refusal.reason, text);
                refused.insert(uid);
                continue;
            }
            if !self.start_if_active(pod) {
                // the next look at the files finds it again
                continue;
            }
            let mirror = self.mirrors().by_name.get(&name).cloned();
            self.send_mirror(&name, mirror);
        }
        let orphans: Vec<Pod> = {
            let mut mirrors = self.mirrors();
            mirrors.static_pods_known = true;
            let known = self.lock();
            let has_owner = |name: &FullName| {
                let mut owners = known.values();
                owners.any(|known| known.static_name.as_ref() == Some(name))
            };
            let orphans = mirrors.by_name.iter();
            orphans
                .filter(|(name, _)| !has_owner(name))
                .map(|(_, mirror)| mirror.clone())
                .collect()
        };
        for orphan in orphans {
            static_pods::remove(self, &orphan).await;
        }
    }
}

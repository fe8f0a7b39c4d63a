//! The steps towards the pods that a StatefulSet wants.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use super::claims::ClaimError;
use super::history::History;
use super::{Controller, identity, is_available, is_ready};
use crate::controllers::objects;

/// What is done to a pod.
#[derive(Clone, Copy)]
enum Verb {
    Create,
    Update,
    Delete,
}

impl Verb {
    /// Returns the word of messages, and the reasons of events for success and failure.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Create => ("Create", "SuccessfulCreate", "FailedCreate"),
            Self::Update => ("Update", "SuccessfulUpdate", "FailedUpdate"),
            Self::Delete => ("Delete", "SuccessfulDelete", "FailedDelete"),
        }
    }
}

fn is_ordered(set: &StatefulSet) -> bool {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel")
}

fn is_unavailable(set: &StatefulSet, pod: &Pod) -> bool {
    objects::deleting(pod) || !is_available(set, pod)
}

impl Controller {
    /// Takes the steps that are possible now. Returns how many pods of the current revision were deleted for an update.
    pub(super) async fn step(
        &self,
        set: &StatefulSet,
        pods: &[Arc<Pod>],
        history: &History,
    ) -> Result<i32, kube::Error> {
        let ordered = is_ordered(set);
        let mut existing: BTreeMap<i32, &Arc<Pod>> = pods
            .iter()
            .filter_map(|pod| Some((identity::ordinal(set, pod)?, pod)))
            .collect();
        let replicas: Vec<(i32, Option<&Arc<Pod>>)> = identity::range(set)
            .map(|ordinal| (ordinal, existing.remove(&ordinal)))
            .collect();
        for (ordinal, pod) in &replicas {
            let waits = match pod {
                Some(pod) => self.keep(set, *ordinal, pod, ordered).await?,
                None => self.add(set, *ordinal, history).await?,
            };
            if waits && ordered {
                return Ok(0);
            }
        }
        for (ordinal, pod) in &existing {
            self.own_claims(set, *ordinal, pod).await?;
        }
        let mut condemned: Vec<_> = existing.into_iter().collect();
        // the one that may go although it is not available
        let first_bad = condemned.iter().find(|(_, pod)| is_unavailable(set, pod));
        let first_bad = first_bad.map(|(ordinal, _)| *ordinal);
        condemned.sort_by_key(|(ordinal, _)| Reverse(*ordinal));
        for (ordinal, pod) in condemned {
            if !objects::deleting(&**pod) {
                if ordered && !is_available(set, pod) && first_bad != Some(ordinal) {
                    return Ok(0);
                }
                self.remove(set, pod).await?;
            }
            if ordered {
                return Ok(0);
            }
        }
        self.update(set, &replicas, history).await
    }

    /// Creates a missing pod. Returns that the pods after it have to wait.
    async fn add(
        &self,
        set: &StatefulSet,
        ordinal: i32,
        history: &History,
    ) -> Result<bool, kube::Error> {
        if self.has_stale_claim(set, ordinal) {
            return Ok(true);
        }
        let name = identity::pod_name(set, ordinal);
        if let Err(error) = self.make_claims(set, ordinal).await {
            self.tell(set, &name, Verb::Create, Some(&error.to_string()));
            return match error {
                ClaimError::Refused { source, .. } => Err(source),
                // the end of the claim starts the next attempt
                ClaimError::Leaving(_) => Ok(true),
            };
        }
        let (revision, template) = history.of_new(set, ordinal)?;
        let pod = identity::pod(set, &template, revision, ordinal);
        match self.world.pods.create(objects::namespace(set), &pod).await {
            Ok(made) => {
                self.own_claims(set, ordinal, &made).await?;
                self.tell(set, &name, Verb::Create, None);
                Ok(true)
            }
            Err(error) if objects::namespace_terminating(&error) => Ok(true),
            Err(error) if objects::code(&error) == 409 => Err(error),
            Err(error) => {
                self.tell(set, &name, Verb::Create, Some(&objects::message(&error)));
                Err(error)
            }
        }
    }

    /// Looks after a pod that is there. Returns whether the pods after it have to wait in an ordered set.
    async fn keep(
        &self,
        set: &StatefulSet,
        ordinal: i32,
        pod: &Arc<Pod>,
        ordered: bool,
    ) -> Result<bool, kube::Error> {
        if objects::terminal(pod) {
            if !objects::deleting(&**pod) {
                self.remove(set, pod).await?;
            }
            return Ok(true);
        }
        if objects::phase(pod) == "Pending" {
            match self.make_claims(set, ordinal).await {
                Err(ClaimError::Refused { source, .. }) => return Err(source),
                Err(ClaimError::Leaving(_)) => return Ok(true),
                Ok(()) => self.own_claims(set, ordinal, pod).await?,
            };
        }
        let is_complete = is_ready(pod) && is_available(set, pod);
        if ordered && (objects::deleting(&**pod) || !is_complete) {
            return Ok(true);
        }
        let is_changed = self.own_claims(set, ordinal, pod).await?;
        if !is_changed && identity::conforms(set, ordinal, pod) {
            return Ok(false);
        }
        let mut wanted = Pod::clone(pod);
        identity::conform(set, ordinal, &mut wanted);
        let written = self.world.pods.replace(&wanted).await;
        let why = written.as_ref().err().map(objects::message);
        self.tell(set, objects::name(&**pod), Verb::Update, why.as_deref());
        written.map(|_| false)
    }

    /// Takes one step of a rolling update; returns how many pods it deleted.
    async fn update(
        &self,
        set: &StatefulSet,
        replicas: &[(i32, Option<&Arc<Pod>>)],
        history: &History,
    ) -> Result<i32, kube::Error> {
        let strategy = set.spec.clone().unwrap_or_default().update_strategy;
        let strategy = strategy.unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return Ok(0);
        }
        let partition = strategy
            .rolling_update
            .and_then(|rolling| rolling.partition)
            .unwrap_or(0);
        let wanted = objects::name(&*history.update);
        for (_, pod) in replicas.iter().skip(partition.max(0) as usize).rev() {
            // a pod that was just created is not available yet
            let Some(pod) = pod else { return Ok(0) };
            if identity::revision(pod) != Some(wanted) && !objects::deleting(&***pod) {
                self.remove(set, pod).await?;
                return Ok(1);
            }
            if is_unavailable(set, pod) {
                return Ok(0);
            }
        }
        Ok(0)
    }

    async fn remove(&self, set: &StatefulSet, pod: &Arc<Pod>) -> Result<(), kube::Error> {
        let removed = self.world.pods.delete(pod, &DeleteParams::default()).await;
        let why = removed.as_ref().err().map(objects::message);
        self.tell(set, objects::name(&**pod), Verb::Delete, why.as_deref());
        removed
    }

    fn tell(&self, set: &StatefulSet, pod: &str, verb: Verb, error: Option<&str>) {
        let (word, good, bad) = verb.words();
        let set_name = objects::name(set);
        let what = format!("{word} Pod {pod} in StatefulSet {set_name}");
        match error {
            None => self.events.normal(set, good, format!("{what} successful")),
            Some(error) => {
                let what = format!("{what} failed error: {error}");
                self.events.warning(set, bad, what);
            }
        }
    }
}

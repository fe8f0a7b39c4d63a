//! The zones of a node: what they account for, and whether they are as before.

use std::time::Duration;

use crate::context::Context;
use crate::observed::{NodeTopology, Scope, accounting_difference, topology_of, zones_difference};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::step::StepError;

impl Context {
    /// Checks that the zones of a node account for exactly these resources since `before`; with scope `pod`, or with a single container, in
    /// one zone.
    pub async fn accounted(
        &self,
        before: &NodeTopology,
        required: &Resources,
        guaranteed: bool,
        scope: Scope,
    ) -> Result<(), StepError> {
        let after = self.settled_on(&before.node).await?;
        match accounting_difference(before, &after, required, guaranteed, scope == Scope::Pod) {
            None => Ok(()),
            Some(seen) => Err(StepError::mismatch(
                "the NRT accounts for something else",
                required,
                seen,
            )),
        }
    }

    /// Waits until a node's zones are as they were before, in an NRT that accounts for the pods of now: an old one is as before, too.
    pub async fn restored(&self, before: &NodeTopology) -> Result<(), StepError> {
        self.all_restored(std::slice::from_ref(before)).await
    }

    /// Waits until the zones of all these nodes are as they were before, in NRTs that account for the pods of now.
    pub async fn all_restored(&self, before: &[NodeTopology]) -> Result<(), StepError> {
        self.all_restored_within(self.deadlines().settled, before)
            .await
    }

    /// Like [`Context::all_restored`], with another limit.
    pub(crate) async fn all_restored_within(
        &self,
        limit: Duration,
        before: &[NodeTopology],
    ) -> Result<(), StepError> {
        let nodes: Vec<_> = before.iter().map(|node| node.node.as_str()).collect();
        self.until(
            &format!("NRTs are as before: {}", nodes.join(" ")),
            limit,
            async || {
                let now = match self.poll_settled().await? {
                    PollResult::Ready(nodes) => nodes,
                    PollResult::NotYet(missing) => return Ok(PollResult::NotYet(missing)),
                };
                for old in before {
                    if let Some(difference) = zones_difference(old, topology_of(&now, &old.node)?) {
                        return Ok(PollResult::NotYet(difference));
                    }
                }
                Ok(PollResult::Ready(()))
            },
        )
        .await
    }
}

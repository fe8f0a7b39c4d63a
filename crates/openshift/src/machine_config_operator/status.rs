//! The status of a pool.

use api::openshift::machine_config::{
    DEGRADED, MachineConfigPool, MachineConfigPoolConfiguration, MachineConfigPoolStatus, UPDATED,
    UPDATING,
};
use api::operator::v1::PoolCondition;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::Operator;
use super::progress::{has, is_degraded};
use super::render::Rendered;

impl Operator {
    /// Writes the status of the pool if it changed.
    pub(super) async fn report(
        &self,
        pool: &MachineConfigPool,
        rendered: &Rendered,
        members: &[&Node],
    ) -> kube::Result<()> {
        let status = status(pool, rendered, members);
        if pool.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&pool.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

fn status(
    pool: &MachineConfigPool,
    rendered: &Rendered,
    members: &[&Node],
) -> MachineConfigPoolStatus {
    let old = pool.status.clone().unwrap_or_default();
    let count = |is_one: &dyn Fn(&Node) -> bool| {
        let number = members.iter().filter(|node| is_one(node)).count();
        i32::try_from(number).unwrap_or(i32::MAX)
    };
    let wanted = rendered.name.as_str();
    let all = count(&|_| true);
    let updated = count(&|node| has(node, wanted));
    let ready = count(&|node| has(node, wanted) && is_available(node));
    let degraded = count(&|node| is_degraded(node, wanted));
    let done = updated == all;
    let condition = |name: &str, holds: bool, message: String| {
        let status = if holds { "True" } else { "False" };
        let before = old.conditions.iter();
        let kept = before
            .filter(|before| before.condition_type == name && before.status == status)
            .find_map(|before| before.last_transition_time.clone());
        PoolCondition {
            condition_type: name.to_owned(),
            status: status.to_owned(),
            last_transition_time: Some(kept.unwrap_or_else(now)),
            reason: String::new(),
            message,
        }
    };
    let towards = |holds: bool, text: &str| {
        if holds {
            format!("{text} {wanted}")
        } else {
            String::new()
        }
    };
    let updating = !done && !pool.spec.paused;
    MachineConfigPoolStatus {
        observed_generation: pool.metadata.generation.unwrap_or(0),
        configuration: if done {
            MachineConfigPoolConfiguration {
                name: rendered.name.clone(),
                source: rendered.sources.clone(),
            }
        } else {
            old.configuration.clone()
        },
        machine_count: all,
        updated_machine_count: updated,
        ready_machine_count: ready,
        unavailable_machine_count: all - count(&is_available),
        degraded_machine_count: degraded,
        conditions: vec![
            condition(UPDATED, done, towards(done, "All nodes are updated with")),
            condition(
                UPDATING,
                updating,
                towards(updating, "All nodes are updating to"),
            ),
            condition(DEGRADED, degraded > 0, String::new()),
        ],
    }
}

/// Returns the current time in whole seconds, as the API server stores it.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn is_available(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    is_ready && cordoned != Some(true)
}

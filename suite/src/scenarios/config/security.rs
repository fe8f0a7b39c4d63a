//! The exporters' part in the security of an `OpenShift` cluster: the SELinux policy of a pool, and the TLS settings of all servers.

use std::collections::{BTreeMap, BTreeSet};

use api::annotations::{CUSTOM, SELINUX_POLICY};
use api::names;
use api::openshift::config::{ApiServer, CLUSTER};
use api::openshift::machine_config::{MachineConfig, MachineConfigPool, UPDATED};
use api::operator::NamespacedName;
use api::operator::v1::NodeGroup;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{ON_OPENSHIFT, pool};
use crate::context::Context;
use crate::context::checks::Rollout;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::scenarios::tls_profile::{CIPHERS, MIN_VERSION, Profile, Version, tls_flags};
use crate::step::StepError;

/// Annotation of a node: the configuration that it has.
const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "config/mixed-selinux",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(one_pool_has_a_policy_of_its_own(ctx))),
        ),
        scenario(
            "config/rte-tls-profile",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(exporters_follow_the_profile(ctx))),
        ),
    ]
}

async fn one_pool_has_a_policy_of_its_own(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "mcp-test";
    steps::empty_pool(ctx, NAME).await?;
    let before = ctx.operator_resource().await?.spec.node_groups;
    let mut groups: Vec<NodeGroup> = before.clone();
    groups.push(NodeGroup {
        annotations: [(SELINUX_POLICY.to_owned(), CUSTOM.to_owned())].into(),
        ..pool(NAME)
    });
    let config = names::machine_config(names::OPERATOR_CR, NAME);
    let configs = Api::<MachineConfig>::all(ctx.client());
    ctx.step("a group with the legacy policy converges", async {
        ctx.set_node_groups(&groups).await?;
        ctx.operator_available().await?;
        let status = ctx.operator_resource().await?.status.unwrap_or_default();
        if status.daemonsets.len() == groups.len() {
            return Ok(());
        }
        Err(StepError::mismatch(
            "daemon sets",
            groups.len(),
            status.daemonsets.len(),
        ))
    })
    .await?;
    ctx.step(
        "its machines get the policy, those of others do not",
        async {
            configs.get(&config).await?;
            for group in &before {
                let Some(name) = group.pool_name.as_deref() else {
                    continue;
                };
                let other = names::machine_config(names::OPERATOR_CR, name);
                if configs.get_opt(&other).await?.is_some() {
                    return Err(StepError::fail(format!("there is a MachineConfig {other}")));
                }
            }
            Ok(())
        },
    )
    .await?;
    ctx.step("the policy goes with the group", async {
        ctx.set_node_groups(&before).await?;
        ctx.is_gone(&ObjectRef::named::<MachineConfig>(None, &config))
            .await?;
        ctx.operator_available().await
    })
    .await
}

async fn exporters_follow_the_profile(ctx: &Context) -> Result<(), StepError> {
    let status = ctx.operator_resource().await?.status.unwrap_or_default();
    let sets = status.daemonsets;
    if sets.is_empty() {
        return Err(StepError::fail("no exporters are requested"));
    }
    let servers = Api::<ApiServer>::all(ctx.client());
    let server = servers.get(CLUSTER).await?;
    let old = server.spec.tls_security_profile.clone();
    let now = Profile::of(old.as_ref())?;
    let other = if now.min_version < Version::Tls13 {
        Profile::modern()
    } else {
        Profile::intermediate()
    };
    ctx.step(
        format!("exporters serve as {} requires", now.name),
        exporters_serve(ctx, &sets, &now),
    )
    .await?;
    let patch = |profile: Value| json!({"spec": {"tlsSecurityProfile": profile}});
    pools_are_updated(ctx, None).await?;
    let reference = ObjectRef::of(&server);
    ctx.recorder.plan(
        &format!("set tlsSecurityProfile of {reference}"),
        Undo::Patch {
            object: reference,
            patch: patch(json!(old)),
        },
    )?;
    for (profile, wanted) in [(&other, json!({"type": other.name})), (&now, json!(old))] {
        ctx.step(
            format!("exporters serve as {} requires", profile.name),
            async {
                let before = configurations(ctx).await?;
                servers
                    .patch(
                        CLUSTER,
                        &PatchParams::default(),
                        &Patch::Merge(patch(wanted)),
                    )
                    .await?;
                exporters_serve(ctx, &sets, profile).await?;
                pools_are_updated(ctx, Some(&before)).await
            },
        )
        .await?;
    }
    ctx.step("the operator is content", async {
        ctx.operator_available().await?;
        ctx.scheduler_available().await
    })
    .await
}

/// Waits until the exporters of every group run with the settings of a profile.
async fn exporters_serve(
    ctx: &Context,
    daemon_sets: &[NamespacedName],
    profile: &Profile,
) -> Result<(), StepError> {
    for named in daemon_sets {
        let sets = Api::<DaemonSet>::namespaced(ctx.client(), &named.namespace);
        let what = format!(
            "exporters of {} have {}",
            named.name,
            profile.min_version.name()
        );
        let limit = ctx.deadlines().installed;
        ctx.until(&what, limit, async || {
            let set = sets.get(&named.name).await?;
            let seen = tls_flags(&set);
            let serves = seen == profile.flags();
            let (version, suites) = seen;
            let rollout = Rollout::of(&set);
            Ok(if serves && rollout.is_over() {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(format!(
                    "{MIN_VERSION}={version} {CIPHERS}={suites}, {rollout}"
                ))
            })
        })
        .await?;
    }
    Ok(())
}

/// Returns the configurations that the pools have, by pool.
async fn configurations(ctx: &Context) -> Result<BTreeMap<String, String>, StepError> {
    let pools = Api::<MachineConfigPool>::all(ctx.client());
    let all = pools.list(&ListParams::default()).await?.items;
    let status = |pool: &MachineConfigPool| pool.status.clone().unwrap_or_default();
    let names = all.iter().map(|pool| {
        let name = status(pool).configuration.name;
        (pool.name_any(), name)
    });
    Ok(names.collect())
}

/// Waits until all pools with machines are done: with other configurations than these, because the machines' servers follow the profile, too, and
/// with each machine at the configuration of its pool.
async fn pools_are_updated(
    ctx: &Context,
    before: Option<&BTreeMap<String, String>>,
) -> Result<(), StepError> {
    let pools = Api::<MachineConfigPool>::all(ctx.client());
    let nodes = Api::<Node>::all(ctx.client());
    let what = match before {
        Some(_) => "all pools are updated to another configuration",
        None => "all pools are updated",
    };
    ctx.until(what, ctx.deadlines().installed, async || {
        let all = pools.list(&ListParams::default()).await?.items;
        let mut current = BTreeSet::new();
        for pool in all {
            let name = pool.name_any();
            let status = pool.status.unwrap_or_default();
            if status.machine_count == 0 {
                continue;
            }
            if status.condition(UPDATED) != Some("True") {
                return Ok(PollResult::NotYet(format!("{name} is not")));
            }
            let configuration = status.configuration.name;
            if before.and_then(|before| before.get(&name)) == Some(&configuration) {
                return Ok(PollResult::NotYet(format!(
                    "{name} is still at {configuration}"
                )));
            }
            current.insert(configuration);
        }
        // a node that never had another configuration has no annotation on the testbed
        let members = nodes.list(&ListParams::default()).await?.items;
        let behind = members.iter().find(|node| {
            let its = node.annotations().get(CURRENT_CONFIG);
            its.is_some_and(|its| !current.contains(its))
        });
        Ok(match behind {
            None => PollResult::Ready(()),
            Some(node) => PollResult::NotYet(format!("{} is behind its pool", node.name_any())),
        })
    })
    .await
}

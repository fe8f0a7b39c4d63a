//! How the operator's resource shows in the exporters' command line and configuration file (scenarios-other.md 3). The original's two
//! scenarios about the file (`kubelet-reserv`, `cm-aligned`) rely on OpenShift's `KubeletConfig`. Here the file must agree with the
//! kubelets' own configuration, the counterpart on plain Kubernetes.

use api::operator::LogLevel;
use api::operator::v1::NumaResourcesOperator;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use super::NEEDS;
use crate::context::Context;
use crate::context::checks::Rollout;
use crate::context::stack::exporters;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::attributes;
use crate::scenarios::registry::scenario;
use crate::step::StepError;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "rte/loglevel-default",
            NEEDS,
            body(|ctx| Box::pin(log_level_is_passed_on(ctx))),
        ),
        scenario(
            "rte/loglevel-change",
            NEEDS,
            body(|ctx| Box::pin(log_level_is_changed(ctx))),
        ),
        scenario(
            "rte/kubelet-reserv",
            NEEDS,
            body(|ctx| Box::pin(exporters_are_configured(ctx))),
        ),
        scenario(
            "rte/cm-aligned",
            NEEDS,
            body(|ctx| Box::pin(config_map_is_kept(ctx))),
        ),
    ]
}

/// Returns the level for klog's `-v`.
pub(in crate::scenarios) const fn verbosity(level: LogLevel) -> u8 {
    match level {
        LogLevel::Debug => 4,
        LogLevel::Trace => 6,
        LogLevel::TraceAll => 8,
        LogLevel::Unset | LogLevel::Normal => 2,
    }
}

fn operators(ctx: &Context) -> Api<NumaResourcesOperator> {
    Api::all(ctx.client())
}

/// Waits until every exporter's command line has this level.
async fn every_exporter_has(ctx: &Context, level: LogLevel) -> Result<(), StepError> {
    let wanted = format!("-v={}", verbosity(level));
    ctx.until(
        &format!("every exporter is started with {wanted}"),
        ctx.deadlines().settled,
        async || {
            let sets = ctx.exporter_daemon_sets().await?;
            Ok(match sets.iter().find(|set| !has_argument(set, &wanted)) {
                None => PollResult::Ready(()),
                Some(set) => PollResult::NotYet(format!("{} is not", set.name_any())),
            })
        },
    )
    .await
}

/// Returns whether the exporter of a set is started with this argument; `--v=` counts like `-v=`.
fn has_argument(set: &DaemonSet, wanted: &str) -> bool {
    let spec = set.spec.as_ref().and_then(|set| set.template.spec.as_ref());
    let arguments = spec
        .and_then(exporters::container)
        .and_then(|one| one.args.as_ref());
    arguments
        .into_iter()
        .flatten()
        .any(|argument| argument == wanted || argument.strip_prefix('-') == Some(wanted))
}

async fn log_level_is_passed_on(ctx: &Context) -> Result<(), StepError> {
    let level = operators(ctx)
        .get(api::names::OPERATOR_CR)
        .await?
        .spec
        .log_level;
    ctx.step(
        "exporters have the level of the resource",
        every_exporter_has(ctx, level),
    )
    .await
}

async fn log_level_is_changed(ctx: &Context) -> Result<(), StepError> {
    let object = operators(ctx).get(api::names::OPERATOR_CR).await?;
    let before = object.spec.log_level;
    let reference = ObjectRef::of(&object);
    let old = json!(object.spec).get("logLevel").cloned();
    ctx.recorder.plan(
        &format!("set the level of {reference}"),
        Undo::Patch {
            object: reference,
            patch: json!({"spec": {"logLevel": old}}),
        },
    )?;
    ctx.step("the level is Trace, and exporters follow", async {
        let patch = json!({"spec": {"logLevel": "Trace"}});
        operators(ctx)
            .patch(
                api::names::OPERATOR_CR,
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await?;
        every_exporter_has(ctx, LogLevel::Trace).await
    })
    .await?;
    ctx.step("the level is as before, and exporters follow", async {
        let patch = json!({"spec": {"logLevel": old}});
        operators(ctx)
            .patch(
                api::names::OPERATOR_CR,
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await?;
        every_exporter_has(ctx, before).await?;
        rolled_out(ctx).await
    })
    .await
}

/// Waits until every exporter is made from the current template and ready.
async fn rolled_out(ctx: &Context) -> Result<(), StepError> {
    ctx.until(
        "all exporters are rolled out",
        ctx.deadlines().installed,
        async || {
            let sets = ctx.exporter_daemon_sets().await?;
            let mut rollouts = sets.iter().map(|set| (set, Rollout::of(set)));
            let behind = rollouts.find(|(_, rollout)| !rollout.is_over());
            Ok(match behind {
                None => PollResult::Ready(()),
                Some((set, rollout)) => {
                    PollResult::NotYet(format!("{}: {rollout}", set.name_any()))
                }
            })
        },
    )
    .await
}

/// Returns the ConfigMaps that the operator passes to exporters: one per pool.
async fn config_maps(ctx: &Context) -> Result<Vec<ConfigMap>, StepError> {
    let params = ListParams::default().labels(api::labels::OPERATOR_NAME);
    let all = Api::<ConfigMap>::all(ctx.client());
    let mut maps = all.list(&params).await?.items;
    maps.retain(|map| map.data.is_some());
    if maps.is_empty() {
        return Err(StepError::fail(format!(
            "no ConfigMap has the label {}",
            api::labels::OPERATOR_NAME
        )));
    }
    Ok(maps)
}

async fn exporters_are_configured(ctx: &Context) -> Result<(), StepError> {
    let sets = ctx
        .step(
            "the status names the daemon sets, and the groups' are the same",
            named_daemon_sets(ctx),
        )
        .await?;
    for map in config_maps(ctx).await? {
        let name = map.name_any();
        let labels = map.labels();
        let pool = labels.get(api::labels::POOL).cloned().unwrap_or_default();
        ctx.step(format!("{name} is where its exporters are"), async {
            let expected = (
                format!("{}-{pool}", api::names::OPERATOR_CR),
                sets.first().cloned(),
            );
            let seen = (name.clone(), map.namespace());
            if seen == expected {
                return Ok(());
            }
            Err(StepError::mismatch(
                "name and namespace of the ConfigMap",
                format!("{expected:?}"),
                format!("{seen:?}"),
            ))
        })
        .await?;
        let handed = attributes::config_of(&map)?;
        for node in attributes::nodes_of(ctx, &pool).await? {
            ctx.step(
                format!("{node}: kubelet, ConfigMap and NRT say the same"),
                attributes::agree(ctx, &node, &handed),
            )
            .await?;
        }
    }
    Ok(())
}

/// Returns the namespaces of the daemon sets in the operator's status. If the status of its groups names daemon sets, they must be the
/// same.
async fn named_daemon_sets(ctx: &Context) -> Result<Vec<String>, StepError> {
    ctx.until(
        "the status names daemon sets",
        ctx.deadlines().installed,
        async || {
            let operator = operators(ctx).get(api::names::OPERATOR_CR).await?;
            let status = operator.status.unwrap_or_default();
            let groups = status.node_groups.iter();
            let of_groups: Vec<_> = groups.map(|group| group.daemon_set.clone()).collect();
            if status.daemonsets.is_empty() {
                return Ok(PollResult::NotYet("it has none".to_owned()));
            }
            if !of_groups.is_empty() && of_groups != status.daemonsets {
                return Ok(PollResult::NotYet(format!(
                    "{:?}, but of its groups {of_groups:?}",
                    status.daemonsets
                )));
            }
            let sets = status.daemonsets.into_iter();
            Ok(PollResult::Ready(sets.map(|set| set.namespace).collect()))
        },
    )
    .await
}

async fn config_map_is_kept(ctx: &Context) -> Result<(), StepError> {
    let map = config_maps(ctx).await?.swap_remove(0);
    let name = map.name_any();
    let reference = ObjectRef::of(&map);
    let namespaced: Api<ConfigMap> =
        Api::namespaced(ctx.client(), &map.namespace().unwrap_or_default());
    ctx.recorder.plan(
        &format!("clear {reference}"),
        Undo::Patch {
            object: reference,
            patch: json!({"data": map.data}),
        },
    )?;
    ctx.step(format!("cleared, {name} is filled again"), async {
        let clear = json!({"data": null});
        namespaced
            .patch(&name, &PatchParams::default(), &Patch::Merge(&clear))
            .await?;
        ctx.until(
            "it has its data again",
            ctx.deadlines().installed,
            async || {
                let seen = namespaced.get(&name).await?.data;
                Ok(if seen == map.data {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("its data is {seen:?}"))
                })
            },
        )
        .await
    })
    .await
}

//! The exporters are created for the operator's resource, follow its image and are deleted with it (scenarios-other.md 2).
//!
//! The original installs into a cluster without the resource and leaves it there. Here the resource is removed first and restored at the
//! end. Where the original waits for half a minute to see that nothing changes, these scenarios rely on the operator's status, which shows
//! that it has observed the current resource.

use std::collections::BTreeMap;

use api::annotations::{CUSTOM, SELINUX_POLICY};
use api::labels::{MACHINE_CONFIG_ROLE, OPERATOR_NAME};
use api::openshift::machine_config::MachineConfig;
use api::operator::LogLevel;
use api::operator::v1::{NodeGroup, NumaResourcesOperator};
use api::{conditions, names, nrt};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount, Toleration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::context::Context;
use crate::context::checks::first_container;
use crate::context::stack::exporters;
use crate::ledger::ObjectRef;
use crate::needs::Need;
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::attributes::nrt_attributes;
use crate::scenarios::registry::scenario;
use crate::scenarios::rte::installed::verbosity;
use crate::scenarios::rtetols::toleration;
use crate::scenarios::{config, steps};
use crate::step::StepError;

const UPGRADE: &[Need] = &[Need::OpenShift];
/// SELinux type of exporters, and under the legacy policy (operator.md 6.2).
const TYPE: &str = "container_device_plugin_t";
const LEGACY_TYPE: &str = "rte.process";
/// An image that an operator does not trust by default.
const CUSTOM_EXPORTER: &str = "quay.io/openshift-kni/resource-topology-exporter:test-ci";
/// Environment variable of the operator: with `false` it accepts any image.
const RESTRICTION: &str = "EXPORTER_IMAGE_RESTRICTION";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "install/deploy-available",
            &[],
            body(|ctx| Box::pin(resource_brings_exporters(ctx))),
        ),
        scenario(
            "install/reject-custom-exporter",
            &[],
            body(|ctx| Box::pin(foreign_image_is_refused(ctx))),
        ),
        scenario(
            "install/unrestricted-exporter",
            &[],
            body(|ctx| Box::pin(any_image_is_run(ctx))),
        ),
        scenario(
            "install/delete-redeploy",
            &[],
            body(|ctx| Box::pin(deleted_and_recreated(ctx))),
        ),
        scenario(
            "install/nrt-config-match",
            &[],
            body(|ctx| Box::pin(installed_attributes(ctx))),
        ),
        scenario(
            "uninstall/nro",
            &[],
            body(|ctx| Box::pin(nothing_is_left(ctx))),
        ),
        scenario(
            "upgrade/no-machineconfig",
            UPGRADE,
            body(|ctx| Box::pin(no_machine_config_is_left(ctx))),
        ),
    ]
}

async fn resource_brings_exporters(ctx: &Context) -> Result<(), StepError> {
    let before = ctx
        .step("there are no exporters", ctx.remove_operator_resource())
        .await?;
    let wanted = with_own_settings(&before);
    ctx.step("the resource brings them, and is Available", async {
        ctx.create_operator_resource(&wanted).await?;
        ctx.operands_rolled_out().await
    })
    .await?;
    config::groups_are_reported(ctx).await?;
    ctx.step("the kinds are defined", async {
        let definitions = Api::<CustomResourceDefinition>::all(ctx.client());
        let nrts = format!("{}.{}", nrt::PLURAL, nrt::GROUP);
        for name in [&nrts, "numaresourcesoperators.nodetopology.openshift.io"] {
            definitions.get(name).await?;
        }
        Ok(())
    })
    .await?;
    ctx.step("every exporter is where it belongs", async {
        let uid = ctx.operator_resource().await?.uid();
        let sets = ctx.exporter_daemon_sets().await?;
        for set in &sets {
            let name = set.name_any();
            let mut owners = set.owner_references().iter();
            if !owners.any(|owner| Some(&owner.uid) == uid.as_ref()) {
                return Err(StepError::fail(format!(
                    "DaemonSet {name} is not the resource's"
                )));
            }
            let status = set.status.clone().unwrap_or_default();
            let seen = (
                status.number_misscheduled,
                status.number_unavailable.unwrap_or_default(),
                status.current_number_scheduled - status.desired_number_scheduled,
            );
            if seen != (0, 0, 0) {
                let what = format!("misplaced, unavailable and missing pods of {name}");
                return Err(StepError::mismatch(what, "(0, 0, 0)", format!("{seen:?}")));
            }
        }
        ctx.recorder.saw(format!("{} daemon sets", sets.len()));
        Ok(())
    })
    .await?;
    ctx.step("exporters log and tolerate as they should", async {
        let tolerated = json!(own_toleration());
        for set in ctx.exporter_daemon_sets().await? {
            logs_with(&set, LogLevel::Debug)?;
            let tolerations = json!(set.spec.map(|spec| spec.template.spec))["tolerations"].take();
            let mut all = tolerations.as_array().into_iter().flatten();
            if !all.any(|one| *one == tolerated) {
                let what = format!("tolerations of {}", set.metadata.name.unwrap_or_default());
                let expected = format!("{tolerated} among them");
                return Err(StepError::mismatch(what, expected, tolerations));
            }
        }
        Ok(())
    })
    .await?;
    if ctx.facts().is_openshift() {
        have_selinux_type(ctx).await?;
    }
    ctx.step("with the old settings it is Available", async {
        ctx.set_node_groups(&before.spec.node_groups).await?;
        ctx.set_operator_field("logLevel", json!(before.spec.log_level))
            .await?;
        ctx.operands_rolled_out().await
    })
    .await
}

/// Adds the log level of the original's resource (scenarios-other.md 1.3) and a toleration of a taint that no node has.
fn with_own_settings(resource: &NumaResourcesOperator) -> NumaResourcesOperator {
    let mut resource = resource.clone();
    resource.spec.log_level = LogLevel::Debug;
    for group in &mut resource.spec.node_groups {
        let config = group.config.get_or_insert_default();
        config.tolerations.push(own_toleration());
    }
    resource
}

fn own_toleration() -> Toleration {
    toleration("install-test", "Exists", None, "NoSchedule")
}

async fn have_selinux_type(ctx: &Context) -> Result<(), StepError> {
    ctx.step("exporters have the SELinux type of their policy", async {
        let resource = ctx.operator_resource().await?;
        let wanted = if has_legacy_policy(&resource) {
            LEGACY_TYPE
        } else {
            TYPE
        };
        for set in ctx.exporter_daemon_sets().await? {
            let pod = set
                .spec
                .as_ref()
                .and_then(|spec| spec.template.spec.as_ref());
            let container = json!(pod.and_then(exporters::container));
            let seen = &container["securityContext"]["seLinuxOptions"]["type"];
            if seen != wanted {
                let what = format!("SELinux type of {}", set.name_any());
                return Err(StepError::mismatch(what, wanted, seen));
            }
        }
        Ok(())
    })
    .await
}

/// Returns whether the machines of some node group are asked to have the legacy SELinux policy.
fn has_legacy_policy(resource: &NumaResourcesOperator) -> bool {
    let is_custom = |annotations: &BTreeMap<String, String>| {
        annotations
            .get(SELINUX_POLICY)
            .is_some_and(|value| value == CUSTOM)
    };
    let mut groups = resource.spec.node_groups.iter();
    is_custom(resource.annotations()) || groups.any(|group| is_custom(&group.annotations))
}

/// Installs the exporters anew. Each node group has exactly one ConfigMap, and kubelets, ConfigMaps and NRTs agree.
async fn installed_attributes(ctx: &Context) -> Result<(), StepError> {
    let before = ctx
        .step("there are no exporters", ctx.remove_operator_resource())
        .await?;
    ctx.step("the resource brings them", async {
        ctx.create_operator_resource(&before).await?;
        ctx.operands_rolled_out().await
    })
    .await?;
    ctx.step("each node group has one ConfigMap", async {
        let groups = ctx.operator_resource().await?.status.unwrap_or_default();
        let groups = groups.node_groups.len();
        let ours = format!("{OPERATOR_NAME}={}", names::OPERATOR_CR);
        let maps = Api::<ConfigMap>::all(ctx.client());
        let limit = ctx.deadlines().installed;
        let what = format!("{groups} ConfigMaps have the label {ours}");
        ctx.until(&what, limit, async || {
            let found = maps.list(&ListParams::default().labels(&ours)).await?.items;
            Ok(if found.len() == groups {
                PollResult::Ready(())
            } else {
                let names: Vec<_> = found.iter().map(kube::ResourceExt::name_any).collect();
                PollResult::NotYet(format!("these have it: {}", names.join(", ")))
            })
        })
        .await
    })
    .await?;
    nrt_attributes(ctx).await
}

/// Returns the uid of each daemon set and the image of its exporters.
async fn images(ctx: &Context) -> Result<Vec<(Option<String>, String)>, StepError> {
    let sets = ctx.exporter_daemon_sets().await?;
    Ok(sets
        .iter()
        .map(|set| {
            (
                set.uid(),
                first(set, "image").as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect())
}

/// Returns a field of the first container of a daemon set's pods.
fn first(set: &DaemonSet, field: &str) -> Value {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    json!(first_container(template))[field].clone()
}

/// Checks that exporters log with this level.
fn logs_with(set: &DaemonSet, level: LogLevel) -> Result<(), StepError> {
    let flag = format!("-v={}", verbosity(level));
    let args = first(set, "args");
    if args
        .as_array()
        .is_some_and(|args| args.contains(&json!(flag)))
    {
        return Ok(());
    }
    let what = format!("arguments of {}", set.name_any());
    Err(StepError::mismatch(
        what,
        format!("{flag} among them"),
        args,
    ))
}

async fn foreign_image_is_refused(ctx: &Context) -> Result<(), StepError> {
    let old = ctx.operator_resource().await?.spec.exporter_image;
    let before = images(ctx).await?;
    ctx.step("the resource is Degraded: CustomUserImage", async {
        ctx.set_operator_field("imageSpec", json!(CUSTOM_EXPORTER))
            .await?;
        let reason = conditions::REASON_CUSTOM_USER_IMAGE;
        ctx.operator_is(conditions::DEGRADED, reason, CUSTOM_EXPORTER)
            .await
    })
    .await?;
    ctx.step("the exporters are the same as before", async {
        let now = images(ctx).await?;
        if now == before {
            return Ok(());
        }
        Err(StepError::mismatch(
            "daemon sets",
            format!("{before:?}"),
            format!("{now:?}"),
        ))
    })
    .await?;
    ctx.step("without the image it is Available", async {
        ctx.set_operator_field("imageSpec", json!(old)).await?;
        ctx.operands_rolled_out().await
    })
    .await
}

async fn any_image_is_run(ctx: &Context) -> Result<(), StepError> {
    let old = ctx.operator_resource().await?.spec.exporter_image;
    let now = images(ctx).await?;
    if ctx.facts().exporter.is_none() {
        let reason = "no other image with an exporter is known: only clusters of this suite have one for certain";
        return Err(StepError::Skip(reason.to_owned()));
    }
    ctx.step(
        "the operator takes any image",
        ctx.set_operator_variable(RESTRICTION, "false"),
    )
    .await?;
    let other = now
        .iter()
        .map(|(uid, _)| (uid.clone(), names::EXPORTER_IMAGE.to_owned()));
    for (wanted, expected) in [
        (names::EXPORTER_IMAGE, other.collect()),
        (old.as_str(), now.clone()),
    ] {
        let what = if wanted.is_empty() {
            "their own image"
        } else {
            wanted
        };
        ctx.step(format!("exporters start again with {what}"), async {
            ctx.set_operator_field("imageSpec", json!(wanted)).await?;
            ctx.operands_rolled_out().await?;
            let seen = images(ctx).await?;
            if seen == expected {
                return Ok(());
            }
            Err(StepError::mismatch(
                "daemon sets",
                format!("{expected:?}"),
                format!("{seen:?}"),
            ))
        })
        .await?;
    }
    Ok(())
}

/// Returns all objects of the exporters (operator.md 6.1), including those of each pool. A pool's ConfigMap that is made from another
/// object is deleted with that one.
async fn objects(ctx: &Context) -> Result<Vec<ObjectRef>, StepError> {
    let here = Some(names::NAMESPACE);
    let mut all = vec![
        ObjectRef::named::<ServiceAccount>(here, names::RTE),
        ObjectRef::named::<Service>(here, names::RTE_METRICS_SERVICE),
        ObjectRef::named::<Role>(here, names::RTE),
        ObjectRef::named::<RoleBinding>(here, names::RTE),
        ObjectRef::named::<ClusterRole>(None, names::RTE),
        ObjectRef::named::<ClusterRoleBinding>(None, names::RTE),
        ObjectRef::named::<NetworkPolicy>(here, "rte-default-deny-all"),
        ObjectRef::named::<NetworkPolicy>(here, "rte-egress-to-api-server"),
        ObjectRef::named::<NetworkPolicy>(here, "ingress-to-rte-metrics"),
    ];
    for set in ctx.exporter_daemon_sets().await? {
        let set = ObjectRef::of(&set);
        let map = ObjectRef::named::<ConfigMap>(set.namespace.as_deref(), &set.name);
        let found = map.api(&ctx.client()).get(&map.name).await?;
        let mut owners = found.owner_references().iter();
        let is_the_resources = owners.any(|owner| owner.kind == api::operator::KIND);
        all.push(set);
        all.extend(is_the_resources.then_some(map));
    }
    Ok(all)
}

/// Removes the resource, and waits until no object of the exporters is left.
async fn removed(ctx: &Context) -> Result<api::operator::v1::NumaResourcesOperator, StepError> {
    let objects = objects(ctx).await?;
    ctx.step("all of the exporters is there", ctx.are_there(&objects))
        .await?;
    let before = ctx
        .step("the resource is deleted", ctx.remove_operator_resource())
        .await?;
    ctx.step("nothing of the exporters is left", ctx.are_gone(&objects))
        .await?;
    Ok(before)
}

async fn deleted_and_recreated(ctx: &Context) -> Result<(), StepError> {
    let before = removed(ctx).await?;
    let mut wanted = before.clone();
    wanted.spec.log_level = LogLevel::Trace;
    ctx.step(
        "created again with log level Trace, exporters log so",
        async {
            ctx.create_operator_resource(&wanted).await?;
            ctx.operands_rolled_out().await?;
            let sets = ctx.exporter_daemon_sets().await?;
            sets.iter()
                .try_for_each(|set| logs_with(set, LogLevel::Trace))
        },
    )
    .await?;
    ctx.step("the old log level is restored", async {
        ctx.set_operator_field("logLevel", json!(before.spec.log_level))
            .await?;
        ctx.operands_rolled_out().await
    })
    .await
}

async fn nothing_is_left(ctx: &Context) -> Result<(), StepError> {
    let before = removed(ctx).await?;
    ctx.step("the exporters are back", async {
        ctx.create_operator_resource(&before).await?;
        ctx.operands_rolled_out().await
    })
    .await
}

/// No pool has a machine configuration of the operator, and one that an operator of before left goes when a new one starts. That one belongs to a
/// pool without machines, because a real machine would start again for it.
async fn no_machine_config_is_left(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "mcp-test";
    let resource = ctx.operator_resource().await?;
    if has_legacy_policy(&resource) {
        let reason = "machines are asked to have the legacy SELinux policy";
        return Err(StepError::Skip(reason.to_owned()));
    }
    let of_pool = |pool: &str| {
        let name = names::machine_config(names::OPERATOR_CR, pool);
        ObjectRef::named::<MachineConfig>(None, &name)
    };
    ctx.step(
        "no pool has a machine configuration of the operator",
        async {
            let groups = resource.status.clone().unwrap_or_default().node_groups;
            if groups.is_empty() {
                return Err(StepError::fail("status.nodeGroups is empty"));
            }
            let objects: Vec<_> = groups
                .iter()
                .map(|group| of_pool(&group.pool_name))
                .collect();
            ctx.are_gone(&objects).await
        },
    )
    .await?;
    steps::empty_pool(ctx, NAME).await?;
    let left = of_pool(NAME);
    ctx.step("an operator of before left one for a pool", async {
        let mut groups = resource.spec.node_groups.clone();
        groups.push(NodeGroup {
            pool_name: Some(NAME.to_owned()),
            ..NodeGroup::default()
        });
        ctx.set_node_groups(&groups).await?;
        ctx.operator_available().await?;
        let object: MachineConfig = serde_json::from_value(json!({
            "metadata": {
                "name": left.name,
                "labels": {MACHINE_CONFIG_ROLE: NAME},
                "ownerReferences": [resource.controller_owner_ref(&())],
            },
            "spec": {"config": {"ignition": {"version": "3.2.0"}}},
        }))
        .map_err(|error| StepError::fail(error.to_string()))?;
        ctx.create_global(&object).await
    })
    .await?;
    ctx.step("a new operator removes it", async {
        ctx.restart_operator().await?;
        ctx.is_gone(&left).await?;
        ctx.operator_available().await
    })
    .await?;
    ctx.step("the node groups are as before", async {
        ctx.set_node_groups(&resource.spec.node_groups).await?;
        ctx.operands_rolled_out().await
    })
    .await
}

//! The scheduler is created for its resource and deleted with it (scenarios-other.md 4.1, 4.2).

use api::{conditions, labels, names};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::{deployments, replicas, replicas_are, scenario};
use crate::checks::node_of;
use crate::context::Context;
use crate::ledger::ObjectRef;
use crate::scenario::{Scenario, StepError, body};
use crate::scenarios::{labels as all_labels, title};

const INSTALL: &str = "[Scheduler] install";
const DEFINITION: &str = "numaresourcesschedulers.nodetopology.openshift.io";
/// Default number of replicas on a control plane with at least this many nodes; with fewer nodes there is a single replica
/// (operator.md 5.5).
const REPLICATED: usize = 3;

/// Objects of the scheduler (operator.md 6.1): version, kind, name in URLs, name, and whether it is in the stack's namespace.
const OBJECTS: [(&str, &str, &str, &str, bool); 9] = [
    (
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        names::SCHEDULER,
        true,
    ),
    (
        "v1",
        "ConfigMap",
        "configmaps",
        names::SCHEDULER_CONFIG_MAP,
        true,
    ),
    (
        "apps/v1",
        "Deployment",
        "deployments",
        names::SCHEDULER,
        true,
    ),
    (
        RBAC,
        "ClusterRole",
        "clusterroles",
        names::SCHEDULER_CLUSTER_ROLE,
        false,
    ),
    (
        RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        names::SCHEDULER_CLUSTER_ROLE,
        false,
    ),
    (RBAC, "Role", "roles", names::SCHEDULER_LEADER_ROLE, true),
    (
        RBAC,
        "RoleBinding",
        "rolebindings",
        names::SCHEDULER_LEADER_ROLE,
        true,
    ),
    (
        NETWORK,
        "NetworkPolicy",
        "networkpolicies",
        "scheduler-default-deny-all",
        true,
    ),
    (
        NETWORK,
        "NetworkPolicy",
        "networkpolicies",
        "scheduler-egress-to-api-server",
        true,
    ),
];
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const NETWORK: &str = "networking.k8s.io/v1";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            test_id: Some(48598),
            title: title(INSTALL, Some(48598), "", "should install the scheduler"),
            labels: all_labels(&["disruptive", "scheduler"], "tier2"),
            ..scenario(
                "sched/install",
                INSTALL,
                "",
                body(|ctx| Box::pin(resource_brings_the_scheduler(ctx))),
            )
        },
        scenario(
            "sched/uninstall",
            "[Scheduler] uninstall",
            "should leave nothing of the scheduler",
            body(|ctx| Box::pin(nothing_is_left(ctx))),
        ),
    ]
}

async fn resource_brings_the_scheduler(ctx: &Context) -> Result<(), StepError> {
    let removed = ctx
        .step("there is no scheduler", ctx.remove_scheduler())
        .await?;
    ctx.step("its resource brings one", async {
        ctx.restore_scheduler(&removed).await?;
        ctx.scheduler_is(conditions::UPGRADEABLE, None).await?;
        let status = ctx.scheduler_resource().await?.status.unwrap_or_default();
        let bad = [conditions::DEGRADED, conditions::PROGRESSING];
        let seen = status
            .conditions
            .iter()
            .find(|one| bad.contains(&one.type_.as_str()) && one.status == "True");
        match seen {
            None => Ok(()),
            Some(one) => Err(StepError::mismatch(
                "condition",
                "none that is bad",
                &one.type_,
            )),
        }
    })
    .await?;
    ctx.step("its kind is defined", async {
        let definitions = Api::<CustomResourceDefinition>::all(ctx.client());
        definitions.get(DEFINITION).await?;
        Ok(())
    })
    .await?;
    ctx.step("the control plane has its replicas", async {
        let params = ListParams::default().labels(labels::CONTROL_PLANE);
        let nodes = Api::<Node>::all(ctx.client()).list(&params).await?.items;
        let nodes: Vec<String> = nodes.iter().map(kube::ResourceExt::name_any).collect();
        let count = replicas(&deployments(ctx).get(names::SCHEDULER).await?);
        replicas_are(ctx, count).await?;
        let pods = ctx.scheduler_pods().await?;
        let wanted = if nodes.len() < REPLICATED {
            1
        } else {
            REPLICATED
        };
        if pods.len() != wanted {
            return Err(StepError::mismatch("replicas", wanted, pods.len()));
        }
        for pod in &pods {
            let node = node_of(pod).unwrap_or_default();
            if !nodes.iter().any(|one| one == node) {
                let what = format!("node of {}", pod.name_any());
                return Err(StepError::mismatch(what, nodes.join(", "), node));
            }
        }
        ctx.recorder.saw(nodes.join(", "));
        Ok(())
    })
    .await
}

async fn nothing_is_left(ctx: &Context) -> Result<(), StepError> {
    ctx.scheduler_resource().await?;
    let objects = OBJECTS.map(
        |(api_version, kind, plural, name, is_namespaced)| ObjectRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespace: is_namespaced.then(|| names::NAMESPACE.to_owned()),
            name: name.to_owned(),
        },
    );
    ctx.step("all of the scheduler is there", async {
        for object in &objects {
            if object
                .api(&ctx.client())
                .get_opt(&object.name)
                .await?
                .is_none()
            {
                return Err(StepError::fail(format!("{object} is missing")));
            }
        }
        Ok(())
    })
    .await?;
    let removed = ctx
        .step("its resource is deleted", ctx.remove_scheduler())
        .await?;
    ctx.step("nothing of it is left", async {
        for object in &objects {
            ctx.is_gone(object).await?;
        }
        Ok(())
    })
    .await?;
    ctx.step("the scheduler is back", ctx.restore_scheduler(&removed))
        .await
}

//! Decides what a `NUMAResourcesScheduler` leads to. Pure: everything follows from the resource, from what was observed and from the
//! installation. [`adoption`] has what becomes of a scheduler that another operator installed.

use api::scheduler::v1::{
    CacheResyncDebugMode, CacheResyncDetectionMode, DEFAULT_CACHE_RESYNC_PERIOD,
    NumaResourcesScheduler, NumaResourcesSchedulerSpec, PreemptionMode, SchedulerInformerMode,
};
use api::{annotations, conditions as condition, names};
use goflags::GoDuration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use manifests::platform::Platform;
use manifests::scheduler::config::Settings;
use manifests::scheduler::{Options, Set};
use serde_json::Value;

use crate::controllers::{Admission, is_annotated};
use crate::images::{self, Policy};
use crate::installation::Installation;
use crate::report::conditions::Outcome;

mod adoption;

/// Number of nodes from which three schedulers run instead of one.
const MIN_NODES_FOR_HA: usize = 3;

/// Returns whether the answer of [`admission`] depends on the scheduler that runs.
pub(super) fn asks_for_an_unknown_image(cr: &NumaResourcesScheduler, images: &Policy) -> bool {
    let found = images::validate_scheduler(images, &cr.spec.scheduler_image);
    matches!(found, Err(images::Error::Untrusted { .. }))
}

/// Decides whether the resource is reconciled (operator.md 5.2). `running` is the scheduler's Deployment, if there is one.
pub(super) fn admission(
    cr: &NumaResourcesScheduler,
    running: Option<&Deployment>,
    images: &Policy,
) -> Admission {
    let name = cr.name_any();
    if name != names::SCHEDULER_CR {
        return Admission::Refused(Outcome::Invalid {
            reason: condition::REASON_INCORRECT_SCHEDULER_NAME,
            message: format!("incorrect NUMAResourcesScheduler resource name: {name}"),
        });
    }
    if is_annotated(cr, annotations::PAUSE_RECONCILIATION, annotations::ENABLED) {
        return Admission::Paused;
    }
    match images::validate_scheduler(images, &cr.spec.scheduler_image) {
        Ok(()) => Admission::Granted,
        Err(images::Error::Untrusted { image, .. }) if adoption::is_adopted(cr, running) => {
            tracing::warn!(
                image,
                "The image of the running scheduler is not in the trusted list, and is kept because another operator installed it. \
                 To trust it from now on, add its digest to the variable SCHEDULER_IMAGE_DIGESTS"
            );
            Admission::Granted
        }
        Err(error) => Admission::Refused(Outcome::Invalid {
            reason: condition::REASON_INVALID_SCHEDULER_IMAGE,
            message: error.to_string(),
        }),
    }
}

/// Returns the scheduler's objects in the order in which they are applied. `nodes` is the number of nodes that determine the number of pods.
pub(super) fn objects(
    cr: &NumaResourcesScheduler,
    informer: SchedulerInformerMode,
    period: GoDuration,
    nodes: usize,
    installation: &Installation,
) -> Result<Vec<Value>, String> {
    let platform = installation.platform;
    let replicas = replicas(cr.spec.replicas, nodes, role(platform), platform)?;
    let set = Set::new(&options(cr, informer, period, replicas, installation))
        .map_err(|error| daemon::log::chain(&error))?;
    let mut objects = set.objects();
    let image = &cr.spec.scheduler_image;
    if images::validate_scheduler(&installation.images, image).is_ok() {
        let deployments = objects.iter_mut().filter(|one| one["kind"] == "Deployment");
        deployments.for_each(|one| adoption::mark(one, image));
    }
    if let Some(owner) = apply::controller_reference(cr) {
        for object in &mut objects {
            apply::set_owner(object, &owner);
        }
    }
    Ok(objects)
}

fn options(
    cr: &NumaResourcesScheduler,
    informer: SchedulerInformerMode,
    period: GoDuration,
    replicas: i32,
    installation: &Installation,
) -> Options {
    let spec = &cr.spec;
    let strategy = spec.scoring_strategy.clone().unwrap_or_default();
    Options {
        namespace: installation.namespace.clone(),
        image: spec.scheduler_image.clone(),
        platform: installation.platform,
        replicas,
        log_level: spec.log_level,
        tls: installation.tls.clone(),
        dump_cache: spec.cache_resync_debug != Some(CacheResyncDebugMode::Disabled),
        guaranteed: is_annotated(
            cr,
            annotations::SCHEDULER_QOS_REQUEST,
            annotations::GUARANTEED,
        ),
        api_server_ports: installation.api_server_ports.clone(),
        config: Settings {
            namespace: installation.namespace.clone(),
            profile: profile(spec),
            cache_resync_seconds: period.rounded_seconds(),
            detection: spec
                .cache_resync_detection
                .unwrap_or(CacheResyncDetectionMode::Relaxed),
            informer,
            scoring: strategy.strategy.unwrap_or_default(),
            resources: strategy.resources,
            preemption: spec.preemption_mode == Some(PreemptionMode::Enabled),
            // one replica, too: a node without network may keep an old pod at work while a new one starts elsewhere
            leader_elect: true,
        },
    }
}

/// Returns the name of the profile that the resource asks for.
pub(super) fn profile(spec: &NumaResourcesSchedulerSpec) -> Option<String> {
    spec.scheduler_name.clone().filter(|name| !name.is_empty())
}

/// Returns the informer in effect. By default it is shared when the kubelets leave terminated pods out of their answers, and dedicated
/// otherwise (operator.md 5.4).
pub(super) fn informer(
    spec: &NumaResourcesSchedulerSpec,
    lists_active_pods: bool,
) -> SchedulerInformerMode {
    spec.scheduler_informer.unwrap_or(if lists_active_pods {
        SchedulerInformerMode::Shared
    } else {
        SchedulerInformerMode::Dedicated
    })
}

/// Returns the resync period of the cache.
pub(super) fn resync_period(spec: &NumaResourcesSchedulerSpec) -> Result<GoDuration, String> {
    let given = spec
        .cache_resync_period
        .as_deref()
        .unwrap_or(DEFAULT_CACHE_RESYNC_PERIOD);
    given
        .parse()
        .map_err(|error| format!("cacheResyncPeriod: {error}"))
}

/// Returns the role of the nodes that determine the number of schedulers.
pub(super) fn role(platform: Platform) -> &'static str {
    if platform == Platform::HyperShift {
        "worker"
    } else {
        "control-plane"
    }
}

/// Returns the number of pods (operator.md 5.5).
fn replicas(
    given: Option<i32>,
    nodes: usize,
    role: &str,
    platform: Platform,
) -> Result<i32, String> {
    let prefix = "failed to compute scheduler replicas: ";
    match given {
        Some(given) if i64::from(given) > i64::try_from(nodes).unwrap_or(i64::MAX) => Err(format!(
            "{prefix}explicitly set replicas count should not be greater than the number of the nodes with role {role}"
        )),
        Some(given) => Ok(given),
        None if nodes == 0 => Err(format!(
            "{prefix}{prefix}no {role} nodes found for platform {platform}"
        )),
        None if nodes < MIN_NODES_FOR_HA => Ok(1),
        None => Ok(3),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn resource(name: &str) -> NumaResourcesScheduler {
        let mut cr = NumaResourcesScheduler::new(name, NumaResourcesSchedulerSpec::default());
        cr.metadata.uid = Some("u".into());
        cr
    }

    #[rstest]
    #[case::sound(names::SCHEDULER_CR, false, "i:tag", false, Admission::Granted)]
    #[case::paused(names::SCHEDULER_CR, true, "i:tag", true, Admission::Paused)]
    #[case::image(
        names::SCHEDULER_CR,
        false,
        "i:tag",
        true,
        Admission::Refused(Outcome::Invalid {
            reason: "InvalidSchedulerImage",
            message: "image \"i:tag\" must be referenced by digest, not by tag".into(),
        })
    )]
    #[case::other_name(
        "other",
        true,
        "i:tag",
        true,
        Admission::Refused(Outcome::Invalid {
            reason: "IncorrectNUMAResourcesSchedulerResourceName",
            message: "incorrect NUMAResourcesScheduler resource name: other".into(),
        })
    )]
    fn name_comes_before_the_pause_and_the_pause_before_the_image(
        #[case] name: &str,
        #[case] paused: bool,
        #[case] image: &str,
        #[case] scheduler_image_validated: bool,
        #[case] expected: Admission,
    ) {
        let mut cr = resource(name);
        cr.spec.scheduler_image = image.into();
        if paused {
            let pause = (annotations::PAUSE_RECONCILIATION, annotations::ENABLED);
            cr.metadata.annotations = Some([(pause.0.to_owned(), pause.1.to_owned())].into());
        }
        let images = Policy {
            scheduler_image_validated,
            ..Policy::default()
        };
        assert_eq!(admission(&cr, None, &images), expected);
    }

    #[rstest]
    #[case::kubelets_list_all_pods(None, false, SchedulerInformerMode::Dedicated)]
    #[case::kubelets_list_active_pods(None, true, SchedulerInformerMode::Shared)]
    #[case::asked_for(
        Some(SchedulerInformerMode::Dedicated),
        true,
        SchedulerInformerMode::Dedicated
    )]
    fn informer_depends_on_what_kubelets_list(
        #[case] given: Option<SchedulerInformerMode>,
        #[case] lists_active_pods: bool,
        #[case] expected: SchedulerInformerMode,
    ) {
        let spec = NumaResourcesSchedulerSpec {
            scheduler_informer: given,
            ..NumaResourcesSchedulerSpec::default()
        };
        assert_eq!(informer(&spec, lists_active_pods), expected);
    }

    #[rstest]
    #[case::one_node(Platform::Kubernetes, 1, Ok(1))]
    #[case::three_nodes(Platform::OpenShift, 3, Ok(3))]
    #[case::no_node(
        Platform::HyperShift,
        0,
        Err(
            "failed to compute scheduler replicas: failed to compute scheduler replicas: no worker nodes found for platform HyperShift"
        )
    )]
    fn objects_belong_to_the_resource_and_its_deployment_has_the_replicas(
        #[case] platform: Platform,
        #[case] nodes: usize,
        #[case] expected: Result<i64, &str>,
    ) {
        let cr = resource(names::SCHEDULER_CR);
        let period = GoDuration::from_seconds(5);
        let informer = SchedulerInformerMode::Shared;
        let wanted = objects(
            &cr,
            informer,
            period,
            nodes,
            &Installation::example(platform),
        );
        match (wanted, expected) {
            (Ok(objects), Ok(replicas)) => {
                assert!(
                    objects
                        .iter()
                        .all(|object| object["metadata"]["ownerReferences"][0]["uid"] == "u")
                );
                let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
                assert_eq!(deployment.unwrap()["spec"]["replicas"], replicas);
            }
            (wanted, expected) => {
                assert_eq!(wanted.map(|_| 0), expected.map_err(str::to_owned));
            }
        }
    }

    #[rstest]
    #[case::none_given_one_node(None, 1, Ok(1))]
    #[case::none_given_two_nodes(None, 2, Ok(1))]
    #[case::none_given_three_nodes(None, 3, Ok(3))]
    #[case::none_given_five_nodes(None, 5, Ok(3))]
    #[case::zero(Some(0), 1, Ok(0))]
    #[case::as_many_as_nodes(Some(3), 3, Ok(3))]
    #[case::too_many(
        Some(4),
        3,
        Err(
            "failed to compute scheduler replicas: explicitly set replicas count should not be greater than the number of the nodes with role control-plane"
        )
    )]
    #[case::no_nodes(
        None,
        0,
        Err(
            "failed to compute scheduler replicas: failed to compute scheduler replicas: no control-plane nodes found for platform Kubernetes"
        )
    )]
    fn replicas_follow_the_control_plane(
        #[case] given: Option<i32>,
        #[case] nodes: usize,
        #[case] expected: Result<i32, &str>,
    ) {
        assert_eq!(
            replicas(given, nodes, "control-plane", Platform::Kubernetes),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn period_defaults_and_is_checked() {
        let mut spec = NumaResourcesSchedulerSpec::default();
        assert_eq!(resync_period(&spec), Ok(GoDuration::from_seconds(5)));
        spec.cache_resync_period = Some("soon".into());
        assert_eq!(
            resync_period(&spec).unwrap_err(),
            "cacheResyncPeriod: invalid duration \"soon\""
        );
    }

    mod fuzz {
        use serde_json::json;

        use super::*;

        #[test]
        fn no_resource_stops_the_plan() {
            let seed = json!({
                "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesScheduler",
                "metadata": {"name": "numaresourcesscheduler", "uid": "u", "annotations": {"config.numa-operator.openshift.io/pause-reconciliation": "enabled"}},
                "spec": {
                    "imageSpec": "registry.example/scheduler@sha256:0123456789012345678901234567890123456789012345678901234567890123",
                    "schedulerName": "topo", "logLevel": "Trace", "cacheResyncPeriod": "5s", "cacheResyncDebug": "DumpJSONFile",
                    "schedulerInformer": "Dedicated", "cacheResyncDetection": "Relaxed", "scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]},
                    "replicas": 2, "preemptionMode": "Enabled",
                },
            });
            ::fuzz::run(file!(), |input| {
                let Some(cr) = ::fuzz::object::<NumaResourcesScheduler>(&seed, input)? else {
                    return Ok(());
                };
                let nodes = *input.choose(&[0, 1, 3, 5000])?;
                for platform in [
                    Platform::Kubernetes,
                    Platform::OpenShift,
                    Platform::HyperShift,
                ] {
                    let installation = Installation::example(platform);
                    drop(admission(&cr, None, &installation.images));
                    let informer = informer(&cr.spec, input.arbitrary()?);
                    if let Ok(period) = resync_period(&cr.spec) {
                        drop(objects(&cr, informer, period, nodes, &installation));
                    }
                }
                Ok(())
            });
        }
    }
}

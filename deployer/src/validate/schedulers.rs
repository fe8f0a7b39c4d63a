//! Schedulers and the pods that name them: names that two schedulers or none serves, profiles that no pod uses, pods that cannot be aligned.

use std::collections::{BTreeMap, BTreeSet};

use api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::Value;

use super::finding::{CLUSTER, Finding};
use super::observe::{Configured, Observed};

/// Name of the scheduler that every cluster has.
const DEFAULT: &str = "default-scheduler";
const SCHEDULER: &str = "scheduler";
const POD: &str = "pod";

/// A profile of a scheduler.
struct Profile<'a> {
    name: &'a str,
    /// Namespace and name of the Deployment.
    of: String,
    sees_numa: bool,
}

/// Checks all schedulers and all pods.
pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let profiles: Vec<Profile<'_>> = observed.schedulers.iter().flat_map(profiles).collect();
    let mut findings = twice(&profiles);
    findings.extend(observed.schedulers.iter().filter_map(without_lease));
    if profiles.iter().all(|profile| !profile.sees_numa) {
        // the stack is not there: names of schedulers are nobody's business
        return findings;
    }
    let used: BTreeSet<&str> = observed.pods.iter().filter_map(scheduler_of).collect();
    let unused = profiles
        .iter()
        .filter(|profile| profile.sees_numa && !used.contains(profile.name));
    findings.extend(unused.map(|profile| {
        Finding::warning("", CLUSTER, SCHEDULER, profile.name)
            .expected("pods that name this profile")
            .detected("none")
            .fix(format!(
                "set schedulerName: {} in the pods that are to be aligned (scheduler {})",
                profile.name, profile.of
            ))
    }));
    for pod in &observed.pods {
        findings.extend(pod_findings(pod, &profiles));
    }
    findings
}

fn profiles(scheduler: &Configured) -> Vec<Profile<'_>> {
    let metadata = &scheduler.deployment.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let of = format!("{}/{}", part(&metadata.namespace), part(&metadata.name));
    let all = scheduler.configs.iter().flat_map(|config| {
        let profiles = config["profiles"].as_array();
        profiles.into_iter().flatten()
    });
    all.map(|profile| Profile {
        name: profile["schedulerName"].as_str().unwrap_or(DEFAULT),
        of: of.clone(),
        sees_numa: names_plugin(&profile["plugins"]),
    })
    .collect()
}

/// Returns whether the plugin is enabled at any point.
fn names_plugin(plugins: &Value) -> bool {
    let points = plugins.as_object();
    points.into_iter().flatten().any(|(_, point)| {
        let enabled = point["enabled"].as_array();
        enabled
            .into_iter()
            .flatten()
            .any(|plugin| plugin["name"] == names::SCHEDULER_PLUGIN)
    })
}

fn twice(profiles: &[Profile<'_>]) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for profile in profiles {
        by_name.entry(profile.name).or_default().insert(&profile.of);
    }
    by_name
        .into_iter()
        .filter(|(_, of)| of.len() > 1)
        .map(|(name, of)| {
            let of: Vec<&str> = of.into_iter().collect();
            Finding::error("", CLUSTER, SCHEDULER, name)
                .expected("one scheduler of this name")
                .detected(of.join(", "))
                .fix("remove one of them, or rename its profile: two schedulers place pods into the same zones")
        })
        .collect()
}

/// Finds a scheduler of several pods that elect no leader.
fn without_lease(scheduler: &Configured) -> Option<Finding> {
    let replicas = scheduler.deployment.spec.as_ref()?.replicas.unwrap_or(1);
    // kube-scheduler elects a leader unless it is told not to
    let elects = |config: &Value| config["leaderElection"]["leaderElect"] != false;
    if replicas < 2 || scheduler.configs.iter().all(elects) {
        return None;
    }
    let name = scheduler.deployment.name_any();
    Some(
        Finding::error("", CLUSTER, SCHEDULER, &name)
            .expected("leader election, because there are several pods")
            .detected(format!("{replicas} pods without leader election"))
            .fix("set leaderElection.leaderElect: true in its configuration, or replicas: 1"),
    )
}

fn scheduler_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.scheduler_name.as_deref()
}

fn pod_findings(pod: &Pod, profiles: &[Profile<'_>]) -> Option<Finding> {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let scheduler = scheduler_of(pod)?;
    let status = pod.status.as_ref();
    let phase = status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    let known: BTreeSet<&str> = profiles.iter().map(|profile| profile.name).collect();
    let is_bound = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.is_some());
    if !is_bound && scheduler != DEFAULT && !known.contains(&scheduler) {
        let known: Vec<&str> = known.into_iter().collect();
        return Some(
            Finding::warning("", CLUSTER, POD, &name)
                .expected(format!(
                    "a schedulerName that a scheduler serves: {}",
                    known.join(", ")
                ))
                .detected(scheduler)
                .fix("correct schedulerName: no scheduler looks at this pod"),
        );
    }
    let sees_numa = profiles
        .iter()
        .any(|profile| profile.sees_numa && profile.name == scheduler);
    let class = status
        .and_then(|status| status.qos_class.as_deref())
        .unwrap_or_default();
    (sees_numa && class != "Guaranteed").then(|| {
        Finding::warning("", CLUSTER, POD, &name)
            .expected("QoS class Guaranteed, because its scheduler aligns pods")
            .detected(class)
            .fix("set limits of CPU and memory in all its containers, and requests equal to them: the kubelet aligns no other pods")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scheduler(name: &str, profile: &str, replicas: i32) -> Configured {
        let config = json!({
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "profiles": [{"schedulerName": profile, "plugins": {"multiPoint": {"enabled": [{"name": names::SCHEDULER_PLUGIN}]}}}],
        });
        Configured {
            deployment: serde_json::from_value(json!({
                "metadata": {"namespace": "ns", "name": name},
                "spec": {"replicas": replicas, "selector": {}, "template": {}},
            }))
            .unwrap(),
            configs: vec![config],
        }
    }

    fn pod(name: &str, scheduler: &str, class: &str, node: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": name},
            "spec": {"schedulerName": scheduler, "nodeName": node, "containers": []},
            "status": {"phase": "Pending", "qosClass": class},
        }))
        .unwrap()
    }

    fn lines(schedulers: Vec<Configured>, pods: Vec<Pod>) -> Vec<String> {
        let observed = Observed {
            pods,
            schedulers,
            ..Observed::default()
        };
        check(&observed)
            .iter()
            .map(|f| format!("{} {}: {}", f.component, f.setting, f.detected))
            .collect()
    }

    #[test]
    fn two_schedulers_of_one_name_are_found() {
        let pods = vec![pod("p", "numa", "Guaranteed", Some("n"))];
        let two = vec![scheduler("one", "numa", 1), scheduler("two", "numa", 1)];
        assert_eq!(lines(two, pods.clone()), ["scheduler numa: ns/one, ns/two"]);
        assert_eq!(
            lines(vec![scheduler("one", "numa", 2)], pods),
            ["scheduler one: 2 pods without leader election"]
        );
    }

    #[test]
    fn pods_that_cannot_be_aligned_or_are_nobodys_are_found() {
        let pods = vec![
            pod("good", "numa", "Guaranteed", None),
            pod("burst", "numa", "Burstable", Some("n")),
            pod("lost", "nmua", "Guaranteed", None),
            pod("other", DEFAULT, "BestEffort", None),
        ];
        assert_eq!(
            lines(vec![scheduler("s", "numa", 1)], pods),
            ["pod ns/burst: Burstable", "pod ns/lost: nmua"]
        );
    }

    #[test]
    fn a_profile_that_no_pod_uses_is_found() {
        let pods = vec![pod("other", DEFAULT, "BestEffort", None)];
        assert_eq!(
            lines(vec![scheduler("s", "numa", 1)], pods),
            ["scheduler numa: none"]
        );
        assert_eq!(lines(Vec::new(), Vec::new()), [""; 0]);
    }
}

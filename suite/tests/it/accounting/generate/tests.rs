use super::*;

fn nodes() -> Vec<Target> {
    (0..4)
        .map(|index| Target {
            name: format!("worker-{index}"),
            zone_cpus: 22,
            zone_memory: (index != 3).then_some(58 << 30),
            spans_zones: index == 2,
        })
        .collect()
}

fn fifty(seed: u64) -> Vec<PodSet> {
    (1..=50)
        .map(|number| pod_set(seed, number, &nodes()))
        .collect()
}

/// Returns whether the predicate holds for some container of a pod. Its second argument is true for init containers.
fn any(pod: &Pod, is_so: impl Fn(&Container, bool) -> bool) -> bool {
    let spec = pod.spec.as_ref().expect("spec");
    spec.containers.iter().any(|one| is_so(one, false))
        || spec
            .init_containers
            .iter()
            .flatten()
            .any(|one| is_so(one, true))
}

fn limit<'a>(container: &'a Container, resource: &str) -> Option<&'a str> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    limits.get(resource).map(|quantity| quantity.0.as_str())
}

#[test]
fn the_same_seed_gives_the_same_sets() {
    assert_eq!(fifty(7), fifty(7));
    assert_ne!(fifty(7)[0], fifty(8)[0]);
}

#[test]
fn every_set_has_an_init_container_that_needs_more_than_the_apps() {
    for set in fifty(1) {
        assert!(set.pods.iter().any(|pod| {
            pod.spec.as_ref().is_some_and(|spec| {
                spec.init_containers
                    .iter()
                    .flatten()
                    .any(|init| limit(init, "cpu") == Some("3"))
                    && spec.containers.len() == 1
                    && limit(&spec.containers[0], "cpu") == Some("1")
            })
        }));
    }
}

#[test]
fn fifty_sets_have_every_kind_of_pod() {
    let sets = fifty(3);
    let pods: Vec<&Pod> = sets.iter().flat_map(|set| &set.pods).collect();
    let count = |what: &str, is_so: &dyn Fn(&Pod) -> bool| {
        let count = pods.iter().filter(|pod| is_so(pod)).count();
        assert!(count >= 5, "{count} pods with {what}");
    };
    let sidecar = |one: &Container| one.restart_policy.is_some();
    count("whole CPUs", &|pod| {
        any(pod, |one, _| {
            limit(one, "cpu").is_some_and(|cpu| !cpu.ends_with('m'))
        })
    });
    count("parts of CPUs", &|pod| {
        any(pod, |one, _| {
            limit(one, "cpu").is_some_and(|cpu| cpu.ends_with('m'))
        })
    });
    count("requests only", &|pod| {
        any(pod, |one, _| {
            let resources = one.resources.as_ref().expect("resources");
            resources.requests.is_some() && resources.limits.is_none()
        })
    });
    count("nothing asked", &|pod| {
        any(pod, |one, _| {
            one.resources == Some(ResourceRequirements::default())
        })
    });
    count("plain init containers", &|pod| {
        any(pod, |one, init| init && !sidecar(one))
    });
    count("sidecars", &|pod| any(pod, |one, _| sidecar(one)));
    count("small hugepages", &|pod| {
        any(pod, |one, _| limit(one, "hugepages-2Mi").is_some())
    });
    count("large hugepages", &|pod| {
        any(pod, |one, _| limit(one, "hugepages-1Gi").is_some())
    });
    for (resource, _) in DEVICES {
        count(resource, &|pod| {
            any(pod, |one, _| limit(one, resource).is_some())
        });
    }
    count("more CPUs than a zone", &|pod| {
        any(pod, |one, _| {
            limit(one, "cpu").is_some_and(|cpu| TOO_MANY_CPUS.contains(&cpu))
        })
    });
    count("an end", &|pod| {
        pod.spec
            .as_ref()
            .is_some_and(|spec| spec.restart_policy.is_some())
    });
    count("a node chosen by the scheduler", &|pod| {
        pod.spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_none())
    });
    assert!(sets.iter().any(|set| set.delete_first.len() > 1));
    assert!(sets.iter().any(|set| set.later.len() > 1));
    assert!(sets.iter().any(|set| set.delete_first.is_empty()));
}

mod filter {
    use super::super::*;
    use crate::state::group_kind::GroupKind;
    use crate::testing::{mk_key, mk_node, mk_pod};

    fn mk_spread(pod: Pod, max_skew: i32, min_domains: Option<i32>) -> Pod {
        let mut pod = pod;
        pod.labels = [("app".to_owned(), "web".to_owned())].into();
        pod.constraints.spread = vec![TopologySpreadConstraint {
            max_skew,
            min_domains,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            label_selector: serde_json::from_value(
                serde_json::json!({"matchLabels": {"app": "web"}}),
            )
            .ok(),
            ..TopologySpreadConstraint::default()
        }];
        pod
    }

    fn mk_cluster() -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=4"));
        }
        cluster.apply_pod(Pod {
            node: Some("a".to_owned()),
            ..mk_spread(mk_pod("one", ""), 1, None)
        });
        cluster
    }

    fn allowed(cluster: &Cluster, pod: &Pod) -> Vec<String> {
        allowed_by(cluster, pod, &[])
    }

    fn allowed_by(
        cluster: &Cluster,
        pod: &Pod,
        defaults: &[TopologySpreadConstraint],
    ) -> Vec<String> {
        let counts = Counts::new(cluster, pod, defaults);
        let nodes = cluster
            .nodes()
            .filter(|(node, _)| counts.filter(node).is_ok());
        nodes.map(|(node, _)| node.name.clone()).collect()
    }

    #[test]
    fn the_emptier_domain_is_the_only_choice() {
        let cluster = mk_cluster();
        assert_eq!(
            allowed(&cluster, &mk_spread(mk_pod("p", ""), 1, None)),
            ["b"]
        );
        assert_eq!(
            allowed(&cluster, &mk_spread(mk_pod("p", ""), 2, None)),
            ["a", "b"]
        );
    }

    #[test]
    fn too_few_domains_count_as_an_empty_one() {
        let mut cluster = mk_cluster();
        cluster.apply_pod(Pod {
            node: Some("b".to_owned()),
            ..mk_spread(mk_pod("two", ""), 1, None)
        });
        assert_eq!(
            allowed(&cluster, &mk_spread(mk_pod("p", ""), 1, None)),
            ["a", "b"]
        );
        assert!(allowed(&cluster, &mk_spread(mk_pod("p", ""), 1, Some(3))).is_empty());
    }

    #[test]
    fn nodes_that_the_pod_cannot_use_do_not_count() {
        let cluster = mk_cluster();
        let mut pod = mk_spread(mk_pod("p", ""), 1, None);
        pod.constraints.node_selector =
            [("kubernetes.io/hostname".to_owned(), "a".to_owned())].into();
        assert_eq!(Counts::new(&cluster, &pod, &[]).0[0].domains.len(), 1);
        assert!(allowed(&cluster, &pod).contains(&"a".to_owned()));
    }

    #[test]
    fn hard_defaults_keep_apart_what_belongs_to_one_service_and_has_no_rules_of_its_own() {
        let mut cluster = mk_cluster();
        let mut pod = mk_spread(mk_pod("p", ""), 1, None);
        let mut default = std::mem::take(&mut pod.constraints.spread).remove(0);
        let selector = default.label_selector.take().expect("selector");
        let soft = TopologySpreadConstraint {
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..default.clone()
        };
        let hard = [default];
        assert_eq!(allowed_by(&cluster, &pod, &hard), ["a", "b"], "no service");
        let service = mk_key("ns", "web");
        cluster.apply_group(GroupKind::Service, service, selector);
        assert_eq!(allowed_by(&cluster, &pod, &hard), ["b"]);
        assert_eq!(
            allowed_by(&cluster, &pod, &[soft]),
            ["a", "b"],
            "only scored"
        );
        let looser = mk_spread(pod, 2, None);
        assert_eq!(allowed_by(&cluster, &looser, &hard), ["a", "b"], "its own");
    }

    #[test]
    fn a_node_without_the_label_is_refused_with_its_own_reason() {
        let mut cluster = mk_cluster();
        let mut bare = mk_node("c", "cpu=4");
        bare.labels.clear();
        cluster.apply_node(bare.clone());
        let counts = Counts::new(&cluster, &mk_spread(mk_pod("p", ""), 1, None), &[]);
        assert_eq!(
            counts.filter(&bare).expect_err("no label").reasons,
            [MISSING_LABEL]
        );
    }
}

mod score {
    use super::super::*;
    use crate::state::group_kind::GroupKind;
    use crate::state::pod::PodKey;
    use crate::testing::{mk_node, mk_pod};
    use scheduler_config::default_plugins::PodTopologySpreadArgs;
    use serde_json::json;

    const ZONE: &str = "topology.kubernetes.io/zone";

    /// Builds nodes `a` and `b` in zone x, `c` in zone y, `d` in none, with this many pods of the kind on each.
    fn mk_cluster(matching_pods: [usize; 4]) -> Cluster {
        let mut cluster = Cluster::new();
        for ((name, zone), count) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "")]
            .into_iter()
            .zip(matching_pods)
        {
            let mut node = mk_node(name, "cpu=4");
            if !zone.is_empty() {
                node.labels.insert(ZONE.to_owned(), zone.to_owned());
            }
            cluster.apply_node(node);
            for number in 0..count {
                cluster.apply_pod(Pod {
                    node: Some(name.to_owned()),
                    labels: [("app".to_owned(), "web".to_owned())].into(),
                    ..mk_pod(&format!("{name}-{number}"), "")
                });
            }
        }
        cluster
    }

    fn mk_web(constraints: &[(&str, i32)]) -> Pod {
        let mut pod = mk_pod("p", "");
        pod.labels = [("app".to_owned(), "web".to_owned())].into();
        let constraint = |(key, max_skew): &(&str, i32)| {
            serde_json::from_value(json!({
                "topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }))
        };
        pod.constraints.spread = constraints
            .iter()
            .map(|it| constraint(it).expect("constraint"))
            .collect();
        pod
    }

    fn score_nodes(cluster: &Cluster, pod: &Pod, defaults: &Defaults) -> Option<Vec<i64>> {
        scores(cluster, pod, cluster.nodes(), defaults)
    }

    #[test]
    fn the_zone_with_fewer_pods_is_better() {
        // weight ln(2 + 2) = 1.386: raw 3 * 1.386 = 4 in zone x, 1 in zone y; d has no zone
        let cluster = mk_cluster([2, 1, 1, 0]);
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[(ZONE, 1)]), &Defaults::default()),
            Some(vec![25, 25, 100, 0])
        );
    }

    #[test]
    fn nodes_are_domains_of_their_own() {
        // weight ln(4 + 2) = 1.79 and maxSkew 3: raw 2 + {3.58, 1.79, 0, 0} = 6, 4, 2, 2
        let cluster = mk_cluster([2, 1, 0, 0]);
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[(HOST, 3)]), &Defaults::default()),
            Some(vec![33, 66, 100, 100])
        );
    }

    #[test]
    fn without_pods_all_are_equally_good() {
        let cluster = mk_cluster([0; 4]);
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[(HOST, 1)]), &Defaults::default()),
            Some(vec![100; 4])
        );
        assert_eq!(
            score_nodes(&cluster, &mk_web(&[]), &Defaults::default()),
            None
        );
    }

    #[test]
    fn hard_constraints_are_not_scored_and_stand_for_the_defaults() {
        let mut pod = mk_web(&[(ZONE, 1)]);
        pod.constraints.spread[0].when_unsatisfiable = "DoNotSchedule".to_owned();
        let mut cluster = mk_cluster([2, 1, 0, 0]);
        cluster.apply_group(GroupKind::Service, key("s"), selector("web"));
        assert_eq!(score_nodes(&cluster, &pod, &system()), None);
    }

    fn system() -> Defaults {
        Defaults {
            constraints: PodTopologySpreadArgs::default().constraints(),
            are_system: true,
        }
    }

    fn key(name: &str) -> PodKey {
        PodKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    fn selector(app: &str) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        serde_json::from_value(json!({"matchLabels": {"app": app}})).expect("selector")
    }

    #[test]
    fn a_pod_of_a_service_or_a_controller_is_spread_by_default() {
        let mut cluster = mk_cluster([2, 1, 1, 0]);
        let mut pod = mk_web(&[]);
        assert_eq!(
            score_nodes(&cluster, &pod, &system()),
            None,
            "it has no siblings"
        );
        cluster.apply_group(GroupKind::Service, key("other"), selector("db"));
        assert_eq!(
            score_nodes(&cluster, &pod, &system()),
            None,
            "the service is another's"
        );
        cluster.apply_group(GroupKind::ReplicaSet, key("rs"), selector("web"));
        pod.constraints.controller = Some((GroupKind::ReplicaSet, "rs".to_owned()));
        // host: 2 + ln(6) * {2, 1, 1, 0}; zone, where d is the third domain: 4 + ln(5) * {3, 3, 1}, 0 for d
        // raw 14.4, 12.6, 9.4, 2 = 14, 13, 9, 2
        assert_eq!(
            score_nodes(&cluster, &pod, &system()),
            Some(vec![14, 21, 50, 100])
        );
        cluster.delete_group(GroupKind::ReplicaSet, &key("rs"));
        assert_eq!(score_nodes(&cluster, &pod, &system()), None);
        cluster.apply_group(GroupKind::Service, key("s"), selector("web"));
        assert!(score_nodes(&cluster, &pod, &system()).is_some());
        cluster.retain_groups(GroupKind::Service, &[key("other")].into());
        assert_eq!(score_nodes(&cluster, &pod, &system()), None);
    }
}

mod filter {
    use super::super::*;
    use crate::testing::{mk_node, mk_pod};
    use serde_json::json;

    fn mk_term(app: &str) -> PodAffinityTerm {
        serde_json::from_value(json!({
            "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
        }))
        .expect("term")
    }

    fn mk_cluster(guest: Pod) -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=4"));
        }
        cluster.apply_pod(Pod {
            node: Some("a".to_owned()),
            ..guest
        });
        cluster
    }

    fn allowed(cluster: &Cluster, pod: &Pod) -> Vec<String> {
        let domains = Domains::new(cluster, pod);
        let nodes = cluster
            .nodes()
            .filter(|(node, _)| domains.filter(node).is_ok());
        nodes.map(|(node, _)| node.name.clone()).collect()
    }

    #[test]
    fn affinity_draws_to_the_pod_and_anti_affinity_away() {
        let cluster = mk_cluster(mk_pod("guest", ""));
        let mut pod = mk_pod("p", "");
        pod.constraints.affinity = vec![mk_term("guest")];
        assert_eq!(allowed(&cluster, &pod), ["a"]);
        let mut pod = mk_pod("p", "");
        pod.anti_affinity = vec![mk_term("guest")];
        assert_eq!(allowed(&cluster, &pod), ["b"]);
        assert_eq!(allowed(&cluster, &mk_pod("p", "")), ["a", "b"]);
    }

    #[test]
    fn what_a_pod_does_not_want_near_it_stays_away() {
        let cluster = mk_cluster(Pod {
            anti_affinity: vec![mk_term("p")],
            ..mk_pod("guest", "")
        });
        assert_eq!(allowed(&cluster, &mk_pod("p", "")), ["b"]);
        assert_eq!(allowed(&cluster, &mk_pod("q", "")), ["a", "b"]);
    }

    #[test]
    fn the_first_of_a_kind_may_go_anywhere() {
        let cluster = mk_cluster(mk_pod("guest", ""));
        let mut pod = mk_pod("p", "");
        pod.constraints.affinity = vec![mk_term("p")];
        assert_eq!(allowed(&cluster, &pod), ["a", "b"]);
        pod.constraints.affinity = vec![mk_term("absent")];
        assert!(allowed(&cluster, &pod).is_empty());
    }

    #[test]
    fn other_namespaces_count_only_where_named_or_selected() {
        let mut guest = mk_pod("guest", "");
        guest.key.namespace = "other".to_owned();
        let mut cluster = mk_cluster(guest);
        let mut pod = mk_pod("p", "");
        pod.anti_affinity = vec![mk_term("guest")];
        assert_eq!(allowed(&cluster, &pod), ["a", "b"]);
        pod.anti_affinity[0].namespaces = Some(vec!["other".to_owned()]);
        assert_eq!(allowed(&cluster, &pod), ["b"]);
        pod.anti_affinity[0].namespaces = None;
        pod.anti_affinity[0].namespace_selector =
            serde_json::from_value(json!({"matchLabels": {"team": "x"}})).ok();
        assert_eq!(allowed(&cluster, &pod), ["a", "b"]);
        cluster.apply_namespace(
            "other".to_owned(),
            [("team".to_owned(), "x".to_owned())].into(),
        );
        assert_eq!(allowed(&cluster, &pod), ["b"]);
    }
}

mod score {
    use super::super::*;
    use crate::state::pod::Preferences;
    use crate::testing::{mk_node, mk_pod};
    use k8s_openapi::api::core::v1::WeightedPodAffinityTerm;
    use serde_json::json;

    fn mk_term(app: &str) -> PodAffinityTerm {
        serde_json::from_value(json!({
            "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
        }))
        .expect("term")
    }

    fn mk_preferences(near: &[(&str, i32)], apart: &[(&str, i32)]) -> Preferences {
        let terms = |list: &[(&str, i32)]| {
            let term = |(app, weight): &(&str, i32)| WeightedPodAffinityTerm {
                pod_affinity_term: mk_term(app),
                weight: *weight,
            };
            list.iter().map(term).collect()
        };
        Preferences {
            near: terms(near),
            apart: terms(apart),
        }
    }

    /// Builds nodes `a`, `b` and `c` with these pods on them.
    fn mk_cluster(guests: Vec<(&str, Pod)>) -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b", "c"] {
            cluster.apply_node(mk_node(name, "cpu=4"));
        }
        for (node, guest) in guests {
            cluster.apply_pod(Pod {
                node: Some(node.to_owned()),
                ..guest
            });
        }
        cluster
    }

    fn score_nodes(cluster: &Cluster, pod: &Pod, args: InterPodAffinityArgs) -> Option<Vec<i64>> {
        let nodes = cluster.nodes().map(|(node, _)| node);
        scores(cluster, pod, nodes, args)
    }

    #[test]
    fn preferences_of_the_pod_draw_it_near_and_away() {
        let cluster = mk_cluster(vec![("a", mk_pod("db", "")), ("b", mk_pod("noise", ""))]);
        let mut pod = mk_pod("p", "");
        pod.constraints.preferences =
            Some(Box::new(mk_preferences(&[("db", 10)], &[("noise", 30)])));
        // raw 10, -30, 0
        assert_eq!(
            score_nodes(&cluster, &pod, InterPodAffinityArgs::default()),
            Some(vec![100, 0, 75])
        );
        assert_eq!(
            score_nodes(&cluster, &mk_pod("p", ""), InterPodAffinityArgs::default()),
            None
        );
    }

    #[test]
    fn preferences_of_others_count_unless_ignored() {
        let mut fan = mk_pod("fan", "");
        fan.constraints.preferences = Some(Box::new(mk_preferences(&[("p", 20)], &[])));
        let mut needy = mk_pod("needy", "");
        needy.constraints.affinity = vec![mk_term("p")];
        let cluster = mk_cluster(vec![("a", fan), ("b", needy)]);
        let pod = mk_pod("p", "");
        let score_nodes = |args| score_nodes(&cluster, &pod, args);
        assert_eq!(
            score_nodes(InterPodAffinityArgs::default()),
            Some(vec![100, 5, 0])
        );
        assert_eq!(
            score_nodes(InterPodAffinityArgs {
                hard_pod_affinity_weight: 0,
                ..InterPodAffinityArgs::default()
            }),
            Some(vec![100, 0, 0])
        );
        assert_eq!(
            score_nodes(InterPodAffinityArgs {
                ignore_preferred_terms_of_existing_pods: true,
                ..InterPodAffinityArgs::default()
            }),
            None
        );
    }
}

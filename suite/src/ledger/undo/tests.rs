use rstest::rstest;

use super::*;

fn undo(name: &str) -> Undo {
    Undo::DeleteNamespace {
        name: name.to_owned(),
    }
}

#[test]
fn what_was_made_otherwise_meanwhile_is_put_right_but_for_the_address_it_was_given() {
    let mk = |spec: Value| {
        let object =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
        serde_json::from_value::<DynamicObject>(object).expect("an object")
    };
    let before =
        mk(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP"}));
    let again =
        mk(json!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "type": "ClusterIP"}));
    assert_eq!(restored_object(&again, &before), None);
    let other =
        mk(json!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "type": "NodePort"}));
    assert_eq!(restored_object(&other, &before), Some(again));
    let without = mk(json!({"type": "NodePort"}));
    let plain = mk(json!({"type": "ClusterIP"}));
    assert_eq!(restored_object(&without, &plain), Some(plain));
}

#[rstest]
#[case::same_field(json!({"spec": {"a": 1}}), json!({"spec": {"a": [2]}}), true)]
#[case::more_fields(json!({"spec": {"a": 1, "b": null}}), json!({"spec": {"b": 2}}), true)]
#[case::fewer_fields(json!({"spec": {"a": 1}}), json!({"spec": {"a": 2, "b": 2}}), false)]
#[case::label_that_was_not_there(json!({"metadata": {"labels": {"a": null, "b": ""}}}), json!({"metadata": {"labels": {"b": null, "a": ""}}}), true)]
#[case::map_merged_into_a_value(json!({"spec": {"a": {}}}), json!({"spec": {"a": 1}}), false)]
#[case::value_over_a_map(json!({"spec": {"a": null}}), json!({"spec": {"a": {"b": 1}}}), false)]
fn an_undo_covers_a_later_one_whose_fields_it_sets_all(
    #[case] first: Value,
    #[case] later: Value,
    #[case] expected: bool,
) {
    let of = |node: &str, patch: &Value| Undo::Patch {
        object: ObjectRef::node(node),
        patch: patch.clone(),
    };
    assert_eq!(of("n", &first).covers(&of("n", &later)), expected);
    assert!(!of("n", &first).covers(&of("another", &later)));
}

#[test]
fn undos_survive_the_log() {
    let pod = Pod {
        metadata: kube::api::ObjectMeta {
            namespace: Some("n".into()),
            name: Some("p".into()),
            ..kube::api::ObjectMeta::default()
        },
        ..Pod::default()
    };
    let object = ObjectRef::of(&pod);
    assert_eq!(object.to_string(), "Pod n/p");
    let undos = [
        undo("a"),
        Undo::Delete {
            object: object.clone(),
        },
        Undo::Create {
            object: object.clone(),
            manifest: json!({"kind": "Pod"}),
        },
        Undo::Patch {
            object,
            patch: json!({"metadata": {"labels": {"a": null}}}),
        },
        Undo::RemoveTaint {
            node: "n".into(),
            key: "k".into(),
            effect: "NoSchedule".into(),
        },
    ];
    for undo in undos {
        let text = serde_json::to_string(&undo).expect("undo is data");
        assert_eq!(
            serde_json::from_str::<Undo>(&text).expect("undo is read back"),
            undo
        );
    }
}

#[tokio::test]
async fn deleted_object_comes_back_as_it_was_without_what_the_server_says() {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Node", "status": {"phase": "x"}, "spec": {"podCIDR": "y"},
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
    });
    let object = without_server_fields(&manifest).expect("it is an object");
    assert_eq!(
        json!(object),
        json!({
            "apiVersion": "v1", "kind": "Node", "spec": {"podCIDR": "y"},
            "metadata": {"name": "n", "labels": {"a": "b"}},
        })
    );
    let undo = Undo::Create {
        object: ObjectRef::node("n"),
        manifest,
    };
    for (present, requests) in [
        (None, &["GET /api/v1/nodes/n", "POST /api/v1/nodes"][..]),
        (Some("y"), &["GET /api/v1/nodes/n"]),
        (Some("z"), &["GET /api/v1/nodes/n", "PUT /api/v1/nodes/n"]),
    ] {
        let (client, log) = crate::testing::client(move |method, _| {
            if method == "GET" && present.is_none() {
                return crate::testing::not_found();
            }
            let spec = json!({"podCIDR": present});
            (
                200,
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": spec}),
            )
        });
        undo.run(&client).await.expect("it is there");
        assert_eq!(*log.lock().expect("requests"), requests);
    }
}

#[tokio::test]
async fn only_our_taint_is_removed() {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let (client, log) = crate::testing::client(move |_, _| {
        let node = json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": [taint("ours"), taint("theirs")]}});
        (200, node)
    });
    let undo = Undo::RemoveTaint {
        node: "n".into(),
        key: "ours".into(),
        effect: "NoSchedule".into(),
    };
    undo.run(&client).await.expect("the taint is removed");
    assert_eq!(
        *log.lock().expect("requests"),
        ["GET /api/v1/nodes/n", "PATCH /api/v1/nodes/n"]
    );
    let undo = Undo::RemoveTaint {
        node: "n".into(),
        key: "absent".into(),
        effect: "NoSchedule".into(),
    };
    undo.run(&client).await.expect("there is nothing to remove");
    assert_eq!(log.lock().expect("requests").len(), 3);
}

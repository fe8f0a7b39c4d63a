//! Creations whose answers were lost. The client sends a request again after 429, 503 and 504, also one that was carried out, and is then told that the
//! object exists.

use std::fmt::Debug;

use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::RUN_LABEL;

/// Creates an object that carries the label of its run. One that is there already is what an earlier attempt has created if it carries the same label, and
/// is not on its way out.
pub(crate) async fn create<K>(api: &Api<K>, object: &K) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let refused = match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => kube::Error::Api(status),
        other => return other,
    };
    match api.get_opt(&object.name_any()).await? {
        Some(there) if is_of_same_run(&there, object) => Ok(there),
        _ => Err(refused),
    }
}

fn is_of_same_run<K: Resource>(there: &K, object: &K) -> bool {
    let run = object.labels().get(RUN_LABEL);
    run.is_some()
        && there.labels().get(RUN_LABEL) == run
        && there.meta().deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    const EXISTS: u16 = 409;

    fn namespace(metadata: &Value) -> Value {
        let mut metadata = metadata.clone();
        metadata["name"] = json!("n");
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    }

    #[rstest]
    #[case::by_the_attempt_before(json!({"labels": {RUN_LABEL: "mine"}}), true)]
    #[case::by_somebody_else(json!({}), false)]
    #[case::by_another_run(json!({"labels": {RUN_LABEL: "other"}}), false)]
    #[case::earlier_and_deleted(
        json!({"labels": {RUN_LABEL: "mine"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        false
    )]
    #[tokio::test]
    async fn what_exists_counts_as_created_if_it_was_created(
        #[case] there: Value,
        #[case] expected: bool,
    ) {
        let (client, _) = testing::client(move |method, _| match method {
            "POST" => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists",
                    "code": EXISTS, "message": "namespaces \"n\" already exists"});
                (EXISTS, status)
            }
            _ => (200, namespace(&there)),
        });
        let mine = namespace(&json!({"labels": {RUN_LABEL: "mine"}}));
        let mine: Namespace = serde_json::from_value(mine).expect("a namespace");
        let created = create(&Api::all(client), &mine).await;
        match created {
            Ok(created) => assert!(expected, "{created:?}"),
            Err(error) => {
                assert!(!expected, "{error}");
                assert!(error.to_string().contains("already exists"), "{error}");
            }
        }
    }
}

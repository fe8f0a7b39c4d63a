//! What is looked at before anything is changed, so that nothing is left half done: who else keeps the objects, what the user may do, and whether the API
//! server takes them.

use std::collections::BTreeSet;

use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use apply::{Cause, Identity, again, is_unanswered};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use manifests::nfd;
use serde_json::Value;

use crate::images::UpdaterType;
use crate::objects::exporter;
use crate::objects::{Component, DEPLOYER, MANAGED_BY, Set};

/// Number of questions that are asked at the same time.
const AT_ONCE: usize = 16;
/// Kinds whose objects own what the operator installs.
const OPERATOR_KINDS: [&str; 2] = [api::operator::KIND, api::scheduler::KIND];

/// Nothing was changed, because it would not have succeeded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator keeps the component.
    #[error(
        "the operator keeps the {component} of this cluster, by {resource}. Nothing was changed: change that resource, or delete it first"
    )]
    Operator {
        /// What the log calls the component.
        component: &'static str,
        /// Kind and name of its resource.
        resource: String,
    },
    /// The other updater is there; both would write the same objects.
    #[error(
        "the other topology updater is there, DaemonSet {0}, and would write the same objects. Nothing was changed: remove it first (deployer remove topology-updater --updater-type={1})"
    )]
    OtherUpdater(String, &'static str),
    /// The user lacks rights.
    #[error("the user of the kubeconfig may not: {}. Nothing was changed: take one with these rights", .0.join(", "))]
    Forbidden(Vec<String>),
    /// The cluster does not know a kind.
    #[error(
        "the cluster does not know the kind {0}. Nothing was changed: is the platform right? Without --platform it is detected"
    )]
    UnknownKind(String),
    /// The API server refuses an object.
    #[error("the API server refuses {object}. Nothing was changed")]
    Refused {
        /// The object.
        object: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// A question was not answered.
    #[error("failed to {what}. Nothing was changed")]
    Ask {
        /// What was asked.
        what: String,
        /// The cause.
        #[source]
        source: Cause,
    },
}

fn ask(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let what = what.into();
    move |error| Error::Ask {
        what,
        source: error.into(),
    }
}

/// Checks everything that a deployment of these sets needs.
pub async fn before_deploy(client: &Client, sets: &[Set]) -> Result<(), Error> {
    for set in sets {
        refuse_operator(client, set.component).await?;
        if let Component::Updater(kind) = set.component {
            refuse_other_updater(client, kind).await?;
        }
    }
    let objects: Vec<&Value> = sets.iter().flat_map(|set| &set.create).collect();
    refuse_without_rights(client, &objects, &["get", "create", "update"]).await?;
    for object in objects {
        try_to_create(client, object).await?;
    }
    Ok(())
}

/// Checks everything that a removal of these sets needs.
pub async fn before_remove(client: &Client, sets: &[Set]) -> Result<(), Error> {
    let objects: Vec<&Value> = sets.iter().flat_map(|set| &set.delete).collect();
    refuse_without_rights(client, &objects, &["get", "delete"]).await
}

/// Returns why an object that is there is not this program's to change or delete; `None` if it is.
pub fn foreign(existing: &DynamicObject) -> Option<String> {
    let owner = existing
        .owner_references()
        .iter()
        .find(|owner| OPERATOR_KINDS.contains(&owner.kind.as_str()));
    if let Some(owner) = owner {
        return Some(format!(
            "it belongs to the operator ({} {})",
            owner.kind, owner.name
        ));
    }
    let kind = existing.types.as_ref().map(|types| types.kind.as_str());
    let may_be_shared = matches!(kind, Some("Namespace" | "CustomResourceDefinition"));
    let is_marked = existing
        .labels()
        .get(MANAGED_BY)
        .is_some_and(|by| by == DEPLOYER);
    (may_be_shared && !is_marked)
        .then(|| format!("it was there before, without the label {MANAGED_BY}={DEPLOYER}"))
}

/// Returns the resource by which the operator keeps a component, if it does.
pub async fn operator_resource(
    client: &Client,
    component: Component,
) -> Result<Option<String>, Error> {
    let exporters = async {
        let all: Api<NumaResourcesOperator> = Api::all(client.clone());
        first_of(&all, api::operator::KIND).await
    };
    let scheduler = async {
        let all: Api<NumaResourcesScheduler> = Api::all(client.clone());
        first_of(&all, api::scheduler::KIND).await
    };
    match component {
        // both need the definition; who keeps exporters keeps it
        Component::Api | Component::Updater(_) => exporters.await,
        Component::Scheduler => scheduler.await,
    }
}

async fn first_of<K>(all: &Api<K>, kind: &str) -> Result<Option<String>, Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match all.list_metadata(&ListParams::default().limit(1)).await {
        Ok(list) => Ok(list.items.first().map(|object| {
            format!(
                "{kind} {}",
                object.metadata.name.as_deref().unwrap_or_default()
            )
        })),
        // without the kind there is no operator; who may not look cannot have one
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(ask(format!("list {kind}"))(error)),
    }
}

async fn refuse_operator(client: &Client, component: Component) -> Result<(), Error> {
    // the definition is the same for both
    if component == Component::Api {
        return Ok(());
    }
    match operator_resource(client, component).await? {
        None => Ok(()),
        Some(resource) => Err(Error::Operator {
            component: component.title(),
            resource,
        }),
    }
}

async fn refuse_other_updater(client: &Client, kind: UpdaterType) -> Result<(), Error> {
    let (namespace, name, other) = match kind {
        UpdaterType::Rte => (nfd::NAMESPACE, nfd::NAME, "NFD"),
        UpdaterType::Nfd => (exporter::NAMESPACE, exporter::DAEMON_SET, "RTE"),
    };
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    match sets.get_opt(name).await {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(Error::OtherUpdater(format!("{namespace}/{name}"), other)),
        // the right to look is checked for what is deployed only
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(ask(format!("get DaemonSet {namespace}/{name}"))(error)),
    }
}

/// A right: verb, API group, resource, namespace.
type Right = (&'static str, String, String, Option<String>);

async fn refuse_without_rights(
    client: &Client,
    objects: &[&Value],
    verbs: &[&'static str],
) -> Result<(), Error> {
    let mut rights: BTreeSet<Right> = BTreeSet::new();
    for identity in objects.iter().filter_map(|object| Identity::of(object)) {
        let plural = identity.resource().plural;
        for &verb in verbs {
            let right = (
                verb,
                identity.group.clone(),
                plural.clone(),
                identity.namespace.clone(),
            );
            rights.insert(right);
        }
    }
    let answers: Vec<Result<Option<String>, Error>> = stream::iter(rights)
        .map(|right| async move {
            let is_allowed = may(client, &right).await?;
            Ok((!is_allowed).then(|| described(&right)))
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let missing: Result<Vec<Option<String>>, Error> = answers.into_iter().collect();
    let missing: Vec<String> = missing?.into_iter().flatten().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Forbidden(missing))
}

fn described((verb, group, resource, namespace): &Right) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    let place = namespace
        .as_ref()
        .map(|namespace| format!(" in namespace {namespace}"))
        .unwrap_or_default();
    format!("{verb} {resource}{dot}{group}{place}")
}

async fn may(client: &Client, right: &Right) -> Result<bool, Error> {
    let (verb, group, resource, namespace) = right.clone();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group),
                resource: Some(resource),
                namespace,
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let params = PostParams::default();
    let answer = again(|| reviews.create(&params, &review), is_unanswered).await;
    let answer = answer.map_err(ask("ask which rights the user has"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Has the API server say what it would do with an object of the cluster that is not there: it may refuse a role with more rights than the user has, or not
/// know the kind. Objects in a namespace cannot be tried while that is missing.
async fn try_to_create(client: &Client, object: &Value) -> Result<(), Error> {
    let Some(identity) = Identity::of(object).filter(|identity| identity.namespace.is_none())
    else {
        return Ok(());
    };
    let Ok(typed) = serde_json::from_value::<DynamicObject>(object.clone()) else {
        return Ok(());
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api = identity.api(client);
    match again(|| api.create(&dry_run, &typed), is_unanswered).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(Error::UnknownKind(identity.kind))
        }
        Err(error) => Err(Error::Refused {
            object: identity.to_string(),
            source: error.into(),
        }),
    }
}

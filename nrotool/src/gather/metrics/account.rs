//! An account that may read metrics and nothing else, for as long as it takes to read them. Nothing of the stack has such an account.

use std::collections::BTreeSet;
use std::time::Duration;

use apply::{Cause, again, is_unanswered};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What the name begins with.
const PREFIX: &str = "numaresources-must-gather-";
const GROUP: &str = "rbac.authorization.k8s.io";
const PATH: &str = "/metrics";
const GET: &str = "get";
/// How long the token is valid, in seconds: the shortest time that an API server allows.
const VALID: i64 = 600;
/// Pause between two questions whether the API server knows the right.
const PAUSE: Duration = Duration::from_millis(100);

/// The account, with a role and a binding of its name.
pub(super) struct Account {
    client: Client,
    namespace: String,
    name: String,
    /// Kinds of the objects that are there, or may be.
    kinds: BTreeSet<String>,
}

/// There is no account that may read metrics.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// An object cannot be created.
    #[error("only a token may read them, and {kind} {name} cannot be created to get one")]
    Create {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// What the account may do is not told.
    #[error("only a token may read them, and what account {0} may do is not told")]
    Review(String, #[source] Cause),
    /// It gets no token.
    #[error("only a token may read them, and account {0} gets none")]
    Token(String, #[source] Cause),
    /// The API server answers without a token.
    #[error("only a token may read them, and the API server gives account {0} an empty one")]
    NoToken(String),
    /// An object cannot be deleted.
    #[error("cannot delete {kind} {name}: delete it by hand")]
    Delete {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Cause,
    },
}

impl Account {
    /// Names an account, which is not created yet.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: format!("{PREFIX}{:x}", Timestamp::now().as_nanosecond()),
            kinds: BTreeSet::new(),
        }
    }

    /// Creates the account and returns a token of it.
    pub(super) async fn token(&mut self) -> Result<String, Error> {
        let name = &self.name.clone();
        let metadata = json!({"name": name});
        let rule = json!({"nonResourceURLs": [PATH], "verbs": [GET]});
        let reference = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": self.namespace});
        self.create(
            &self.roles(),
            json!({"metadata": metadata, "rules": [rule]}),
        )
        .await?;
        self.create(&self.accounts(), json!({"metadata": metadata}))
            .await?;
        let binding = json!({"metadata": metadata, "roleRef": reference, "subjects": [subject]});
        self.create(&self.bindings(), binding).await?;
        while !self.may_read().await? {
            tokio::time::sleep(PAUSE).await;
        }
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(VALID),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts = self.accounts();
        let params = PostParams::default();
        let answer = accounts.create_token_request(name, &params, &request).await;
        let answer = answer.map_err(|error| Error::Token(name.clone(), error.into()))?;
        let token = answer.status.map(|status| status.token);
        token.ok_or_else(|| Error::NoToken(name.clone()))
    }

    /// Deletes whatever was created.
    pub(super) async fn remove(&self) -> Result<(), Error> {
        let binding = self.delete(&self.bindings()).await;
        let account = self.delete(&self.accounts()).await;
        let role = self.delete(&self.roles()).await;
        binding.and(account).and(role)
    }

    fn accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn roles(&self) -> Api<ClusterRole> {
        Api::all(self.client.clone())
    }

    fn bindings(&self) -> Api<ClusterRoleBinding> {
        Api::all(self.client.clone())
    }

    async fn create<K>(&mut self, api: &Api<K>, object: Value) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + serde::Serialize,
        K: std::fmt::Debug,
    {
        let kind = K::kind(&()).into_owned();
        let failed = |error: kube::Error| Error::Create {
            kind: kind.clone(),
            name: self.name.clone(),
            source: error.into(),
        };
        let object = serde_json::from_value(object);
        let object: K = object.map_err(|error| failed(kube::Error::SerdeError(error)))?;
        // before the request: whoever waits for it may give up, and the object is there all the same
        self.kinds.insert(kind.clone());
        let params = PostParams::default();
        let created = again(|| api.create(&params, &object), is_unanswered).await;
        let refused = match &created {
            // nobody else uses the name: the server had carried out a request whose answer was lost
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
            Err(kube::Error::Api(status)) => (400..500).contains(&status.code),
            _ => false,
        };
        // a server that says so has refused; after its own errors the object may be there, too
        if refused {
            self.kinds.remove(&kind);
        }
        created.map(drop).map_err(failed)
    }

    async fn delete<K>(&self, api: &Api<K>) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let kind = K::kind(&()).into_owned();
        if !self.kinds.contains(&kind) {
            return Ok(());
        }
        let params = DeleteParams::default();
        match again(|| api.delete(&self.name, &params), is_unanswered).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let source = Cause::from(error);
                if source.is_not_found() {
                    return Ok(());
                }
                Err(Error::Delete {
                    kind,
                    name: self.name.clone(),
                    source,
                })
            }
        }
    }

    /// Returns whether the API server knows the right by now. Pods remember for a while that somebody may not read.
    async fn may_read(&self) -> Result<bool, Error> {
        let user = format!("system:serviceaccount:{}:{}", self.namespace, self.name);
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.to_owned()),
                    verb: Some(GET.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Error::Review(self.name.clone(), error.into()))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

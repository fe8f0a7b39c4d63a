//! Asks the API server who sends a request and whether that user may send it. Answers are kept for a while; only some questions are asked at
//! the same time, and each has a deadline.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers::{Answers, Question};

/// Maximum number of questions that the API server has to answer at the same time.
pub(super) const MOST_REVIEWS: usize = 8;
/// How long a question may wait and its answer take. A client of metrics gives up after about this time, too.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// Members of this group may do everything, without a review.
pub(super) const MASTERS: &str = "system:masters";

/// How long answers of the API server stay valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Which user a token belongs to.
    pub user: Duration,
    /// That a token belongs to nobody.
    pub nobody: Duration,
    /// That a user may do something.
    pub allowed: Duration,
    /// That a user may not do something.
    pub refused: Duration,
}

impl Lifetimes {
    /// Those of Kubernetes' controllers (controller-runtime), which answer fewer clients than kube-scheduler, and these more often.
    pub const OF_CONTROLLERS: Self = Self {
        user: Duration::from_mins(1),
        nobody: Duration::from_secs(10),
        allowed: Duration::from_mins(5),
        refused: Duration::from_secs(30),
    };
}

/// Those of kube-scheduler.
impl Default for Lifetimes {
    fn default() -> Self {
        let all = Duration::from_secs(10);
        Self {
            user: all,
            nobody: all,
            allowed: all,
            refused: all,
        }
    }
}

/// A question has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Overdue,
    #[error("the API server refused the review")]
    Refused(#[from] kube::Error),
    #[error("the question cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
}

/// The API server's answers.
pub(super) struct Reviews {
    authentication: Client,
    authorization: Client,
    lifetimes: Lifetimes,
    users: Answers<Option<UserInfo>>,
    rights: Answers<bool>,
    places: Semaphore,
}

impl Reviews {
    /// Creates reviews that these clients send.
    pub(super) fn new(authentication: Client, authorization: Client, lifetimes: Lifetimes) -> Self {
        Self {
            authentication,
            authorization,
            lifetimes,
            users: Answers::default(),
            rights: Answers::default(),
            places: Semaphore::new(MOST_REVIEWS),
        }
    }

    /// Returns the user that a token belongs to; `None` when it is nobody's.
    pub(super) async fn user(&self, token: &str) -> Result<Option<UserInfo>, Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let question = Question::of(&review)?;
        let ask = async {
            let answer = self.send(&self.authentication, &review).await?;
            let status = answer.status.unwrap_or_default();
            let user = status
                .user
                .filter(|_| status.authenticated == Some(true) && status.error.is_none());
            let lifetime = match &user {
                Some(_) => self.lifetimes.user,
                None => self.lifetimes.nobody,
            };
            Ok((user, lifetime))
        };
        in_time(self.users.get_or_ask(question, ask)).await
    }

    /// Returns whether a user may send requests with this verb to this path.
    pub(super) async fn is_allowed(
        &self,
        user: &UserInfo,
        verb: &str,
        path: &str,
    ) -> Result<bool, Error> {
        if user.groups.iter().flatten().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups.clone(),
                uid: user.uid.clone(),
                extra: user.extra.clone(),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let question = Question::of(&review)?;
        let ask = async {
            let answer = self.send(&self.authorization, &review).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            let lifetime = if allowed {
                self.lifetimes.allowed
            } else {
                self.lifetimes.refused
            };
            Ok((allowed, lifetime))
        };
        in_time(self.rights.get_or_ask(question, ask)).await
    }

    /// Sends a review as soon as there is a place for it.
    async fn send<R>(&self, client: &Client, review: &R) -> Result<R, Error>
    where
        R: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        // the semaphore is never closed
        let _place = self.places.acquire().await.map_err(|_| Error::Overdue)?;
        let reviews = Api::<R>::all(client.clone());
        Ok(reviews.create(&PostParams::default(), review).await?)
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(DEADLINE, answer)
        .await
        .map_err(|_| Error::Overdue)?
}

//! Asks the API server who sends a request and whether that user may send it. Answers are cached for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;

/// Maximum number of cached answers of each kind.
const MAX_CACHED_ANSWERS: usize = 1024;
/// Members of this group may do everything, without a review.
pub(super) const MASTERS: &str = "system:masters";

/// How long answers of the API server stay valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Which user a token belongs to.
    pub user: Duration,
    /// That a user may do something.
    pub allowed: Duration,
    /// That a user may not do something.
    pub refused: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let all = Duration::from_secs(10);
        Self {
            user: all,
            allowed: all,
            refused: all,
        }
    }
}

/// The API server's answers.
pub(super) struct Reviews {
    authentication: Client,
    authorization: Client,
    lifetimes: Lifetimes,
    users: Answers<String, UserInfo>,
    rights: Answers<(String, String, String), bool>,
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
        }
    }

    /// Returns the user that a token belongs to; `None` when it is nobody's.
    pub(super) async fn user(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        if let Some(user) = self.users.get(&token.to_owned()) {
            return Ok(Some(user));
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews = Api::<TokenReview>::all(self.authentication.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        match status.user {
            Some(user) if status.authenticated == Some(true) => {
                let lifetime = self.lifetimes.user;
                self.users.insert(token.to_owned(), user.clone(), lifetime);
                Ok(Some(user))
            }
            // not cached: the token may become valid at any moment
            _ => Ok(None),
        }
    }

    /// Returns whether a user may send requests with this verb to this path.
    pub(super) async fn is_allowed(
        &self,
        user: &UserInfo,
        verb: &str,
        path: &str,
    ) -> kube::Result<bool> {
        if user.groups.iter().flatten().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let name = user.username.clone().unwrap_or_default();
        let question = (name, verb.to_owned(), path.to_owned());
        if let Some(answer) = self.rights.get(&question) {
            return Ok(answer);
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
        let reviews = Api::<SubjectAccessReview>::all(self.authorization.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let lifetime = if allowed {
            self.lifetimes.allowed
        } else {
            self.lifetimes.refused
        };
        self.rights.insert(question, allowed, lifetime);
        Ok(allowed)
    }
}

/// Cached answers, with the time until which each is valid.
#[derive(Debug)]
struct Answers<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> Answers<K, V> {
    fn get(&self, question: &K) -> Option<V> {
        let answers = self.0.lock();
        let (until, answer) = answers.get(question)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn insert(&self, question: K, answer: V, lifetime: Duration) {
        let now = Instant::now();
        let Some(until) = now.checked_add(lifetime) else {
            return;
        };
        let mut answers = self.0.lock();
        if answers.len() >= MAX_CACHED_ANSWERS {
            answers.retain(|_, (until, _)| now < *until);
        }
        // when the cache is full, further answers are not kept, and their questions go to the API server each time
        if answers.len() < MAX_CACHED_ANSWERS {
            answers.insert(question, (until, answer));
        }
    }
}

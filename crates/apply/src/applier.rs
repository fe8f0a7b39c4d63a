//! Applies one object at a time: read, compare, write.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cause::Cause;
use crate::merge;
use crate::object::Identity;

/// Retries of a write when the object appears, vanishes or changes between read and write: at most three, without a pause.
const AT_ONCE: ConstantBuilder = ConstantBuilder::new()
    .with_delay(Duration::ZERO)
    .with_max_times(3);

/// Creates, updates and deletes objects.
///
/// Only the API server knows its defaults, so a dry run decides whether an update would change anything. An object that is up to date
/// is never written, and a field that is no longer desired is removed. The applier remembers each up-to-date object with its resource
/// version, so a cluster without changes sees only reads.
pub struct Applier {
    client: Client,
    known: Mutex<HashMap<Identity, UpToDate>>,
}

/// The state in which an object was last up to date.
struct UpToDate {
    resource_version: String,
    desired_digest: u64,
}

/// What the applier did with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did not exist.
    Created,
    /// It differed.
    Updated,
    /// It was up to date.
    Unchanged,
}

/// An object after it was applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// What was done.
    pub outcome: Outcome,
    /// The object as the API server returned it.
    pub object: DynamicObject,
}

/// An object could not be applied or deleted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object lacks its kind, version or name.
    #[error("object without kind, version or name: {0}")]
    Incomplete(String),
    /// Reading failed.
    #[error("failed to get {0}")]
    Get(Box<Identity>, #[source] Cause),
    /// Creation or update failed.
    #[error("failed to apply {0}")]
    Apply(Box<Identity>, #[source] Cause),
    /// Deletion failed.
    #[error("failed to delete {0}")]
    Delete(Box<Identity>, #[source] Cause),
    /// An object could not be converted from or to JSON.
    #[error("failed to read {0}")]
    Form(Box<Identity>, #[source] serde_json::Error),
}

impl Error {
    /// Returns whether nothing tells whether the object was written.
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Get(_, cause) | Self::Apply(_, cause) | Self::Delete(_, cause) => {
                cause.is_unanswered()
            }
            Self::Incomplete(_) | Self::Form(..) => false,
        }
    }
}

impl Applier {
    /// Creates an applier that uses this client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
        }
    }

    /// Creates the object, or updates it if the update would change it. Retries when the object changes between read and write.
    pub async fn apply(&self, desired: &Value) -> Result<Applied, Error> {
        self.apply_over(desired, |_, _| None).await
    }

    /// Like [`Applier::apply`], where what is desired depends on the object that is there. `adapt` gets that object as it was read just before the
    /// write, and what is desired, and returns what is desired instead, if anything. It is called again when the object changes between read and write.
    pub async fn apply_over(
        &self,
        desired: &Value,
        adapt: impl Fn(&DynamicObject, &Value) -> Option<Value>,
    ) -> Result<Applied, Error> {
        let identity =
            Identity::of(desired).ok_or_else(|| Error::Incomplete(desired.to_string()))?;
        let api = identity.api(&self.client);
        let attempt = || self.try_apply(&api, &identity, desired, &adapt);
        attempt
            .retry(AT_ONCE)
            .when(|error| matches!(error, Error::Apply(_, error) if error.is_race()))
            .notify(|_, _| {
                tracing::debug!(object = %identity, "Object changed between read and write, retrying");
            })
            .await
    }

    /// Applies the objects in order and stops at the first failure.
    pub async fn apply_all(&self, objects: &[Value]) -> Result<Vec<Applied>, Error> {
        let mut applied = Vec::with_capacity(objects.len());
        for object in objects {
            applied.push(self.apply(object).await?);
        }
        Ok(applied)
    }

    /// Deletes the object. Returns whether it existed.
    pub async fn delete(&self, object: &Value) -> Result<bool, Error> {
        let identity = Identity::of(object).ok_or_else(|| Error::Incomplete(object.to_string()))?;
        match identity
            .api(&self.client)
            .delete(&identity.name, &DeleteParams::default())
            .await
        {
            Ok(_) => {
                tracing::info!(object = %identity, "deleted");
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(Error::Delete(Box::new(identity), error.into())),
        }
    }

    /// Deletes the objects in reverse order and stops at the first failure. Returns how many existed.
    pub async fn delete_all(&self, objects: &[Value]) -> Result<usize, Error> {
        let mut deleted = 0;
        for object in objects.iter().rev() {
            deleted += usize::from(self.delete(object).await?);
        }
        Ok(deleted)
    }

    async fn try_apply(
        &self,
        api: &Api<DynamicObject>,
        identity: &Identity,
        desired: &Value,
        adapt: impl Fn(&DynamicObject, &Value) -> Option<Value>,
    ) -> Result<Applied, Error> {
        let existing = api
            .get_opt(&identity.name)
            .await
            .map_err(|error| Error::Get(Box::new(identity.clone()), error.into()))?;
        let Some(existing) = existing else {
            tracing::debug!(object = %identity, "creating");
            let object = parse(identity, desired.clone())?;
            let object = api
                .create(&PostParams::default(), &object)
                .await
                .map_err(|error| Error::Apply(Box::new(identity.clone()), error.into()))?;
            tracing::info!(object = %identity, "created");
            self.remember(identity, &object, digest(desired));
            return Ok(Applied {
                outcome: Outcome::Created,
                object,
            });
        };
        let adapted = adapt(&existing, desired);
        let desired = adapted.as_ref().unwrap_or(desired);
        let desired_digest = digest(desired);
        if self.is_up_to_date(identity, &existing, desired_digest) {
            return Ok(Applied {
                outcome: Outcome::Unchanged,
                object: existing,
            });
        }
        let old = serde_json::to_value(&existing)
            .map_err(|error| Error::Form(Box::new(identity.clone()), error))?;
        let update = parse(identity, merge::updated(&old, desired))?;
        if !self
            .would_change(api, identity, &old, desired, &update)
            .await?
        {
            self.remember(identity, &existing, desired_digest);
            return Ok(Applied {
                outcome: Outcome::Unchanged,
                object: existing,
            });
        }
        tracing::debug!(object = %identity, "updating");
        let object = api
            .replace(&identity.name, &PostParams::default(), &update)
            .await
            .map_err(|error| Error::Apply(Box::new(identity.clone()), error.into()))?;
        tracing::info!(object = %identity, "updated");
        self.remember(identity, &object, desired_digest);
        Ok(Applied {
            outcome: Outcome::Updated,
            object,
        })
    }

    async fn would_change(
        &self,
        api: &Api<DynamicObject>,
        identity: &Identity,
        old: &Value,
        desired: &Value,
        update: &DynamicObject,
    ) -> Result<bool, Error> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match api.replace(&identity.name, &dry_run, update).await {
            Ok(tried) => {
                let tried = serde_json::to_value(&tried)
                    .map_err(|error| Error::Form(Box::new(identity.clone()), error))?;
                Ok(!merge::equal(old, &tried))
            }
            // an admission webhook with side effects does not support dry runs
            Err(kube::Error::Api(status))
                if status.code == 400 && status.message.contains("dry run") =>
            {
                Ok(!merge::covers(old, desired))
            }
            Err(error) => Err(Error::Apply(Box::new(identity.clone()), error.into())),
        }
    }

    fn is_up_to_date(
        &self,
        identity: &Identity,
        existing: &DynamicObject,
        desired_digest: u64,
    ) -> bool {
        let known = self.known.lock();
        known.get(identity).is_some_and(|known| {
            known.desired_digest == desired_digest
                && existing.resource_version().as_ref() == Some(&known.resource_version)
        })
    }

    fn remember(&self, identity: &Identity, object: &DynamicObject, desired_digest: u64) {
        let mut known = self.known.lock();
        match object.resource_version() {
            Some(resource_version) => known.insert(
                identity.clone(),
                UpToDate {
                    resource_version,
                    desired_digest,
                },
            ),
            None => known.remove(identity),
        };
    }
}

fn parse(identity: &Identity, value: Value) -> Result<DynamicObject, Error> {
    serde_json::from_value(value).map_err(|error| Error::Form(Box::new(identity.clone()), error))
}

fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

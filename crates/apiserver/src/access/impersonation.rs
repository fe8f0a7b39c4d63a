//! Impersonation: a user who may do so acts as another one, whom the headers of the request name.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::authz::{self, Attributes};
use super::identity::{ACCOUNT_USER_PREFIX, Identity, User, account_groups};
use crate::failure::{Failure, Subject};
use crate::storage::State;

/// API group of permissions that only impersonation checks.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// What the names of headers with further facts begin with.
const EXTRA: &str = "impersonate-extra-";

/// Applies the impersonation headers, if the user may `impersonate` everything that they name.
pub(super) fn impersonate(
    state: &State,
    headers: &HeaderMap,
    impersonator: Identity,
) -> Result<Identity, Failure> {
    let wanted = Wanted::read(headers);
    if wanted.user.is_empty() {
        wanted.check_nothing_else()?;
        return Ok(impersonator);
    }
    wanted.check(state, &impersonator.user)?;
    Ok(wanted.into_identity())
}

/// Whom a request wants to act as.
struct Wanted {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let groups = headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(str::to_owned)
            .collect();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA), value.to_str()) {
                extra
                    .entry(key.to_owned())
                    .or_default()
                    .push(value.to_owned());
            }
        }
        Self {
            user: text("impersonate-user"),
            uid: text("impersonate-uid"),
            groups,
            extra,
        }
    }

    /// Refuses headers that name something else but no user.
    fn check_nothing_else(&self) -> Result<(), Failure> {
        if self.groups.is_empty() && self.extra.is_empty() && self.uid.is_empty() {
            return Ok(());
        }
        let mut requested: Vec<String> = self
            .groups
            .iter()
            .map(|group| format!("{{Group  {group}    }}"))
            .collect();
        if !self.uid.is_empty() {
            requested.push(format!("{{UID  {}    }}", self.uid));
        }
        Err(Failure::bad_request(format!(
            "requested [{}] without impersonating a user",
            requested.join(" ")
        )))
    }

    /// Checks that the impersonator may `impersonate` all of it.
    fn check(&self, state: &State, impersonator: &User) -> Result<(), Failure> {
        let check = |group, resource, subresource, namespace, name| {
            let attributes = Attributes {
                verb: "impersonate",
                group,
                resource,
                subresource,
                namespace,
                name,
                ..Attributes::default()
            };
            check_allowed(state, impersonator, &attributes)
        };
        match self.account() {
            Some((namespace, name)) => check("", "serviceaccounts", "", namespace, name)?,
            None => check("", "users", "", "", &self.user)?,
        }
        for group in &self.groups {
            check("", "groups", "", "", group)?;
        }
        for (key, values) in &self.extra {
            for value in values {
                check(AUTHENTICATION, "userextras", key, "", value)?;
            }
        }
        if !self.uid.is_empty() {
            check(AUTHENTICATION, "uids", "", "", &self.uid)?;
        }
        Ok(())
    }

    /// Returns the namespace and the name of the service account that the user is; `None` for other users.
    fn account(&self) -> Option<(&str, &str)> {
        self.user.strip_prefix(ACCOUNT_USER_PREFIX)?.split_once(':')
    }

    fn into_identity(self) -> Identity {
        let groups = match self.account() {
            Some((namespace, _)) if self.groups.is_empty() => account_groups(namespace),
            _ => self.groups,
        };
        let mut identity = if self.user == "system:anonymous" {
            Identity::anonymous()
        } else {
            Identity::of(User {
                name: self.user,
                groups,
                uid: String::new(),
            })
        };
        identity.user.uid = self.uid;
        identity.extra = self.extra;
        identity
    }
}

fn check_allowed(
    state: &State,
    impersonator: &User,
    attributes: &Attributes<'_>,
) -> Result<(), Failure> {
    if authz::allows(state, impersonator, attributes) {
        return Ok(());
    }
    let subject = Subject {
        group: attributes.group,
        resource: attributes.resource,
        name: attributes.name,
    };
    Err(Failure::forbidden(
        &subject,
        &attributes.refusal(impersonator),
    ))
}

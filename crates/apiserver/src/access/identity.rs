//! Users, and what else authentication finds out about them.

use std::collections::BTreeMap;

const AUTHENTICATED: &str = "system:authenticated";
/// User name prefix of service accounts.
pub(crate) const ACCOUNT_USER_PREFIX: &str = "system:serviceaccount:";

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Unique id; empty when there is none.
    pub uid: String,
}

/// The user of a request, with further facts from some ways of authentication.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Name, groups and unique id.
    pub(crate) user: User,
    /// Further facts.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// Makes the identity of an authenticated user.
    pub(crate) fn of(mut user: User) -> Self {
        if !user.groups.iter().any(|group| group == AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            user,
            ..Self::default()
        }
    }

    /// Makes the identity of a request without credentials.
    pub(crate) fn anonymous() -> Self {
        Self {
            user: User {
                name: "system:anonymous".into(),
                groups: vec!["system:unauthenticated".into()],
                uid: String::new(),
            },
            ..Self::default()
        }
    }
}

/// Returns the groups of a service account.
pub(crate) fn account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".into(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

//! Authentication: client certificates, fixed tokens, tokens of service accounts, and impersonation.

use std::collections::HashMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::accounts::Accounts;
use super::identity::{Identity, User};
use super::impersonation::impersonate;
use crate::failure::Failure;
use crate::storage::Store;

/// The users that the server knows by their tokens.
#[derive(Debug)]
pub(crate) struct Users {
    /// Users by fixed bearer tokens.
    pub(crate) tokens: HashMap<String, User>,
    /// The accounts that this server signs tokens for.
    pub(crate) accounts: Accounts,
}

/// Returns the user of a client certificate: the common name, with the organizations as groups.
pub(crate) fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some(User {
        name: name.to_owned(),
        groups,
        uid: String::new(),
    })
}

/// Returns the user of a request; `certificate` is the user of the connection's client certificate.
pub(crate) fn authenticate(
    store: &Store,
    users: &Users,
    headers: &HeaderMap,
    certificate: Option<&User>,
) -> Result<Identity, Failure> {
    let identity = match (certificate, bearer(headers)) {
        (Some(user), _) => Identity::of(user.clone()),
        (None, Some(token)) => {
            identity_of_token(store, users, &token).ok_or_else(Failure::unauthorized)?
        }
        (None, None) if headers.contains_key(AUTHORIZATION) => return Err(Failure::unauthorized()),
        (None, None) => Identity::anonymous(),
    };
    impersonate(&store.lock(), headers, identity)
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Returns the user of a token.
fn identity_of_token(store: &Store, users: &Users, token: &str) -> Option<Identity> {
    if let Some(user) = users.tokens.get(token) {
        return Some(Identity::of(user.clone()));
    }
    let claims = users.accounts.verify(token, None).ok()?;
    users.accounts.identity(&store.lock(), &claims)
}

/// Returns the user of a token, checked for the given audiences (none: those of this server), and the audiences for which it is valid.
pub(crate) fn review(
    store: &Store,
    users: &Users,
    token: &str,
    audiences: &[String],
) -> Result<(Identity, Vec<String>), String> {
    if let Some(user) = users.tokens.get(token) {
        return Ok((Identity::of(user.clone()), Vec::new()));
    }
    let claims = users
        .accounts
        .verify(token, (!audiences.is_empty()).then_some(audiences))?;
    let identity = users
        .accounts
        .identity(&store.lock(), &claims)
        .ok_or("service account token has been invalidated")?;
    let wanted: Vec<String> = if audiences.is_empty() {
        vec![users.accounts.issuer().to_owned()]
    } else {
        audiences.to_vec()
    };
    let valid_audiences = wanted
        .into_iter()
        .filter(|audience| claims.aud.contains(audience))
        .collect();
    Ok((identity, valid_audiences))
}

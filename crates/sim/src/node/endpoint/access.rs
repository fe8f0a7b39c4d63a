//! Access to a node's endpoint. A client certificate of the cluster's authority or a bearer token authenticates a request, and the API
//! server authorizes it (kubelet-node.md 3: "webhook").

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, Method, Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// How long a granted permission is remembered.
const REMEMBERED: Duration = Duration::from_mins(5);
/// Paths with a subresource of their own, which is checked first. If it is denied, the subresource `proxy` may still allow the path.
const FINE_GRAINED: [(&str, &str); 4] = [
    ("/pods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
    ("/runningpods", "pods"),
];
/// Paths that `proxy` does not allow.
const SEPARATE: [(&str, &str); 4] = [
    ("/stats", "stats"),
    ("/metrics", "metrics"),
    ("/logs", "log"),
    ("/checkpoint", "checkpoint"),
];

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User {
    name: String,
    groups: BTreeSet<String>,
}

impl User {
    /// Returns the user of a client certificate: the common name, with the organizations as groups.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?;
        let groups = subject
            .iter_organization()
            .filter_map(|group| group.as_str().ok())
            .chain(["system:authenticated"]);
        Some(Self {
            name: name.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        })
    }
}

/// Why a request is refused, in the kubelet's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The request is not authenticated.
    #[error("Unauthorized")]
    Unauthorized,
    /// The user lacks the permission.
    #[error("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n", subresources.join(" "))]
    Forbidden {
        /// Name of the user.
        user: String,
        /// The verb.
        verb: &'static str,
        /// The subresources that were checked.
        subresources: Vec<&'static str>,
    },
    /// The API server did not decide.
    #[error(
        "Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})"
    )]
    Unknown {
        /// Name of the user.
        user: String,
        /// The verb.
        verb: &'static str,
        /// The subresource.
        subresource: &'static str,
    },
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unknown { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// User, verb and subresource.
type Question = (User, &'static str, &'static str);

/// Authenticates and authorizes the requests to a node.
pub(crate) struct Access {
    client: Client,
    node: String,
    /// Granted permissions and when they expire.
    allowed: Mutex<BTreeMap<Question, Instant>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Creates the access control of a node, which asks the API server with this client.
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
            allowed: Mutex::default(),
        }
    }

    /// Checks whether a request may be answered; `certified` is the user of the connection's certificate.
    pub(super) async fn check<B>(
        &self,
        certified: Option<&User>,
        request: &Request<B>,
    ) -> Result<(), Refusal> {
        let user = match (certified, token(request.headers())) {
            (Some(user), _) => user.clone(),
            (None, Some(token)) => self.user_of(token).await.ok_or(Refusal::Unauthorized)?,
            (None, None) => return Err(Refusal::Unauthorized),
        };
        let verb = verb(request.method());
        let subresources = subresources(request.uri().path());
        for &subresource in &subresources {
            match self.allows((user.clone(), verb, subresource)).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(%error, node = self.node, "Authorization check failed");
                    return Err(Refusal::Unknown {
                        user: user.name,
                        verb,
                        subresource,
                    });
                }
            }
        }
        Err(Refusal::Forbidden {
            user: user.name,
            verb,
            subresources,
        })
    }

    /// Returns the user of a token.
    async fn user_of(&self, token: &str) -> Option<User> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer.inspect_err(|error| {
            tracing::debug!(%error, node = self.node, "Token review failed");
        });
        let status = answer.ok()?.status?;
        let user = status.user.filter(|_| status.authenticated == Some(true))?;
        Some(User {
            name: user.username?,
            groups: user.groups.unwrap_or_default().into_iter().collect(),
        })
    }

    async fn allows(&self, question: Question) -> kube::Result<bool> {
        let now = Instant::now();
        {
            let mut allowed = self.allowed.lock();
            allowed.retain(|_, until| *until > now);
            if allowed.contains_key(&question) {
                return Ok(true);
            }
        }
        let (user, verb, subresource) = &question;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                groups: Some(user.groups.iter().cloned().collect()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some((*verb).to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some((*subresource).to_owned()),
                    name: Some(self.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);
        if is_allowed {
            let mut allowed = self.allowed.lock();
            allowed.insert(question, now + REMEMBERED);
        }
        Ok(is_allowed)
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let token = value.strip_prefix("Bearer ")?.trim();
    (!token.is_empty()).then_some(token)
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// Returns the subresources of the node of which any allows a path.
fn subresources(path: &str) -> Vec<&'static str> {
    let of = |table: &[(&str, &'static str)]| {
        let mut found = table.iter().filter(|(root, _)| is_below(path, root));
        found.next().map(|(_, subresource)| *subresource)
    };
    let last = of(&SEPARATE).unwrap_or("proxy");
    of(&FINE_GRAINED).into_iter().chain([last]).collect()
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/pods", &["pods", "proxy"])]
    #[case("/runningpods/", &["pods", "proxy"])]
    #[case("/configz", &["configz", "proxy"])]
    #[case("/metrics/cadvisor", &["metrics"])]
    #[case("/stats/summary", &["stats"])]
    #[case("/podsmore", &["proxy"])]
    #[case("/exec/ns/pod/c", &["proxy"])]
    #[case("/containerLogs/ns/pod/c", &["proxy"])]
    fn a_path_is_allowed_by_these_subresources(#[case] path: &str, #[case] expected: &[&str]) {
        assert_eq!(subresources(path), expected);
    }

    #[test]
    fn refusals_have_the_kubelets_words() {
        let refusal = Refusal::Forbidden {
            user: "system:serviceaccount:default:default".to_owned(),
            verb: "get",
            subresources: vec!["pods", "proxy"],
        };
        assert_eq!(
            refusal.to_string(),
            "Forbidden (user=system:serviceaccount:default:default, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
        );
    }
}

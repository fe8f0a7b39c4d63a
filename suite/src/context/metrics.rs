//! Reading the metrics of pods, as Prometheus does: with the token of an account that may.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::context::Context;
use crate::recorder::PollResult;
use crate::step::StepError;

/// Account of the scenario that may read metrics.
const ACCOUNT: &str = "metrics-reader";
const PATH: &str = "/metrics";
/// Group of what is about rights.
const RBAC: &str = "rbac.authorization.k8s.io";
/// What the status line of an answer begins with if all is well.
const GOOD: [&str; 2] = ["HTTP/1.0 200", "HTTP/1.1 200"];

/// The token of an account.
pub struct MetricsReader {
    token: String,
}

/// Where a pod has its metrics.
#[derive(Clone, Copy, Debug)]
pub enum Endpoint {
    /// At this port, over TLS.
    Https(u16),
    /// At this port.
    Http(u16),
}

impl MetricsReader {
    /// Asks for the metrics on a connection. Returns the answer with its head, and an error if it is not good.
    pub async fn read(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) -> Result<String, StepError> {
        let failed = |error| StepError::fail(format!("request for {PATH}: {error}"));
        // with 1.0 the server sends the text in one piece and closes
        let request = format!(
            "GET {PATH} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
            self.token
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut answer = Vec::new();
        // a server that closes the connection without a TLS alert has sent its whole answer
        let read = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        if GOOD.iter().any(|good| answer.starts_with(good)) {
            return Ok(answer.into_owned());
        }
        let first = answer.lines().next().unwrap_or_default();
        Err(StepError::mismatch(
            format!("answer to the request for {PATH}"),
            "200",
            format!("{first:?}, {read:?}"),
        ))
    }
}

impl Context {
    /// Creates an account in the scenario's namespace that may read metrics. Once in a scenario.
    pub async fn metrics_reader(&self) -> Result<MetricsReader, StepError> {
        let name = format!("{ACCOUNT}-{}", self.namespace);
        let metadata = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        self.create(ServiceAccount {
            metadata: metadata(ACCOUNT),
            ..ServiceAccount::default()
        })
        .await?;
        self.create_global(&ClusterRole {
            metadata: metadata(&name),
            rules: Some(vec![PolicyRule {
                non_resource_urls: Some(vec![PATH.to_owned()]),
                verbs: vec!["get".to_owned()],
                ..PolicyRule::default()
            }]),
            aggregation_rule: None,
        })
        .await?;
        self.create_global(&ClusterRoleBinding {
            metadata: metadata(&name),
            role_ref: RoleRef {
                api_group: RBAC.to_owned(),
                kind: "ClusterRole".to_owned(),
                name,
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: ACCOUNT.to_owned(),
                namespace: Some(self.namespace.clone()),
                api_group: None,
            }]),
        })
        .await?;
        self.may_read().await?;
        let request = TokenRequest {
            spec: TokenRequestSpec::default(),
            ..TokenRequest::default()
        };
        let accounts = self.api::<ServiceAccount>();
        let answer = accounts
            .create_token_request(ACCOUNT, &PostParams::default(), &request)
            .await?;
        let token = answer.status.map(|status| status.token);
        let token = token.ok_or_else(|| StepError::fail("the account got no token"))?;
        Ok(MetricsReader { token })
    }

    /// Waits until the API server knows what the account may. Who asks too early is refused, and servers remember that for a while.
    async fn may_read(&self) -> Result<(), StepError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!(
                    "system:serviceaccount:{}:{ACCOUNT}",
                    self.namespace
                )),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::<SubjectAccessReview>::all(self.client());
        let what = format!("{ACCOUNT} may read {PATH}");
        self.until(&what, self.deadlines().settled, async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            let status = answer.status.unwrap_or_default();
            Ok(if status.allowed {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(status.reason.unwrap_or_default())
            })
        })
        .await
    }

    async fn read_metrics(
        &self,
        reader: &MetricsReader,
        pod: &Pod,
        endpoint: Endpoint,
    ) -> Result<String, StepError> {
        match endpoint {
            Endpoint::Https(port) => reader.read(self.connect_tls(pod, port).await?).await,
            Endpoint::Http(port) => reader.read(self.connect(pod, port).await?).await,
        }
    }

    /// Waits until the metrics of a pod contain all of these fragments.
    pub async fn metrics_have(
        &self,
        reader: &MetricsReader,
        pod: &Pod,
        endpoint: Endpoint,
        fragments: &[&str],
    ) -> Result<(), StepError> {
        self.until(
            &format!(
                "metrics of {} have {}",
                pod.name_any(),
                fragments.join(", ")
            ),
            self.deadlines().settled,
            async || {
                // a container runs before its program listens
                let text = match self.read_metrics(reader, pod, endpoint).await {
                    Ok(text) => text,
                    Err(error) => {
                        return Ok(PollResult::NotYet(
                            error.into_failure("reading metrics").to_string(),
                        ));
                    }
                };
                let missing = fragments.iter().find(|fragment| !text.contains(**fragment));
                Ok(match missing {
                    None => PollResult::Ready(()),
                    Some(fragment) => {
                        PollResult::NotYet(format!("no {fragment} in {} bytes", text.len()))
                    }
                })
            },
        )
        .await
    }
}

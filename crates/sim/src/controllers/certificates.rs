//! Requests for certificates: those of kubelets are approved, approved ones are signed by the cluster's authority, and old ones go.
//!
//! Follows the approver, the signers and the cleaner of Kubernetes 1.35. The signer for unknown users of the first version of the API is
//! missing: the server refuses its name.

mod rules;

use std::sync::Arc;
use std::time::Duration;

use apiserver::{Signer, request_der};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use kube::api::{Api, DeleteParams, PostParams};

use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{MANAGER, objects};

/// Longest lifetime of a certificate.
const LONGEST: Duration = Duration::from_hours(365 * 24);
/// Shortest lifetime of a certificate.
const SHORTEST: Duration = Duration::from_mins(10);
/// How long a request stays that nobody decides, or that is approved and never signed.
const PENDING: Duration = Duration::from_hours(24);
/// How long a request stays that is signed, denied or failed.
const DONE: Duration = Duration::from_hours(1);

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    signer: Option<Signer>,
}

/// Returns a condition of a request.
fn condition<'a>(
    request: &'a CertificateSigningRequest,
    kind: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    let status = request.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|held| held.type_ == kind)
}

fn certificate(request: &CertificateSigningRequest) -> Option<&ByteString> {
    let certificate = request.status.as_ref()?.certificate.as_ref();
    certificate.filter(|certificate| !certificate.0.is_empty())
}

/// Returns when a request goes, or `None` if nothing is known of its age.
fn end(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let decided = ["Denied", "Failed", "Approved"].map(|kind| condition(request, kind));
    let [denied, failed, approved] = decided;
    let (since, stays) = if let Some(held) = denied.or(failed) {
        (held.last_update_time.as_ref(), DONE)
    } else if let Some(held) = approved {
        let is_signed = certificate(request).is_some();
        let stays = if is_signed { DONE } else { PENDING };
        (held.last_update_time.as_ref(), stays)
    } else {
        (request.metadata.creation_timestamp.as_ref(), PENDING)
    };
    since?.0.checked_add(stays).ok()
}

impl Controller {
    /// Subscribes to the changes that concern this controller. Without a signer nothing is signed.
    pub(crate) fn new(world: &Arc<World>, signer: Option<Signer>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let requests = Arc::clone(&world.certificate_requests);
        let own = Arc::clone(&queue);
        requests.listen(move |_, after: Option<&Arc<CertificateSigningRequest>>| {
            if let Some(request) = after {
                own.add(ObjectKey::of(&request.metadata));
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            signer,
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "certificates";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(request) = self.world.certificate_requests.get(key) else {
            return Ok(());
        };
        if let Some(end) = end(&request) {
            let left = end.duration_since(Timestamp::now());
            let Ok(left) = Duration::try_from(left) else {
                return self.delete(&request).await;
            };
            self.queue.add_after(key.clone(), left);
        }
        let is_undecided = ["Approved", "Denied"]
            .iter()
            .all(|kind| condition(&request, kind).is_none());
        if is_undecided {
            return self.approve(&request).await;
        }
        let is_open = condition(&request, "Approved").is_some()
            && condition(&request, "Denied").is_none()
            && condition(&request, "Failed").is_none_or(|held| held.status != "True")
            && certificate(&request).is_none();
        if is_open {
            return self.sign(&request).await;
        }
        Ok(())
    }
}

impl Controller {
    fn api(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.world.client.clone())
    }

    async fn delete(&self, request: &CertificateSigningRequest) -> Result<(), kube::Error> {
        let params = DeleteParams::default();
        match self.api().delete(objects::name(request), &params).await {
            Err(error) if objects::code(&error) != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Approves a kubelet's request for its client certificate, if the asking user may have it.
    async fn approve(&self, request: &CertificateSigningRequest) -> Result<(), kube::Error> {
        let spec = &request.spec;
        let usages = spec.usages.as_deref().unwrap_or_default();
        let Ok(der) = request_der(&spec.request.0) else {
            return Ok(());
        };
        let is_of_kubelet = spec.signer_name == rules::KUBELET_CLIENT
            && rules::check(&spec.signer_name, &der, usages).is_ok();
        if !is_of_kubelet {
            return Ok(());
        }
        let is_own = Some(rules::common_name(&der)) == spec.username;
        let tries = [
            (
                "selfnodeclient",
                is_own,
                "Auto approving self kubelet client certificate after SubjectAccessReview.",
            ),
            (
                "nodeclient",
                true,
                "Auto approving kubelet client certificate after SubjectAccessReview.",
            ),
        ];
        for (subresource, applies, message) in tries {
            if applies && self.may_have(request, subresource).await? {
                let mut approved = request.clone();
                let status = approved.status.get_or_insert_default();
                let conditions = status.conditions.get_or_insert_default();
                conditions.push(decision("Approved", "AutoApproved", message.to_owned()));
                let name = objects::name(request);
                self.api()
                    .replace_subresource("approval", name, &params(), &approved)
                    .await?;
                return Ok(());
            }
        }
        Ok(())
    }

    async fn may_have(
        &self,
        request: &CertificateSigningRequest,
        subresource: &str,
    ) -> Result<bool, kube::Error> {
        let spec = &request.spec;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: spec.username.clone(),
                uid: spec.uid.clone(),
                groups: spec.groups.clone(),
                extra: spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_owned()),
                    resource: Some("certificatesigningrequests".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    verb: Some("create".to_owned()),
                    version: Some("*".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.world.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Signs an approved request, or notes why its signer refuses it.
    async fn sign(&self, request: &CertificateSigningRequest) -> Result<(), kube::Error> {
        let spec = &request.spec;
        let usages = spec.usages.as_deref().unwrap_or_default();
        let (Some(signer), Ok(der)) = (&self.signer, request_der(&spec.request.0)) else {
            return Ok(());
        };
        if !rules::SIGNERS.contains(&spec.signer_name.as_str()) {
            // its signer is somebody else
            return Ok(());
        }
        let lifetime = spec.expiration_seconds.map_or(LONGEST, |seconds| {
            let seconds = Duration::from_secs(seconds.max(0).unsigned_abs().into());
            seconds.clamp(SHORTEST, LONGEST)
        });
        let signed = rules::check(&spec.signer_name, &der, usages).and_then(|()| {
            let names = usages.iter().map(String::as_str);
            let signed = signer.sign(&der, names, lifetime);
            signed.map_err(|error| error.to_string())
        });
        let mut answered = request.clone();
        let status = answered
            .status
            .get_or_insert_with(CertificateSigningRequestStatus::default);
        match signed {
            Ok(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
            Err(why) => {
                let conditions = status.conditions.get_or_insert_default();
                conditions.push(decision("Failed", "SignerValidationFailure", why));
            }
        }
        let name = objects::name(request);
        self.api()
            .replace_status(name, &params(), &answered)
            .await?;
        Ok(())
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn decision(kind: &str, reason: &str, message: String) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: None,
        last_update_time: None,
    }
}

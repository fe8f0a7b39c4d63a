//! Requests for certificates.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, Patch, PatchParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rstest::rstest;
use serde_json::{Value, json};
use x509_parser::pem::parse_x509_pem;

use super::harness::{Cluster, make, until};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";

fn request(signer: &str, [name, organization]: [&str; 2], usages: &[&str]) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization);
    let key = KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    json!({"metadata": {"name": "r"}, "spec": {
        "signerName": signer, "usages": usages, "request": ByteString(pem.into_bytes()), "expirationSeconds": 86400,
        "username": "somebody-else"}})
}

/// Returns the subject and the lifetime of a certificate in seconds.
fn content(pem: &[u8]) -> String {
    let (_, block) = parse_x509_pem(pem).unwrap();
    let certificate = block.parse_x509().unwrap();
    let validity = certificate.validity();
    let lifetime = validity.not_after.timestamp() - validity.not_before.timestamp();
    format!("{} for {lifetime}", certificate.subject())
}

/// Approves or denies the request; returns the message of a refusal.
async fn decide(api: &Api<CertificateSigningRequest>, decisions: &[&str]) -> Result<(), String> {
    let condition = |kind: &&str| json!({"type": kind, "status": "True", "reason": "Test", "message": "by the test"});
    let conditions: Vec<Value> = decisions.iter().map(condition).collect();
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let params = PatchParams::default();
    match api.patch_approval("r", &params, &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(other) => Err(other.to_string()),
    }
}

#[rstest]
#[case::a_client(CLIENT, ["jane", "dev"], &["client auth"], Some("Approved"), "Approved", Some("CN=jane, O=dev for 86400"))]
#[case::a_client_that_is_denied(CLIENT, ["jane", "dev"], &["client auth"], Some("Denied"), "Denied", None)]
#[case::a_client_that_wants_to_serve(CLIENT, ["jane", "dev"], &["server auth"], Some("Approved"),
    "Approved, Failed: invalid usage for client certificate: server auth", None)]
#[case::a_kubelet(KUBELET, ["system:node:a", "system:nodes"], &["client auth", "digital signature"], None,
    "Approved: Auto approving kubelet client certificate after SubjectAccessReview.", Some("CN=system:node:a, O=system:nodes for 86400"))]
#[tokio::test(flavor = "multi_thread")]
async fn an_approved_request_is_signed_by_the_rules_of_its_signer(
    #[case] signer: &str,
    #[case] subject: [&str; 2],
    #[case] usages: &[&str],
    #[case] decision: Option<&str>,
    #[case] expected: &str,
    #[case] certificate: Option<&str>,
) {
    let cluster = Cluster::start(&[]).await;
    let api: Api<CertificateSigningRequest> = Api::all(cluster.client.clone());
    let made = make(&api, request(signer, subject, usages)).await;
    assert_eq!(made.spec.username.as_deref(), Some("admin"));
    if let Some(decision) = decision {
        decide(&api, &[decision]).await.unwrap();
    }
    let told = |request: &CertificateSigningRequest| {
        let status = request.status.clone().unwrap_or_default();
        let conditions = status.conditions.into_iter().flatten();
        let texts = conditions.map(|held| match held.message.as_deref() {
            Some("by the test") | None => held.type_,
            Some(message) => format!("{}: {message}", held.type_),
        });
        let certificate = status.certificate.map(|pem| content(&pem.0));
        (texts.collect::<Vec<_>>().join(", "), certificate)
    };
    let expected = (expected.to_owned(), certificate.map(str::to_owned));
    let is_told = |request: Option<&CertificateSigningRequest>| {
        request.is_some_and(|request| told(request) == expected)
    };
    until(&api, "r", is_told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_about_a_request_is_final() {
    let cluster = Cluster::start(&[]).await;
    let client = cluster.client_without_retries().await;
    let api: Api<CertificateSigningRequest> = Api::all(client);
    let wanted = request("example.com/signer", ["jane", "dev"], &["client auth"]);
    make(&api, wanted).await;
    decide(&api, &["Denied"]).await.unwrap();
    let object =
        "CertificateSigningRequest.certificates.k8s.io \"r\" is invalid: status.conditions";
    let why = "Approved and Denied conditions are mutually exclusive";
    assert_eq!(
        decide(&api, &["Denied", "Approved"]).await,
        Err(format!("{object}: Invalid value: \"Approved\": {why}"))
    );
    assert_eq!(
        decide(&api, &[]).await,
        Err(format!(
            "{object}: Forbidden: updates may not remove a condition of type \"Denied\""
        ))
    );
    assert_eq!(
        decide(&api, &["Denied", "Denied"]).await,
        Err(format!("{object}[1].type: Duplicate value: \"Denied\""))
    );
}

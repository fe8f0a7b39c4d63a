//! What the signers of Kubernetes ask of a request.

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

/// Signer of certificates with which clients come to the API server.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of certificates with which kubelets come to the API server.
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of certificates with which kubelets serve.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signers that there are.
pub(super) const SIGNERS: [&str; 3] = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING];

/// What a request says of its subject.
#[derive(Default)]
struct Subject {
    common_name: String,
    organizations: Vec<String>,
    /// Numbers of names that are DNS names, mail addresses, IP addresses and URIs.
    dns: usize,
    email: usize,
    ip: usize,
    uri: usize,
}

fn subject(der: &[u8]) -> Option<Subject> {
    let (_, request) = X509CertificationRequest::from_der(der).ok()?;
    let name = &request.certification_request_info.subject;
    let texts = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        part.as_str().unwrap_or_default().to_owned()
    };
    let mut subject = Subject {
        common_name: name
            .iter_common_name()
            .map(texts)
            .next()
            .unwrap_or_default(),
        organizations: name.iter_organization().map(texts).collect(),
        ..Subject::default()
    };
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            continue;
        };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(_) => subject.dns += 1,
                GeneralName::RFC822Name(_) => subject.email += 1,
                GeneralName::IPAddress(_) => subject.ip += 1,
                GeneralName::URI(_) => subject.uri += 1,
                _ => {}
            }
        }
    }
    Some(subject)
}

/// Returns the common name of a request; empty if it has none.
pub(super) fn common_name(der: &[u8]) -> String {
    subject(der).unwrap_or_default().common_name
}

/// Checks a request by the rules of its signer; returns why it is refused.
pub(super) fn check(signer: &str, der: &[u8], usages: &[String]) -> Result<(), String> {
    let Some(subject) = subject(der) else {
        return Err("the request cannot be read".to_owned());
    };
    match signer {
        KUBELET_SERVING => of_kubelet(&subject, usages, "server auth"),
        KUBELET_CLIENT => of_kubelet(&subject, usages, "client auth"),
        _ => of_client(usages),
    }
}

fn of_client(usages: &[String]) -> Result<(), String> {
    let known = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !known.contains(&usage.as_str())) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if usages.iter().any(|usage| usage == "client auth") {
        return Ok(());
    }
    Err("missing required usage for client certificate: client auth".to_owned())
}

fn of_kubelet(subject: &Subject, usages: &[String], wanted: &str) -> Result<(), String> {
    let serves = wanted == "server auth";
    let mut found: Vec<&str> = usages.iter().map(String::as_str).collect();
    found.sort_unstable();
    found.dedup();
    found.retain(|usage| *usage != "key encipherment");
    let mut expected = ["digital signature", wanted];
    expected.sort_unstable();
    let all = if serves {
        "[digital signature key encipherment server auth]"
    } else {
        "[client auth digital signature key encipherment]"
    };
    let has_usages = found == expected;
    let is_node = subject.common_name.starts_with("system:node:");
    let usages_differ = format!("usages did not match {all}");
    let node_differs = "subject common name does not begin with system:node:";
    let checks: [(bool, &str); 6] = [
        (
            subject.organizations == ["system:nodes"],
            "subject organization is not system:nodes",
        ),
        (
            !serves || subject.dns + subject.ip > 0,
            "DNS or IP subjectAltName is required",
        ),
        (
            serves || subject.dns == 0,
            "DNS subjectAltNames are not allowed",
        ),
        (subject.email == 0, "Email subjectAltNames are not allowed"),
        (
            serves || subject.ip == 0,
            "IP subjectAltNames are not allowed",
        ),
        (subject.uri == 0, "URI subjectAltNames are not allowed"),
    ];
    // the two signers ask in another order
    let last = if serves {
        [
            (has_usages, usages_differ.as_str()),
            (is_node, node_differs),
        ]
    } else {
        [
            (is_node, node_differs),
            (has_usages, usages_differ.as_str()),
        ]
    };
    let mut checks = checks.into_iter().chain(last);
    match checks.find(|(holds, _)| !holds) {
        Some((_, why)) => Err(why.to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_client(CLIENT, "jane", "dev", &[], &["client auth"], None)]
    #[case::a_client_that_serves(CLIENT, "jane", "dev", &[], &["client auth", "server auth"],
        Some("invalid usage for client certificate: server auth"))]
    #[case::a_client_without_use(CLIENT, "jane", "dev", &[], &["digital signature"],
        Some("missing required usage for client certificate: client auth"))]
    #[case::a_kubelet(KUBELET_CLIENT, "system:node:a", "system:nodes", &[], &["digital signature", "key encipherment", "client auth"], None)]
    #[case::a_kubelet_of_others(KUBELET_CLIENT, "system:node:a", "dev", &[], &["digital signature", "client auth"],
        Some("subject organization is not system:nodes"))]
    #[case::a_kubelet_by_another_name(KUBELET_CLIENT, "a", "system:nodes", &[], &["digital signature", "client auth"],
        Some("subject common name does not begin with system:node:"))]
    #[case::a_kubelet_with_an_address(KUBELET_CLIENT, "system:node:a", "system:nodes", &["10.0.0.1"], &["digital signature", "client auth"],
        Some("IP subjectAltNames are not allowed"))]
    #[case::a_serving_kubelet(KUBELET_SERVING, "system:node:a", "system:nodes", &["10.0.0.1"], &["server auth", "digital signature"], None)]
    #[case::a_serving_kubelet_without_address(KUBELET_SERVING, "system:node:a", "system:nodes", &[], &["server auth", "digital signature"],
        Some("DNS or IP subjectAltName is required"))]
    #[case::a_serving_kubelet_without_use(KUBELET_SERVING, "system:node:a", "system:nodes", &["a"], &["digital signature"],
        Some("usages did not match [digital signature key encipherment server auth]"))]
    fn each_signer_has_its_rules(
        #[case] signer: &str,
        #[case] name: &str,
        #[case] organization: &str,
        #[case] names: &[&str],
        #[case] usages: &[&str],
        #[case] expected: Option<&str>,
    ) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
        let key = KeyPair::generate().unwrap();
        let request = params.serialize_request(&key).unwrap();
        let usages: Vec<String> = usages.iter().map(|&usage| usage.to_owned()).collect();
        let refused = check(signer, request.der(), &usages).err();
        assert_eq!(refused.as_deref(), expected);
    }
}

//! Checks of requests for certificates.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde_json::{Value, json};

use super::checks::{filled, indexed, one_of, text};
use super::names;
use crate::failure::Cause;

/// What a certificate may be for.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// Shortest time for which a certificate may be asked, in seconds.
const SHORTEST: i64 = 600;

/// Checks a specification.
pub(super) fn check(spec: &Value, causes: &mut Vec<Cause>) {
    request(&spec["request"], causes);
    let path = "spec.usages";
    if !filled(&spec["usages"]) {
        causes.push(Cause::required(path, ""));
    }
    let mut seen = HashSet::new();
    for (at, usage) in indexed(&spec["usages"], path) {
        one_of(usage, &USAGES, &at, causes);
        if !seen.insert(text(usage)) {
            causes.push(Cause::duplicate(at, usage));
        }
    }
    let signer = text(&spec["signerName"]);
    if signer == LEGACY {
        let why = "the legacy signerName is not allowed via this API version";
        causes.push(Cause::invalid("spec.signerName", &json!(signer), why));
    } else {
        check_signer(signer, "spec.signerName", causes);
    }
    let seconds = &spec["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < SHORTEST) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", seconds, why));
    }
}

/// Checks that a request has its form.
fn request(value: &Value, causes: &mut Vec<Cause>) {
    let bytes = STANDARD.decode(text(value)).unwrap_or_default();
    let label = x509_parser::pem::parse_x509_pem(&bytes).map(|(_, block)| block.label);
    if !label.is_ok_and(|label| label == "CERTIFICATE REQUEST") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        causes.push(Cause::invalid("spec.request", value, why));
    }
}

/// Checks the name of a signer: a domain and a path of names.
fn check_signer(signer: &str, path: &str, causes: &mut Vec<Cause>) {
    if signer.is_empty() {
        causes.push(Cause::required(path, ""));
        return;
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, rest] = parts.as_slice() else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        causes.push(Cause::invalid(path, &json!(signer), why));
        return;
    };
    if domain.len() > 253 {
        causes.push(Cause::too_long(path, 253));
    }
    labels(domain, names::label, path, causes);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        causes.push(Cause::invalid(path, &json!(domain), why));
    }
    labels(rest, names::subdomain, path, causes);
    if signer.len() > 571 {
        causes.push(Cause::too_long(path, 571));
    }
}

/// Tells what is wrong with the first wrong label.
fn labels(given: &str, check: fn(&str) -> Vec<String>, path: &str, causes: &mut Vec<Cause>) {
    let wrong = given.split('.').find(|label| !check(label).is_empty());
    for why in wrong.map(check).into_iter().flatten() {
        let label = wrong.unwrap_or_default();
        let why = format!("validating label {label:?}: {why}");
        causes.push(Cause::invalid(path, &json!(given), &why));
    }
}

//! What a webhook says of a write.

use base64::Engine as _;
use json_patch::Patch;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::values::fields::elements;
use crate::values::go::{go_type, not_registered};

/// What a webhook says of a write.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It could not be asked, which does not matter.
    Ignored,
    /// The write may go on.
    Allowed {
        /// The change to the object.
        patch: Option<Patch>,
        warnings: Vec<String>,
    },
    /// The write is refused.
    Refused {
        failure: Failure,
        warnings: Vec<String>,
    },
}

impl Verdict {
    /// Reads the review that a webhook sent back; the error says why it is not valid.
    pub(super) fn read(
        name: &str,
        is_mutating: bool,
        spoken: &str,
        uid: &str,
        review: &Value,
    ) -> Result<Self, String> {
        check_kind(spoken, review).map_err(|why| format!("failed to call webhook: {why}"))?;
        check(is_mutating, spoken, uid, review)
            .map_err(|why| format!("received invalid webhook response: {why}"))?;
        let response = &review["response"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let patch = text(&response["patch"]);
        let patch_type = match response["patchType"].as_str() {
            Some(given) if spoken == "v1" => given,
            _ => "JSONPatch",
        };
        let warnings = elements(&response["warnings"]);
        let warnings = warnings.map(text).collect();
        if response["allowed"] != true {
            return Ok(Self::Refused {
                failure: refusal(name, &response["status"]),
                warnings,
            });
        }
        let patch = if is_mutating && !patch.is_empty() {
            Some(read_patch(&patch, patch_type)?)
        } else {
            None
        };
        Ok(Self::Allowed {
            patch: patch.filter(|patch| !patch.is_empty()),
            warnings,
        })
    }
}

/// Checks that an answer can be read as a review of the version that the webhook was asked in.
fn check_kind(spoken: &str, review: &Value) -> Result<(), String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if api_version.is_empty() && kind.is_empty() {
        return Ok(());
    }
    match (api_version.strip_prefix("admission.k8s.io/"), kind.as_str()) {
        (Some(version), "AdmissionReview") if version == spoken => Ok(()),
        (Some(version @ ("v1" | "v1beta1")), "AdmissionReview") => Err(format!(
            "converting ({version}.AdmissionReview) to ({spoken}.AdmissionReview): unknown conversion"
        )),
        _ => Err(not_registered(&api_version, &kind)),
    }
}

/// Checks what a review must have, whatever it says. Answers in the older version are not checked.
fn check(is_mutating: bool, spoken: &str, uid: &str, review: &Value) -> Result<(), String> {
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".into());
    }
    if spoken != "v1" {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let given = text(&response["uid"]);
    if given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if (api_version.as_str(), kind.as_str()) != ("admission.k8s.io/v1", "AdmissionReview") {
        let group = if api_version.contains('/') { "" } else { "/" };
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}{api_version}, Kind={kind}"
        ));
    }
    check_patch(
        is_mutating,
        &text(&response["patch"]),
        response["patchType"].as_str(),
    )
}

fn check_patch(is_mutating: bool, patch: &str, patch_type: Option<&str>) -> Result<(), String> {
    let why = match (is_mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, _, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, _, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(why.into())
}

fn read_patch(patch: &str, patch_type: &str) -> Result<Patch, String> {
    let undecodable =
        |why: String| format!("received undecodable patch in webhook response: {why}");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(patch)
        .map_err(|error| undecodable(error.to_string()))?;
    let patch: Value =
        serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?;
    if !patch.is_array() {
        return Err(undecodable(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            go_type(&patch)
        )));
    }
    let patch: Patch =
        serde_json::from_value(patch).map_err(|error| undecodable(error.to_string()))?;
    if !patch.is_empty() && patch_type != "JSONPatch" {
        return Err(format!("unsupported patch type {patch_type:?}"));
    }
    Ok(patch)
}

/// Returns the refusal that a webhook asks for.
fn refusal(name: &str, status: &Value) -> Failure {
    let mut status = if status.is_object() {
        status.clone()
    } else {
        json!({})
    };
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code.unwrap_or_default().max(400);
    let denied = format!("admission webhook {name:?} denied the request");
    let given = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let message = match given("message").or_else(|| given("reason")) {
        Some(why) => format!("{denied}: {why}"),
        None => format!("{denied} without explanation"),
    };
    if given("status").is_none_or(|given| given == "Success") {
        status["status"] = json!("Failure");
    }
    status["message"] = json!(message);
    status["code"] = json!(code);
    status["kind"] = json!("Status");
    status["apiVersion"] = json!("v1");
    if !status["metadata"].is_object() {
        status["metadata"] = json!({});
    }
    Failure::of_webhook(code, message, status)
}

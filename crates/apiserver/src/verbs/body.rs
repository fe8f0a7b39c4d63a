//! Bodies and options of writes: which bodies are objects, of which kind, and a real server's messages about others.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::request::Request;
use crate::failure::{Cause, Failure, Subject};
use crate::registry;
use crate::values::go::not_an_object;
pub(super) use crate::values::go::{go_type, not_registered};

/// Longest name of a field manager, in bytes.
const LONGEST_MANAGER: usize = 128;
/// Longest part of a body that a refusal repeats, in bytes.
const LONGEST_SUMMARY: usize = 30;

/// Returns the beginning of a body for messages: as text when it looks like JSON, otherwise in hexadecimal digits.
fn summary(body: &[u8]) -> String {
    let (shown, rest) = body.split_at(body.len().min(LONGEST_SUMMARY));
    let mut text = if body.is_empty() {
        "<empty>".to_owned()
    } else if shown.first() == Some(&b'{') {
        String::from_utf8_lossy(shown).into_owned()
    } else {
        shown.iter().fold(String::new(), |mut text, byte| {
            // writing to a `String` cannot fail
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if !rest.is_empty() {
        text.push_str(" ...");
    }
    text
}

/// Returns a JSON error in the words of Go's decoder.
pub(super) fn go_json_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let line = body
        .split(|byte| *byte == b'\n')
        .nth(error.line().saturating_sub(1));
    let letter = line
        .and_then(|line| line.get(error.column().saturating_sub(1)))
        .copied()
        .map_or(' ', char::from);
    format!("invalid character {letter:?} looking for beginning of value")
}

/// Returns a YAML error without its position, similar to that of Go's decoder.
pub(super) fn go_yaml_error(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("yaml: {text}")
}

impl Request<'_> {
    /// Parses the body as an object.
    pub(super) fn parse(&self) -> Result<Value, Failure> {
        let readable = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ];
        if !readable.contains(&self.content_type) {
            return Err(Failure::unsupported_media_type(&readable));
        }
        let unrecognized = |why: String| {
            Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {why} ({})",
                self.resource.kind,
                summary(self.body)
            ))
        };
        let parsed: Value = if self.content_type.contains("yaml") {
            serde_yaml::from_slice(self.body)
                .map_err(|error| unrecognized(go_yaml_error(&error)))?
        } else {
            serde_json::from_slice(self.body).map_err(|error| {
                unrecognized(format!(
                    "couldn't get version/kind; json parse error: {}",
                    go_json_error(self.body, &error)
                ))
            })?
        };
        match parsed {
            Value::Object(_) => Ok(parsed),
            Value::Null => Ok(json!({})),
            other => Err(unrecognized(not_an_object(&other))),
        }
    }

    /// Checks that an object is of the resource's kind, and fills in version and kind if they are missing.
    pub(super) fn check_kind(&self, object: &mut Value) -> Result<(), Failure> {
        let expected = self.resource.api_version();
        let kind = &self.resource.kind;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (given, given_kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        if self.resource.custom.is_some() {
            if given_kind.is_empty() {
                let body = String::from_utf8_lossy(self.body);
                return Err(Failure::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{}' ({})",
                    body.trim_end(),
                    summary(self.body)
                )));
            }
            if given != expected {
                return Err(Failure::bad_request(format!(
                    "the API version in the data ({given}) does not match the expected API version ({expected})"
                )));
            }
            if given_kind != *kind {
                let subject = Subject {
                    group: &self.resource.group,
                    resource: &given_kind,
                    name: object["metadata"]["name"].as_str().unwrap_or_default(),
                };
                let cause = Cause::invalid("kind", &json!(given_kind), &format!("must be {kind}"));
                return Err(Failure::invalid(&subject, &[cause]));
            }
            return Ok(());
        }
        let differs = |given: &str, expected: &str| !given.is_empty() && given != expected;
        if differs(&given, &expected) || differs(&given_kind, kind) {
            return Err(self.other_kind(&given, &given_kind));
        }
        object["apiVersion"] = json!(expected);
        object["kind"] = json!(kind);
        Ok(())
    }

    /// Returns why an object of a built-in kind cannot be decoded if it says that it is of a kind that nobody knows.
    pub(super) fn unknown_kind(&self, object: &Value) -> Option<String> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (given, kind) = (text("apiVersion"), text("kind"));
        let is_own = given == self.resource.api_version() && kind == self.resource.kind;
        (!is_own && !registry::has_kind(given, kind)).then(|| not_registered(given, kind))
    }

    fn other_kind(&self, given: &str, given_kind: &str) -> Failure {
        let expected = self.resource.api_version();
        let kind = &self.resource.kind;
        let version = given.rsplit('/').next().unwrap_or_default();
        let is_known = given_kind == "DeleteOptions" || registry::has_kind(given, given_kind);
        if is_known && given_kind == kind {
            return Failure::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            ));
        }
        let why = if is_known {
            let package = match self.resource.group.split('.').next() {
                None | Some("") => "core",
                Some(group) => group,
            };
            format!("converting ({version}.{given_kind}) to ({package}.{kind}): unknown conversion")
        } else {
            not_registered(given, given_kind)
        };
        Failure::bad_request(format!(
            "{given_kind} in version {version:?} cannot be handled as a {kind}: {why}"
        ))
    }

    /// Checks the options of a write; `options` is the name of their type, such as `CreateOptions`.
    pub(crate) fn check_write_options(&self, options: &str) -> Result<(), Failure> {
        let mut causes = Vec::new();
        if options == "PatchOptions"
            && !self.parameter("force").is_empty()
            && !self.content_type.contains("apply-patch")
        {
            causes.push(Cause::forbidden(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        if self.parameter("fieldManager").len() > LONGEST_MANAGER {
            causes.push(Cause::too_long("fieldManager", LONGEST_MANAGER));
        }
        let dry_run = self.parameter("dryRun");
        if !dry_run.is_empty() && dry_run != "All" {
            let all = ["All".to_owned()];
            causes.push(Cause::unsupported("dryRun", &json!([dry_run]), &all));
        }
        let validation = self.parameter("fieldValidation");
        let known = ["", "Ignore", "Strict", "Warn"];
        if !known.contains(&validation) {
            let known = known.map(str::to_owned);
            causes.push(Cause::unsupported(
                "fieldValidation",
                &json!(validation),
                &known,
            ));
        }
        if causes.is_empty() {
            return Ok(());
        }
        let subject = Subject {
            group: "meta.k8s.io",
            resource: options,
            name: "",
        };
        Err(Failure::invalid(&subject, &causes))
    }

    /// Checks that an object has the name and namespace of the path.
    pub(super) fn check_name_and_namespace(&self, object: &Value) -> Result<(), Failure> {
        match object["metadata"]["name"].as_str().unwrap_or_default() {
            "" => {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({} based on URL) was undeterminable: name must be provided",
                    self.name
                )));
            }
            name if name != self.name => {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    self.name
                )));
            }
            _ => {}
        }
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) if !namespace.is_empty() && namespace != self.namespace => {
                Err(Failure::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Checks that an applied configuration has the kind and name of the object.
    pub(super) fn check_applied(&self, configuration: &Value) -> Result<(), Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&configuration["apiVersion"]);
        let kind = text(&configuration["kind"]);
        if api_version != self.resource.api_version() || kind != self.resource.kind {
            let place = if api_version.contains('/') {
                api_version
            } else {
                format!("/{api_version}")
            };
            return Err(Failure::bad_request(format!(
                "invalid object type: {place}, Kind={kind}"
            )));
        }
        if configuration["metadata"]["managedFields"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        self.check_name_and_namespace(configuration)
    }
}

/// Returns the resource version that an object names, 0 for none.
pub(super) fn given_version(object: &Value) -> Result<u64, Failure> {
    match object["metadata"]["resourceVersion"].as_str() {
        None | Some("") => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            Failure::internal_without_reason(format!(
                "strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_binary_bodies_are_shown_in_short() {
        assert_eq!(summary(b"hello"), "68656c6c6f");
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(
            summary(br#"{"apiVersion":"judge.example.com/v1"}"#),
            r#"{"apiVersion":"judge.example.c ..."#
        );
    }

    #[test]
    fn json_errors_are_told_as_go_tells_them() {
        let error_text = |body: &[u8]| {
            let error = serde_json::from_slice::<Value>(body).unwrap_err();
            go_json_error(body, &error)
        };
        assert_eq!(error_text(b"{"), "unexpected end of JSON input");
        assert_eq!(error_text(b" "), "unexpected end of JSON input");
        assert_eq!(
            error_text(b"hello"),
            "invalid character 'h' looking for beginning of value"
        );
    }
}

//! Validating admission policies: whether the policies of the cluster let a write pass.
//!
//! A policy takes effect through its bindings. Both are read from the state, so that a change of them counts for the next request; a real
//! server takes up to a second to hear of it. A cluster without bindings pays one look-up for each write.
//!
//! What a real server has and this one does not: annotations of an audit log, because there is none, and the equivalent versions of
//! built-in kinds.

use serde_json::{Value, json};

use self::expressions::Evaluator;
use self::matching::Matched;
use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::schema::room;
use crate::storage::State;
use crate::values::fields::elements;

mod authorizer;
mod evaluation;
mod expressions;
mod matching;
mod meter;
mod params;

pub(crate) use self::evaluation::{request, versioned};

/// Where policies are stored.
pub(crate) const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// Where their bindings are stored.
pub(crate) const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
/// Kinds that no policy sees, so that a policy cannot lock out those who would mend it.
const UNSEEN: [&str; 4] = [
    POLICIES,
    BINDINGS,
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
];

/// What a request wants to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// Returns the name in rules and in `request.operation`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Returns the kind of the request's options.
    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete | Self::Connect => "DeleteOptions",
        }
    }
}

/// A write that policies are asked about. Its attempt has the object before the write.
#[derive(Clone, Copy)]
pub(crate) struct Review<'a> {
    /// Who wants to write what.
    pub(crate) attempt: Attempt<'a>,
    /// What they want to do.
    pub(crate) operation: Operation,
    /// The object after the write; `None` for a deletion.
    pub(crate) object: Option<&'a Value>,
    /// The options of the request.
    pub(crate) options: Options<'a>,
}

/// The options of a write, as far as admission sees them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options<'a> {
    /// Whether nothing is written.
    pub(crate) dry_run: bool,
    /// The field manager that the request names; empty where it names none.
    pub(crate) field_manager: &'a str,
    /// What becomes of unknown fields; empty where the request does not say.
    pub(crate) field_validation: &'a str,
    /// The `DeleteOptions` of a deletion.
    pub(crate) deletion: Option<&'a Value>,
    /// Whether the request names no object: the server has yet to make the name, or it deletes a collection.
    pub(crate) unnamed: bool,
}

impl Review<'_> {
    /// Returns the namespace of the request; for a namespace its own name.
    pub(super) fn namespace(&self) -> &str {
        if self.is_about_namespaces() {
            self.attempt.name
        } else {
            self.attempt.namespace
        }
    }

    pub(super) fn is_about_namespaces(&self) -> bool {
        self.attempt.resource.storage == "namespaces"
    }

    /// Returns the group, version and kind of the object.
    pub(super) fn kind(&self) -> (&str, &str, &str) {
        let resource = self.attempt.resource;
        match resource.subresource(self.attempt.subresource) {
            // discovery names group and version only where they differ
            Some(sub) if sub.version.is_empty() => (&resource.group, &resource.version, &sub.kind),
            Some(sub) => (&sub.group, &sub.version, &sub.kind),
            None => (&resource.group, &resource.version, &resource.kind),
        }
    }

    /// Returns the options of the request; a connection has none.
    fn options(&self) -> Value {
        if self.operation == Operation::Connect {
            return Value::Null;
        }
        let given = &self.options;
        let mut options = given.deletion.cloned().unwrap_or_else(|| json!({}));
        options["apiVersion"] = json!("meta.k8s.io/v1");
        options["kind"] = json!(self.operation.options_kind());
        if given.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for (field, value) in [
            ("fieldManager", given.field_manager),
            ("fieldValidation", given.field_validation),
        ] {
            if !value.is_empty() {
                options[field] = json!(value);
            }
        }
        options
    }
}

/// A refusal, with what it comes from.
#[derive(Debug)]
struct Refusal<'a> {
    policy: &'a str,
    /// Name of the binding; `None` where the policy itself is at fault.
    binding: Option<&'a str>,
    reason: String,
    message: String,
}

/// Returns whether policies could be concerned: a cheap question, for callers that would have to prepare a review.
pub(crate) fn has_bindings(state: &State) -> bool {
    state.list(BINDINGS, "").next().is_some()
}

/// Asks the policies about a write. Returns their warnings; the error is the refusal of the first policy that refuses it.
pub(crate) fn check(state: &State, review: &Review<'_>) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    if !has_bindings(state)
        || UNSEEN.contains(&review.attempt.resource.storage.as_str())
        || !review.attempt.is_enabled("ValidatingAdmissionPolicy")
    {
        return Ok(warnings);
    }
    let mut refusals = Vec::new();
    for (key, policy) in state.list(POLICIES, "") {
        let name = key.name.as_str();
        let bindings: Vec<(&str, &Value)> = state
            .list(BINDINGS, "")
            .filter(|(_, binding)| binding["spec"]["policyName"] == name)
            .map(|(key, binding)| (key.name.as_str(), binding.value()))
            .collect();
        let spec = &policy["spec"];
        if bindings.is_empty() {
            continue;
        }
        let Some(matched) = matching::matches(state, review, &spec["matchConstraints"]) else {
            continue;
        };
        let fails = spec["failurePolicy"] != "Ignore";
        let param_kind = match params::Kind::of(state, &spec["paramKind"]) {
            Ok(kind) => kind,
            Err(why) => {
                if fails {
                    refusals.push(Refusal {
                        policy: name,
                        binding: None,
                        reason: String::new(),
                        message: format!("failed to configure policy: {why}"),
                    });
                }
                continue;
            }
        };
        for (binding_name, binding) in bindings {
            let spec_of_binding = &binding["spec"];
            if matching::matches(state, review, &spec_of_binding["matchResources"]).is_none() {
                continue;
            }
            let refusal = |reason: String, message: String| Refusal {
                policy: name,
                binding: Some(binding_name),
                reason,
                message,
            };
            let found = param_kind.find(state, &spec_of_binding["paramRef"], review.namespace());
            let params = match found {
                Ok(params) => params,
                Err(why) => {
                    if fails {
                        let message = format!("failed to configure binding: {why}");
                        refusals.push(refusal(String::new(), message));
                    }
                    continue;
                }
            };
            let has_action = |action: &str| {
                let mut actions = elements(&spec_of_binding["validationActions"]);
                actions.any(|known| known == action)
            };
            for param in params {
                let denials = evaluate(state, review, spec, &matched, &param);
                for denial in denials {
                    if has_action("Warn") {
                        warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding_name}': {}",
                            denial.message
                        ));
                    }
                    if has_action("Deny") || denial.is_of_audit {
                        refusals.push(refusal(denial.reason, denial.message));
                    }
                }
            }
        }
    }
    match refusals.first() {
        None => Ok(warnings),
        Some(first) => Err(failure(review, first)),
    }
}

/// Returns in which version these `MatchResources` match a write; `None` where they do not.
pub(crate) fn matched_version(
    state: &State,
    review: &Review<'_>,
    resources: &Value,
) -> Option<String> {
    matching::matches(state, review, resources).map(|matched| matched.version)
}

/// Returns whether a write meets all conditions, in the version in which a rule matches it; the error says why they cannot be evaluated.
pub(crate) fn conditions(
    state: &State,
    review: &Review<'_>,
    conditions: &Value,
    version: &str,
) -> Result<bool, String> {
    if conditions.as_array().is_none_or(Vec::is_empty) {
        return Ok(true);
    }
    room::work_on(are_small(conditions), || {
        Evaluator::with(state, review.attempt.identity, |evaluator| {
            let input = evaluation::Input {
                version,
                param: &Value::Null,
                namespace: None,
            };
            evaluation::meets(evaluator, review, conditions, &input)
        })
    })
}

fn evaluate(
    state: &State,
    review: &Review<'_>,
    spec: &Value,
    matched: &Matched,
    param: &Value,
) -> Vec<evaluation::Denial> {
    let namespace = if review.is_about_namespaces() {
        None
    } else {
        state.get("namespaces", "", review.attempt.namespace)
    };
    let variables = evaluation::Input {
        version: &matched.version,
        param,
        namespace: namespace.map(|namespace| namespace.value()),
    };
    room::work_on(are_small(spec), || {
        Evaluator::with(state, review.attempt.identity, |evaluator| {
            evaluation::denials(evaluator, review, spec, &variables)
        })
    })
}

/// Returns whether all expressions of a policy are small. Its other texts are.
fn are_small(spec: &Value) -> bool {
    match spec {
        Value::String(text) => room::is_small(text),
        Value::Array(items) => items.iter().all(are_small),
        Value::Object(fields) => fields.values().all(are_small),
        _ => true,
    }
}

fn failure(review: &Review<'_>, refusal: &Refusal<'_>) -> Failure {
    let binding = refusal
        .binding
        .map_or_else(String::new, |binding| format!(" with binding '{binding}'"));
    let why = format!(
        "ValidatingAdmissionPolicy '{}'{binding} denied request: {}",
        refusal.policy, refusal.message
    );
    let mut failure = review.attempt.forbidden(&why);
    (failure.code, failure.reason) = match refusal.reason.as_str() {
        "Forbidden" => (403, "Forbidden"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    failure.details["causes"] = json!([{"message": why}]);
    failure
}

#[cfg(test)]
mod tests;

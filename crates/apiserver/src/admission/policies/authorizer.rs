//! The variable `authorizer` of expressions: `authorizer.group('').resource('pods').namespace('a').check('get').allowed()`.
//!
//! Functions of the interpreter know nothing of the state. So a check whose answer is not known yet notes its question and fails; the
//! evaluator answers the question and runs the expression again. A check costs a third of what an expression may cost, so there are few.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::{Key, Opaque};
use kube_cel::cel::{Context, ExecutionError, Value};

use super::meter;
use crate::access::authz::{self, Attributes};
use crate::access::identity::{ACCOUNT_USER_PREFIX, Identity, User, account_groups};
use crate::storage::State;

/// What an expression asks permission for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    /// Namespace and name of the account that is asked about; the user of the request where it is `None`.
    account: Option<(String, String)>,
    is_path: bool,
    path: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    verb: String,
}

/// An answer: allowed or not, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decision {
    allowed: bool,
    reason: String,
}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.authorization.Authorizer"
    }
}

impl Opaque for Decision {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }
}

#[derive(Debug, Default)]
struct Questions {
    answers: BTreeMap<Question, Decision>,
    open: Option<Question>,
}

thread_local! {
    static QUESTIONS: RefCell<Questions> = RefCell::default();
}

/// Name of the entry with the authorizer itself, besides `requestResource`. No expression can select it.
const SELF: &str = "@self";

/// Forgets all answers: they are those of another request.
pub(super) fn forget() {
    QUESTIONS.set(Questions::default());
}

/// Answers the question that the last run of an expression left open; returns whether there was one.
pub(super) fn answer(state: &State, identity: &Identity) -> bool {
    let Some(question) = QUESTIONS.with_borrow_mut(|questions| questions.open.take()) else {
        return false;
    };
    let account = question.account.as_ref().map(|(namespace, name)| User {
        name: format!("{ACCOUNT_USER_PREFIX}{namespace}:{name}"),
        groups: account_groups(namespace),
        uid: String::new(),
    });
    let user = account
        .map(Identity::of)
        .map_or_else(|| identity.user.clone(), |identity| identity.user);
    let attributes = Attributes {
        verb: &question.verb,
        group: &question.group,
        resource: &question.resource,
        subresource: &question.subresource,
        namespace: &question.namespace,
        name: &question.name,
        path: &question.path,
        fields: "",
    };
    let decided = authz::decide(state, &user, &attributes);
    let decision = Decision {
        allowed: decided.is_ok(),
        reason: decided.err().unwrap_or_default(),
    };
    QUESTIONS.with_borrow_mut(|questions| questions.answers.insert(question, decision));
    true
}

/// The resource of the request, for `authorizer.requestResource`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestResource<'a> {
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// Returns the value of the variable.
pub(super) fn value(of_request: RequestResource<'_>) -> Value {
    let of_request = Question {
        group: of_request.group.into(),
        resource: of_request.resource.into(),
        subresource: of_request.subresource.into(),
        namespace: of_request.namespace.into(),
        name: of_request.name.into(),
        ..Question::default()
    };
    let entries = [(SELF, Question::default()), ("requestResource", of_request)];
    let entries: std::collections::HashMap<String, Value> = entries
        .into_iter()
        .map(|(name, question)| (name.to_owned(), Value::Opaque(Arc::new(question))))
        .collect();
    Value::Map(entries.into())
}

fn question(this: &Value) -> Result<Question, ExecutionError> {
    let found = match this {
        Value::Map(map) => map.get(&Key::from(SELF)),
        other => Some(other),
    };
    match found {
        Some(Value::Opaque(opaque)) => opaque.downcast_ref::<Question>().cloned(),
        _ => None,
    }
    .ok_or(ExecutionError::NoSuchOverload)
}

fn decision(this: &Value) -> Result<Decision, ExecutionError> {
    match this {
        Value::Opaque(opaque) => opaque.downcast_ref::<Decision>().cloned(),
        _ => None,
    }
    .ok_or(ExecutionError::NoSuchOverload)
}

fn texts<const N: usize>(arguments: &[Value]) -> Result<[String; N], ExecutionError> {
    let texts: Option<Vec<String>> = arguments
        .iter()
        .map(|argument| match argument {
            Value::String(text) => Some(text.to_string()),
            _ => None,
        })
        .collect();
    texts
        .and_then(|texts| texts.try_into().ok())
        .ok_or(ExecutionError::NoSuchOverload)
}

/// Adds the functions of the authorizer.
pub(super) fn register(context: &mut Context<'_>) {
    type Setter = fn(&mut Question, String);
    let setters: [(&str, Setter); 6] = [
        ("group", |question, text| question.group = text),
        ("resource", |question, text| question.resource = text),
        ("subresource", |question, text| question.subresource = text),
        ("namespace", |question, text| question.namespace = text),
        ("name", |question, text| question.name = text),
        ("path", |question, text| {
            question.path = text;
            question.is_path = true;
        }),
    ];
    for (name, set) in setters {
        context.add_function(
            name,
            move |This(this): This<Value>, Arguments(arguments): Arguments| {
                let mut question = question(&this)?;
                let [text] = texts(&arguments)?;
                set(&mut question, text);
                Ok(Value::Opaque(Arc::new(question)))
            },
        );
    }
    context.add_function(
        "serviceAccount",
        |This(this): This<Value>, Arguments(arguments): Arguments| {
            let mut question = question(&this)?;
            let [namespace, name] = texts(&arguments)?;
            question.account = Some((namespace, name));
            Ok(Value::Opaque(Arc::new(question)))
        },
    );
    context.add_function(
        "check",
        |This(this): This<Value>, Arguments(arguments): Arguments| {
            let mut question = question(&this)?;
            let [verb] = texts(&arguments)?;
            question.verb = verb;
            check(question)
        },
    );
    context.add_function("allowed", |This(this): This<Value>| {
        decision(&this).map(|decision| Value::Bool(decision.allowed))
    });
    context.add_function("errored", |This(this): This<Value>| {
        decision(&this).map(|_| Value::Bool(false))
    });
    context.add_function("reason", |This(this): This<Value>| {
        decision(&this).map(|decision| Value::String(Arc::new(decision.reason)))
    });
}

fn check(question: Question) -> Result<Value, ExecutionError> {
    meter::charge_check()?;
    QUESTIONS.with_borrow_mut(|questions| {
        if let Some(decision) = questions.answers.get(&question) {
            return Ok(Value::Opaque(Arc::new(decision.clone())));
        }
        questions.open = Some(question);
        Err(ExecutionError::function_error("check", "not answered yet"))
    })
}

//! Whether the expressions of admission policies compile: the variables that they see, and the types of their results.

use super::check::Checker;
use super::types::Type;

/// What an expression must result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admission::validation) enum Wanted {
    Bool,
    String,
    StringOrNull,
}

/// The variables of a policy's expressions.
#[derive(Clone, Debug)]
pub(in crate::admission::validation) struct Variables {
    has_params: bool,
    composed: Option<Vec<(String, Type)>>,
}

impl Variables {
    /// Makes the variables of a policy that has composed none so far.
    pub(in crate::admission::validation) fn new(has_params: bool) -> Self {
        Self {
            has_params,
            composed: None,
        }
    }

    /// Returns the same variables, with `variables` for those that the policy composes.
    pub(in crate::admission::validation) fn composing(&self) -> Self {
        Self {
            composed: Some(Vec::new()),
            ..self.clone()
        }
    }

    /// Adds a variable that an expression composes; the error says why the expression does not compile.
    pub(in crate::admission::validation) fn compose(
        &mut self,
        name: &str,
        expression: &str,
    ) -> Result<(), String> {
        let compiled = self.compile(expression, true);
        let found = compiled.clone().unwrap_or(Type::Unknown);
        if let Some(composed) = &mut self.composed {
            composed.push((name.to_owned(), found));
        }
        compiled.map(|_| ())
    }

    /// Compiles an expression; the error is a message for users.
    pub(in crate::admission::validation) fn check(
        &self,
        expression: &str,
        has_authorizer: bool,
        wanted: Wanted,
    ) -> Result<(), String> {
        let found = self.compile(expression, has_authorizer)?;
        let fits = match wanted {
            _ if found == Type::Unknown => true,
            Wanted::Bool => found == Type::Bool,
            Wanted::String => found == Type::String,
            Wanted::StringOrNull => matches!(found, Type::String | Type::Null),
        };
        if fits {
            return Ok(());
        }
        let wanted = match wanted {
            Wanted::Bool => "bool",
            Wanted::String => "string",
            Wanted::StringOrNull => "one of [string null_type]",
        };
        Err(format!("must evaluate to {wanted} but got {found}"))
    }

    fn compile(&self, expression: &str, has_authorizer: bool) -> Result<Type, String> {
        let mut variables: Vec<(String, Type)> = ["object", "oldObject"]
            .map(|name| (name.to_owned(), Type::Dyn))
            .into();
        variables.push(("request".into(), request()));
        variables.push(("namespaceObject".into(), namespace()));
        if self.has_params {
            variables.push(("params".into(), Type::Dyn));
        }
        if has_authorizer {
            variables.push(("authorizer".into(), Type::Unknown));
        }
        if let Some(composed) = &self.composed {
            variables.push(("variables".into(), Type::Object(composed.clone())));
        }
        Checker::compile_about(expression, variables)
            .map(|compiled| compiled.result)
            .map_err(|errors| format!("compilation failed: {errors}"))
    }
}

fn object(fields: &[(&str, Type)]) -> Type {
    let fields = fields.iter();
    Type::Object(
        fields
            .map(|(name, found)| ((*name).to_owned(), found.clone()))
            .collect(),
    )
}

fn strings(names: &[&str]) -> Type {
    let fields: Vec<(&str, Type)> = names.iter().map(|name| (*name, Type::String)).collect();
    object(&fields)
}

fn of_strings(values: Type) -> Type {
    Type::Map(Box::new(Type::String), Box::new(values))
}

fn request() -> Type {
    let kind = strings(&["group", "version", "kind"]);
    let resource = strings(&["group", "version", "resource"]);
    let list = Type::List(Box::new(Type::String));
    let user = object(&[
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", list.clone()),
        ("extra", of_strings(list)),
    ]);
    object(&[
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("subResource", Type::String),
        ("requestKind", kind),
        ("requestResource", resource),
        ("requestSubResource", Type::String),
        ("name", Type::String),
        ("namespace", Type::String),
        ("operation", Type::String),
        ("userInfo", user),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ])
}

fn namespace() -> Type {
    let texts = of_strings(Type::String);
    let metadata = object(&[
        ("name", Type::String),
        ("generateName", Type::String),
        ("namespace", Type::String),
        ("labels", texts.clone()),
        ("annotations", texts),
        ("UID", Type::String),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", Type::String),
        ("finalizers", Type::List(Box::new(Type::String))),
    ]);
    object(&[
        ("metadata", metadata),
        ("spec", Type::Unknown),
        ("status", Type::Unknown),
    ])
}

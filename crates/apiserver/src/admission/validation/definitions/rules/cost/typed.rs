//! An expression with the types of its parts and the possible overloads of each call, as cel-go's checker returns it.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SelectExpr};
use kube_cel::cel::parser::Expression;

use super::kind::{Declared, Kind};
use super::macros;
use super::signatures::{self, Overload};
use super::substitution::Substitution;
use crate::admission::validation::definitions::rules::functions::TYPES;

/// A part of an expression.
#[derive(Debug)]
pub(super) struct Node {
    /// Unique id within the expression.
    pub(super) id: usize,
    /// Its type.
    pub(super) kind: Kind,
    /// What it is.
    pub(super) form: Form,
}

/// What a part of an expression is.
#[derive(Debug)]
pub(super) enum Form {
    /// A constant with its size, and its value if it is an integer.
    Constant(u64, Option<i64>),
    /// A variable, or the name of a type.
    Variable(String),
    /// A field; if the last value is true, a test whether the field is present.
    Select(Box<Node>, String, bool),
    /// A call.
    Call(Call),
    /// A list with its items.
    List(Vec<Node>),
    /// A map with its keys and values.
    Map(Vec<(Node, Node)>),
    /// The expansion of a macro.
    Loop(Box<Loop>),
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    /// Name of the function.
    pub(super) name: String,
    /// The value before the dot.
    pub(super) target: Option<Box<Node>>,
    /// The arguments.
    pub(super) arguments: Vec<Node>,
    /// The overloads that fit: more than one where types are not known.
    pub(super) overloads: Vec<&'static Overload>,
}

/// A comprehension.
#[derive(Debug)]
pub(super) struct Loop {
    /// The list or map that the loop runs over.
    pub(super) range: Node,
    /// Variable of the item or key; with a second variable, of the index or key.
    pub(super) variable: String,
    /// Variable of the item or value, beside an index or key.
    pub(super) second: Option<String>,
    /// Name of the accumulator.
    pub(super) accumulator: String,
    /// Initial value of the accumulator.
    pub(super) start: Node,
    /// Condition under which the loop continues.
    pub(super) condition: Node,
    /// New value of the accumulator in each turn.
    pub(super) step: Node,
    /// Result of the loop.
    pub(super) result: Node,
}

/// Adds types to an expression about a value; `None` for an expression that is not understood.
pub(super) fn of(
    expression: &Expression,
    about: &Arc<Declared>,
    has_optional_old_self: bool,
) -> Option<Node> {
    let kind = about.kind();
    let old_self = if has_optional_old_self {
        Kind::Optional(Arc::new(kind.clone()))
    } else {
        kind.clone()
    };
    let mut typing = Typing {
        variables: vec![("self".into(), kind), ("oldSelf".into(), old_self)],
        substitution: Substitution::default(),
        count: 0,
    };
    let mut node = typing.node(expression)?;
    resolve_types(&mut node, &typing.substitution);
    Some(node)
}

struct Typing {
    variables: Vec<(String, Kind)>,
    substitution: Substitution,
    count: usize,
}

impl Typing {
    fn node(&mut self, expression: &Expression) -> Option<Node> {
        let (kind, form) = match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => return None,
            Expr::Literal(value) => constant(value),
            Expr::Ident(name) => (self.variable(name)?, Form::Variable(name.clone())),
            Expr::Select(select) => self.select(select)?,
            Expr::Call(call) => match macros::expand(call) {
                Some(expanded) => return self.node(&expanded),
                None => self.call(call)?,
            },
            Expr::List(list) => {
                let mut items = Vec::new();
                let mut of_items = None;
                for (index, item) in list.elements.iter().enumerate() {
                    let item = self.node(item)?;
                    let is_optional = list.optional_indices.contains(&index);
                    of_items = Some(self.common_type(of_items, &item.kind, is_optional));
                    items.push(item);
                }
                let of_items = of_items.unwrap_or_else(|| self.substitution.new_variable());
                (Kind::List(Arc::new(of_items)), Form::List(items))
            }
            Expr::Map(map) => {
                let mut entries = Vec::new();
                let (mut keys, mut values) = (None, None);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return None;
                    };
                    let key = self.node(&entry.key)?;
                    keys = Some(self.common_type(keys, &key.kind, false));
                    let value = self.node(&entry.value)?;
                    values = Some(self.common_type(values, &value.kind, entry.optional));
                    entries.push((key, value));
                }
                let keys = keys.unwrap_or_else(|| self.substitution.new_variable());
                let values = values.unwrap_or_else(|| self.substitution.new_variable());
                (
                    Kind::Map(Arc::new(keys), Arc::new(values)),
                    Form::Map(entries),
                )
            }
            Expr::Comprehension(_) => self.comprehension(expression)?,
        };
        Some(self.numbered(kind, form))
    }

    fn numbered(&mut self, kind: Kind, form: Form) -> Node {
        self.count += 1;
        Node {
            id: self.count,
            kind,
            form,
        }
    }

    fn variable(&self, name: &str) -> Option<Kind> {
        let known = self.variables.iter().rev().find(|(known, _)| known == name);
        match known {
            Some((_, kind)) => Some(kind.clone()),
            None => TYPES.contains(&name).then_some(Kind::Type),
        }
    }

    /// Returns the common type of the elements so far and one more; `dyn` where they do not unify.
    fn common_type(&mut self, before: Option<Kind>, one: &Kind, is_optional: bool) -> Kind {
        let one = match one {
            Kind::Optional(inner) if is_optional => (**inner).clone(),
            other => other.clone(),
        };
        let Some(before) = before else {
            return one;
        };
        let (first, second) = ([before.clone()], [one.clone()]);
        let unified = self.substitution.unify(&first, &second);
        if unified {
            before.most_general(&one)
        } else {
            Kind::Dyn
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Option<(Kind, Form)> {
        if let Some(name) = type_name(select) {
            return Some((Kind::Type, Form::Variable(name)));
        }
        let operand = self.node(&select.operand)?;
        let found = self.field(&operand.kind, &select.field, false)?;
        let kind = if select.test {
            Kind::named("bool")
        } else {
            found
        };
        let form = Form::Select(Box::new(operand), select.field.clone(), select.test);
        Some((kind, form))
    }

    /// Returns the type of a field; a field of an optional value is optional.
    fn field(&mut self, kind: &Kind, name: &str, may_be_missing: bool) -> Option<Kind> {
        let kind = self.substitution.resolved(kind, false);
        let (kind, was_optional) = match &kind {
            Kind::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let found = match &kind {
            Kind::Map(_, values) => (**values).clone(),
            Kind::Object(declared) => declared.field(name)?.kind(),
            Kind::Dyn => Kind::Dyn,
            Kind::Variable(_) => {
                self.substitution
                    .unify(&[Kind::Dyn], std::slice::from_ref(&kind));
                Kind::Dyn
            }
            _ => return None,
        };
        Some(if was_optional || may_be_missing {
            Kind::Optional(Arc::new(found))
        } else {
            found
        })
    }

    fn call(&mut self, call: &CallExpr) -> Option<(Kind, Form)> {
        let mut arguments = Vec::new();
        for argument in &call.args {
            arguments.push(self.node(argument)?);
        }
        if call.func_name == "_?._" {
            return self.optional_field(call, arguments);
        }
        let full = call.target.as_deref().and_then(|target| {
            let name = format!("{}.{}", qualified(target)?, call.func_name);
            Some((signatures::of(&name)?, name))
        });
        let (name, target, known) = match (full, &call.target) {
            (Some((known, name)), _) => (name, None, known),
            (None, Some(target)) => {
                let target = self.node(target)?;
                let known = signatures::of(&call.func_name)?;
                (call.func_name.clone(), Some(Box::new(target)), known)
            }
            (None, None) => {
                let known = signatures::of(&call.func_name)?;
                (call.func_name.clone(), None, known)
            }
        };
        let given: Vec<Kind> = target
            .iter()
            .map(|target| target.kind.clone())
            .chain(arguments.iter().map(|argument| argument.kind.clone()))
            .collect();
        let (kind, overloads) = self.resolve(known, target.is_some(), &given)?;
        let form = Form::Call(Call {
            name,
            target,
            arguments,
            overloads,
        });
        Some((kind, form))
    }

    /// Returns the result type of a function and its overloads that fit; the type is `dyn` where they do not unify.
    fn resolve(
        &mut self,
        known: &'static [Overload],
        is_member: bool,
        given: &[Kind],
    ) -> Option<(Kind, Vec<&'static Overload>)> {
        let mut result: Option<Kind> = None;
        let mut fitting = Vec::new();
        for overload in known.iter().filter(|one| one.is_member == is_member) {
            let mut variables = HashMap::new();
            let mut instantiate = |kind: &Kind| self.substitution.instantiate(kind, &mut variables);
            let wanted: Vec<Kind> = overload.parameters.iter().map(&mut instantiate).collect();
            let gives = instantiate(&overload.result);
            if !self.substitution.unify(given, &wanted) {
                continue;
            }
            fitting.push(overload);
            let gives = self.substitution.resolved(&gives, false);
            result = Some(match result {
                None => gives,
                Some(before) if before.is(&gives) => before,
                Some(_) => Kind::Dyn,
            });
        }
        Some((result?, fitting))
    }

    fn optional_field(&mut self, call: &CallExpr, arguments: Vec<Node>) -> Option<(Kind, Form)> {
        let Expr::Literal(LiteralValue::String(name)) = &call.args.get(1)?.expr else {
            return None;
        };
        let kind = self.field(&arguments.first()?.kind, name.inner(), true)?;
        let form = Form::Call(Call {
            name: call.func_name.clone(),
            target: None,
            arguments,
            overloads: signatures::of(&call.func_name)?.iter().collect(),
        });
        Some((kind, form))
    }

    fn comprehension(&mut self, expression: &Expression) -> Option<(Kind, Form)> {
        let Expr::Comprehension(written) = &expression.expr else {
            return None;
        };
        let range = self.node(&written.iter_range)?;
        let start = self.node(&written.accu_init)?;
        let (first, second) = match self.substitution.resolved(&range.kind, false) {
            Kind::List(items) if written.iter_var2.is_some() => {
                (Kind::named("int"), (*items).clone())
            }
            Kind::List(items) => ((*items).clone(), Kind::Dyn),
            Kind::Map(keys, values) => ((*keys).clone(), (*values).clone()),
            Kind::Dyn => (Kind::Dyn, Kind::Dyn),
            variable @ Kind::Variable(_) => {
                self.substitution.unify(&[Kind::Dyn], &[variable]);
                (Kind::Dyn, Kind::Dyn)
            }
            _ => return None,
        };
        let depth = self.variables.len();
        self.variables
            .push((written.accu_var.clone(), start.kind.clone()));
        self.variables.push((written.iter_var.clone(), first));
        if let Some(name) = &written.iter_var2 {
            self.variables.push((name.clone(), second));
        }
        let condition = self.node(&written.loop_cond)?;
        let step = self.node(&written.loop_step)?;
        let (wanted, given) = ([start.kind.clone()], [step.kind.clone()]);
        let unified = self.substitution.unify(&wanted, &given);
        self.variables.truncate(depth + 1);
        let result = self.node(&written.result)?;
        self.variables.truncate(depth);
        let kind = self.substitution.resolved(&result.kind, false);
        let form = Form::Loop(Box::new(Loop {
            range,
            variable: written.iter_var.clone(),
            second: written.iter_var2.clone(),
            accumulator: written.accu_var.clone(),
            start,
            condition,
            step,
            result,
        }));
        unified.then_some((kind, form))
    }
}

fn constant(value: &LiteralValue) -> (Kind, Form) {
    let (kind, size, integer) = match value {
        LiteralValue::Boolean(_) => ("bool", 1, None),
        LiteralValue::Bytes(bytes) => ("bytes", bytes.inner().len() as u64, None),
        LiteralValue::Double(_) => ("double", 1, None),
        LiteralValue::Int(number) => ("int", 1, Some(*number.inner())),
        LiteralValue::Null => ("null_type", 1, None),
        LiteralValue::String(text) => ("string", text.inner().chars().count() as u64, None),
        LiteralValue::UInt(_) => ("uint", 1, None),
    };
    (Kind::named(kind), Form::Constant(size, integer))
}

/// Returns a dotted name.
fn qualified(expression: &Expression) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand)?, select.field))
        }
        _ => None,
    }
}

/// Returns a dotted name if it is that of a type.
fn type_name(select: &SelectExpr) -> Option<String> {
    let name = format!("{}.{}", qualified(&select.operand)?, select.field);
    let is_type = !select.test && (name.starts_with("net.") || name.starts_with("google."));
    is_type.then_some(name)
}

/// Sets the resolved type of all parts.
fn resolve_types(node: &mut Node, substitution: &Substitution) {
    node.kind = substitution.resolved(&node.kind, true);
    match &mut node.form {
        Form::Constant(..) | Form::Variable(_) => {}
        Form::Select(operand, ..) => resolve_types(operand, substitution),
        Form::Call(call) => {
            for part in call
                .target
                .as_deref_mut()
                .into_iter()
                .chain(&mut call.arguments)
            {
                resolve_types(part, substitution);
            }
        }
        Form::List(items) => items
            .iter_mut()
            .for_each(|item| resolve_types(item, substitution)),
        Form::Map(entries) => {
            for (key, value) in entries {
                resolve_types(key, substitution);
                resolve_types(value, substitution);
            }
        }
        Form::Loop(inner) => {
            let inner = &mut **inner;
            for part in [
                &mut inner.range,
                &mut inner.start,
                &mut inner.condition,
                &mut inner.step,
                &mut inner.result,
            ] {
                resolve_types(part, substitution);
            }
        }
    }
}

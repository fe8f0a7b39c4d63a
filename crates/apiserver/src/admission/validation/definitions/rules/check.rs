//! Compiles rules: parses the text and checks that each part fits the types of the values that the rule is about.
//!
//! Only what is certainly wrong is refused: a refusal that a real server would not give is worse than a missing one.

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SelectExpr};
use kube_cel::cel::parser::{Expression, Parser};

use super::cost;
use super::functions::{self, NAMESPACES, TYPES};
use super::types::Type;
use crate::schema::room;
use crate::schema::source::{Position, Source, show};

mod loops;

/// A rule that compiles.
#[derive(Debug)]
pub(super) struct CompiledRule {
    /// The type of its result.
    pub(super) result: Type,
    /// Whether it refers to the old value.
    pub(super) uses_old_self: bool,
}

/// Checks the types of an expression.
#[derive(Debug)]
pub(super) struct Checker<'a> {
    source: Source<'a>,
    variables: Vec<(String, Type)>,
    errors: Vec<(Position, String)>,
    /// Position of the expression checked last: its operator, dot or bracket.
    here: Position,
    uses_old_self: bool,
}

impl<'a> Checker<'a> {
    /// Compiles a rule about values of a type. The old value is optional or of the same type. The error is a message for users.
    pub(super) fn compile(
        text: &'a str,
        of_self: &Type,
        optional: bool,
    ) -> Result<CompiledRule, String> {
        let before = if optional {
            Type::Unknown
        } else {
            of_self.clone()
        };
        let variables = vec![("self".into(), of_self.clone()), ("oldSelf".into(), before)];
        Self::compile_about(text, variables)
    }

    /// Compiles an expression about variables. The error is a message for users.
    pub(super) fn compile_about(
        text: &'a str,
        variables: Vec<(String, Type)>,
    ) -> Result<CompiledRule, String> {
        if let Some(why) = room::refusal(text) {
            return Err(why);
        }
        room::work_on(room::is_small(text), || Self::compiled(text, variables))
    }

    fn compiled(text: &'a str, variables: Vec<(String, Type)>) -> Result<CompiledRule, String> {
        let parsed = Parser::new().enable_optional_syntax(true).parse(text);
        let expression = parsed.map_err(|errors| {
            let shown = errors.errors.iter().map(|error| {
                let at = Position {
                    line: usize::try_from(error.pos.0).unwrap_or(1),
                    column: usize::try_from(error.pos.1 - 1).unwrap_or_default(),
                };
                show(text, at, &error.msg)
            });
            shown.collect::<Vec<_>>().join("\n")
        })?;
        let mut checker = Self {
            source: Source::new(text),
            variables,
            errors: Vec::new(),
            here: Position { line: 1, column: 0 },
            uses_old_self: false,
        };
        let result = checker.walk(&expression);
        if checker.errors.is_empty() {
            return Ok(CompiledRule {
                result,
                uses_old_self: checker.uses_old_self,
            });
        }
        checker.errors.sort();
        let shown = checker
            .errors
            .iter()
            .map(|(at, what)| checker.source.show(*at, what));
        Err(shown.collect::<Vec<_>>().join("\n"))
    }

    fn error(&mut self, at: Position, what: String) -> Type {
        self.errors.push((at, what));
        Type::Unknown
    }

    fn walk(&mut self, expression: &Expression) -> Type {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Literal(value) => {
                self.here = self.source.pass_constant();
                match value {
                    LiteralValue::Boolean(_) => Type::Bool,
                    LiteralValue::Bytes(_) => Type::Bytes,
                    LiteralValue::Double(_) => Type::Double,
                    LiteralValue::Int(_) => Type::Int,
                    LiteralValue::Null => Type::Null,
                    LiteralValue::String(_) => Type::String,
                    LiteralValue::UInt(_) => Type::Uint,
                }
            }
            Expr::List(list) => {
                let at = self.source.find(&["["]);
                let types: Vec<Type> = list
                    .elements
                    .iter()
                    .scan(None, |first, item| Some(self.element(first, item)))
                    .collect();
                let is_plain = list.optional_indices.is_empty();
                self.here = at;
                Type::List(Box::new(if is_plain {
                    common_type(&types)
                } else {
                    Type::Unknown
                }))
            }
            Expr::Map(map) => {
                let at = self.source.find(&["{"]);
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                let mut first = (None, None);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push(self.element(&mut first.0, &entry.key));
                        values.push(if entry.optional {
                            Type::Unknown
                        } else {
                            self.element(&mut first.1, &entry.value)
                        });
                    }
                }
                self.here = at;
                Type::Map(Box::new(common_type(&keys)), Box::new(common_type(&values)))
            }
            Expr::Unspecified | Expr::Struct(_) => Type::Unknown,
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    /// Checks an element of a list or a map: all elements must have the type of the first.
    fn element(&mut self, first: &mut Option<Type>, part: &Expression) -> Type {
        let found = self.walk(part);
        let wanted = first.get_or_insert_with(|| found.clone());
        if !found.may_be(wanted) && found.has_name() && wanted.has_name() {
            let what = format!("expected type '{wanted}' but found '{found}'");
            self.error(self.here, what);
        }
        found
    }

    fn ident(&mut self, name: &str) -> Type {
        let at = self.source.find(&[name]);
        self.here = at;
        self.uses_old_self |= name == "oldSelf";
        let known = self.variables.iter().rev().find(|(known, _)| known == name);
        if let Some((_, found)) = known {
            return found.clone();
        }
        if TYPES.contains(&name) {
            return Type::Unknown;
        }
        self.error(
            at,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }

    fn select(&mut self, select: &SelectExpr) -> Type {
        if let Expr::Ident(name) = &select.operand.expr
            && ["google", "net"].contains(&name.as_str())
        {
            return Type::Unknown;
        }
        let operand = self.walk(&select.operand);
        let field = select.field.as_str();
        let at = self.source.find(&[".", field]);
        self.here = at;
        let found = match operand {
            found @ (Type::Dyn | Type::Unknown) => found,
            Type::Map(_, values) => *values,
            Type::Object(fields) => match fields.into_iter().find(|(name, _)| name == field) {
                Some((_, found)) => found,
                None => self.error(at, format!("undefined field '{field}'")),
            },
            other => self.error(
                at,
                format!("type '{other}' does not support field selection"),
            ),
        };
        if select.test { Type::Bool } else { found }
    }

    fn call(&mut self, call: &CallExpr) -> Type {
        let name = call.func_name.as_str();
        if let Some(symbol) = symbol(name) {
            return self.operator(name, symbol, &call.args);
        }
        if name.contains('_') && !name.starts_with(char::is_alphabetic) {
            // optional selection and similar operators
            for argument in &call.args {
                self.walk(argument);
            }
            return Type::Unknown;
        }
        let of_namespace = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(ident)) => {
                NAMESPACES.contains(&ident.as_str())
                    && !self.variables.iter().any(|(known, _)| known == ident)
            }
            _ => false,
        };
        if of_namespace {
            for argument in &call.args {
                self.walk(argument);
            }
            return Type::Unknown;
        }
        let target = call.target.as_ref().map(|target| self.walk(target));
        if let (Some(target), Some(variables)) = (&target, cost::macro_variables(call)) {
            return self.macro_call(call, target, variables);
        }
        self.source.find(&[name]);
        let at = self.source.find(&["("]);
        let arguments: Vec<Type> = call
            .args
            .iter()
            .map(|argument| self.walk(argument))
            .collect();
        self.here = at;
        if !functions::is_known(name) {
            return self.error(
                at,
                format!("undeclared reference to '{name}' (in container '')"),
            );
        }
        match functions::result(name, target.as_ref(), &arguments) {
            Ok(found) => found,
            Err(_) => self.no_overload(at, name, target.as_ref(), &arguments),
        }
    }

    /// Checks a macro that the parser leaves as a call. Its first arguments name the variables of the others.
    fn macro_call(&mut self, call: &CallExpr, target: &Type, variables: usize) -> Type {
        let types = match (target, variables) {
            (Type::List(items), 2) => [Type::Int, (**items).clone()],
            (Type::Map(keys, values), 2) => [(**keys).clone(), (**values).clone()],
            _ => [Type::Unknown, Type::Unknown],
        };
        let depth = self.variables.len();
        let (names, bodies) = call.args.split_at(variables);
        for (name, found) in names.iter().zip(types) {
            if let Expr::Ident(name) = &name.expr {
                self.source.find(&[name]);
                self.variables.push((name.clone(), found));
            }
        }
        for body in bodies {
            self.walk(body);
        }
        self.variables.truncate(depth);
        match call.func_name.as_str() {
            "all" | "exists" | "exists_one" | "existsOne" => Type::Bool,
            _ => Type::Unknown,
        }
    }

    fn no_overload(
        &mut self,
        at: Position,
        name: &str,
        target: Option<&Type>,
        arguments: &[Type],
    ) -> Type {
        // the names of object types are not known
        if !arguments.iter().chain(target).all(Type::has_name) {
            return Type::Unknown;
        }
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let before = target.map_or_else(String::new, |target| format!("{target}."));
        let what = format!(
            "found no matching overload for '{name}' applied to '{before}({})'",
            arguments.join(", ")
        );
        self.error(at, what)
    }

    fn operator(&mut self, name: &str, symbol: &str, operands: &[Expression]) -> Type {
        let mut at = Position { line: 1, column: 0 };
        let mut types = Vec::new();
        let is_prefix = operands.len() == 1;
        if is_prefix {
            at = self.source.find(&[symbol]);
        }
        for (index, operand) in operands.iter().enumerate() {
            if index > 0 {
                let here = self.source.find(&[if name == "_?_:_" && index == 2 {
                    ":"
                } else {
                    symbol
                }]);
                if index == 1 {
                    at = here;
                }
            }
            let found = self.walk(operand);
            if matches!(name, "_&&_" | "_||_") {
                self.expect_bool(&found);
            }
            types.push(found);
        }
        self.here = at;
        if matches!(name, "_&&_" | "_||_") {
            return Type::Bool;
        }
        if let Ok(found) = functions::operator(name, &types) {
            return found;
        }
        let fallback = self.no_overload(at, name, None, &types);
        if name == "!_" { Type::Bool } else { fallback }
    }

    /// Reports an operand of a logical expression that is not a boolean.
    fn expect_bool(&mut self, found: &Type) {
        if !found.may_be(&Type::Bool) && found.has_name() {
            self.error(
                self.here,
                format!("expected type 'bool' but found '{found}'"),
            );
        }
    }
}

/// Returns the common type of all; unknown when they differ.
fn common_type(types: &[Type]) -> Type {
    match types {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => first.clone(),
        _ => Type::Unknown,
    }
}

/// Returns the symbol of an operator.
fn symbol(name: &str) -> Option<&'static str> {
    Some(match name {
        "_&&_" => "&&",
        "_||_" => "||",
        "!_" => "!",
        "_+_" => "+",
        "_-_" | "-_" => "-",
        "_*_" => "*",
        "_/_" => "/",
        "_%_" => "%",
        "_==_" => "==",
        "_!=_" => "!=",
        "_<_" => "<",
        "_<=_" => "<=",
        "_>_" => ">",
        "_>=_" => ">=",
        "_?_:_" => "?",
        "_[_]" => "[",
        "@in" => "in",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;

//! Checks `all`, `exists` and similar macros, which the parser has turned into loops.

use kube_cel::cel::common::ast::{ComprehensionExpr, Expr};
use kube_cel::cel::parser::Expression;

use super::{Checker, common_type};
use crate::admission::validation::definitions::rules::types::Type;

impl Checker<'_> {
    /// Checks `all`, `exists` and similar macros, which the parser has turned into loops.
    pub(super) fn comprehension(&mut self, loops: &ComprehensionExpr) -> Type {
        let range = self.walk(&loops.iter_range);
        let at = self.here;
        let (first, second) = match range {
            Type::List(items) => (*items, Type::Unknown),
            Type::Map(keys, values) => (*keys, *values),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            Type::Unknown => (Type::Unknown, Type::Unknown),
            other => {
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                if other.has_name() {
                    self.error(at, what);
                }
                (Type::Unknown, Type::Unknown)
            }
        };
        self.source.find(&[","]);
        let depth = self.variables.len();
        self.variables.push((loops.iter_var.clone(), first));
        if let Some(name) = &loops.iter_var2 {
            self.variables.push((name.clone(), second));
        }
        let is_accumulator = |part: &Expression| part.expr == Expr::Ident(loops.accu_var.clone());
        let found = match &loops.loop_step.expr {
            Expr::Call(step) => match step.args.as_slice() {
                [before, body] if is_accumulator(before) => self.step(&step.func_name, body),
                [condition, taken, other] if is_accumulator(other) => {
                    self.condition(condition);
                    match &taken.expr {
                        Expr::Call(step) => match step.args.as_slice() {
                            [_, one] if matches!(one.expr, Expr::List(_)) => {
                                self.items(one, &loops.iter_var)
                            }
                            // `exists_one`, whose step counts the matches
                            _ => Type::Bool,
                        },
                        _ => Type::Unknown,
                    }
                }
                _ => Type::Unknown,
            },
            _ => Type::Unknown,
        };
        self.variables.truncate(depth);
        found
    }

    fn condition(&mut self, condition: &Expression) {
        let found = self.walk(condition);
        if !found.may_be(&Type::Bool) {
            self.no_overload(self.here, "_?_:_", None, &[found]);
        }
    }

    fn step(&mut self, name: &str, body: &Expression) -> Type {
        if matches!(body.expr, Expr::List(_)) && name == "_+_" {
            return self.items(body, "");
        }
        let found = self.walk(body);
        self.expect_bool(&found);
        Type::Bool
    }

    /// Returns the type of the list that a loop collects. The collected items themselves do not appear in the text.
    fn items(&mut self, list: &Expression, own: &str) -> Type {
        let Expr::List(list) = &list.expr else {
            return Type::Unknown;
        };
        let types: Vec<Type> = list
            .elements
            .iter()
            .map(|item| match &item.expr {
                Expr::Ident(name) if name == own => {
                    let known = self.variables.iter().rev().find(|(known, _)| known == name);
                    known.map_or(Type::Unknown, |(_, found)| found.clone())
                }
                _ => self.walk(item),
            })
            .collect();
        Type::List(Box::new(common_type(&types)))
    }
}

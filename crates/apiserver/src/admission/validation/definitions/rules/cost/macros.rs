//! Macros that the parser leaves as calls: loops with two variables, and macros for optional values.
//!
//! Their expansions are those of cel-go's `ext/comprehensions.go` and `cel/library.go`.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, MapExpr,
};
use kube_cel::cel::parser::Expression;

/// Name of the accumulator, as the parser writes it.
const ACCUMULATOR: &str = "@result";

/// Expands a call of a macro; `None` for any other call.
pub(super) fn expand(call: &CallExpr) -> Option<Expression> {
    let target = call.target.as_deref()?;
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("optMap", [name, body]) => Some(expand_optional(target, name_of(name)?, body, true)),
        ("optFlatMap", [name, body]) => Some(expand_optional(target, name_of(name)?, body, false)),
        (name, [first, second, rest @ ..]) => {
            let parts = two_variable_loop(name, rest)?;
            Some(node(Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: target.clone(),
                iter_var: name_of(first)?.to_owned(),
                iter_var2: Some(name_of(second)?.to_owned()),
                accu_var: ACCUMULATOR.to_owned(),
                accu_init: parts.start,
                loop_cond: parts.condition,
                loop_step: if matches!(name, "transformMap") {
                    with_key(parts.step, first)
                } else {
                    parts.step
                },
                result: parts.result,
            }))))
        }
        _ => None,
    }
}

/// Returns how many variable names a macro call begins with; `None` for any other call.
pub(in crate::admission::validation::definitions::rules) fn variables(
    call: &CallExpr,
) -> Option<usize> {
    expand(call)?;
    Some(match call.func_name.as_str() {
        "optMap" | "optFlatMap" => 1,
        _ => 2,
    })
}

struct LoopParts {
    start: Expression,
    condition: Expression,
    step: Expression,
    result: Expression,
}

/// Returns the parts of a loop with two variables, from the arguments after the variables.
fn two_variable_loop(name: &str, rest: &[Expression]) -> Option<LoopParts> {
    let always = || boolean(true);
    let unless_false = |what| call("@not_strictly_false", vec![what]);
    let (start, condition, step, result) = match (name, rest) {
        ("all", [body]) => (
            boolean(true),
            unless_false(accumulator()),
            call("_&&_", vec![accumulator(), body.clone()]),
            accumulator(),
        ),
        ("exists", [body]) => (
            boolean(false),
            unless_false(call("!_", vec![accumulator()])),
            call("_||_", vec![accumulator(), body.clone()]),
            accumulator(),
        ),
        ("exists_one" | "existsOne", [body]) => {
            let more = call("_+_", vec![accumulator(), integer(1)]);
            (
                integer(0),
                always(),
                call("_?_:_", vec![body.clone(), more, accumulator()]),
                call("_==_", vec![accumulator(), integer(1)]),
            )
        }
        ("transformList", _) => {
            let added = |body: &Expression| {
                let one = node(Expr::List(ListExpr::new(vec![body.clone()])));
                call("_+_", vec![accumulator(), one])
            };
            let nothing = node(Expr::List(ListExpr::new(Vec::new())));
            (
                nothing,
                always(),
                conditional_step(rest, added)?,
                accumulator(),
            )
        }
        ("transformMap" | "transformMapEntry", _) => {
            let inserted =
                |body: &Expression| call("cel.@mapInsert", vec![accumulator(), body.clone()]);
            let nothing = node(Expr::Map(MapExpr::default()));
            (
                nothing,
                always(),
                conditional_step(rest, inserted)?,
                accumulator(),
            )
        }
        _ => return None,
    };
    Some(LoopParts {
        start,
        condition,
        step,
        result,
    })
}

/// Makes a loop step, which runs only if the condition holds, if there is one.
fn conditional_step(
    rest: &[Expression],
    step: impl Fn(&Expression) -> Expression,
) -> Option<Expression> {
    match rest {
        [body] => Some(step(body)),
        [condition, body] => {
            let taken = step(body);
            let all = vec![condition.clone(), taken, accumulator()];
            Some(call("_?_:_", all))
        }
        _ => None,
    }
}

/// Inserts the key between the map and the value of an insertion.
fn with_key(mut step: Expression, key: &Expression) -> Expression {
    if let Expr::Call(written) = &mut step.expr {
        if written.func_name == "_?_:_" {
            let taken = std::mem::take(&mut written.args[1]);
            written.args[1] = with_key(taken, key);
        } else {
            written.args.insert(1, key.clone());
        }
    }
    step
}

/// Expands a macro that evaluates its body only if the optional value is present.
fn expand_optional(target: &Expression, name: &str, body: &Expression, wraps: bool) -> Expression {
    let bound = node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: method("value", target),
        loop_cond: boolean(false),
        loop_step: node(Expr::Ident(name.to_owned())),
        result: body.clone(),
    })));
    let taken = if wraps {
        call("optional.of", vec![bound])
    } else {
        bound
    };
    let missing = call("optional.none", Vec::new());
    call("_?_:_", vec![method("hasValue", target), taken, missing])
}

fn node(expr: Expr) -> Expression {
    Expression { id: 0, expr }
}

fn accumulator() -> Expression {
    node(Expr::Ident(ACCUMULATOR.to_owned()))
}

fn boolean(value: bool) -> Expression {
    node(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn integer(value: i64) -> Expression {
    node(Expr::Literal(LiteralValue::Int(value.into())))
}

fn call(name: &str, args: Vec<Expression>) -> Expression {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn method(name: &str, target: &Expression) -> Expression {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: Some(Box::new(target.clone())),
        args: Vec::new(),
    }))
}

fn name_of(expression: &Expression) -> Option<&str> {
    match &expression.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}

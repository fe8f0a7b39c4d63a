//! What an expression costs while it runs. The interpreter counts nothing, so a call that counts is put into every loop.
//! On the same walk the selection of fields is put into a form that the interpreter runs as Go's does: written `a.b` it is false where `a` is
//! no map, and an optional value has no fields; written `a['b']` the error for `null` names no field.
//!
//! Each turn of a loop costs what its body costs once: one for each variable, field and call, ten for a list, thirty for a map. A real
//! server counts the same parts one by one, and those of texts by their length; only loops and chains of them can reach its limits.

use std::cell::RefCell;

use kube_cel::cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue,
};
use kube_cel::cel::extractors::Arguments;
use kube_cel::cel::{Context, ExecutionError, Value};

/// Name of the function that counts. No expression can write it.
const COUNT: &str = "@count";
/// Name of the function that looks whether a value can have fields. No expression can write it.
const OWNER: &str = "@owner";
/// Most that one expression may cost.
const MAX_OF_ONE: u64 = 1_000_000;
/// What a look at the authorizer costs.
const CHECK: u64 = 350_000;
const LIST: u64 = 10;
const MAP: u64 = 30;

/// What the running expression has cost, in the units of a real server.
#[derive(Debug, Default)]
struct Meter {
    spent: u64,
    is_exhausted: bool,
}

thread_local! {
    static METER: RefCell<Meter> = RefCell::default();
}

/// What an expression has cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) cost: u64,
    /// Whether it was stopped.
    pub(super) is_exhausted: bool,
}

/// Starts to count for an expression, which costs this much without its loops.
pub(super) fn start(cost: u64) {
    METER.set(Meter {
        spent: cost,
        is_exhausted: cost > MAX_OF_ONE,
    });
}

/// Returns what the expression has cost.
pub(super) fn read() -> Spent {
    METER.with_borrow(|meter| Spent {
        cost: meter.spent,
        is_exhausted: meter.is_exhausted,
    })
}

/// Charges a question to the authorizer.
pub(super) fn charge_check() -> Result<(), ExecutionError> {
    charge(CHECK)
}

fn charge(cost: u64) -> Result<(), ExecutionError> {
    METER.with_borrow_mut(|meter| {
        meter.spent = meter.spent.saturating_add(cost);
        meter.is_exhausted |= meter.spent > MAX_OF_ONE;
        if meter.is_exhausted {
            return Err(ExecutionError::function_error(
                COUNT,
                "the expression costs too much",
            ));
        }
        Ok(())
    })
}

/// Adds the function that counts: it gives back its first argument and charges the second. And the one that knows that `null` has no field.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(COUNT, |Arguments(arguments): Arguments| {
        let [value, cost] = arguments.as_slice() else {
            return Err(ExecutionError::NoSuchOverload);
        };
        if let Value::Int(cost) = cost {
            charge(u64::try_from(*cost).unwrap_or_default())?;
        }
        Ok(value.clone())
    });
    context.add_function(OWNER, |Arguments(arguments): Arguments| {
        match arguments.as_slice() {
            [Value::Null, Value::String(field)] => Err(ExecutionError::no_such_key(field)),
            [value, _] => Ok(value.clone()),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
}

/// Puts the function into each loop of an expression; returns what the expression costs without its loops.
pub(super) fn install(expression: &mut IdedExpr) -> u64 {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) => 0,
        Expr::Ident(_) => 1,
        Expr::Select(select) => {
            let cost = 1 + install(&mut select.operand);
            if !select.test {
                let field = std::mem::take(&mut select.field);
                let operand = std::mem::take(&mut *select.operand);
                let field = || literal(LiteralValue::String(field.clone().into()));
                let owner = IdedExpr {
                    id: operand.id,
                    expr: call(OWNER, [operand, field()]),
                };
                expression.expr = call("_[_]", [owner, field()]);
            }
            cost
        }
        Expr::Call(call) => {
            if call.func_name == "_?._" {
                call.func_name = "_[?_]".into();
            }
            let target = call.target.iter_mut().map(|target| install(target));
            let target: u64 = target.sum();
            1 + target + call.args.iter_mut().map(install).sum::<u64>()
        }
        Expr::List(list) => LIST + list.elements.iter_mut().map(install).sum::<u64>(),
        Expr::Map(map) => of_entries(&mut map.entries),
        Expr::Struct(made) => of_entries(&mut made.entries),
        Expr::Comprehension(comprehension) => {
            let outside = install(&mut comprehension.iter_range)
                + install(&mut comprehension.accu_init)
                + install(&mut comprehension.result);
            let of_turn =
                install(&mut comprehension.loop_cond) + install(&mut comprehension.loop_step);
            let condition = std::mem::take(&mut comprehension.loop_cond);
            let of_turn = LiteralValue::Int(i64::try_from(of_turn).unwrap_or(i64::MAX).into());
            comprehension.loop_cond = IdedExpr {
                id: condition.id,
                expr: call(COUNT, [condition, literal(of_turn)]),
            };
            outside
        }
    }
}

/// Returns what a map or a structure costs, as [`install`] does.
fn of_entries(entries: &mut [IdedEntryExpr]) -> u64 {
    let values = entries.iter_mut().map(|entry| match &mut entry.expr {
        EntryExpr::StructField(field) => install(&mut field.value),
        EntryExpr::MapEntry(entry) => install(&mut entry.key) + install(&mut entry.value),
    });
    MAP + values.sum::<u64>()
}

fn call<const N: usize>(function: &str, arguments: [IdedExpr; N]) -> Expr {
    Expr::Call(CallExpr {
        func_name: function.into(),
        target: None,
        args: arguments.into(),
    })
}

fn literal(value: LiteralValue) -> IdedExpr {
    IdedExpr {
        id: 0,
        expr: Expr::Literal(value),
    }
}

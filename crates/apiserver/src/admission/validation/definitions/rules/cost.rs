//! The highest cost of a rule, in the units of a real server, which refuses rules that may cost too much.
//!
//! Reading order:
//! - [`kind`], [`signatures`], [`substitution`]: types, the functions that rules may call, and type inference; [`typed`]: an expression with
//!   its types, and the overloads of its calls; [`macros`]: calls that stand for loops.
//! - [`declared`]: how much the values of a schema can hold; [`bounds`]: the arithmetic; [`path`], [`sizes`]: what is known of the parts of an
//!   expression.
//! - [`walk`]: the costs of those parts; [`calls`]: the costs of functions.

use std::sync::Arc;

use kube_cel::cel::parser::Parser;

use self::walk::Walk;
use crate::schema::room;

mod bounds;
mod calls;
mod declared;
mod kind;
mod macros;
mod path;
mod signatures;
mod sizes;
mod substitution;
mod typed;
mod walk;

pub(super) use self::kind::Declared;
pub(super) use self::macros::variables as macro_variables;

/// Returns the highest cost of evaluating an expression about a value; `None` for an expression that is wrong or not understood.
pub(super) fn max_cost(
    text: &str,
    about: &Arc<Declared>,
    has_optional_old_self: bool,
) -> Option<u64> {
    room::work_on(room::is_small(text), || {
        estimated(text, about, has_optional_old_self)
    })
}

fn estimated(text: &str, about: &Arc<Declared>, has_optional_old_self: bool) -> Option<u64> {
    let parser = Parser::new().enable_optional_syntax(true);
    let expression = parser.parse(text).ok()?;
    let typed = typed::of(&expression, about, has_optional_old_self)?;
    Some(Walk::new(about).cost(&typed).max)
}

#[cfg(test)]
mod tests;

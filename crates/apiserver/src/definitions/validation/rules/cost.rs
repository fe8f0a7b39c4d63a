//! What a rule can cost at most, in the units of a real server, which refuses rules that may cost too much.
//!
//! Reading order: [`declared`] (how much values can hold), [`typed`] (an expression with types, and what its calls call), [`walk`] (the
//! costs of its parts), [`calls`] (those of functions).

use std::sync::Arc;

use kube_cel::cel::parser::Parser;

use self::walk::Walk;

mod calls;
mod declared;
mod kind;
mod macros;
mod range;
mod signatures;
mod steps;
mod typed;
mod walk;

pub(super) use self::declared::Declared;
pub(super) use self::macros::variables as macro_variables;

/// What evaluating an expression about a value costs at most; `None` for one that is not understood, or wrong.
pub(super) fn most(text: &str, about: &Arc<Declared>, has_optional_past: bool) -> Option<u64> {
    let parser = Parser::new().enable_optional_syntax(true);
    let expression = parser.parse(text).ok()?;
    let typed = typed::of(&expression, about, has_optional_past)?;
    Some(Walk::new(about).cost(&typed).most)
}

#[cfg(test)]
mod tests;

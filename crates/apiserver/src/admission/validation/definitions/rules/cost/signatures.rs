//! The functions that rules may call, with their parameters and results. They come from `functions.txt`, which has one overload per line,
//! as the environment of Kubernetes' rules lists them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::kind::{Kind, split};

/// An overload of a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Its id in cel-go.
    pub(super) id: &'static str,
    /// Whether it is called as a method of its first parameter: `a.f(b)`.
    pub(super) is_member: bool,
    /// The types of its parameters.
    pub(super) parameters: Vec<Kind>,
    /// The type of its result.
    pub(super) result: Kind,
}

static OVERLOADS: LazyLock<HashMap<&str, Vec<Overload>>> = LazyLock::new(|| {
    let mut overloads: HashMap<&str, Vec<Overload>> = HashMap::new();
    for line in include_str!("functions.txt").lines() {
        if let Some((name, overload)) = parse(line) {
            overloads.entry(name).or_default().push(overload);
        }
    }
    overloads
});

/// Returns all overloads of a function; `None` for an unknown function.
pub(super) fn of(name: &str) -> Option<&'static [Overload]> {
    OVERLOADS.get(name).map(Vec::as_slice)
}

/// Parses a line: `id: name(parameters) -> result`, or `id: first . name(parameters) -> result`.
fn parse(line: &'static str) -> Option<(&'static str, Overload)> {
    let (id, rest) = line.split_once(": ")?;
    let (call, result) = rest.rsplit_once(" -> ")?;
    let (first, call) = match call.split_once(" . ") {
        Some((first, call)) => (Some(first), call),
        None => (None, call),
    };
    let (name, parameters) = call.strip_suffix(')')?.split_once('(')?;
    let parameters = first.into_iter().chain(split(parameters));
    let overload = Overload {
        id,
        is_member: first.is_some(),
        parameters: parameters.map(Kind::parse).collect::<Option<_>>()?,
        result: Kind::parse(result)?,
    };
    Some((name, overload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_overload_is_understood() {
        for line in include_str!("functions.txt").lines() {
            assert!(parse(line).is_some(), "{line}");
        }
    }

    #[test]
    fn functions_know_how_they_are_called() {
        let sizes = of("size").unwrap();
        assert!(sizes.iter().any(|one| one.is_member));
        assert!(sizes.iter().any(|one| !one.is_member));
        assert!(of("shout").is_none());
    }
}

//! The functions that rules may call, with what they take and give: `functions.txt`, an overload a line, as the environment of
//! Kubernetes' rules lists them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::kind::{Kind, split};

/// One way to call a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// The name that cel-go has for it.
    pub(super) id: &'static str,
    /// Whether it is called on its first parameter: `a.f(b)`.
    pub(super) is_member: bool,
    /// What it takes.
    pub(super) parameters: Vec<Kind>,
    /// What it gives.
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

/// All ways to call a function; none for one that is not there.
pub(super) fn of(name: &str) -> Option<&'static [Overload]> {
    OVERLOADS.get(name).map(Vec::as_slice)
}

/// `id: name(parameters) -> result`, or `id: first.name(parameters) -> result`.
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

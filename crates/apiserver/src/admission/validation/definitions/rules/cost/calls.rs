//! The costs of calls, and the sizes of their results.
//!
//! Estimates come first from Kubernetes (`k8s.io/apiserver/pkg/cel/library/cost.go`), except for functions on lists and sets that bring
//! their own costs (cel-go's `ext/lists.go`, `ext/sets.go`), and then from cel-go's own functions (`checker/cost.go`).

use std::sync::Arc;

use super::bounds::Bounds;
use super::kind::Kind;
use super::sizes::{Known, LIST_COST, ONE, Operand};
use super::typed::{Form, Node};

/// Cost of reading a character.
const COST_PER_CHARACTER: f64 = 0.1;
/// Cost of matching a character of a pattern.
const COST_PER_PATTERN_CHARACTER: f64 = 0.25;
/// Assumed number of characters in the pattern of a format.
const FORMAT_PATTERN_LENGTH: f64 = 128.0;
/// Length of the longest name of a format, in characters.
const MAX_FORMAT_NAME_LENGTH: u64 = 64;
/// Cost of an authorization check.
const AUTHORIZATION_COST: u64 = 350_000;
/// Cost of a requirement of a selector: its structure and its list of values.
const REQUIREMENT_COST: f64 = 50.0;
/// Functions of Kubernetes' libraries that take one step, whatever they are given.
const ONE_STEP: &[&str] = &[
    "serviceAccount",
    "path",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "allowed",
    "reason",
    "error",
    "errored",
    "masked",
    "prefixLength",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "format.named",
    "sign",
    "asInteger",
    "isInteger",
    "asApproximateFloat",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "add",
    "sub",
    "major",
    "minor",
    "patch",
    "getScheme",
    "getHostname",
    "getHost",
    "getPort",
    "getEscapedPath",
    "getQuery",
];

/// A call, with one of the overloads that fit.
#[derive(Debug)]
pub(super) struct ResolvedCall<'a> {
    /// The call.
    pub(super) node: &'a Node,
    /// Name of the function.
    pub(super) name: &'a str,
    /// Name of the overload.
    pub(super) overload: &'a str,
    /// The value before the dot.
    pub(super) target: Option<&'a Operand<'a>>,
    /// The arguments.
    pub(super) arguments: &'a [Operand<'a>],
    /// The costs of evaluating the arguments.
    pub(super) costs: &'a [Bounds],
}

/// The estimate for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// Cost.
    pub(super) cost: Bounds,
    /// Size of the result, if it is known.
    pub(super) size: Option<Bounds>,
}

impl Estimate {
    fn of(cost: Bounds) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Bounds, size: Bounds) -> Self {
        Self {
            cost,
            size: Some(size),
        }
    }
}

/// Returns the cost of a call with its arguments.
pub(super) fn estimate(known: &mut Known<'_>, called: &ResolvedCall<'_>) -> Estimate {
    let costs = called.costs.iter();
    let given = costs.fold(Bounds::default(), |sum, cost| sum.plus(*cost));
    if let Some(own) = of_collections(known, called).or_else(|| of_kubernetes(known, called)) {
        return Estimate {
            cost: own.cost.plus(given),
            ..own
        };
    }
    of_language(known, called, given)
}

/// Returns the size of an operand as the libraries ask for it.
fn size(known: &Known<'_>, operand: &Operand<'_>) -> Bounds {
    let size = operand.size.or_else(|| known.declared(&operand.path));
    size.unwrap_or(Bounds::UNKNOWN)
}

/// Returns the cost of reading texts this many times.
fn reading_cost(size: Bounds, times: f64) -> Bounds {
    size.scaled(times * COST_PER_CHARACTER)
}

/// Returns the value of an integer literal, or else the given number.
fn integer_or(operand: &Operand<'_>, otherwise: u64) -> u64 {
    match operand.node.form {
        Form::Constant(_, Some(number)) => u64::try_from(number).unwrap_or_default(),
        _ => otherwise,
    }
}

/// Estimates functions that make lists, and functions on sets.
fn of_collections(known: &Known<'_>, called: &ResolvedCall<'_>) -> Option<Estimate> {
    let making = |factor: f64, size: Bounds| {
        Estimate::sized(size.scaled(factor).plus(ONE).plus(LIST_COST), size)
    };
    let squared = |size: Bounds| size.times(size);
    let target = called.target.map(|target| size(known, target));
    Some(match (called.overload, target, called.arguments) {
        ("list_slice", Some(size), [start, end]) => {
            let (start, end) = (integer_or(start, 0), integer_or(end, size.max));
            making(1.0, Bounds::exactly(end.wrapping_sub(start)))
        }
        ("list_flatten" | "list_reverse", Some(size), []) => making(1.0, size),
        ("list_flatten_int", Some(size), [depth]) => {
            making(integer_or(depth, u64::MAX) as f64, size)
        }
        ("lists_range", None, [end]) => making(1.0, Bounds::exactly(integer_or(end, u64::MAX))),
        ("list_distinct", Some(size), []) => making(2.0, squared(size)),
        ("list_string_sort" | "list_bytes_sort", Some(size), []) => {
            making(2.0 + COST_PER_CHARACTER, squared(size))
        }
        (sort, Some(size), []) if sort.ends_with("_sort") => making(2.0, squared(size)),
        (sets, None, [one, two]) if sets.starts_with("list_sets_") => {
            let both = size(known, one).times(size(known, two));
            let rounds = if sets == "list_sets_equivalent_list" {
                2.0
            } else {
                1.0
            };
            Estimate::of(both.scaled(rounds).plus(ONE))
        }
        _ => return None,
    })
}

/// Estimates the functions of Kubernetes' libraries.
fn of_kubernetes(known: &Known<'_>, called: &ResolvedCall<'_>) -> Option<Estimate> {
    let target = called.target.map(|target| size(known, target));
    let first = called.arguments.first().map(|one| size(known, one));
    let second = called.arguments.get(1).map(|one| size(known, one));
    Some(match (called.name, target, first) {
        ("check", ..) => Estimate::of(Bounds::exactly(AUTHORIZATION_COST)),
        (name, ..) if ONE_STEP.contains(&name) => Estimate::of(ONE),
        ("fieldSelector" | "labelSelector", _, Some(size)) => {
            let requirements = size.scaled(0.5).scaled(REQUIREMENT_COST);
            Estimate::of(LIST_COST.plus(reading_cost(size, 1.0)).plus(requirements))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(size), _) => {
            Estimate::of(comparison_cost(known, called.target?, size))
        }
        ("url" | "jsonpatch.escapeKey", _, Some(size))
        | ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(size), _) => {
            Estimate::sized(reading_cost(size, 1.0), size)
        }
        ("replace", Some(size), Some(old)) => {
            Estimate::sized(reading_cost(size, 2.0), replaced_size(size, old, second?))
        }
        ("split", Some(size), _) => of_split(called, size),
        ("join", Some(count), separator) => of_join(known, called.target?, count, separator),
        ("find" | "findAll", Some(size), Some(pattern)) => {
            let cost = matching_cost(size, pattern);
            Estimate::sized(cost, Bounds::new(0, size.max))
        }
        ("ip", ..) if called.overload == "cidr_ip" => Estimate::of(ONE),
        (
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
            _,
            Some(size),
        ) => Estimate::of(reading_cost(size, 1.0)),
        ("ip.isCanonical", _, Some(size)) => Estimate::of(reading_cost(size, 2.0)),
        ("containsIP" | "containsCIDR", _, Some(size)) => of_containing(called, size),
        ("validate", _, Some(size)) => {
            let cost =
                reading_cost(size, 1.0).scaled(FORMAT_PATTERN_LENGTH * COST_PER_PATTERN_CHARACTER);
            Estimate::of(cost)
        }
        ("_==_", ..) => return of_equality(called),
        _ => return None,
    })
}

/// Estimates the splitting of a text, which may have a limit.
fn of_split(called: &ResolvedCall<'_>, text: Bounds) -> Estimate {
    let limit = called.arguments.get(1).map(|limit| &limit.node.form);
    let max = match limit {
        Some(Form::Constant(_, Some(number))) => *number as u64,
        _ => text.max,
    };
    Estimate::sized(reading_cost(text, 2.0), Bounds::new(0, max))
}

/// Estimates the joining of a list of texts.
fn of_join(
    known: &Known<'_>,
    list: &Operand<'_>,
    count: Bounds,
    separator: Option<Bounds>,
) -> Estimate {
    let mut size = Bounds::default();
    if let Some((_, item)) = item_size(known, list) {
        size = count.times(item);
    }
    if let Some(separator) = separator {
        let between = Bounds::new(count.min.saturating_sub(1), count.max.saturating_sub(1));
        size = size.plus(separator.times(between));
    }
    Estimate::sized(reading_cost(size, 1.0), size)
}

/// Estimates whether a network contains an address or another network, which may be a text that has to be read first.
fn of_containing(called: &ResolvedCall<'_>, size: Bounds) -> Estimate {
    let address = Bounds::new(4, 16);
    let mut cost = address.plus(address).scaled(COST_PER_CHARACTER);
    if called.name == "containsCIDR" {
        cost = cost.plus(address.scaled(COST_PER_CHARACTER)).plus(ONE);
    }
    if ["cidr_contains_ip_string", "cidr_contains_cidr_string"].contains(&called.overload) {
        cost = cost.plus(reading_cost(size, 1.0));
    }
    Estimate::of(cost)
}

/// Estimates equality of Kubernetes' own types: most are compared in one step, but named formats and URLs are read.
fn of_equality(called: &ResolvedCall<'_>) -> Option<Estimate> {
    let [one, two] = called.arguments else {
        return None;
    };
    let kind = &one.node.kind;
    if !kind.is(&two.node.kind) {
        return None;
    }
    Some(match kind.name() {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Estimate::of(ONE),
        name if name.starts_with("kubernetes.authorization.") => Estimate::of(ONE),
        "kubernetes.NamedFormat" => {
            Estimate::of(Bounds::new(1, MAX_FORMAT_NAME_LENGTH).scaled(COST_PER_CHARACTER))
        }
        "kubernetes.URL" => {
            let max = two.size.map_or(1, |size| size.max);
            Estimate::of(Bounds::new(1, max).scaled(COST_PER_CHARACTER))
        }
        _ => return None,
    })
}

/// Returns the type of the items of a list, and their size.
fn item_size(known: &Known<'_>, list: &Operand<'_>) -> Option<(Arc<Kind>, Bounds)> {
    let kind = Arc::clone(list.node.kind.parts().first()?);
    let size = if list.path.is_empty() {
        None
    } else {
        known.declared(&list.path.join("@items"))
    };
    Some((kind, size.unwrap_or(Bounds::UNKNOWN)))
}

/// Returns the cost of comparing each item of a list, or each character of a text.
fn comparison_cost(known: &Known<'_>, list: &Operand<'_>, size: Bounds) -> Bounds {
    let Some((kind, of_item)) = item_size(known, list) else {
        return reading_cost(size, 1.0);
    };
    let mut each = ONE;
    if ["string", "bytes"].contains(&kind.name()) {
        each = each.plus(reading_cost(of_item, 1.0));
    }
    size.times(each)
}

/// Returns the cost of matching a text with a pattern; even an empty text costs something.
fn matching_cost(text: Bounds, pattern: Bounds) -> Bounds {
    reading_cost(text.plus(ONE), 1.0).times(pattern.scaled(COST_PER_PATTERN_CHARACTER))
}

/// Returns the size of a text in which all occurrences of another one are replaced.
fn replaced_size(text: Bounds, old: Bounds, new: Bounds) -> Bounds {
    let share = |text: u64, old: u64| (text as f64 / old as f64).ceil() as u64;
    let (mut times, mut kept) = (Bounds::default(), Bounds::default());
    if old.min == 0 {
        // an empty text is replaced between all characters
        times.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        times.max = share(text.max, old.min);
    }
    if old.max == 0 {
        times.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        times.min = share(text.min, old.max);
    }
    times.times(new).plus(kept)
}

/// Estimates cel-go's own functions; `given` is the cost of the arguments.
fn of_language(known: &mut Known<'_>, called: &ResolvedCall<'_>, given: Bounds) -> Estimate {
    let with = |cost: Bounds| Estimate::of(cost.plus(given));
    match (called.overload, called.target, called.arguments) {
        ("string_format", Some(target), _) => with(reading_cost(target.size(), 1.0)),
        ("string_to_bytes", _, [text]) => {
            let size = text.size();
            let bytes = Bounds::new(size.min, size.max.wrapping_mul(4));
            Estimate::sized(reading_cost(size, 1.0).plus(given), bytes)
        }
        ("bytes_to_string", _, [bytes]) => {
            let size = bytes.size();
            let text = Bounds::new(size.min / 4, size.max);
            Estimate::sized(reading_cost(size, 1.0).plus(given), text)
        }
        ("strings_quote", _, [text]) => {
            let size = text.size();
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            let quoted = Bounds::new(size.min.wrapping_add(2), max);
            Estimate::sized(reading_cost(size, 1.0).plus(given), quoted)
        }
        ("starts_with_string" | "ends_with_string", _, [part]) => {
            with(reading_cost(part.size(), 1.0))
        }
        ("in_list", _, [_, list]) => with(list.size().scaled(1.0)),
        ("matches_string", Some(text), [pattern]) => {
            with(matching_cost(text.size(), pattern.size()))
        }
        ("contains_string", Some(text), [part]) => {
            with(reading_cost(text.size(), 1.0).times(reading_cost(part.size(), 1.0)))
        }
        ("logical_or" | "logical_and", _, _) => {
            let min = called.costs.first().map_or(0, |cost| cost.min);
            Estimate::of(Bounds::new(min, given.max))
        }
        ("conditional", _, [_, one, two]) => {
            let entries = known.entry(one.node).zip(known.entry(two.node));
            if let Some((one, two)) = entries {
                known.keep_entry(called.node, one.or(two));
            }
            let cost = match called.costs {
                [condition, one, two] => condition.plus(one.or(*two)),
                _ => given,
            };
            Estimate::sized(cost, one.size().or(two.size()))
        }
        ("add_string" | "add_bytes" | "add_list", _, [one, two]) => {
            let size = one.size().plus(two.size());
            let entries = known.entry(one.node).zip(known.entry(two.node));
            if let Some((one, two)) = entries {
                known.keep_entry(called.node, one.or(two));
            }
            let cost = if called.overload == "add_list" {
                ONE
            } else {
                reading_cost(size, 1.0)
            };
            Estimate::sized(cost.plus(given), size)
        }
        (name, _, [one, two]) if compares_at_length(name) => {
            let max = one.size().max.min(two.size().max);
            with(reading_cost(Bounds::new(u64::from(max > 0), max), 1.0))
        }
        _ => with(ONE),
    }
}

/// Returns whether an overload reads the values that it compares.
fn compares_at_length(overload: &str) -> bool {
    let orders = ["less_", "greater_", "less_equals_", "greater_equals_"];
    let is_order = orders.iter().any(|order| {
        let of = overload.strip_prefix(order);
        of.is_some_and(|of| ["string", "bytes"].contains(&of))
    });
    is_order || ["equals", "not_equals"].contains(&overload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_may_make_a_text_longer_or_shorter() {
        let text = Bounds::new(0, 10);
        let one = Bounds::exactly(1);
        assert_eq!(replaced_size(text, one, one), Bounds::new(0, 10));
        assert_eq!(
            replaced_size(text, one, Bounds::exactly(3)),
            Bounds::new(0, 30)
        );
        assert_eq!(
            replaced_size(text, Bounds::exactly(0), one),
            Bounds::new(1, 21)
        );
    }
}

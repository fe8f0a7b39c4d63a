//! The functions of rules: their names, and the types of the common ones.

use super::types::Type;

/// Namespaces of functions: `math.abs(x)`.
pub(super) const NAMESPACES: [&str; 10] = [
    "base64",
    "cel",
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "math",
    "optional",
    "sets",
    "strings",
];

/// Names of types.
pub(super) const TYPES: [&str; 13] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "google",
    "int",
    "list",
    "map",
    "net",
    "null_type",
    "string",
    "type",
    "uint",
];

/// Functions and methods.
const KNOWN: [&str; 121] = [
    "add",
    "all",
    "allowed",
    "asApproximateFloat",
    "asInteger",
    "authorizer",
    "bytes",
    "charAt",
    "check",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "decode",
    "distinct",
    "double",
    "duration",
    "dyn",
    "encode",
    "endsWith",
    "equals",
    "error",
    "errored",
    "escapeKey",
    "exists",
    "existsOne",
    "exists_one",
    "family",
    "fieldSelector",
    "filter",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "get",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "group",
    "has",
    "hasValue",
    "indexOf",
    "int",
    "ip",
    "isCIDR",
    "isCanonical",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "jsonpatch",
    "labelSelector",
    "last",
    "lastIndexOf",
    "lowerAscii",
    "major",
    "map",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "name",
    "named",
    "namespace",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "patch",
    "path",
    "prefixLength",
    "quantity",
    "reason",
    "replace",
    "resource",
    "reverse",
    "semver",
    "serviceAccount",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "sub",
    "subresource",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "url",
];

/// Functions that later versions added.
const ADDED_LATER: [&str; 4] = ["value", "validate", "transformList", "transformMap"];

/// Returns whether a function exists; namespaces are not taken into account.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || ADDED_LATER.contains(&name)
}

/// No overload fits the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoOverload;

/// Returns the type of a function's result; `Unknown` when it is not known here.
pub(super) fn result(
    name: &str,
    target: Option<&Type>,
    arguments: &[Type],
) -> Result<Type, NoOverload> {
    use Type::{
        Bool, Bytes, Double, Duration, Dyn, Int, List, Map, String, Timestamp, Uint, Unknown,
    };
    let first = target.or_else(|| arguments.first());
    match (name, first) {
        ("size", Some(about))
            if !matches!(about, Unknown | Dyn | String | Bytes | List(_) | Map(..)) =>
        {
            Err(NoOverload)
        }
        ("startsWith" | "endsWith" | "contains" | "matches", Some(about)) => {
            let count = arguments.len() == if target.is_some() { 1 } else { 2 };
            let texts = about.may_be(&String) && arguments.iter().all(|one| one.may_be(&String));
            let texts = texts && count;
            if texts { Ok(Bool) } else { Err(NoOverload) }
        }
        (
            "isIP"
            | "isCIDR"
            | "isURL"
            | "isQuantity"
            | "isSemver"
            | "isSorted"
            | "isInteger"
            | "isLoopback"
            | "isUnspecified"
            | "isGlobalUnicast"
            | "isGreaterThan"
            | "isLessThan"
            | "hasValue"
            | "containsIP"
            | "containsCIDR"
            | "isCanonical"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast",
            _,
        ) => Ok(Bool),
        (
            "lowerAscii" | "upperAscii" | "trim" | "charAt" | "substring" | "replace" | "join"
            | "string" | "find" | "getHost" | "getHostname" | "getPort" | "getScheme"
            | "getEscapedPath",
            _,
        ) => Ok(String),
        ("split" | "findAll", _) => Ok(List(Box::new(String))),
        (
            "size" | "int" | "indexOf" | "lastIndexOf" | "compareTo" | "asInteger" | "getFullYear"
            | "getMonth" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds"
            | "getDayOfWeek" | "getDayOfMonth" | "getDayOfYear" | "getDate" | "major" | "minor"
            | "family" | "prefixLength",
            _,
        ) => Ok(Int),
        ("double" | "asApproximateFloat", _) => Ok(Double),
        ("uint", _) => Ok(Uint),
        ("bytes", _) => Ok(Bytes),
        ("duration", _) => Ok(Duration),
        ("timestamp", _) => Ok(Timestamp),
        _ => Ok(Unknown),
    }
}

/// Returns the type of an operator's result.
pub(super) fn operator(name: &str, of: &[Type]) -> Result<Type, NoOverload> {
    use Type::{
        Bool, Bytes, Double, Duration, Dyn, Int, List, Map, Null, String, Timestamp, Uint, Unknown,
    };
    let is_number = |one: &Type| matches!(one, Int | Uint | Double);
    match (name, of) {
        ("!_", [one]) if one.may_be(&Bool) => Ok(Bool),
        ("_&&_" | "_||_", all) if all.iter().all(|one| one.may_be(&Bool)) => Ok(Bool),
        ("-_", [Dyn | Unknown]) => Ok(Unknown),
        ("-_", [one @ (Int | Double)]) => Ok(one.clone()),
        ("_==_" | "_!=_", [one, two]) if one.may_be(two) => Ok(Bool),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [one, two]) => match (one, two) {
            (Dyn | Unknown, _) | (_, Dyn | Unknown) => Ok(Bool),
            (one, two) if is_number(one) && is_number(two) => Ok(Bool),
            (Bool | String | Bytes | Timestamp | Duration, _) if one == two => Ok(Bool),
            _ => Err(NoOverload),
        },
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [one, two]) => arithmetic(name, one, two),
        ("@in" | "_in_", [one, two]) => match two {
            Dyn | Unknown => Ok(Bool),
            List(items) if one.may_be(items) => Ok(Bool),
            Map(keys, _) if one.may_be(keys) => Ok(Bool),
            _ => Err(NoOverload),
        },
        ("_[_]", [one, two]) => match one {
            Dyn => Ok(Dyn),
            Unknown => Ok(Unknown),
            List(items) if two.may_be(&Int) || *two == Double || *two == Uint => {
                Ok((**items).clone())
            }
            Map(keys, values) if two.may_be(keys) => Ok((**values).clone()),
            _ => Err(NoOverload),
        },
        ("_?_:_", [condition, one, two]) if condition.may_be(&Bool) && one.may_be(two) => {
            Ok(match (one, two) {
                (one, two) if one == two => one.clone(),
                (Null, known) | (known, Null) => known.clone(),
                _ => Unknown,
            })
        }
        ("!_" | "_&&_" | "_||_" | "-_" | "_==_" | "_!=_" | "_?_:_", _) => Err(NoOverload),
        _ => Ok(Unknown),
    }
}

fn arithmetic(name: &str, one: &Type, two: &Type) -> Result<Type, NoOverload> {
    use Type::{Bytes, Double, Duration, Dyn, Int, List, String, Timestamp, Uint, Unknown};
    match (name, one, two) {
        (_, Dyn | Unknown, _) | (_, _, Dyn | Unknown) => Ok(Unknown),
        (_, Int | Uint, _) if one == two => Ok(one.clone()),
        ("_+_" | "_-_" | "_*_" | "_/_", Double, Double) => Ok(Double),
        ("_+_", String, String) => Ok(String),
        ("_+_", Bytes, Bytes) => Ok(Bytes),
        ("_+_", List(_), List(_)) if one.may_be(two) => Ok(one.clone()),
        ("_+_" | "_-_", Timestamp, Duration) | ("_+_", Duration, Timestamp) => Ok(Timestamp),
        ("_+_" | "_-_", Duration, Duration) | ("_-_", Timestamp, Timestamp) => Ok(Duration),
        _ => Err(NoOverload),
    }
}

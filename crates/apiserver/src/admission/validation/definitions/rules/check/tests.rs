use rstest::rstest;
use serde_json::json;

use super::*;

fn compile(rule: &str) -> Result<CompiledRule, String> {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}, "ratio": {"type": "number"},
        "when": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        "names": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "port": {"x-kubernetes-int-or-string": true}}});
    let of_self = Type::of(&schema, true).unwrap();
    Checker::compile(rule, &of_self, false)
}

#[rstest]
#[case::comparison("self.a <= 3 && self.ratio < 2")]
#[case::presence("!has(self.b) || self.b.startsWith('x')")]
#[case::lists("self.list.all(item, item.n != '' && item.n.size() < 3)")]
#[case::nested("self.list.exists(i, self.names.exists_one(n, n == i.n))")]
#[case::collected("self.list.map(i, i.n).all(n, n in self.names)")]
#[case::filtered("self.names.filter(n, n != 'a').size() == 1")]
#[case::maps("self.map.all(key, self.map[key] > 0) && 'x' in self.map")]
#[case::any("self.port == 'http' || self.port == 80 || type(self.port) == int")]
#[case::choice("self.a == 1 ? self.c : self.b == 'x'")]
#[case::times("self.when > timestamp('2020-01-01T00:00:00Z')")]
#[case::metadata("self.metadata.name.size() <= 40")]
#[case::namespaces("sets.contains(self.names, ['a']) && math.greatest(1, 2) == 2")]
#[case::negative("-1 - self.a < -(self.a)")]
#[case::back("self.a >= oldSelf.a")]
#[case::amounts("quantity('1').isLessThan(quantity('2'))")]
#[case::addresses("ip('127.0.0.1').family() == 4")]
fn what_fits_is_let_pass(#[case] rule: &str) {
    let checked = compile(rule).unwrap();
    assert!(checked.result.may_be(&Type::Bool), "{checked:?}");
    assert_eq!(checked.uses_old_self, rule.contains("oldSelf"));
}

#[rstest]
#[case::field("self.nothing == 1", 5, "undefined field 'nothing'")]
#[case::variable("this.a == 1", 1, "undeclared reference to 'this' (in container '')")]
#[case::function(
    "self.b.shout() == 'X'",
    13,
    "undeclared reference to 'shout' (in container '')"
)]
#[case::types(
    "self.a + 'x' == 'x'",
    8,
    "found no matching overload for '_+_' applied to '(int, string)'"
)]
#[case::equality(
    "self.c && self.a == 'x'",
    18,
    "found no matching overload for '_==_' applied to '(int, string)'"
)]
#[case::scalar("self.a.b == 1", 7, "type 'int' does not support field selection")]
#[case::inside("self.list.all(i, i.m == 'x')", 19, "undefined field 'm'")]
#[case::logic("self.a > 1 && self.b", 19, "expected type 'bool' but found 'string'")]
#[case::range(
    "self.b.all(i, true)",
    5,
    "expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)"
)]
#[case::mixture("self.b in ['a', 1]", 17, "expected type 'string' but found 'int'")]
#[case::arguments(
    "self.b.startsWith()",
    18,
    "found no matching overload for 'startsWith' applied to 'string.()'"
)]
#[case::method(
    "self.a.size() == 1",
    12,
    "found no matching overload for 'size' applied to 'int.()'"
)]
fn what_does_not_fit_is_shown(#[case] rule: &str, #[case] column: usize, #[case] what: &str) {
    let shown = compile(rule).unwrap_err();
    let dots = ".".repeat(column - 1);
    assert_eq!(
        shown,
        format!("ERROR: <input>:1:{column}: {what}\n | {rule}\n | {dots}^")
    );
}

#[test]
fn what_is_no_expression_is_shown() {
    let shown = compile("self +").unwrap_err();
    assert!(
        shown.starts_with("ERROR: <input>:1:7: Syntax error: mismatched input '<EOF>' expecting {"),
        "{shown}"
    );
    assert!(shown.ends_with("\n | self +\n | ......^"), "{shown}");
}

#[test]
fn results_have_types() {
    assert_eq!(compile("self.b.size()").unwrap().result, Type::Int);
    assert_eq!(
        compile("self.names").unwrap().result,
        Type::List(Box::new(Type::String))
    );
}

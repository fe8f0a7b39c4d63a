use rstest::rstest;

use super::*;

const LABELS: &[&str] = &[
    "tier0",
    "disruptive",
    "feature:tmpol",
    "feature:wlplacement",
    "tmscope:cnt",
    "hugepages1Gi",
];

#[rstest]
#[case("tier0", true)]
#[case("TIER0", true)]
#[case("tier1", false)]
#[case("!tier1", true)]
#[case("!!tier0", true)]
#[case("tier0 && tier1", false)]
#[case("tier0&&disruptive", true)]
#[case("tier1 || tier0", true)]
#[case("tier1, tier0", true)]
#[case("tier1 || tier0 && !disruptive", false)]
#[case("(tier1 || tier0) && disruptive", true)]
#[case("!(tier1 || tier0)", false)]
#[case("!tier1 && tier0", true)]
#[case("/^tier[01]$/", true)]
#[case("/^tier[12]$/", false)]
#[case("/tmpol/ && !/serial/", true)]
#[case("tmscope:cnt", true)]
#[case("feature: containsAny {tmpol, other}", true)]
#[case("feature: containsAny {other}", false)]
#[case("feature: containsAll {tmpol, wlplacement}", true)]
#[case("feature: containsAll {tmpol, other}", false)]
#[case("feature: consistsOf {wlplacement, tmpol}", true)]
#[case("feature: consistsOf {tmpol}", false)]
#[case("feature: isSubsetOf {tmpol, wlplacement, more}", true)]
#[case("feature: isSubsetOf {tmpol}", false)]
#[case("feature: isEmpty", false)]
#[case("qos: isEmpty", true)]
#[case("qos: isEmpty && tier0", true)]
#[case("Feature: CONTAINSANY {TMPOL} && hugepages1gi", true)]
fn an_expression_selects_as_ginkgo_does(#[case] text: &str, #[case] expected: bool) {
    let expression = Expression::parse(text).expect("expression is valid");
    assert_eq!(expression.selects(LABELS), expected);
}

#[rstest]
#[case("", "a label expected at column 1 of the label expression")]
#[case("tier0 &&", "a label expected at column 9 of the label expression")]
#[case("(tier0", "\")\" expected at column 7 of the label expression")]
#[case("tier0)", "unexpected \")\" at column 6 of the label expression")]
#[case("tier0 !tier1", "unexpected \"!\" at column 7 of the label expression")]
#[case("|| tier0", "unexpected \"||\" at column 1 of the label expression")]
#[case(
    "tier0 & tier1",
    "unexpected \"&\" at column 7 of the label expression"
)]
#[case("/tier0", "\"/\" expected at column 7 of the label expression")]
#[case(
    "feature: containsAny",
    "\"{\" expected at column 21 of the label expression"
)]
#[case(
    "feature: containsAny {a",
    "\"}\" expected at column 24 of the label expression"
)]
#[case(
    "feature: hasAny {a}",
    "unknown set operation \"hasAny\": use containsAny, containsAll, consistsOf, isSubsetOf or isEmpty"
)]
fn a_broken_expression_says_what_and_where(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(
        Expression::parse(text)
            .expect_err("expression is broken")
            .to_string(),
        expected
    );
}

#[test]
fn a_broken_pattern_is_named() {
    let error = Expression::parse("/a(/")
        .expect_err("pattern is broken")
        .to_string();
    assert!(
        error.starts_with("invalid regular expression /a(/ in the label expression: "),
        "{error}"
    );
}

#[test]
fn unknown_labels_are_found_wherever_they_are() {
    let expression = Expression::parse(
        "tier0 && (!teir1 || foo) || /bar/ || feature: containsAny {new} || feeture: isEmpty",
    );
    assert_eq!(
        expression.expect("expression is valid").unknown_labels(),
        ["teir1", "foo", "feeture:"]
    );
}

#[rstest]
#[case("teir0", &["tier0"])]
#[case("tmpol", &["feature:tmpol"])]
#[case("devcies", &["devices"])]
#[case("zzzzzz", &[])]
fn near_labels_are_suggested(#[case] word: &str, #[case] expected: &[&str]) {
    assert_eq!(nearest(word, KNOWN.iter().copied()), expected);
}

#[rstest]
#[case::brackets("(", "tier0", ")")]
#[case::negations("!", "tier0", "")]
#[case::operators("tier1 || ", "tier0", "")]
fn an_expression_may_be_large_and_not_endless(
    #[case] before: &str,
    #[case] label: &str,
    #[case] after: &str,
) {
    let mk = |times: usize| format!("{}{label}{}", before.repeat(times), after.repeat(times));
    let large = Expression::parse(&mk(100)).unwrap();
    assert!(large.selects(LABELS));
    let endless = Expression::parse(&mk(100_000)).unwrap_err();
    assert!(
        matches!(endless, ParseError::TooLarge { .. }),
        "{endless:?}"
    );
}

mod fuzz {
    use super::*;

    #[test]
    fn no_text_stops_the_reader_of_expressions() {
        let seeds = [
            "tier0 && !(openshift || slow)",
            "/^tier[0-2]$/ , tier1",
            "feature: isSubsetOf {tmpol, wlplacement}",
        ];
        ::fuzz::run(file!(), |input| {
            let text = ::fuzz::mutate::text(input.choose(&seeds)?, input)?;
            if let Ok(expression) = Expression::parse(&text) {
                expression.selects(LABELS);
                drop(expression.unknown_labels());
            }
            Ok(())
        });
    }
}

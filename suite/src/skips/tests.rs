use std::collections::BTreeMap;

use reports::event::SkipClass;
use rstest::rstest;

use super::*;
use crate::scenarios;
use crate::testing;

const LIST: &str = "
- reason: wanted 2 *; seen 1
  places: [local, kubeconfig]
  scenarios: [tmpol/pend-cpu-cnt, byres/*]
- reason: none
  platforms: [openshift]
  schedulable-control-plane: false
  scenarios: [byres/cpu-decides]
";
const LOCAL: Environment = Environment {
    place: Place::Local,
    platform: Platform::Kubernetes,
    schedulable_control_plane: false,
};

fn list(text: &str) -> Result<Skips, Error> {
    Skips::parse("list", text, &scenarios::all())
}

fn skipped(reason: &str) -> Verdict {
    Verdict::Skipped {
        class: SkipClass::RuntimeSkip,
        reason: reason.to_owned(),
    }
}

#[rstest]
#[case::listed(LOCAL, "byres/cpu-decides", skipped("wanted 2 nodes; seen 1"), None)]
#[case::passed_and_not_listed(LOCAL, "tmpol/pend-mem-cnt", Verdict::Passed, None)]
#[case::not_listed(
    LOCAL,
    "tmpol/pend-mem-cnt",
    skipped("why"),
    Some("tmpol/pend-mem-cnt was skipped and is not listed: why")
)]
#[case::not_listed_here(
    Environment { place: Place::Embedded, ..LOCAL },
    "tmpol/pend-cpu-cnt",
    skipped("wanted 2 nodes; seen 1"),
    Some("tmpol/pend-cpu-cnt was skipped and is not listed: wanted 2 nodes; seen 1")
)]
#[case::another_reason(
    LOCAL,
    "byres/cpu-decides",
    skipped("wanted 2 nodes; seen 10"),
    Some(
        "byres/cpu-decides was skipped for another reason than listed: wanted 2 nodes; seen 10; listed: wanted 2 *; seen 1"
    )
)]
#[case::passed_though_listed(
    LOCAL,
    "tmpol/pend-cpu-cnt",
    Verdict::Passed,
    Some("tmpol/pend-cpu-cnt passed; the list has it skipped: wanted 2 *; seen 1")
)]
#[case::one_of_two_entries(
    Environment { platform: Platform::Openshift, ..LOCAL },
    "byres/cpu-decides",
    skipped("none"),
    None
)]
#[case::only_where_the_control_plane_takes_none(
    Environment { place: Place::Embedded, platform: Platform::Openshift, schedulable_control_plane: true },
    "byres/cpu-decides",
    Verdict::Passed,
    None
)]
fn a_verdict_is_compared_with_what_is_listed_for_the_cluster(
    #[case] environment: Environment,
    #[case] id: &str,
    #[case] verdict: Verdict,
    #[case] expected: Option<&str>,
) {
    let list = list(LIST).expect("a list");
    let found = list.differences(environment, [(id, &verdict)]);
    assert_eq!(found, Vec::from_iter(expected));
}

#[test]
fn what_differs_fails_the_run_in_one_message_with_a_line_for_each_scenario() {
    let (stream, events) = testing::stream();
    let verdict = skipped("why");
    let list = list(LIST).expect("a list");
    assert!(!list.check(LOCAL, [("a/b", &verdict), ("c/d", &verdict)], &stream));
    let expected = Failure {
        message: "2 scenarios are not as list has it for this cluster (local, Kubernetes)"
            .to_owned(),
        details: vec![
            "a/b was skipped and is not listed: why".to_owned(),
            "c/d was skipped and is not listed: why".to_owned(),
        ],
        ..Failure::default()
    };
    events.with(|events| {
        let [Event::PhaseFailed { unit, failure }] = events.0.as_slice() else {
            panic!("{:?}", events.0);
        };
        assert_eq!((unit.as_str(), failure), (SKIPS, &expected));
    });
}

#[rstest]
#[case::unknown_id("[{reason: r, scenarios: [tmpol/none]}]", "\"tmpol/none\"")]
#[case::unknown_area("[{reason: r, scenarios: ['none/*']}]", "\"none/*\"")]
#[case::unknown_place("[{reason: r, scenarios: ['byres/*'], places: [moon]}]", "moon")]
#[case::unknown_field("[{reason: r, scenarios: ['byres/*'], lanes: [local]}]", "lanes")]
fn a_list_with_something_unknown_is_refused(#[case] text: &str, #[case] named: &str) {
    let error = list(text).expect_err("something is unknown");
    let text = crate::context::chain(&error);
    assert!(text.contains(named), "{text}");
}

#[test]
fn the_built_in_list_has_one_reason_for_each_scenario_and_cluster() {
    let all = scenarios::all();
    let list = Skips::load(Path::new(BUILT_IN), &all).expect("the built-in list is valid");
    let places = [
        Place::Embedded,
        Place::Local,
        Place::Containerd,
        Place::KeptEmbedded,
        Place::KeptLocal,
        Place::KeptContainerd,
        Place::Kubeconfig,
    ];
    let platforms = [
        Platform::Kubernetes,
        Platform::Openshift,
        Platform::Hypershift,
    ];
    let mut ambiguous = BTreeMap::new();
    for place in places {
        for platform in platforms {
            for schedulable_control_plane in [false, true] {
                let environment = Environment {
                    place,
                    platform,
                    schedulable_control_plane,
                };
                for scenario in &all {
                    let reasons: Vec<&str> = list
                        .entries(environment, scenario.id)
                        .map(|entry| entry.reason.as_str())
                        .collect();
                    if reasons.len() > 1 {
                        ambiguous
                            .insert((scenario.id, environment.to_string()), reasons.join("; "));
                    }
                }
            }
        }
    }
    assert_eq!(ambiguous, BTreeMap::new());
}

#[rstest]
#[case("a/*", "a/b", true)]
#[case("a/*", "b/a/", false)]
#[case("a*b*c", "a-b-b-c", true)]
#[case("a*b", "a-b-c", false)]
#[case("*", "", true)]
#[case("a.c", "abc", false)]
fn a_star_stands_for_any_text(#[case] pattern: &str, #[case] text: &str, #[case] expected: bool) {
    assert_eq!(matches(pattern, text), expected);
}

use jiff::Timestamp;

use super::*;
use crate::event::{Failure, ScenarioInfo};

fn shown(verbose: bool, events: Vec<Event>) -> String {
    let mut text = Vec::new();
    let mut terminal = Terminal::new(&mut text, verbose);
    for (seq, event) in events.into_iter().enumerate() {
        terminal.read(&Record {
            seq: seq as u64,
            at: Timestamp::UNIX_EPOCH,
            event,
        });
    }
    let text = String::from_utf8(text).expect("text");
    // stripping colours is the job of the writer
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

fn scenario() -> ScenarioInfo {
    ScenarioInfo {
        id: "tmpol/x".into(),
        title: "title".into(),
        ..ScenarioInfo::default()
    }
}

fn failure() -> Failure {
    Failure {
        step: "lands".into(),
        message: "wrong node".into(),
        expected: Some("worker-0".into()),
        seen: Some("worker-1".into()),
        details: vec![],
        artifacts: Some("artifacts/tmpol-x".into()),
    }
}

fn run(verdict: Verdict, outcome: StepOutcome) -> Vec<Event> {
    vec![
        Event::RunStarted {
            run: "r1".into(),
            version: "0.1".into(),
            plan: vec![scenario(), scenario(), scenario()],
            facts: BTreeMap::from([("lane".into(), "local".into())]),
        },
        Event::ScenarioStarted {
            scenario: scenario(),
        },
        Event::StepStarted {
            unit: "tmpol/x".into(),
            step: 1,
            title: "lands".into(),
        },
        Event::Waiting {
            unit: "tmpol/x".into(),
            step: 1,
            what: "pod a is Pending".into(),
            waited_ms: 5000,
        },
        Event::ChangePlanned {
            unit: "tmpol/x".into(),
            change: 1,
            what: "create Pod n/a".into(),
            undo: serde_json::Value::Null,
        },
        Event::StepFinished {
            unit: "tmpol/x".into(),
            step: 1,
            outcome,
            duration_ms: 1500,
        },
        Event::ScenarioFinished {
            scenario: scenario(),
            verdict,
            duration_ms: 1600,
        },
        Event::RunFinished {
            interrupted: false,
            duration_ms: 61_000,
            exit_code: 0,
        },
    ]
}

#[test]
fn a_passed_run_shows_each_step_and_the_summary() {
    let text = shown(
        false,
        run(Verdict::Passed, StepOutcome::Passed { seen: None }),
    );
    assert_eq!(
        text,
        "numaresources-tests 0.1, run r1\n  lane local\n\n[1/3] tmpol/x\n  \
         … lands (waiting for 5.0 s): pod a is Pending\n  ✓ lands (1.5 s)\n  passed in 1.6 s\n\n1 scenario: 1 passed, 0 failed, 0 skipped in 1 min 1 s\n"
    );
}

#[test]
fn a_failure_shows_expected_seen_and_artifacts() {
    let text = shown(
        false,
        run(Verdict::Failed(failure()), StepOutcome::Failed(failure())),
    );
    for part in [
        "✗ lands",
        "expected:  worker-0",
        "seen:      worker-1",
        "artifacts: artifacts/tmpol-x",
        "FAILED tmpol/x: wrong node",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn only_a_verbose_view_shows_changes() {
    let events = || run(Verdict::Passed, StepOutcome::Passed { seen: None });
    assert!(shown(true, events()).contains("create Pod n/a"));
    assert!(!shown(false, events()).contains("create Pod n/a"));
}

#[test]
fn a_skip_shows_its_class_and_reason() {
    let skipped = Verdict::Skipped {
        class: SkipClass::PrerequisiteMissing,
        reason: "wanted 2 nodes, seen 1".into(),
    };
    let text = shown(
        false,
        vec![Event::ScenarioFinished {
            scenario: scenario(),
            verdict: skipped,
            duration_ms: 0,
        }],
    );
    assert_eq!(
        text,
        "  skipped tmpol/x (prerequisite-missing): wanted 2 nodes, seen 1\n"
    );
}

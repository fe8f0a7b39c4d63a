use std::collections::BTreeMap;

use rstest::rstest;

use super::*;
use crate::event::SETUP;
use crate::stream::Stream;

fn info(id: &str) -> ScenarioInfo {
    ScenarioInfo {
        id: id.to_owned(),
        title: "a title".to_owned(),
        test_id: Some(1),
        labels: vec!["tier0".to_owned()],
    }
}

fn failure() -> Failure {
    Failure {
        step: "the pod lands on the target".to_owned(),
        message: "\u{1b}[31mwrong node\u{1b}[0m & more".to_owned(),
        expected: Some("worker-0".to_owned()),
        seen: Some("worker-1 <nil> ]]> \u{7}".to_owned()),
        details: vec!["events:".to_owned()],
        artifacts: Some("artifacts/x".to_owned()),
    }
}

fn records(events: Vec<Event>) -> Vec<Record> {
    events
        .into_iter()
        .enumerate()
        .map(|(seq, event)| Record {
            seq: seq as u64,
            at: Timestamp::UNIX_EPOCH,
            event,
        })
        .collect()
}

fn started() -> Event {
    Event::RunStarted {
        run: "r".into(),
        version: "0".into(),
        selected: 1,
        facts: BTreeMap::new(),
    }
}

/// A case as a consumer sees it: its name, class and time, and its child with type, message and text.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    name: String,
    class: String,
    time: String,
    child: Option<(String, String, String, String)>,
}

/// Reads the report as strict XML.
fn parse(xml: &[u8]) -> (BTreeMap<String, String>, Vec<Seen>) {
    use quick_xml::events::Event as Xml;
    let mut reader = quick_xml::Reader::from_reader(xml);
    reader.config_mut().check_end_names = true;
    let attributes = |e: &quick_xml::events::BytesStart<'_>| -> BTreeMap<String, String> {
        e.attributes()
            .map(|a| {
                let a = a.expect("attribute is well-formed");
                let value = a
                    .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                    .expect("attribute value is valid");
                (
                    String::from_utf8_lossy(a.key.as_ref()).into_owned(),
                    value.into_owned(),
                )
            })
            .collect()
    };
    let (mut suite, mut cases, mut buffer) = (BTreeMap::new(), Vec::<Seen>::new(), Vec::new());
    loop {
        let event = reader
            .read_event_into(&mut buffer)
            .expect("report is well-formed");
        let (start, text) = match &event {
            Xml::Eof => break,
            Xml::Start(e) | Xml::Empty(e) => (Some(e), None),
            Xml::CData(e) => (None, Some(String::from_utf8_lossy(e).into_owned())),
            _ => (None, None),
        };
        if let Some(e) = start {
            let attributes = attributes(e);
            match e.name().as_ref() {
                b"testsuites" => {}
                b"testsuite" => suite = attributes,
                b"testcase" => cases.push(Seen {
                    name: attributes["name"].clone(),
                    class: attributes["classname"].clone(),
                    time: attributes["time"].clone(),
                    child: None,
                }),
                child => {
                    let child = String::from_utf8_lossy(child).into_owned();
                    cases.last_mut().expect("child of a case").child = Some((
                        child,
                        attributes["type"].clone(),
                        attributes["message"].clone(),
                        String::new(),
                    ));
                }
            }
        }
        if let Some(text) = text
            && let Some((_, _, _, body)) = &mut cases.last_mut().expect("text of a case").child
        {
            body.push_str(&text);
        }
        buffer.clear();
    }
    (suite, cases)
}

fn render(events: Vec<Event>) -> (BTreeMap<String, String>, Vec<Seen>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("sub/report.xml");
    let mut junit = Junit::new(&path, "e2e-serial");
    for record in records(events) {
        junit.read(&record);
        assert!(junit.failure().is_none(), "{:?}", junit.failure());
        if path.exists() {
            parse(&std::fs::read(&path).expect("report is readable"));
        }
    }
    parse(&std::fs::read(&path).expect("report was written"))
}

#[rstest]
#[case::passed(Verdict::Passed, None)]
#[case::failed(Verdict::Failed(failure()), Some(("failure", "failed", "wrong node & more",
    "wrong node & more\nstep:      the pod lands on the target\nexpected:  worker-0\nseen:      worker-1 <nil> ]] > \nevents:\nartifacts: artifacts/x")))]
#[case::prerequisite(
    Verdict::Skipped { class: SkipClass::PrerequisiteMissing, reason: "wanted 2, seen 1".into() },
    Some(("skipped", "prerequisite-missing", "wanted 2, seen 1", "wanted 2, seen 1")))]
#[case::runtime(
    Verdict::Skipped { class: SkipClass::RuntimeSkip, reason: "a\nb".into() },
    Some(("skipped", "runtime-skip", "a b", "a\nb")))]
#[case::interrupted(
    Verdict::Interrupted { reason: "by the user".into() },
    Some(("skipped", "interrupted", "by the user", "by the user")))]
fn each_verdict_is_rendered(
    #[case] verdict: Verdict,
    #[case] child: Option<(&str, &str, &str, &str)>,
) {
    let (suite, cases) = render(vec![
        started(),
        Event::ScenarioStarted {
            scenario: info("tmpol/x"),
        },
        Event::ScenarioFinished {
            scenario: info("tmpol/x"),
            verdict,
            duration_ms: 1234,
        },
        Event::RunFinished {
            interrupted: false,
            duration_ms: 1300,
        },
    ]);
    assert_eq!(suite["tests"], "1");
    assert_eq!(suite["name"], "e2e-serial");
    let expected = Seen {
        name: "tmpol/x".into(),
        class: "numaresources.tmpol".into(),
        time: "1.234".into(),
        child: child.map(|(a, b, c, d)| (a.into(), b.into(), c.into(), d.into())),
    };
    assert_eq!(cases, [expected]);
}

#[test]
fn running_scenario_is_incomplete_in_the_file() {
    let (suite, cases) = render(vec![
        started(),
        Event::ScenarioStarted {
            scenario: info("tmpol/x"),
        },
    ]);
    assert_eq!(suite["errors"], "1");
    assert_eq!(
        cases[0]
            .child
            .as_ref()
            .map(|c| (c.0.as_str(), c.1.as_str())),
        Some(("error", "incomplete"))
    );
}

#[test]
fn unselected_scenarios_are_left_out() {
    let not_selected = Verdict::Skipped {
        class: SkipClass::NotSelected,
        reason: String::new(),
    };
    let (suite, cases) = render(vec![
        started(),
        Event::ScenarioFinished {
            scenario: info("a/no"),
            verdict: not_selected,
            duration_ms: 0,
        },
        Event::ScenarioFinished {
            scenario: info("a/yes"),
            verdict: Verdict::Passed,
            duration_ms: 5,
        },
    ]);
    assert_eq!(suite["tests"], "1");
    assert_eq!(cases[0].name, "a/yes");
}

#[rstest]
#[case::setup(SETUP, "run/setup", "setup-failed")]
#[case::teardown("teardown 2", "run/teardown 2", "teardown-failed")]
#[case::skips(SKIPS, "run/skips", "unexpected-skips")]
fn what_fails_beside_the_scenarios_is_an_error_case(
    #[case] unit: &str,
    #[case] name: &str,
    #[case] type_: &str,
) {
    let (suite, cases) = render(vec![
        started(),
        Event::PhaseFailed {
            unit: unit.into(),
            failure: failure(),
        },
    ]);
    assert_eq!(suite["errors"], "1");
    assert_eq!(cases[0].name, name);
    assert_eq!(cases[0].child.as_ref().map(|c| c.1.as_str()), Some(type_));
}

#[test]
fn a_replayed_log_gives_the_same_report() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (log, live, later) = (
        dir.path().join("e.jsonl"),
        dir.path().join("a.xml"),
        dir.path().join("b.xml"),
    );
    let stream = Stream::new(vec![
        Box::new(crate::log::Writer::create(&log).expect("log is created")),
        Box::new(Junit::new(&live, "s")),
    ]);
    stream.emit(started());
    stream.emit(Event::ScenarioStarted {
        scenario: info("a/b"),
    });
    stream.emit(Event::ScenarioFinished {
        scenario: info("a/b"),
        verdict: Verdict::Failed(failure()),
        duration_ms: 7,
    });
    stream.emit(Event::RunFinished {
        interrupted: false,
        duration_ms: 9,
    });
    let mut replayed = Junit::new(&later, "s");
    crate::log::replay(
        &crate::log::read(&log).expect("log is readable"),
        &mut replayed,
    );
    assert_eq!(
        std::fs::read(live).expect("live"),
        std::fs::read(later).expect("later")
    );
}

#[test]
fn a_log_with_an_unfinished_last_line_is_readable() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("e.jsonl");
    let mut writer = crate::log::Writer::create(&path).expect("log is created");
    for record in records(vec![
        started(),
        Event::RunFinished {
            interrupted: true,
            duration_ms: 0,
        },
    ]) {
        writer.read(&record);
    }
    let mut text = std::fs::read_to_string(&path).expect("log");
    text.truncate(text.len() - 10);
    std::fs::write(&path, &text).expect("truncated log");
    assert_eq!(crate::log::read(&path).expect("log is readable").len(), 1);
    std::fs::write(&path, format!("{text}\n{text}")).expect("broken log");
    assert!(matches!(
        crate::log::read(&path),
        Err(crate::log::Error::Line { line: 2, .. })
    ));
}

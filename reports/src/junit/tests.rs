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
        plan: Vec::new(),
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
    let mut junit = Junit::create(&path, "e2e-serial").expect("the directory is writable");
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
    Some(("error", "incomplete", "by the user", "")))]
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
            exit_code: 0,
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
        Box::new(Junit::create(&live, "s").expect("the directory is writable")),
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
        exit_code: 2,
    });
    let mut replayed = Junit::create(&later, "s").expect("the directory is writable");
    let log = crate::log::read(&log).expect("log is readable");
    crate::log::replay(&log.records, &mut replayed);
    assert_eq!(
        std::fs::read(live).expect("live"),
        std::fs::read(later).expect("later")
    );
}

#[test]
fn what_has_not_run_is_incomplete_from_the_first_moment() {
    let plan = |events: &[Event]| {
        let start = Event::RunStarted {
            run: "r".into(),
            version: "0".into(),
            plan: vec![info("a/1"), info("a/2"), info("a/3")],
            facts: BTreeMap::new(),
        };
        render([&[start], events].concat())
    };
    let incomplete = |cases: &[Seen]| -> Vec<(String, String)> {
        let errors = cases.iter().filter_map(|case| {
            let (tag, type_, message, _) = case.child.as_ref()?;
            (tag == "error" && type_ == "incomplete").then(|| (case.name.clone(), message.clone()))
        });
        errors.collect()
    };
    let pair = |id: &str, message: &str| (id.to_owned(), message.to_owned());
    let before = "the run ended before this scenario began";
    let (suite, cases) = plan(&[]);
    assert_eq!(suite["errors"], "3");
    assert_eq!(
        incomplete(&cases),
        [
            pair("a/1", before),
            pair("a/2", before),
            pair("a/3", before)
        ]
    );
    let (suite, cases) = plan(&[
        Event::ScenarioFinished {
            scenario: info("a/1"),
            verdict: Verdict::Passed,
            duration_ms: 5,
        },
        Event::ScenarioStarted {
            scenario: info("a/2"),
        },
    ]);
    assert_eq!(
        (suite["tests"].as_str(), suite["errors"].as_str()),
        ("3", "2")
    );
    assert_eq!(
        incomplete(&cases),
        [
            pair("a/2", "the run ended while this scenario was running"),
            pair("a/3", before)
        ]
    );
}

#[test]
fn a_report_that_cannot_be_opened_is_refused_at_once() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("file"), "").expect("file is written");
    for path in ["file/report.xml", "."] {
        let refused = Junit::create(&dir.path().join(path), "s");
        assert!(matches!(refused, Err(Error::Open { .. })), "{path}");
    }
}

#[test]
fn a_full_disk_is_told_and_the_device_stays_a_device() {
    use std::os::unix::fs::FileTypeExt as _;
    let device = Path::new("/dev/full");
    let mut junit = Junit::create(device, "s").expect("it can be opened");
    assert_eq!(junit.failure(), None);
    junit.read(&records(vec![started()])[0]);
    let failure = junit.failure().expect("the disk is full");
    assert!(
        failure.starts_with("cannot write the JUnit report /dev/full: "),
        "{failure}"
    );
    let kind = std::fs::metadata(device).expect("it is there").file_type();
    assert!(kind.is_char_device());
}

#[test]
fn a_link_leads_to_the_new_report_and_no_draft_is_left() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (link, target) = (dir.path().join("link.xml"), dir.path().join("target.xml"));
    std::fs::write(&target, "old").expect("file is written");
    std::os::unix::fs::symlink("target.xml", &link).expect("link is made");
    let mut junit = Junit::create(&link, "s").expect("it can be opened");
    junit.read(&records(vec![started()])[0]);
    assert_eq!(junit.failure(), None);
    assert!(link.is_symlink());
    let text = std::fs::read_to_string(&target).expect("report");
    assert!(text.contains("<testsuite"), "{text}");
    let count = std::fs::read_dir(dir.path()).expect("directory").count();
    assert_eq!(count, 2);
}

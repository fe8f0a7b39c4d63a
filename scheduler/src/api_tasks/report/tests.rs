use super::*;
use crate::testing::mk_pod;

#[test]
fn notes_are_cut_at_a_character() {
    assert_eq!(shortened("short"), "short");
    let long = shortened(&"é".repeat(600));
    assert!(
        long.len() <= MAX_NOTE_LENGTH && long.ends_with("é ..."),
        "{}",
        long.len()
    );
}

#[test]
fn equal_events_are_counted_and_conditions_replaced() {
    let pod = mk_pod("p", "");
    let mut batch = Batch::default();
    let event = |message: &str| Report::Event {
        subject: (&pod).into(),
        kind: EventKind::Failed {
            message: message.to_owned(),
        },
        facts: Facts {
            // amounts that differ start no new series
            details: format!("{:?}", Instant::now()),
            ..Facts::default()
        },
    };
    for message in ["a", "b", "a"] {
        batch.add(event(message)).expect("room");
        let status = Report::Status {
            subject: (&pod).into(),
            status: Status {
                condition: Some(("Unschedulable", message.to_owned())),
                nomination: match message {
                    "b" => Nomination::Change(Some("n".to_owned())),
                    _ => Nomination::Keep,
                },
            },
        };
        batch.add(status).expect("room");
    }
    let status = Status {
        condition: Some(("Unschedulable", "a".to_owned())),
        // a status without a nomination leaves the waiting one unchanged
        nomination: Nomination::Change(Some("n".to_owned())),
    };
    let statuses = std::mem::take(&mut batch.statuses);
    assert_eq!(statuses.into_values().collect::<Vec<_>>(), [status]);
    let counts: Vec<i32> = batch.events().iter().map(|(_, _, count)| *count).collect();
    assert_eq!(counts, [2, 1]);
}

#[test]
fn a_worker_that_falls_behind_keeps_a_bounded_number_of_reports_and_says_what_it_drops() {
    let mut batch = Batch::default();
    let event = |number: usize| Report::Event {
        subject: (&mk_pod(&format!("p-{number}"), "")).into(),
        kind: EventKind::Failed {
            message: "no".to_owned(),
        },
        facts: Facts::default(),
    };
    let status = |number: usize| {
        let pod = mk_pod(&format!("p-{number}"), "");
        Report::not_scheduled(&pod, Some(("Unschedulable", "no")), Nomination::Keep)
    };
    let added = (0..2 * MOST_EVENTS).filter(|number| batch.add(event(*number)).is_ok());
    assert_eq!(added.count(), MOST_EVENTS);
    let added = (0..2 * MOST_STATUSES).filter(|number| batch.add(status(*number)).is_ok());
    assert_eq!(added.count(), MOST_STATUSES);
    // what waits already is still counted and replaced
    assert_eq!(batch.add(event(0)), Ok(()));
    assert_eq!(batch.add(status(0)), Ok(()));
    assert_eq!(batch.add(event(MOST_EVENTS)), Err(Written::Event));
}

#[test]
fn texts_are_those_that_others_match() {
    let pod = mk_pod("p", "").key;
    let scheduled = EventKind::Scheduled {
        node: "worker-0".to_owned(),
    };
    assert_eq!(
        scheduled.parts(&pod),
        (
            "Normal",
            "Scheduled",
            "Binding",
            "Successfully assigned ns/p to worker-0".to_owned()
        )
    );
    let failed = EventKind::Failed {
        message: "m".to_owned(),
    };
    assert_eq!(
        failed.parts(&pod),
        ("Warning", "FailedScheduling", "Scheduling", "m".to_owned())
    );
    let preempted = EventKind::Preempted {
        by: (&mk_pod("q", "")).into(),
        node: "worker-0".to_owned(),
    };
    assert_eq!(
        preempted.parts(&pod),
        (
            "Normal",
            "Preempted",
            "Preempting",
            "Preempted by pod uid-q on node worker-0".to_owned()
        )
    );
}

#[test]
fn a_status_says_only_what_changes() {
    let nominated = Status {
        condition: None,
        nomination: Nomination::Change(None),
    };
    assert_eq!(
        nominated.patch("u"),
        json!({"metadata": {"uid": "u"}, "status": {"nominatedNodeName": null}})
    );
    let rejected = Status {
        condition: Some(("Unschedulable", "m".to_owned())),
        nomination: Nomination::Keep,
    };
    let patch = rejected.patch("u");
    assert_eq!(patch["status"]["conditions"][0]["message"], "m");
    assert!(patch["status"].get("nominatedNodeName").is_none());
}

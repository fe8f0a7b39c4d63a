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
        batch.add(event(message));
        batch.add(Report::Status {
            subject: (&pod).into(),
            status: Status {
                condition: Some(("Unschedulable", message.to_owned())),
                nomination: match message {
                    "b" => Nomination::Change(Some("n".to_owned())),
                    _ => Nomination::Keep,
                },
            },
        });
    }
    let counts: Vec<i32> = batch.events.iter().map(|(_, _, count)| *count).collect();
    assert_eq!(counts, [2, 1]);
    let status = Status {
        condition: Some(("Unschedulable", "a".to_owned())),
        // a status without a nomination leaves the waiting one unchanged
        nomination: Nomination::Change(Some("n".to_owned())),
    };
    assert_eq!(batch.statuses.into_values().collect::<Vec<_>>(), [status]);
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

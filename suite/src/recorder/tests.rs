use reports::event::Failure;
use serde_json::json;

use super::*;
use crate::ledger::ObjectRef;
use crate::testing::{Events, client, not_found, stream};
use reports::stream::Shared;

const LIMIT: Duration = Duration::from_secs(20);

fn outcomes(events: &Shared<Events>) -> Vec<StepOutcome> {
    events.with(|events| {
        let finished = |event: &Event| match event {
            Event::StepFinished { outcome, .. } => Some(outcome.clone()),
            _ => None,
        };
        events.0.iter().filter_map(finished).collect()
    })
}

#[tokio::test]
async fn a_failed_step_gives_its_title_to_the_failure() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let result = recorder
        .step("it works", async {
            Err::<(), _>(StepError::mismatch("it does not", 1, 2))
        })
        .await;
    let expected = Failure {
        step: "it works".into(),
        message: "it does not".into(),
        expected: Some("1".into()),
        seen: Some("2".into()),
        ..Failure::default()
    };
    assert!(matches!(result, Err(StepError::Failed(failure)) if *failure == expected));
    assert_eq!(outcomes(&events), [StepOutcome::Failed(expected)]);
}

#[tokio::test]
async fn what_a_step_saw_is_told_once() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    for saw in [Some("five"), None] {
        let work = async {
            if let Some(saw) = saw {
                recorder.saw(saw);
            }
            Ok(())
        };
        recorder
            .step("it polls", work)
            .await
            .expect("nothing fails");
    }
    let passed = |seen: Option<&str>| StepOutcome::Passed {
        seen: seen.map(str::to_owned),
    };
    assert_eq!(outcomes(&events), [passed(Some("five")), passed(None)]);
}

#[tokio::test]
async fn an_interrupted_step_is_closed_once() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    tokio::select! {
        biased;
        _ = recorder.step("it never ends", std::future::pending::<Result<(), StepError>>()) => {}
        () = std::future::ready(()) => {}
    }
    recorder.interrupt();
    recorder.interrupt();
    assert_eq!(outcomes(&events), [StepOutcome::Interrupted]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_what_it_waits_for() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let mut polls = 0;
    let found = recorder
        .until("five polls", LIMIT, async || {
            polls += 1;
            Ok(if polls == 5 {
                PollResult::Ready(polls)
            } else {
                PollResult::NotYet("too few".to_owned())
            })
        })
        .await;
    assert!(matches!(found, Ok(5)));
    assert!(
        events.with(|events| events.0.is_empty()),
        "a short wait is not reported"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_fails_at_its_limit_with_the_last_look() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let result: Result<(), StepError> = recorder
        .until("a miracle", LIMIT, async || {
            Ok(PollResult::NotYet("nothing".to_owned()))
        })
        .await;
    let failure = result.expect_err("nothing came").into_failure("step");
    assert_eq!(failure.message, "not within 20 s: a miracle");
    assert_eq!(
        (failure.expected.as_deref(), failure.seen.as_deref()),
        (Some("a miracle"), Some("nothing"))
    );
    let waiting = events.with(|events| {
        events
            .0
            .iter()
            .filter(|event| matches!(event, Event::Waiting { .. }))
            .count()
    });
    assert_eq!(waiting, 2, "once soon, once later");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_api_server_only_delays_a_wait() {
    let (stream, _) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let (client, _) = client(|_, _| (500, json!({})));
    let mut polls = 0;
    let result = recorder
        .until("the third poll", LIMIT, async || {
            polls += 1;
            if polls < 3 {
                client.apiserver_version().await?;
            }
            Ok(PollResult::Ready(()))
        })
        .await;
    assert!(result.is_ok());
    assert_eq!(polls, 3);
}

#[tokio::test]
async fn changes_are_recorded_before_they_are_undone_in_reverse() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let (client, log) = client(|_, _| not_found());
    for name in ["first", "second"] {
        let planned = recorder.plan(
            &format!("create {name}"),
            Undo::Delete {
                object: ObjectRef::node(name),
            },
        );
        planned.expect("nothing is written to disk");
    }
    assert!(!recorder.is_clean());
    assert_eq!(recorder.undo_all(&client).await, Vec::<String>::new());
    assert!(recorder.is_clean());
    let deleted: Vec<String> = log
        .lock()
        .expect("requests")
        .iter()
        .filter(|line| line.starts_with("DELETE"))
        .cloned()
        .collect();
    assert_eq!(
        deleted,
        ["DELETE /api/v1/nodes/second", "DELETE /api/v1/nodes/first"]
    );
    let numbers = events.with(|events| {
        let number = |event: &Event| match event {
            Event::ChangePlanned { change, .. } => Some(i64::from(*change)),
            Event::ChangeUndone {
                change,
                error: None,
                ..
            } => Some(-i64::from(*change)),
            _ => None,
        };
        events.0.iter().filter_map(number).collect::<Vec<_>>()
    });
    assert_eq!(numbers, [1, 2, -2, -1]);
}

/// A state in between would reach controllers: exporters that start for its sake publish NRTs that nobody deletes.
#[tokio::test]
async fn a_field_that_was_changed_twice_gets_its_first_value_at_once() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let (client, log) = client(|_, _| not_found());
    for (node, value) in [("n", 1), ("n", 2), ("other", 1)] {
        let undo = Undo::Patch {
            object: ObjectRef::node(node),
            patch: json!({"spec": {"field": value}}),
        };
        let planned = recorder.plan("set field", undo);
        planned.expect("nothing is written to disk");
    }
    assert_eq!(recorder.undo_all(&client).await, Vec::<String>::new());
    let log = log.lock().expect("requests");
    assert_eq!(
        *log,
        ["PATCH /api/v1/nodes/other", "PATCH /api/v1/nodes/n"].map(str::to_owned)
    );
    let undone = events.with(|events| {
        let all = events.0.iter();
        all.filter(|event| matches!(event, Event::ChangeUndone { error: None, .. }))
            .count()
    });
    assert_eq!(undone, 3);
}

#[tokio::test]
async fn an_undo_that_fails_does_not_stop_the_others() {
    let (stream, _) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let (client, _) = client(|_, path| {
        if path.ends_with("bad") {
            (403, json!({"message": "no", "code": 403}))
        } else {
            not_found()
        }
    });
    for name in ["good", "bad"] {
        let planned = recorder.plan(
            &format!("create {name}"),
            Undo::Delete {
                object: ObjectRef::node(name),
            },
        );
        planned.expect("nothing is written to disk");
    }
    let failed = recorder.undo_all(&client).await;
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].starts_with("create bad: the API server refused"),
        "{}",
        failed[0]
    );
    assert!(recorder.is_clean());
}

#[tokio::test]
async fn a_change_whose_undo_is_not_on_disk_must_not_be_made() {
    struct Full;
    impl reports::stream::Reader for Full {
        fn read(&mut self, _: &reports::event::Record) {}
        fn secure(&mut self) -> Result<(), String> {
            Err("the disk is full".to_owned())
        }
    }
    let stream = Stream::new(vec![Box::new(Full)]);
    let recorder = Recorder::new(&stream, "a/b");
    let planned = recorder.plan_creation(&ObjectRef::node("n"));
    let failure = planned.expect_err("it is not on disk").into_failure("");
    assert_eq!(
        failure.message,
        "create Node n: not done, because its undo cannot be recorded: the disk is full"
    );
    // what the deletion of a namespace undoes needs no undo of its own
    let object = ObjectRef::node("n");
    let planned = recorder.plan("create Pod", Undo::WithNamespace { object });
    planned.expect("nothing has to be on disk");
}

#[tokio::test]
async fn changes_that_are_kept_are_none_to_undo() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "setup");
    let planned = recorder.plan_creation(&ObjectRef::node("n"));
    planned.expect("nothing is written to disk");
    recorder.keep_all();
    assert!(recorder.is_clean());
    let last = events.with(|events| events.0.last().cloned());
    let unit = "setup".to_owned();
    assert_eq!(last, Some(Event::ChangesKept { unit }));
}

#[tokio::test(start_paused = true)]
async fn work_that_hangs_is_warned_about_and_fails_at_its_limit() {
    let (stream, events) = stream();
    let recorder = Recorder::new(&stream, "a/b");
    let hanging = recorder.step(
        "it answers",
        std::future::pending::<Result<(), StepError>>(),
    );
    let result = recorder.within(LIMIT, hanging).await;
    let failure = result.expect_err("it never ends").into_failure("scenario");
    assert_eq!(failure.message, "not over within 20 s");
    assert_eq!(outcomes(&events), [StepOutcome::Interrupted]);
    let warned = |event: &Event| matches!(event, Event::Noted { text, .. } if text == "half of the time is gone (10 of 20 s): it answers");
    assert!(events.with(|events| events.0.iter().any(warned)));
}

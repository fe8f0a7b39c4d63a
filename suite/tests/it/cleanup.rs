//! What a run leaves on a cluster that is given to it: nobody starts on it, everybody is told how to undo it, and it can be undone.

use apiserver::faults::{Fault, Rule, Selector};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::given::{Given, TIMEOUT, are_as_before, ended, has_code, read, signal};
use crate::harness::transcript;

const SCENARIO: &str = "byres/cpu-decides";
/// In the log once the scenario has changed something.
const CHANGED: &str = "create Namespace e2e-byres-cpu-decides-";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_killed_keeps_the_next_one_away_until_its_changes_are_undone() {
    let given = Given::up("cleanup").await;
    let before = given.objects().await;

    let mut killed = given.start(&[SCENARIO]);
    given.logged(CHANGED).await;
    let second = given.run(&[SCENARIO, "--artifacts", "second"]).await;
    has_code(&second, 1);
    let text = transcript(&second);
    assert!(text.contains(" uses this cluster: "), "{text}");
    let early = given.run(&["cleanup", "--run", &latest(&given)]).await;
    has_code(&early, 1);
    let text = transcript(&early);
    assert!(text.contains("that of a run that is not over"), "{text}");

    killed.start_kill().expect("it runs");
    ended(killed).await;
    let log = given.report(&format!("runs/{}/events.jsonl", latest(&given)));
    let recorded = read(&log);
    let report = read(&given.report("e2e-serial-run.xml"));
    assert!(report.contains("type=\"incomplete\""), "{report}");
    let shown = given.run(&["report", &log.display().to_string()]).await;
    has_code(&shown, 130);
    let text = transcript(&shown);
    assert!(text.contains("the log is unfinished"), "{text}");

    let next = given.run(&[SCENARIO]).await;
    has_code(&next, 1);
    let text = transcript(&next);
    for mark in [
        "ended without undoing what it changed on this cluster: Lease kube-system/numaresources-tests",
        "Namespace e2e-byres-cpu-decides-",
    ] {
        assert!(text.contains(mark), "{mark:?} is not in {text}");
    }
    let command = command(&text);
    assert_eq!(
        read(&log),
        recorded,
        "the log is the only copy of the undos"
    );

    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let cleanup = given.run(&words).await;
    has_code(&cleanup, 0);
    let text = transcript(&cleanup);
    assert!(text.contains("undone: create Namespace "), "{text}");
    are_as_before(&given, &before).await;
    let again = given.run(&words).await;
    has_code(&again, 0);
    let text = transcript(&again);
    assert!(!text.contains("undone: "), "{text}");

    let green = given.run(&[SCENARIO]).await;
    has_code(&green, 0);
    are_as_before(&given, &before).await;
    given.down();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_at_once_and_says_what_is_left_and_the_first_one_leaves_nothing() {
    let given = Given::up("signals").await;
    let before = given.objects().await;

    let run = given.start(&[SCENARIO]);
    given.logged(CHANGED).await;
    signal(&run, "TERM");
    let output = ended(run).await;
    has_code(&output, 130);
    are_as_before(&given, &before).await;
    let report = read(&given.report("e2e-serial-run.xml"));
    assert!(report.contains("type=\"incomplete\""), "{report}");

    let faults = given.cluster.server().faults();
    let deletions = Selector::resource("", "namespaces").verbs(&["delete"]);
    let mut run = given.start(&[SCENARIO]);
    given.logged(CHANGED).await;
    // the set-up deletes a namespace, too
    let hang = faults.add(Rule::new(deletions, Fault::Hang { milliseconds: None }));
    signal(&run, "HUP");
    let hit = tokio::time::timeout(TIMEOUT, faults.wait_for_hits(hang, 1));
    hit.await.expect("the namespace is deleted");
    signal(&run, "HUP");
    signal(&run, "INT");
    let errors = run.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(errors).lines();
    let mut text = String::new();
    while let Some(line) = lines.next_line().await.expect("it can be read") {
        text.push_str(&line);
        text.push('\n');
    }
    has_code(&ended(run).await, 130);
    assert!(
        text.contains(" changes are left on the cluster: "),
        "{text}"
    );
    faults.remove(hang);
    let words: Vec<&str> = command(&text).split(' ').skip(1).collect();
    has_code(&given.run(&words).await, 0);
    are_as_before(&given, &before).await;
    given.down();
}

/// Returns the identity of the latest run.
fn latest(given: &Given) -> String {
    let target = std::fs::read_link(given.report("runs/latest")).expect("link to the latest run");
    target.display().to_string()
}

/// Returns the command that a text tells.
fn command(text: &str) -> &str {
    let at = text.find("numaresources-tests cleanup").expect("a command");
    text[at..].lines().next().expect("a line").trim()
}

//! What a signal does to a run: the first one ends it in order, the second one at once.

use std::io::Write as _;
use std::path::PathBuf;

use reports::changes::OpenChanges;
use reports::stream::Shared;
use tokio::task::AbortHandle;

use crate::claim;
use crate::interrupt::{Interrupt, Signals};
use crate::ledger::open_entries;

/// Exit code of a run that was asked twice to stop.
const INTERRUPTED: i32 = 130;
/// How many changes are named.
const NAMED: usize = 20;

/// Lets signals stop the run from now on. `open` says what has to be undone on the cluster, `ledger` where that is recorded.
///
/// # Errors
/// The signals cannot be heard.
pub(crate) fn on_signals(
    interrupt: &Interrupt,
    open: &Shared<OpenChanges>,
    ledger: PathBuf,
) -> std::io::Result<AbortHandle> {
    let (interrupt, open) = (interrupt.clone(), open.clone());
    let mut signals = Signals::listen()?;
    let task = tokio::spawn(async move {
        signals.first().await;
        interrupt.request_stop();
        say(
            "stopping: the scenario is interrupted and its changes are undone; once more ends at once",
        );
        signals.second().await;
        if let Some(text) = open.with(|open| what_is_left(open, &claim::cleanup_of(&ledger))) {
            say(&text);
        }
        end();
    });
    Ok(task.abort_handle())
}

#[expect(
    clippy::exit,
    reason = "the user asked twice; a local cluster ends with this process"
)]
fn end() {
    std::process::exit(INTERRUPTED);
}

/// Says what is left on the cluster that was given to the run, and the command that undoes it.
fn what_is_left(open: &OpenChanges, command: &str) -> Option<String> {
    open.given()?;
    let changes: Vec<_> = open_entries(open)
        .map(|(change, _)| change.what.as_str())
        .collect();
    let mut named = changes
        .iter()
        .rev()
        .take(NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if changes.len() > NAMED {
        named.push_str(", and more");
    }
    let left = match changes.len() {
        0 => "nothing is left on the cluster but the mark of this run".to_owned(),
        count => format!("{count} changes are left on the cluster: {named}"),
    };
    Some(format!("{left}. Put the cluster back: {command}"))
}

fn say(text: &str) {
    // nobody may be there to read it
    let _ = writeln!(anstream::stderr(), "numaresources-tests: {text}");
}

#[cfg(test)]
mod tests {
    use reports::event::{Event, Record};
    use reports::stream::Reader as _;
    use serde_json::json;

    use super::*;
    use crate::ledger::{ObjectRef, Undo};

    fn open(events: Vec<Event>) -> OpenChanges {
        let mut open = OpenChanges::default();
        for (seq, event) in (0..).zip(events) {
            let at = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
            open.read(&Record { seq, at, event });
        }
        open
    }

    fn planned(change: u32, what: &str, undo: &Undo) -> Event {
        Event::ChangePlanned {
            unit: "setup".to_owned(),
            change,
            what: what.to_owned(),
            undo: json!(undo),
        }
    }

    #[test]
    fn what_is_left_is_told_latest_first_with_the_command() {
        let object = ObjectRef::node("n");
        let delete = Undo::Delete {
            object: object.clone(),
        };
        let with = Undo::WithNamespace { object };
        let claimed = Event::ClusterClaimed {
            unit: "setup".to_owned(),
            cluster: "c".to_owned(),
            kubeconfig: Vec::new(),
        };
        let changes = vec![
            planned(1, "create A", &delete),
            planned(2, "create B", &delete),
            planned(3, "create C", &with),
        ];
        assert_eq!(what_is_left(&open(changes.clone()), "x"), None);
        let given = open([vec![claimed], changes].concat());
        assert_eq!(
            what_is_left(&given, "x").as_deref(),
            Some("2 changes are left on the cluster: create B, create A. Put the cluster back: x")
        );
    }
}

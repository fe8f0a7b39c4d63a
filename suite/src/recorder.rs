//! Records steps, waits and changes of one unit (a scenario, the set-up) in the event stream.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use kube::{Client, Resource};
use reports::event::{Event, StepOutcome};
use reports::stream::Stream;
use serde::Serialize;
use tokio::time::Instant;

use crate::ledger::{Ledger, ObjectRef, Undo};
use crate::pace::Pace;
use crate::step::StepError;

/// When a wait is first reported, and how often again while nothing changes.
const FIRST_REPORT_AFTER: Duration = Duration::from_secs(3);
const REPEAT_REPORT_AFTER: Duration = Duration::from_secs(15);

/// Time limits; all of them together can be scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deadlines {
    /// Until the API server answers a request, and between two parts of an answer.
    pub answer: Duration,
    /// Until a pod runs or a workload is complete.
    pub running: Duration,
    /// Until the NRTs agree with the API.
    pub settled: Duration,
    /// Until a pod was rejected, so that it stays pending.
    pub rejected: Duration,
    /// Until an object is gone.
    pub gone: Duration,
    /// Until the stack is installed and available.
    pub installed: Duration,
    /// Until a scenario is over.
    pub scenario: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            answer: seconds(60),
            running: seconds(90),
            settled: seconds(60),
            rejected: seconds(90),
            gone: seconds(90),
            installed: seconds(180),
            scenario: seconds(30 * 60),
        }
    }
}

impl Deadlines {
    /// Returns the limits, each times a factor.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            answer: self.answer.mul_f64(factor),
            running: self.running.mul_f64(factor),
            settled: self.settled.mul_f64(factor),
            rejected: self.rejected.mul_f64(factor),
            gone: self.gone.mul_f64(factor),
            installed: self.installed.mul_f64(factor),
            scenario: self.scenario.mul_f64(factor),
        }
    }
}

/// The result of one poll of the cluster.
#[derive(Debug)]
pub enum PollResult<T> {
    /// The condition holds.
    Ready(T),
    /// The condition does not hold yet; the text says what is missing.
    NotYet(String),
}

/// A wait of [`Recorder::until`].
struct Wait<'a> {
    what: &'a str,
    limit: Duration,
    pace: Pace,
    /// The last report, and when it was made.
    reported: Option<(String, Instant)>,
}

/// Returns what the API server refused; any other error ends the wait.
fn refusal(error: StepError) -> Result<String, StepError> {
    match error {
        StepError::Api(error) => Ok(format!("the API server refused: {error}")),
        other => Err(other),
    }
}

/// Records the events of one unit; clones record into the same one.
#[derive(Clone, Debug)]
pub struct Recorder {
    stream: Stream,
    unit: String,
    state: Rc<RefCell<State>>,
}

#[derive(Debug, Default)]
struct State {
    step: u32,
    /// Title and start of the running step.
    open: Option<(String, Instant)>,
    /// What the running step saw, if it is worth reporting.
    seen: Option<String>,
    ledger: Ledger,
}

impl Recorder {
    /// Creates a recorder of this unit.
    pub fn new(stream: &Stream, unit: &str) -> Self {
        Self {
            stream: stream.clone(),
            unit: unit.to_owned(),
            state: Rc::default(),
        }
    }

    /// Returns the name of the unit.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns the stream behind it.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Records a line of text while a step runs.
    pub fn note(&self, text: &str) {
        self.note_sender().note(text);
    }

    /// Returns a [`NoteSender`] for code that runs on other threads.
    pub fn note_sender(&self) -> NoteSender {
        NoteSender {
            stream: self.stream.clone(),
            unit: self.unit.clone(),
        }
    }

    /// Runs one step. A failure from it carries the step's title.
    pub fn step<'a, T: 'a>(
        &'a self,
        title: impl Into<String>,
        work: impl Future<Output = Result<T, StepError>> + 'a,
    ) -> LocalBoxFuture<'a, Result<T, StepError>> {
        let title = title.into();
        // hundreds of copies are compiled, so nothing is in it that does not depend on the work
        Box::pin(async move {
            self.begin(&title);
            match work.await {
                Ok(value) => {
                    self.passed();
                    Ok(value)
                }
                Err(error) => Err(self.did_not_pass(&title, error)),
            }
        })
    }

    fn begin(&self, title: &str) {
        let step = {
            let mut state = self.state.borrow_mut();
            state.step += 1;
            state.open = Some((title.to_owned(), Instant::now()));
            state.seen = None;
            state.step
        };
        self.stream.emit(Event::StepStarted {
            unit: self.unit.clone(),
            step,
            title: title.to_owned(),
        });
    }

    fn passed(&self) {
        let seen = self.state.borrow_mut().seen.take();
        self.close(StepOutcome::Passed { seen });
    }

    /// Closes a step that was skipped or failed. Returns the error with the title of the step.
    fn did_not_pass(&self, title: &str, error: StepError) -> StepError {
        if let StepError::Skip(reason) = error {
            self.close(StepOutcome::Skipped {
                reason: reason.clone(),
            });
            return StepError::Skip(reason);
        }
        let failure = error.into_failure(title);
        self.close(StepOutcome::Failed(failure.clone()));
        StepError::Failed(Box::new(failure))
    }

    /// Records what the running step saw.
    pub fn saw(&self, seen: impl Into<String>) {
        self.state.borrow_mut().seen = Some(seen.into());
    }

    /// Closes the running step, if there is one, as interrupted.
    pub fn interrupt(&self) {
        self.close(StepOutcome::Interrupted);
    }

    fn close(&self, outcome: StepOutcome) {
        let (step, open) = {
            let mut state = self.state.borrow_mut();
            (state.step, state.open.take())
        };
        if let Some((_, started)) = open {
            let duration_ms = millis(started.elapsed());
            self.stream.emit(Event::StepFinished {
                unit: self.unit.clone(),
                step,
                outcome,
                duration_ms,
            });
        }
    }

    /// Polls until a condition holds.
    ///
    /// An error from the API server counts as "not yet". The failure at the deadline has `what` as expected and the last poll as seen.
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        mut poll: impl AsyncFnMut() -> Result<PollResult<T>, StepError>,
    ) -> Result<T, StepError> {
        let mut wait = Wait {
            what,
            limit,
            pace: Pace::begin(),
            reported: None,
        };
        loop {
            let missing = match Box::pin(poll()).await {
                Ok(PollResult::Ready(value)) => return Ok(value),
                Ok(PollResult::NotYet(missing)) => missing,
                Err(error) => refusal(error)?,
            };
            self.go_on(&mut wait, missing).await?;
        }
    }

    /// Reports what is missing if that is due, and pauses until the next poll.
    ///
    /// # Errors
    /// The time is over.
    async fn go_on(&self, wait: &mut Wait<'_>, missing: String) -> Result<(), StepError> {
        let waited = wait.pace.waited();
        if waited > wait.limit {
            let message = format!("not within {} s: {}", wait.limit.as_secs(), wait.what);
            return Err(StepError::mismatch(message, wait.what, missing));
        }
        let is_due = match &wait.reported {
            None => waited > FIRST_REPORT_AFTER,
            Some((text, at)) => {
                at.elapsed() > REPEAT_REPORT_AFTER
                    || *text != missing && at.elapsed() > FIRST_REPORT_AFTER
            }
        };
        if is_due {
            let step = self.state.borrow().step;
            self.stream.emit(Event::Waiting {
                unit: self.unit.clone(),
                step,
                what: missing.clone(),
                waited_ms: millis(waited),
            });
            wait.reported = Some((missing, Instant::now()));
        }
        wait.pace.pause().await;
        Ok(())
    }

    /// Runs work that must be over within a limit, and warns when half of the time is gone.
    pub async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StepError>>,
    ) -> Result<T, StepError> {
        let mut work = std::pin::pin!(work);
        if let Ok(result) = tokio::time::timeout(limit / 2, &mut work).await {
            return result;
        }
        let step = self
            .state
            .borrow()
            .open
            .as_ref()
            .map(|(title, _)| title.clone());
        let step = step.unwrap_or_default();
        self.note(&format!(
            "half of the time is gone ({} of {} s): {step}",
            (limit / 2).as_secs(),
            limit.as_secs()
        ));
        if let Ok(result) = tokio::time::timeout(limit / 2, work).await {
            return result;
        }
        self.interrupt();
        Err(StepError::fail(format!(
            "not over within {} s",
            limit.as_secs()
        )))
    }

    /// Records a change with its undo. Must be called before the change is made.
    ///
    /// # Errors
    /// The undo is not on disk, so the change must not be made: nobody could undo it if this process died.
    pub fn plan(&self, what: &str, undo: Undo) -> Result<(), StepError> {
        let refused = |why: String| {
            StepError::fail(format!(
                "{what}: not done, because its undo cannot be recorded: {why}"
            ))
        };
        let value = serde_json::to_value(&undo).map_err(|error| refused(error.to_string()))?;
        let must_be_secure = undo.is_needed();
        let change = self.state.borrow_mut().ledger.record(what, undo);
        let event = Event::ChangePlanned {
            unit: self.unit.clone(),
            change,
            what: what.to_owned(),
            undo: value,
        };
        if must_be_secure {
            return self.stream.secure(event).map_err(refused);
        }
        self.stream.emit(event);
        Ok(())
    }

    /// Records that an object is about to be created; its undo deletes it. See [`Recorder::plan`].
    pub fn plan_creation(&self, object: &ObjectRef) -> Result<(), StepError> {
        let undo = Undo::Delete {
            object: object.clone(),
        };
        self.plan(&format!("create {object}"), undo)
    }

    /// Records that an object is about to be deleted. Returns the undo, which creates it again as it is now. See [`Recorder::plan`].
    pub fn plan_deletion<K>(&self, object: &K) -> Result<Undo, StepError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let undo = Undo::recreate(object);
        self.plan(&format!("delete {}", ObjectRef::of(object)), undo.clone())?;
        Ok(undo)
    }

    /// Returns whether nothing is left to undo.
    pub fn is_clean(&self) -> bool {
        self.state.borrow().ledger.is_empty()
    }

    /// Keeps all changes made so far.
    pub fn keep_all(&self) {
        self.state.borrow_mut().ledger.clear();
        self.stream.emit(Event::ChangesKept {
            unit: self.unit.clone(),
        });
    }

    /// Undoes all changes, latest first, and continues after errors. Returns what could not be undone.
    pub async fn undo_all(&self, client: &Client) -> Vec<String> {
        let mut failed = Vec::new();
        loop {
            let entry = self.state.borrow_mut().ledger.pop();
            let Some(entry) = entry else { return failed };
            let covered = self.state.borrow().ledger.covers(&entry.undo);
            let undone = if covered {
                Ok(())
            } else {
                entry.undo.run(client).await
            };
            let error = undone.err().map(|error| error.to_string());
            if let Some(error) = &error {
                failed.push(format!("{}: {error}", entry.what));
            }
            self.stream.emit(Event::ChangeUndone {
                unit: self.unit.clone(),
                change: entry.change,
                error,
            });
        }
    }
}

/// Records lines of text for a unit, from any thread.
#[derive(Clone, Debug)]
pub struct NoteSender {
    stream: Stream,
    unit: String,
}

impl NoteSender {
    /// Records a line.
    pub fn note(&self, text: &str) {
        self.stream.emit(Event::Noted {
            unit: self.unit.clone(),
            text: text.trim_end().to_owned(),
        });
    }
}

/// Returns the milliseconds of a duration.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

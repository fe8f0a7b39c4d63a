//! Answers that are kept for a while, by the digest of their question. Who asks what somebody else is asking already waits for that answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use serde::Serialize;
use tokio::time::Instant;

/// Maximum number of questions whose answers are kept.
const MOST: usize = 1024;

/// Stands for a question, so that neither long paths nor tokens stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question([u8; SHA256_OUTPUT_LEN]);

impl Question {
    /// Returns the digest of what is asked. Different questions must have different JSON.
    pub(super) fn of(what: &impl Serialize) -> serde_json::Result<Self> {
        let text = serde_json::to_vec(what)?;
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest::digest(&SHA256, &text).as_ref());
        Ok(Self(bytes))
    }
}

/// An answer and until when it holds. It is locked while somebody asks.
type Slot<V> = Arc<tokio::sync::Mutex<Option<(Instant, V)>>>;

/// The kept answers.
#[derive(Debug)]
pub(super) struct Answers<V>(Mutex<HashMap<Question, Slot<V>>>);

impl<V> Default for Answers<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> Answers<V> {
    /// Returns the kept answer, or else what `ask` returns, which is kept for the time that comes with it. A failure is not kept.
    pub(super) async fn get_or_ask<E>(
        &self,
        question: Question,
        ask: impl Future<Output = Result<(V, Duration), E>>,
    ) -> Result<V, E> {
        let slot = self.slot(question);
        let mut kept = slot.lock().await;
        match &*kept {
            Some((until, answer)) if Instant::now() < *until => return Ok(answer.clone()),
            _ => {}
        }
        let (answer, lifetime) = ask.await?;
        let until = Instant::now().checked_add(lifetime);
        *kept = until.map(|until| (until, answer.clone()));
        Ok(answer)
    }

    /// Returns the place of an answer. When all places are taken, the new one is the caller's alone.
    fn slot(&self, question: Question) -> Slot<V> {
        let mut slots = self.0.lock();
        if let Some(slot) = slots.get(&question) {
            return Arc::clone(slot);
        }
        if slots.len() >= MOST {
            let now = Instant::now();
            slots.retain(|_, slot| {
                // whoever asks has the slot locked
                let kept = slot.try_lock();
                kept.map_or(true, |kept| kept.as_ref().is_some_and(|kept| now < kept.0))
            });
        }
        let slot = Slot::default();
        if slots.len() < MOST {
            slots.insert(question, Arc::clone(&slot));
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn question(number: usize) -> Question {
        Question::of(&number).expect("JSON")
    }

    /// Asks for a number. Returns whether the question was asked indeed.
    async fn is_asked(answers: &Answers<usize>, number: usize, lifetime: Duration) -> bool {
        let mut asked = false;
        let ask = async {
            asked = true;
            Ok::<_, Infallible>((number, lifetime))
        };
        let answer = answers.get_or_ask(question(number), ask).await;
        assert_eq!(answer, Ok(number));
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_its_time() {
        let answers = Answers::default();
        assert!(is_asked(&answers, 1, LONG).await);
        tokio::time::advance(LONG.saturating_sub(Duration::from_secs(1))).await;
        assert!(!is_asked(&answers, 1, LONG).await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(is_asked(&answers, 1, LONG).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_has_a_limit_and_makes_room_when_it_is_old() {
        let answers = Answers::default();
        for number in 0..2 * MOST {
            is_asked(&answers, number, LONG).await;
        }
        assert_eq!(answers.0.lock().len(), MOST);
        assert!(!is_asked(&answers, 0, LONG).await);
        assert!(is_asked(&answers, 2 * MOST, LONG).await, "there is no room");
        assert!(is_asked(&answers, 2 * MOST, LONG).await, "there is no room");
        tokio::time::advance(LONG).await;
        assert!(is_asked(&answers, 2 * MOST, LONG).await);
        assert!(!is_asked(&answers, 2 * MOST, LONG).await, "it has room now");
        assert_eq!(answers.0.lock().len(), 1);
    }

    #[tokio::test]
    async fn a_failure_is_forgotten() {
        let answers = Answers::<usize>::default();
        let failed = answers.get_or_ask(question(1), async { Err("down") }).await;
        assert_eq!(failed, Err("down"));
        assert!(is_asked(&answers, 1, LONG).await);
    }
}

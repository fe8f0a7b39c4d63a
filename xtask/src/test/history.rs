//! What the jobs took the last time on this machine, so that the longest begin first and no more run at once than the processors serve.

use std::collections::BTreeMap;
use std::path::Path;

use super::plan::{self, Expected};
use super::run::Done;
use crate::console::note;

/// Expectations by job.
#[derive(Clone, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct History(BTreeMap<String, Expected>);

impl History {
    /// What was written by [`History::write`]; nothing when there is no file or it cannot be read, because it is only an estimate.
    pub(crate) fn read(file: &Path) -> Self {
        std::fs::read(file)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    /// Writes it for the next time. Without it that one starts from the table of [`plan`].
    pub(crate) fn write(&self, file: &Path) {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        let written = file
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(file, text));
        if let Err(error) = written {
            note(&format!("cannot write {}: {error}", file.display()));
        }
    }

    /// What a job is expected to take.
    pub(crate) fn expected(&self, id: &str, is_split: bool) -> Expected {
        let table = plan::known(id);
        let Some(last) = self.0.get(id) else {
            return table.unwrap_or_else(|| plan::unknown(is_split));
        };
        // clusters of real parts end apart from the test that started them, so their processor time is not in what was measured
        let least = table.map_or(0.0, |table| table.load);
        Expected {
            seconds: last.seconds,
            load: last.load.max(least),
        }
    }

    /// Keeps what a job took. One that failed may have ended early or waited out its limit and tells nothing.
    pub(crate) fn learn(&mut self, done: &Done) {
        let seconds = done.ended.wall.as_secs_f64();
        if done.failed() || seconds == 0.0 {
            return;
        }
        let expected = Expected {
            seconds,
            load: done.ended.processor.as_secs_f64() / seconds,
        };
        self.0.insert(done.job.id.clone(), expected);
    }
}

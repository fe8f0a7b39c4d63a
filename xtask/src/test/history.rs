//! The cost of the jobs in the last run on this machine, so that the longest start first and no more run at once than the processors allow.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use programs::console::note;

use super::plan::{self, Expected};

/// Expectations by job.
#[derive(Clone, Debug, Default, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub(crate) struct History(BTreeMap<String, Expected>);

impl History {
    /// Reads what [`History::write`] wrote. Returns an empty history if there is no file or it cannot be read, because it is only an
    /// estimate.
    pub(crate) fn read(file: &Path) -> Self {
        std::fs::read(file)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    /// Writes it for the next run. Without it the next run starts from the table of [`plan`].
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

    /// Returns the expected cost of a job.
    pub(crate) fn expected(&self, id: &str, is_split: bool) -> Expected {
        let table = plan::known(id);
        let Some(last) = self.0.get(id) else {
            return table.unwrap_or_else(|| plan::unknown(is_split));
        };
        // clusters of real parts end apart from the test that started them, so the measured time lacks their processor time
        let least = table.map_or(0.0, |table| table.load);
        Expected {
            seconds: last.seconds,
            load: last.load.max(least),
        }
    }

    /// Records the cost of a job that passed: how long it took, and the time of processors that it used.
    pub(crate) fn record(&mut self, id: &str, wall: Duration, processor: Duration) {
        let seconds = wall.as_secs_f64();
        if seconds == 0.0 {
            return;
        }
        let expected = Expected {
            seconds,
            load: processor.as_secs_f64() / seconds,
        };
        self.0.insert(id.to_owned(), expected);
    }
}

//! Writes down what the API server tells about every object that matters, as it tells it.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use api::nrt::v1alpha2::NodeResourceTopology;
use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use fs_err::File;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::recording::{Entry, Line};

/// A growing recording. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct Recorder {
    start: Instant,
    inner: Arc<Mutex<Inner>>,
    /// How many lines there are.
    grown: watch::Sender<usize>,
}

#[derive(Debug)]
struct Inner {
    file: BufWriter<File>,
    lines: Vec<Line>,
    /// The first error of a write.
    failure: Option<std::io::Error>,
}

impl Recorder {
    /// Begins a recording in a new file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            start: Instant::now(),
            inner: Arc::new(Mutex::new(Inner {
                file: BufWriter::new(File::create(path)?),
                lines: Vec::new(),
                failure: None,
            })),
            grown: watch::Sender::new(0),
        })
    }

    /// Adds what has just happened.
    pub fn add(&self, entry: Entry) {
        let at = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let line = Line { at, entry };
        let mut inner = self.inner.lock();
        let written = serde_json::to_string(&line).map_err(std::io::Error::from);
        let written = written.and_then(|text| writeln!(inner.file, "{text}"));
        if let Err(error) = written {
            inner.failure.get_or_insert(error);
        }
        inner.lines.push(line);
        let count = inner.lines.len();
        drop(inner);
        self.grown.send_replace(count);
    }

    /// Returns a receiver that changes whenever a line is added.
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.grown.subscribe()
    }

    /// Looks at the lines so far.
    pub fn with<T>(&self, look: impl FnOnce(&[Line]) -> T) -> T {
        look(&self.inner.lock().lines)
    }

    /// Writes what is still in memory to the file.
    ///
    /// # Errors
    /// Returns the first error of any write.
    pub fn flush(&self) -> std::io::Result<()> {
        let mut inner = self.inner.lock();
        match inner.failure.take() {
            Some(error) => Err(error),
            None => inner.file.flush(),
        }
    }

    /// Follows every kind that matters, until the returned tasks are dropped.
    pub fn follow(&self, client: &Client) -> JoinSet<()> {
        let kinds = [
            ApiResource::erase::<Pod>(&()),
            ApiResource::erase::<Node>(&()),
            ApiResource::erase::<NodeResourceTopology>(&()),
            ApiResource::erase::<NumaResourcesOperator>(&()),
            ApiResource::erase::<NumaResourcesScheduler>(&()),
            ApiResource::erase::<DaemonSet>(&()),
            ApiResource::erase::<Deployment>(&()),
            ApiResource::erase::<ConfigMap>(&()),
            ApiResource::erase::<Lease>(&()),
            ApiResource::erase::<Event>(&()),
        ];
        let mut tasks = JoinSet::new();
        for kind in kinds {
            tasks.spawn(self.clone().follow_kind(client.clone(), kind));
        }
        tasks
    }

    async fn follow_kind(self, client: Client, resource: ApiResource) {
        let api: Api<DynamicObject> = Api::all_with(client, &resource);
        let kind = resource.kind;
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            let kind = kind.clone();
            // the watch starts again by itself after an error
            let Ok(event) = event else { continue };
            self.add(match event {
                watcher::Event::Init => Entry::Listing { kind },
                watcher::Event::InitDone => Entry::Listed { kind },
                watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                    Entry::Applied {
                        kind,
                        object: plain(object),
                    }
                }
                watcher::Event::Delete(object) => Entry::Deleted {
                    kind,
                    object: plain(object),
                },
            });
        }
    }
}

/// Returns an object without what nobody looks at.
fn plain(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap_or_default()
}

//! Outages that overlap: the API server is down for each of them, and none fails, on the embedded server and on a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apiserver::Running;
use cluster_faults::{BoxError, Disturbance, Faults, ServerProcess};
use futures::future::BoxFuture;
use rstest::rstest;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::server::start;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A process that refuses to be stopped or started twice, as the holder of a local cluster does.
#[derive(Debug)]
struct Process {
    runs: AtomicBool,
}

impl Process {
    fn become_running(&self, wanted: bool) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async move {
            let did = self.runs.swap(wanted, Ordering::SeqCst);
            if did == wanted {
                return Err(format!("it runs already: {did}").into());
            }
            Ok(())
        })
    }
}

impl ServerProcess for Process {
    fn stop(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        self.become_running(false)
    }

    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        self.become_running(true)
    }
}

/// How the API server of a lane is taken down.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Embedded,
    Process,
}

/// A server whose outages are injected.
struct Disturbed {
    faults: Faults,
    process: Arc<Process>,
    kind: Kind,
    /// Runs as long as this value.
    _server: Running,
}

impl Disturbed {
    async fn start(kind: Kind) -> Self {
        let (server, client) = start().await;
        let process = Arc::new(Process {
            runs: AtomicBool::new(true),
        });
        let faults = match kind {
            Kind::Embedded => Faults::new(client, Some(server.faults()), None),
            Kind::Process => Faults::new(client, None, None)
                .with_process(Arc::clone(&process) as Arc<dyn ServerProcess>),
        };
        Self {
            faults,
            process,
            kind,
            _server: server,
        }
    }

    fn is_up(&self) -> bool {
        match self.kind {
            Kind::Embedded => self.faults.api().unwrap().is_up(),
            Kind::Process => self.process.runs.load(Ordering::SeqCst),
        }
    }
}

/// An outage that has begun once `begun` is told, and ends when `end` is.
fn outage(
    faults: &Faults,
) -> (
    oneshot::Receiver<()>,
    oneshot::Sender<()>,
    tokio::task::JoinHandle<Result<u64, cluster_faults::Error>>,
) {
    let (begin, begun) = oneshot::channel();
    let (end, over) = oneshot::channel::<()>();
    let faults = faults.clone();
    let task = tokio::spawn(async move {
        let over = async {
            begin.send(()).unwrap();
            over.await.unwrap();
        };
        faults.inject_until(&Disturbance::Outage, over).await
    });
    (begun, end, task)
}

#[rstest]
#[case::embedded(Kind::Embedded)]
#[case::process(Kind::Process)]
#[tokio::test]
async fn a_second_outage_begins_when_the_first_has_ended(#[case] kind: Kind) {
    let disturbed = Disturbed::start(kind).await;
    let (first_begun, end_first, first) = outage(&disturbed.faults);
    timeout(TIMEOUT, first_begun).await.unwrap().unwrap();
    let (second_begun, end_second, second) = outage(&disturbed.faults);
    assert!(!disturbed.is_up());
    end_first.send(()).unwrap();
    first.await.unwrap().unwrap();
    timeout(TIMEOUT, second_begun).await.unwrap().unwrap();
    assert!(!disturbed.is_up(), "the second outage has begun");
    end_second.send(()).unwrap();
    second.await.unwrap().unwrap();
    assert!(disturbed.is_up());
}

#[rstest]
#[case::embedded(Kind::Embedded)]
#[case::process(Kind::Process)]
#[tokio::test(start_paused = true)]
async fn an_outage_that_had_to_wait_lasts_its_whole_time(#[case] kind: Kind) {
    let disturbed = Disturbed::start(kind).await;
    let length = Duration::from_secs(3);
    let start = tokio::time::Instant::now();
    let (one, two) = tokio::join!(
        disturbed.faults.inject(&Disturbance::Outage, length),
        disturbed.faults.inject(&Disturbance::Outage, length),
    );
    one.unwrap();
    two.unwrap();
    assert!(start.elapsed() >= 2 * length, "{:?}", start.elapsed());
    assert!(disturbed.is_up());
}

#[tokio::test]
async fn the_embedded_server_comes_back_when_nobody_waits_for_the_end_of_its_outage() {
    let disturbed = Disturbed::start(Kind::Embedded).await;
    let (begun, end, abandoned) = outage(&disturbed.faults);
    timeout(TIMEOUT, begun).await.unwrap().unwrap();
    abandoned.abort();
    abandoned.await.unwrap_err();
    // the next one can begin and end
    let next = disturbed
        .faults
        .inject(&Disturbance::Outage, Duration::ZERO);
    timeout(TIMEOUT, next).await.unwrap().unwrap();
    assert!(disturbed.is_up());
    drop(end);
}

//! Faults that occur while a scenario works, on a cluster that was brought up for the run.
//!
//! What can be disturbed is a `Disturbance` of the testbed. A story that injects one needs [`Need::Faults`](crate::needs::Need::Faults) with
//! the part of the cluster that it is in, so that it is skipped where that cannot be disturbed.

use std::time::Duration;

use cluster_faults::{Disturbance, Faults};
use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

use crate::context::{Context, chain};
use crate::step::StepError;

impl Context {
    fn faults(&self) -> Result<&Faults, StepError> {
        let faults = self.facts().faults.as_ref();
        faults.ok_or_else(|| {
            StepError::Skip("faults cannot be injected into this cluster".to_owned())
        })
    }

    /// Injects a fault that is over at once.
    pub async fn inject(&self, what: &Disturbance) -> Result<(), StepError> {
        let affected = self.faults()?.inject(what, Duration::ZERO).await;
        affected
            .map(drop)
            .map_err(|error| not_injected(what, &error))
    }

    /// Does the work while a fault is active, and ends the fault afterwards. The fault must have affected something meanwhile: otherwise the
    /// work proves nothing.
    pub fn during<'a, T: 'a>(
        &'a self,
        what: &'a Disturbance,
        work: impl Future<Output = Result<T, StepError>> + 'a,
    ) -> LocalBoxFuture<'a, Result<T, StepError>> {
        Box::pin(self.work_during(what, work))
    }

    async fn work_during<T>(
        &self,
        what: &Disturbance,
        work: impl Future<Output = Result<T, StepError>>,
    ) -> Result<T, StepError> {
        let faults = self.faults()?;
        let (begin, begun) = oneshot::channel();
        let (end, over) = oneshot::channel::<()>();
        let fault = faults.inject_until(what, async {
            // the receiver is gone only if the work was abandoned; then the fault is over as well
            if begin.send(()).is_ok() {
                let _ = over.await;
            }
        });
        let worked = async {
            // if the fault did not begin, there is an error that says why
            begun.await.ok()?;
            let result = work.await;
            drop(end);
            Some(result)
        };
        let (affected, result) = tokio::join!(fault, worked);
        let affected = affected.map_err(|error| not_injected(what, &error))?;
        let result = result.ok_or_else(|| StepError::fail(format!("{what:?} did not begin")))??;
        if affected == 0 {
            return Err(StepError::fail(format!("the fault {what:?} had no effect")));
        }
        self.recorder.saw(format!(
            "{affected} requests, watches or connections affected"
        ));
        Ok(result)
    }
}

fn not_injected(what: &Disturbance, error: &cluster_faults::Error) -> StepError {
    StepError::fail(format!("cannot inject {what:?}: {}", chain(error)))
}

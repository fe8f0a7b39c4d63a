//! What all controllers do that look at one object at a time: they take keys from a queue.

use std::sync::Arc;

use super::mirror::ObjectKey;
use super::queue::Queue;

/// A controller with a queue of the objects that it has to look at.
pub(crate) trait Reconcile: Send + Sync + 'static {
    /// Name in the log.
    const NAME: &'static str;
    /// How many objects it looks at at the same time.
    const PARALLEL: usize;

    /// Returns the objects that wait.
    fn queue(&self) -> &Arc<Queue<ObjectKey>>;

    /// Returns once the controller may begin; the mirrors of the world are filled by then.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Looks at one object. After an error it does so again.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<(), kube::Error>> + Send;
}

/// Runs a controller; never returns by itself.
pub(crate) async fn run<C: Reconcile>(controller: Arc<C>) {
    controller.ready().await;
    let queue = Arc::clone(controller.queue());
    let reconcile = |key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await }
    };
    queue.work(C::NAME, C::PARALLEL, reconcile).await;
}

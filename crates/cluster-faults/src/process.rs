//! The process of an API server, as disturbances need it.

use futures::future::BoxFuture;

use crate::BoxError;

/// An API server that is a process of its own.
pub trait ServerProcess: Send + Sync {
    /// Stops the process.
    fn stop(&self) -> BoxFuture<'_, Result<(), BoxError>>;
    /// Starts the process without waiting until it answers.
    fn start(&self) -> BoxFuture<'_, Result<(), BoxError>>;
}

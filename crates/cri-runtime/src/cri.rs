//! The container runtime interface v1 in front of the process runtime.
//!
//! Not offered: attaching, terminals, checkpoints, the stream of container events.

pub mod convert;
pub mod image_service;
pub mod runtime_service;
pub mod stream_server;

use std::sync::Arc;

use podresources::cri::v1::image_service_server::ImageServiceServer;
use podresources::cri::v1::runtime_service_server::RuntimeServiceServer;
use tonic::Status;
use tonic::service::Routes;

use self::stream_server::Streaming;
use super::runtime::{Error, Runtime};

/// Both CRI services.
#[derive(Clone, Debug)]
pub struct Cri {
    runtime: Arc<Runtime>,
    streaming: Arc<Streaming>,
}

impl Cri {
    /// Creates the services of this runtime.
    pub fn new(runtime: Arc<Runtime>, streaming: Streaming) -> Self {
        Self {
            runtime,
            streaming: Arc::new(streaming),
        }
    }

    /// Returns the routes for a server.
    pub fn routes(self) -> Routes {
        Routes::new(
            RuntimeServiceServer::new(self.clone())
                .max_decoding_message_size(podresources::MAX_MESSAGE_SIZE)
                // The output of an executed command may be large.
                .max_encoding_message_size(usize::MAX),
        )
        .add_service(ImageServiceServer::new(self))
    }
}

/// Returns the gRPC code for clients and the error with its causes.
fn status(error: &Error) -> Status {
    let text = error.chain();
    match error {
        Error::NoSandbox(_) | Error::NoContainer(_) | Error::Image(_) => Status::not_found(text),
        Error::Invalid(_) | Error::Identity(_) => Status::invalid_argument(text),
        Error::Timeout { .. } => Status::deadline_exceeded(text),
        Error::State { .. } => Status::failed_precondition(text),
        _ => Status::unknown(text),
    }
}

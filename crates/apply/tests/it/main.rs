//! What the definitions accept and refuse, and what the applier writes. Runs on the embedded API server, or on a real one with
//! `NUMARESOURCES_LANE=local`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod applier;
mod definitions;
mod install;

use testbed::api_server::ApiServer;
use testbed::lane::Lane;

/// Starts an API server in the lane of this run.
async fn server() -> ApiServer {
    ApiServer::start(Lane::from_environment().unwrap())
        .await
        .unwrap()
}

//! What the definitions accept and refuse, and what the applier writes: on the embedded API server, with `NUMARESOURCES_LANE=local` on a
//! real one.
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

/// The API server of this run's lane.
async fn server() -> ApiServer {
    ApiServer::start(Lane::from_environment().unwrap())
        .await
        .unwrap()
}

//! `cargo xtask record`: records the behaviour of the real parts of Kubernetes, for the tests that compare ours with it.

use clap::Subcommand;

mod api;
mod kubelet;
mod scheduler;

/// What to record.
#[derive(Subcommand)]
pub(crate) enum Record {
    /// Conversations with a real API server, to `crates/apiserver/corpus`.
    Api(api::Args),
    /// Random pod sequences on real kubelets, to `testbed/corpus/kubelet`. Needs Linux and root.
    Kubelet(kubelet::Args),
    /// Verdicts of a real kube-scheduler's filters on random cases, to `scheduler/corpus`.
    Scheduler(scheduler::Args),
}

pub(crate) fn run(what: Record) -> anyhow::Result<()> {
    match what {
        Record::Api(args) => api::run(args),
        Record::Kubelet(args) => kubelet::run(args),
        Record::Scheduler(args) => scheduler::run(args),
    }
}

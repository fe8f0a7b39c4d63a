//! What can be recorded.

mod api;
mod conformance;
mod kubelet;
mod manifests;
mod scheduler;

/// Records what the real parts of Kubernetes do.
#[derive(clap::Parser)]
#[command(name = "cargo xtask record", bin_name = "cargo xtask record")]
pub(crate) enum Command {
    /// Conversations with a real API server, to `judges/corpus/api`.
    Api(api::Args),
    /// Nothing: runs Kubernetes' own conformance tests against an embedded cluster. Needs Go the first time.
    Conformance(conformance::Args),
    /// Random pod sequences on real kubelets, to `judges/corpus/kubelet`. Needs Linux and root.
    Kubelet(kubelet::Args),
    /// Nothing: compares the embedded API server with a real one on manifests, valid and with a rule broken each.
    Manifests(manifests::Args),
    /// Verdicts of a real kube-scheduler's filters on random cases, to `scheduler/corpus`.
    Scheduler(scheduler::Args),
}

pub(crate) fn run(what: Command) -> anyhow::Result<()> {
    match what {
        Command::Api(args) => api::run(args),
        Command::Conformance(args) => conformance::run(args),
        Command::Kubelet(args) => kubelet::run(args),
        Command::Manifests(args) => manifests::run(args),
        Command::Scheduler(args) => scheduler::run(args),
    }
}

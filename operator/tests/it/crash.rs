//! Kills the operator between two writes and checks that the next one completes the work. Runs on the embedded server, which can hold
//! requests.

use cluster_faults::{Fault, Rule, Selector};
use cluster_spec::flavour::Flavour;
use futures::stream::{self, StreamExt as _};

use crate::cluster::its;
use crate::installation::{Installation, Objects, simulate_controllers};

/// Number of clusters that are tested concurrently.
const AT_ONCE: usize = 4;
/// A killed operator does not release its lease, and the next one would have to wait for it.
const WITHOUT_LEASE: [&str; 1] = ["-leader-elect=false"];

/// Selects the writes of the operator.
fn writes() -> Selector {
    its(&["create", "update", "patch", "delete"])
}

/// Runs an undisturbed installation. Returns the number of its writes and the resulting objects.
async fn undisturbed(flavour: Option<Flavour>) -> (u64, Objects) {
    let mut trial = Installation::new(flavour).await;
    let faults = trial.cluster.faults().await;
    let faults = faults.api().unwrap();
    let count = faults.add(Rule::new(writes(), Fault::Delay { milliseconds: 0 }));
    trial.cluster.start_operator(&WITHOUT_LEASE);
    trial.create_resources().await;
    let installed = tokio::select! {
        () = trial.is_available() => trial.objects().await,
        () = simulate_controllers(trial.cluster.client.clone()) => unreachable!("it never ends"),
    };
    (faults.hits(count), installed)
}

/// Runs an installation in which this write and all later ones hang until the operator is killed and started again. Returns `false` if the
/// installation was complete before it reached this write.
async fn killed_before(write: u64, flavour: Option<Flavour>, expected: &Objects) -> bool {
    let mut trial = Installation::new(flavour).await;
    let faults = trial.cluster.faults().await;
    let faults = faults.api().unwrap();
    let hang = Rule::new(writes(), Fault::Hang { milliseconds: None }).skip(write - 1);
    let hang = faults.add(hang);
    trial.cluster.start_operator(&WITHOUT_LEASE);
    trial.create_resources().await;
    let client = trial.cluster.client.clone();
    let course = async {
        let was_struck = tokio::select! {
            () = faults.wait_for_hits(hang, 1) => true,
            () = trial.is_available() => false,
        };
        trial.cluster.kill();
        faults.remove(hang);
        trial.cluster.start_operator(&WITHOUT_LEASE);
        trial.becomes(expected).await;
        was_struck
    };
    tokio::select! {
        was_struck = course => was_struck,
        () = simulate_controllers(client) => unreachable!("it never ends"),
    }
}

/// `OpenShift` has every object that plain Kubernetes has, and more.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_any_two_writes_ends_as_if_nothing_had_happened() {
    killed_between_any_two_writes(Some(Flavour::Openshift)).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "long: a minute of processor time"]
    async fn killed_between_any_two_writes_on_plain_kubernetes_too() {
        killed_between_any_two_writes(None).await;
    }
}

async fn killed_between_any_two_writes(flavour: Option<Flavour>) {
    let (writes, expected) = undisturbed(flavour).await;
    assert!(writes > 20, "{writes} writes are no installation");
    let struck: Vec<bool> = stream::iter(1..=writes)
        .map(|write| killed_before(write, flavour, &expected))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    // the three controllers run concurrently, so the number of status patches varies slightly
    let spared = struck.iter().filter(|&&was_struck| !was_struck).count();
    assert!(spared <= 3, "{spared} of {writes} were not killed");
}

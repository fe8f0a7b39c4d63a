//! The accounting oracle. On a cluster of real kubelets with several settings, for random sequences of pods, every NRT equals what the
//! machine profile has for pods minus what the kubelets' state files say that containers of active pods hold.
//!
//! The expected values are computed from those two sources alone, without any part of the stack under test. State files also have entries
//! that do not count: those of finished init containers, and those of pods that have ended. They are listed (`uncounted.txt` beside the
//! reports), and their effect is asserted.
//!
//! A sequence is what one node gets: some pods at once, some of them deleted, some more, all deleted. After each step the node's NRT is
//! compared. The nodes run their sequences at the same time. `NUMARESOURCES_SEED` repeats a run; `NUMARESOURCES_POD_SEQUENCES` is the
//! number of sequences (100). `cargo xtask accounting` runs 500.
//!
//! Reading order: [`nodes`] (the cluster), [`state`] (the files), [`machine`] (what a node has), [`holdings`] (which container holds what),
//! [`oracle`] (the comparison), [`generate`] and [`pods`] (the pods), [`run`] (all of it on a cluster).

mod generate;
mod holdings;
mod machine;
mod nodes;
mod oracle;
mod pods;
mod run;
mod state;

use std::path::Path;
use std::sync::Arc;

use futures::future::FutureExt;
use reports::event::Verdict;
use reports::terminal::Terminal;
use suite::interrupt::Interrupt;
use suite::run::begin;
use suite::scenario::Scenario;
use suite::session::{Session, StartError};
use suite::setup::Options;
use testbed::lane;

use self::machine::NodeFacts;
use self::run::{Node, Plan};
use crate::harness::{number, report_paths, runtime};

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn every_nrt_equals_machine_and_state_files_for_random_pod_sequences() {
    let plan = Plan {
        seed: number("NUMARESOURCES_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0),
        sequences: number("NUMARESOURCES_POD_SEQUENCES").map_or(100, |sequences| {
            u32::try_from(sequences).expect("a small number of sequences")
        }),
    };
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("nodes.yaml");
    nodes::write(&file).expect("the directory is writable");
    let mut options = Options {
        scheduler: Some("default-scheduler".to_owned()),
        ..Options::own(lane::Lane::Local, &[]).expect("no flag is wrong")
    };
    options.plan.nodes = Some(file);
    let paths = report_paths("accounting", &options);
    let terminal = Terminal::new(anstream::stderr(), false);
    let stream = begin(&options, Vec::new(), &paths, vec![Box::new(terminal)])
        .expect("the artefacts directory is writable")
        .stream;
    let verdict = runtime().block_on(async {
        let interrupt = Interrupt::default();
        let session = match Session::start(&options, &stream, &interrupt, &paths.artifacts).await {
            Ok(session) => session,
            Err(StartError::Interrupted) => panic!("nobody interrupts this test"),
            Err(StartError::Failed(failure)) => panic!("the set-up failed: {failure}"),
        };
        let verdict = session
            .run(&scenario(&session, plan, &paths.artifacts))
            .await;
        assert!(
            session.finish().await,
            "the tear-down failed; see {}",
            paths.events().display()
        );
        verdict
    });
    match verdict {
        Verdict::Passed => {}
        Verdict::Failed(failure) => panic!("seed {}: {failure}", plan.seed),
        other => panic!("seed {}: {other:?}", plan.seed),
    }
}

fn scenario(session: &Session, plan: Plan, artifacts: &Path) -> Scenario {
    let local = session
        .own()
        .and_then(lane::Cluster::local)
        .expect("the cluster is a local one");
    let nodes: Vec<Node> = session
        .cluster()
        .facts
        .nodes
        .iter()
        .map(|topology| {
            let handle = local
                .node(&topology.node)
                .expect("every NRT is of a node")
                .clone();
            let settings = handle.kubelet_settings().expect("the settings can be read");
            let facts = NodeFacts::new(handle.name(), handle.machine(), &settings);
            Node {
                facts: facts.expect("all kubelets pin CPUs"),
                handle,
            }
        })
        .collect();
    let workers = local
        .nodes()
        .iter()
        .filter(|node| node.name().starts_with("worker-"))
        .count();
    assert_eq!(nodes.len(), workers, "every worker has an NRT");
    let nodes: Arc<[Node]> = nodes.into();
    let listing: Arc<Path> = artifacts.join("uncounted.txt").into();
    Scenario {
        id: "accounting/random-pod-sequences",
        test_id: None,
        title: format!(
            "{} random pod sequences of seed {}",
            plan.sequences, plan.seed
        ),
        labels: Vec::new(),
        needs: Vec::new(),
        body: suite::scenario::body(move |context| {
            let (nodes, listing) = (Arc::clone(&nodes), Arc::clone(&listing));
            async move { run::all(context, &nodes, plan, &listing).await }.boxed_local()
        }),
    }
}

//! What `numaresources-tests` has must-gather collect when a scenario fails.

use std::path::Path;

use api::names::NAMESPACE;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use reports::event::Verdict;
use serde_json::json;
use suite::interrupt::Interrupt;
use suite::run::{self, Outcome, ReportPaths, Reports, Run};
use suite::scenario::{Scenario, body};
use suite::setup::Options;
use suite::step::StepError;
use testbed::lane::Lane;

use crate::server::read_all;

/// Planted in a Secret beside the stack: none of it may be collected.
const PLANTED: &str = "hunter2-planted";

/// A scenario that fails.
fn failing() -> Scenario {
    Scenario {
        id: "planted/fails",
        test_id: None,
        title: "fails".to_owned(),
        labels: Vec::new(),
        needs: Vec::new(),
        body: body(|context| {
            Box::pin(context.step("it fails", async { Err(StepError::fail("as it must")) }))
        }),
    }
}

/// Runs the scenario on a cluster of its own, with a Secret. Returns how the run ended, and the verdict.
async fn run(artifacts: &Path, must_gather: &str) -> (Outcome, Verdict) {
    // the only possible error is that there is a provider already
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Options {
        must_gather: Some(must_gather.into()),
        ..Options::own(Lane::Embedded, &[]).unwrap()
    };
    let paths = ReportPaths::new(artifacts, None, "run");
    let Reports {
        stream, summary, ..
    } = run::begin(&options, vec![failing().info()], &paths, Vec::new()).unwrap();
    let run = Run {
        options: &options,
        scenarios: &[failing()],
        selected: &[true],
        skips: None,
        paths: &paths,
        stream: &stream,
        interrupt: &Interrupt::default(),
    };
    let outcome = Box::pin(run::run(&run, async |session| {
        let secrets: Api<Secret> = Api::namespaced(session.cluster().client.clone(), NAMESPACE);
        let secret =
            json!({"metadata": {"name": "planted-secret"}, "stringData": {"plain": PLANTED}});
        let secret = serde_json::from_value(secret).unwrap();
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
        Ok(())
    }))
    .await;
    let verdict = summary.with(|summary| summary.verdicts().next().unwrap().1.clone());
    (outcome, verdict)
}

#[tokio::test]
async fn the_state_of_the_cluster_is_beside_the_failure_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_numaresources-must-gather");
    let (outcome, verdict) = run(dir.path(), program).await;
    assert_eq!(outcome, Outcome::ScenarioFailed);
    let Verdict::Failed(failure) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(failure.message, "as it must");
    let folder = dir.path().join("nrop/runs/run/planted-fails/must-gather");
    let told = failure.details.last().unwrap();
    assert!(
        told.starts_with("must-gather: collected ") && told.contains(folder.to_str().unwrap()),
        "{told}"
    );
    let files = read_all(&folder);
    let paths: Vec<&String> = files.iter().map(|(path, _)| path).collect();
    for start in [
        "index.html",
        "nrt.txt",
        "kubelets/worker-0/configz.json",
        "cluster-scoped-resources/topology.node.k8s.io/noderesourcetopologies/worker-0.yaml",
        "cluster-scoped-resources/nodetopology.openshift.io/numaresourcesoperators/",
        "namespaces/numaresources/apps/daemonsets.yaml",
        "namespaces/numaresources/pods/",
    ] {
        let has = paths.iter().any(|path| path.starts_with(start));
        assert!(has, "{start} is not among {paths:#?}");
    }
    for (path, text) in &files {
        assert!(
            !text.contains(PLANTED) && !text.contains("planted-secret"),
            "{path}:\n{text}"
        );
    }
}

//! `lsplatform`: which kind of cluster this is (scenarios-other.md 10.3).

use std::process::ExitCode;

use apply::platform;
use manifests::platform::Platform;

use crate::cluster;
use crate::flags::{Given, KUBECONFIG, Usage, text};
use crate::output::{FAILURE, USAGE_ERROR, print};

const USAGE: Usage = Usage {
    name: "lsplatform",
    about: "Prints Kubernetes, OpenShift or HyperShift. With -is-platform it prints nothing: exit code 0 if the cluster is of that kind, 1 if not.",
    flags: &[
        text("is-platform", "", "ask whether the cluster is of this kind"),
        KUBECONFIG,
    ],
    refusal: USAGE_ERROR,
    failure: FAILURE,
};

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, run)
}

async fn run(given: Given) -> anyhow::Result<ExitCode> {
    let asked = given.text("is-platform");
    if !asked.is_empty() && Platform::parse(asked).is_none() {
        crate::output::complain(&format!("error: unknown platform {asked:?}\n"));
        return Ok(ExitCode::FAILURE);
    }
    let client = cluster::connect(given.kubeconfig().as_deref()).await?;
    let platform = platform::detect(&client).await?;
    Ok(match Platform::parse(asked) {
        None => print(&format!("{platform}\n")),
        Some(asked) if asked == platform => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

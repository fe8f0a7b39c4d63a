//! `nrovalidate`: whether the cluster is configured for NUMA-aware scheduling (scenarios-other.md 10.2).
//!
//! Reading order: this file (the command), `finding` (what is wrong), `nodes` (which nodes count), then each validator: `k8scfg` with
//! `kubelets`, `topologies`, `pods`, `schedcache`.

use std::process::ExitCode;

use anyhow::Context as _;
use apply::platform;
use kube::Client;
use serde_json::json;

use self::finding::Finding;
use self::nodes::Members;
use crate::cluster;
use crate::flags::{Given, KUBECONFIG, Usage, switch, text};
use crate::output::{complain, print};

mod finding;
mod k8scfg;
mod kubelets;
mod nodes;
mod pods;
mod schedcache;
mod topologies;

/// Exit code of wrong arguments.
const WRONG_ARGUMENTS: u8 = 1;
/// Exit code when the cluster could not be asked.
const COLLECTION_ERROR: u8 = 2;

const USAGE: Usage = Usage {
    name: "nrovalidate",
    about: "Validates the configuration of the cluster. Exit codes: 0 validated, also if something is wrong; 1 wrong arguments; 2 the cluster could not be asked.",
    flags: &[
        switch("version", "print the version"),
        switch("verbose", "list what is wrong"),
        switch("json", "print JSON"),
        switch("quiet", "print nothing"),
        text(
            "what",
            "all",
            "validators to run, separated by commas; help lists them",
        ),
        text(
            "labels",
            "",
            "selector of the nodes; without it those of the node groups of the NUMAResourcesOperator",
        ),
        KUBECONFIG,
    ],
    refusal: WRONG_ARGUMENTS,
    failure: COLLECTION_ERROR,
};

/// What is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validator {
    /// Settings of the kubelets.
    KubeletConfiguration,
    /// NodeResourceTopologies.
    Topologies,
    /// Pods.
    Pods,
    /// The scheduler's view of the nodes.
    SchedulerCache,
}

impl Validator {
    const ALL: [Self; 4] = [
        Self::KubeletConfiguration,
        Self::Topologies,
        Self::Pods,
        Self::SchedulerCache,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KubeletConfiguration => "k8scfg",
            Self::Topologies => "nrt",
            Self::Pods => "podst",
            Self::SchedulerCache => "schedcache",
        }
    }

    /// Returns the validators of a list of names, in the order of the list.
    fn parse(list: &str) -> Result<Vec<Self>, String> {
        let list = list.to_lowercase();
        if list == "all" {
            return Ok(Self::ALL.to_vec());
        }
        let names = list.split(',').map(str::trim);
        names
            .map(|name| {
                let mut all = Self::ALL.into_iter();
                all.find(|validator| validator.name() == name)
                    .ok_or_else(|| format!("unknown validator: {name:?}"))
            })
            .collect()
    }

    async fn run(self, client: &Client, members: &Members) -> anyhow::Result<Vec<Finding>> {
        match self {
            Self::KubeletConfiguration => k8scfg::validate(client, members).await,
            Self::Topologies => topologies::validate(client, members).await,
            Self::Pods => pods::validate(client, members).await,
            Self::SchedulerCache => schedcache::validate(client, members).await,
        }
    }
}

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, run)
}

async fn run(given: Given) -> anyhow::Result<ExitCode> {
    if given.is_on("version") {
        return Ok(print(&format!("nrovalidate {}\n", goflags::build_line!())));
    }
    if given.text("what").eq_ignore_ascii_case("help") {
        let names: String = Validator::ALL
            .map(|validator| format!("{}\n", validator.name()))
            .concat();
        return Ok(print(&names));
    }
    let validators = match Validator::parse(given.text("what")) {
        Ok(validators) => validators,
        Err(problem) => {
            complain(&format!("{problem}\n"));
            return Ok(ExitCode::from(WRONG_ARGUMENTS));
        }
    };
    let is_loud = !given.is_on("quiet");
    let inform = |text: String| {
        if is_loud {
            complain(&format!("INFO>>>>: {text}\n"));
        }
    };
    let names: Vec<&str> = validators.iter().map(|it| it.name()).collect();
    inform(format!("enabled validators: {}", names.join(",")));
    let client = cluster::connect(given.kubeconfig().as_deref()).await?;
    let platform = platform::detect(&client).await?;
    let members = Members::find(&client, platform, given.text("labels")).await?;
    inform(format!("inspecting nodes: {}", members.names().join(",")));
    let mut findings = Vec::new();
    for validator in validators {
        let found = validator.run(&client, &members).await;
        findings.extend(found.with_context(|| format!("validator {} failed", validator.name()))?);
    }
    Ok(if is_loud {
        print(&rendered(&findings, &given))
    } else {
        ExitCode::SUCCESS
    })
}

fn rendered(findings: &[Finding], given: &Given) -> String {
    if given.is_on("json") {
        let result = json!({"succeeded": findings.is_empty(), "errors": findings});
        return format!("{result}\n");
    }
    if findings.is_empty() {
        return "PASSED>>: cluster configuration looks ok!\n".to_owned();
    }
    let mut text = "FAILED>>: cluster configuration does NOT look ok!\n".to_owned();
    if given.is_on("verbose") {
        let lines = findings.iter().enumerate();
        text.extend(lines.map(|(index, finding)| format!("ERROR#{index:03}: {finding}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validators_are_named_in_any_case() {
        let found = Validator::parse("NRT, k8scfg").expect("known");
        assert_eq!(
            found,
            [Validator::Topologies, Validator::KubeletConfiguration]
        );
        assert_eq!(Validator::parse("all").expect("known").len(), 4);
        assert_eq!(
            Validator::parse("nrt,x"),
            Err("unknown validator: \"x\"".to_owned())
        );
    }
}

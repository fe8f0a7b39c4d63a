//! The exporter's program alone, without a cluster: its configuration from command line, environment and file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_yaml::Value;
use tokio::process::Command;

use crate::context::Context;
use crate::needs::Need;
use crate::scenario::{Body, Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

const FILE: &str = "kubelet:\n  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n";
const FLAGS: [&str; 2] = [
    "--topology-manager-scope=pod",
    "--topology-manager-policy=restricted",
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let one = |id, body: Body| scenario(id, &[Need::Exporter], body);
    vec![
        one("rte/local-version", body(|ctx| Box::pin(version(ctx)))),
        one(
            "rte/local-conf",
            body(|ctx| Box::pin(dumped(ctx, Some(FILE), &[], &[], ("restricted", "pod")))),
        ),
        one(
            "rte/local-conf-override",
            body(|ctx| {
                let flags = &["--topology-manager-policy", "single-numa-node"];
                Box::pin(dumped(
                    ctx,
                    Some(FILE),
                    flags,
                    &[],
                    ("single-numa-node", "pod"),
                ))
            }),
        ),
        one(
            "rte/local-defaults",
            body(|ctx| Box::pin(dumped(ctx, None, &[], &[], ("none", "container")))),
        ),
        one(
            "rte/local-args",
            body(|ctx| Box::pin(dumped(ctx, None, &FLAGS, &[], ("restricted", "pod")))),
        ),
        one(
            "rte/local-env",
            body(|ctx| {
                let variables = &[
                    ("TOPOLOGY_MANAGER_SCOPE", "pod"),
                    ("TOPOLOGY_MANAGER_POLICY", "restricted"),
                ];
                Box::pin(dumped(ctx, None, &[], variables, ("restricted", "pod")))
            }),
        ),
        one(
            "rte/local-args-over-env",
            body(|ctx| {
                let variables = &[
                    ("TOPOLOGY_MANAGER_SCOPE", "container"),
                    ("TOPOLOGY_MANAGER_POLICY", "best-effort"),
                ];
                Box::pin(dumped(ctx, None, &FLAGS, variables, ("restricted", "pod")))
            }),
        ),
    ]
}

/// Runs the program and returns its standard output. The program must succeed.
async fn output(
    ctx: &Context,
    arguments: &[&str],
    variables: &BTreeMap<&str, String>,
) -> Result<String, StepError> {
    let Some(program) = &ctx.facts().exporter else {
        return Err(StepError::fail("the exporter's program is not known"));
    };
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(variables)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| StepError::fail(format!("{}: {error}", program.display())))?;
    if !output.status.success() {
        return Err(StepError::mismatch(
            format!("the outcome of {arguments:?}"),
            "success",
            format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn version(ctx: &Context) -> Result<(), StepError> {
    ctx.step("the version is one", async {
        let text = output(ctx, &["--version"], &BTreeMap::new()).await?;
        // commit and branch may follow (rte.md 2.1)
        let mut words = text
            .trim()
            .trim_start_matches("resource-topology-exporter")
            .split_whitespace();
        let version = words.next().unwrap_or_default().trim_start_matches('v');
        let numbers: Vec<&str> = version
            .split(['-', '+'])
            .next()
            .unwrap_or_default()
            .split('.')
            .collect();
        if numbers.len() == 3 && numbers.iter().all(|number| number.parse::<u32>().is_ok()) {
            return Ok(());
        }
        Err(StepError::mismatch(
            "the version",
            "a semantic version",
            version,
        ))
    })
    .await
}

/// Returns the settings that a dump of the configuration shows.
async fn dumped(
    ctx: &Context,
    file: Option<&str>,
    arguments: &[&str],
    variables: &[(&'static str, &str)],
    (policy, scope): (&str, &str),
) -> Result<(), StepError> {
    let home = std::env::temp_dir().join(format!("{}-{}", ctx.namespace, std::process::id()));
    let failed = |error: std::io::Error| StepError::fail(format!("{}: {error}", home.display()));
    let mut args: Vec<String> = arguments
        .iter()
        .map(|&argument| argument.to_owned())
        .collect();
    if let Some(text) = file {
        let path: PathBuf = home.join(".rte/kubelet_tm_full.yaml");
        std::fs::create_dir_all(home.join(".rte")).map_err(failed)?;
        std::fs::write(&path, text).map_err(failed)?;
        args.extend(["--config".to_owned(), path.display().to_string()]);
    }
    args.push("--dump-config=.andexit".to_owned());
    let mut environment: BTreeMap<&str, String> = variables
        .iter()
        .map(|&(name, value)| (name, value.to_owned()))
        .collect();
    environment.insert("HOME", home.display().to_string());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = ctx
        .step("the program dumps its configuration", async {
            let text = output(ctx, &args, &environment).await?;
            serde_yaml::from_str::<Value>(&text)
                .map_err(|error| StepError::fail(format!("the dump is no YAML: {error}: {text}")))
        })
        .await;
    if file.is_some() {
        std::fs::remove_dir_all(&home).map_err(failed)?;
    }
    let dump = outcome?;
    ctx.step(format!("policy is {policy}, scope is {scope}"), async {
        for (key, expected) in [
            ("topologyManagerPolicy", policy),
            ("topologyManagerScope", scope),
        ] {
            let seen = dump["topologyExporter"][key].as_str().unwrap_or("nothing");
            if seen != expected {
                return Err(StepError::mismatch(key, expected, seen));
            }
        }
        Ok(())
    })
    .await
}

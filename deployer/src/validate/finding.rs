//! Findings, and how they are written: lines, JSON, log (deployer.md 10).

use std::fmt;

use owo_colors::{OwoColorize as _, Style};
use serde::Serialize;

use crate::log::Log;

/// Area of findings about the cluster as a whole.
pub const CLUSTER: &str = "cluster";
/// Area of findings about kubelets.
pub const KUBELET: &str = "kubelet";
/// Area of findings about the stack.
pub const STACK: &str = "stack";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Pods are not placed as they should be.
    Error,
    /// It is most probably not what was meant.
    Warning,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    #[serde(skip)]
    pub severity: Severity,
    /// The node; empty if it is not about one.
    pub node: String,
    /// [`CLUSTER`], [`KUBELET`] or [`STACK`].
    pub area: String,
    /// The part of it.
    pub component: String,
    /// The setting.
    pub setting: String,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub detected: String,
    /// What to do.
    pub fix: String,
}

impl Finding {
    /// Returns an error without values.
    pub fn error(node: &str, area: &str, component: &str, setting: &str) -> Self {
        Self {
            severity: Severity::Error,
            node: node.to_owned(),
            area: area.to_owned(),
            component: component.to_owned(),
            setting: setting.to_owned(),
            expected: String::new(),
            detected: String::new(),
            fix: String::new(),
        }
    }

    /// Returns a warning without values.
    pub fn warning(node: &str, area: &str, component: &str, setting: &str) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(node, area, component, setting)
        }
    }

    /// Sets what it should be.
    #[must_use]
    pub fn expected(mut self, text: impl Into<String>) -> Self {
        self.expected = text.into();
        self
    }

    /// Sets what it is.
    #[must_use]
    pub fn detected(mut self, text: impl Into<String>) -> Self {
        self.detected = text.into();
        self
    }

    /// Sets what to do.
    #[must_use]
    pub fn fix(mut self, text: impl Into<String>) -> Self {
        self.fix = text.into();
        self
    }
}

/// Writes the line of the original.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            node,
            area,
            component,
            setting,
            expected,
            detected,
            ..
        } = self;
        if area == CLUSTER {
            f.write_str("Incorrect configuration of cluster: ")?;
        } else {
            write!(f, "Incorrect configuration of node {node:?} area {area:?} ")?;
        }
        write!(
            f,
            "component {component:?} setting {setting:?}: expected {expected:?} detected {detected:?}"
        )
    }
}

fn of(findings: &[Finding], severity: Severity) -> Vec<&Finding> {
    let matches = |finding: &&Finding| finding.severity == severity;
    findings.iter().filter(matches).collect()
}

/// Formats the output of `validate` as text. Each error has the original's line, and a line with what to do; warnings follow.
pub fn format_text(findings: &[Finding]) -> String {
    let errors = of(findings, Severity::Error);
    let passed = "PASSED>>: the cluster configuration looks ok!";
    let first = if errors.is_empty() {
        format!("{}\n", passed.style(Style::new().green()))
    } else {
        String::new()
    };
    let warnings = of(findings, Severity::Warning);
    let groups = [
        ("ERROR", Style::new().red().bold(), errors),
        ("WARNING", Style::new().yellow(), warnings),
    ];
    let lines = groups.into_iter().flat_map(|(word, style, group)| {
        group.into_iter().enumerate().map(move |(index, finding)| {
            let head = format!("{word}#{index:03}:");
            let fix = &finding.fix;
            format!("{} {finding}\n    fix: {fix}\n", head.style(style))
        })
    });
    std::iter::once(first).chain(lines).collect()
}

#[derive(Serialize)]
struct Report<'a> {
    success: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<&'a Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a Finding>,
}

/// Formats the output of `validate` as one line of JSON.
pub fn format_json(findings: &[Finding]) -> String {
    let errors = of(findings, Severity::Error);
    let report = Report {
        success: errors.is_empty(),
        errors,
        warnings: of(findings, Severity::Warning),
    };
    // texts under fixed names are always valid JSON
    serde_json::to_string(&report).map_or_else(|_| String::new(), |text| text + "\n")
}

/// Writes the findings to the log, as `setup` does.
pub fn log_all(findings: &[Finding], log: &Log) {
    const MESSAGE: &str = "cluster configuration";
    if findings.is_empty() {
        log.line(0, MESSAGE, &[("issue", "none".into())]);
    }
    for (index, finding) in findings.iter().enumerate() {
        let pairs = [
            ("issue", (&index).into()),
            ("description", finding.to_string().into()),
            ("fix", finding.fix.as_str().into()),
        ];
        log.line(0, MESSAGE, &pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Finding {
        Finding::error("worker-0", KUBELET, "topology manager", "policy")
            .expected("single-numa-node")
            .detected("none")
            .fix("set topologyManagerPolicy")
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn lines_are_those_of_the_original_with_the_fix_below() {
        let mut warning = policy();
        warning.severity = Severity::Warning;
        assert_eq!(
            plain(&format_text(&[warning.clone(), policy()])),
            "ERROR#000: Incorrect configuration of node \"worker-0\" area \"kubelet\" component \"topology manager\" setting \"policy\": \
             expected \"single-numa-node\" detected \"none\"\n    fix: set topologyManagerPolicy\n\
             WARNING#000: Incorrect configuration of node \"worker-0\" area \"kubelet\" component \"topology manager\" setting \"policy\": \
             expected \"single-numa-node\" detected \"none\"\n    fix: set topologyManagerPolicy\n"
        );
        let passed = "PASSED>>: the cluster configuration looks ok!\n";
        assert_eq!(plain(&format_text(&[])), passed);
        assert!(plain(&format_text(&[warning])).starts_with(passed));
    }

    #[test]
    fn json_of_a_cluster_without_findings_is_that_of_the_original() {
        assert_eq!(format_json(&[]), "{\"success\":true}\n");
        let failed = format_json(&[policy()]);
        assert!(
            failed.starts_with("{\"success\":false,\"errors\":[{\"node\":\"worker-0\",\"area\":\"kubelet\",\"component\":\"topology manager\",\"setting\":\"policy\","),
            "{failed}"
        );
    }
}

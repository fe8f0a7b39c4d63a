//! An explanation as text for people.

use std::fmt::Write as _;

use super::form::{
    Explanation, NodeVerdict, PreemptionVerdict, TrialVerdict, VictimFacts, ZoneVerdict,
};

/// Renders the whole text.
pub fn render(explanation: &Explanation) -> String {
    let mut text = String::new();
    let pod = &explanation.pod;
    let requests: Vec<String> = pod
        .request
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    // writing to a string cannot fail
    let _ = writeln!(
        text,
        "Pod {}/{} ({}, profile {}): {}",
        pod.namespace,
        pod.name,
        pod.qos,
        explanation.profile,
        requests.join(" ")
    );
    if let Some(node) = &pod.bound_to {
        let _ = writeln!(
            text,
            "It is already on node {node}; what it holds there counts as taken."
        );
    }
    if let Some(node) = &pod.nominated_to {
        let _ = writeln!(text, "Pods were already preempted for it on node {node}.");
    }
    match (&explanation.message, explanation.best.as_slice()) {
        (Some(message), _) => {
            let _ = writeln!(text, "No node fits: {message}");
        }
        (None, [only]) => {
            let _ = writeln!(text, "It would be placed on {only}.");
        }
        (None, best) => {
            let _ = writeln!(text, "It would be placed on one of {}.", best.join(", "));
        }
    }
    if let Some(preemption) = &explanation.preemption {
        let _ = writeln!(text, "{}", preempted(preemption));
    }
    let rows: Vec<[String; 4]> = explanation.nodes.iter().map(row).collect();
    let header = ["NODE", "VERDICT", "SCORE", "WHY"].map(str::to_owned);
    text.push('\n');
    table(&mut text, &[vec![header], rows].concat());
    for node in &explanation.nodes {
        zones(&mut text, node);
    }
    text
}

fn preempted(preemption: &PreemptionVerdict) -> String {
    let Some(node) = &preemption.node else {
        let message = preemption.message.as_deref().unwrap_or_default();
        return format!("No pod would be evicted: {message}");
    };
    let victims = preemption.victims.iter().map(|victim| {
        let VictimFacts {
            namespace,
            name,
            priority,
        } = victim;
        format!("{namespace}/{name} (priority {priority})")
    });
    let victims = victims.collect::<Vec<_>>().join(", ");
    let budgets = match preemption.budgets_violated {
        0 => "within their disruption budgets".to_owned(),
        count => format!("{count} of them against a disruption budget"),
    };
    format!("It would be nominated to {node}, where these would be evicted, {budgets}: {victims}")
}

fn row(node: &NodeVerdict) -> [String; 4] {
    let verdict = if node.feasible {
        "possible"
    } else {
        "ruled out"
    };
    let why = match node.rejected_by {
        Some(plugin) => format!("{plugin}: {}", node.reasons.join(", ")),
        None => node
            .scores
            .iter()
            .map(|score| format!("{} {}x{}", score.plugin, score.score, score.weight))
            .collect::<Vec<_>>()
            .join(", "),
    };
    [
        node.name.clone(),
        verdict.to_owned(),
        node.total
            .map_or_else(|| "-".to_owned(), |total| total.to_string()),
        why,
    ]
}

fn zones(text: &mut String, node: &NodeVerdict) {
    let topology = &node.topology;
    let _ = match (topology.state, &topology.policy, &topology.scope) {
        ("fresh", Some(policy), Some(scope)) => {
            let decides = if topology.decides {
                ""
            } else {
                ", not considered for this pod"
            };
            writeln!(
                text,
                "\n{}: policy {policy}, scope {scope}{decides}",
                node.name
            )
        }
        ("absent", ..) => writeln!(text, "\n{}: no NodeResourceTopology", node.name),
        _ => writeln!(
            text,
            "\n{}: its amounts cannot be trusted now: wait for the exporter",
            node.name
        ),
    };
    for trial in &topology.trials {
        one_trial(text, trial);
    }
}

fn one_trial(text: &mut String, trial: &TrialVerdict) {
    let subject = match (&trial.container, trial.kind) {
        (Some(name), Some("app") | None) => format!("container {name}"),
        (Some(name), Some(kind)) => format!("{kind} container {name}"),
        (None, _) => "pod".to_owned(),
    };
    let wanted: Vec<String> = trial
        .wanted
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    let _ = writeln!(text, "  {subject} wants {}", wanted.join(" "));
    for resource in &trial.unknown {
        let _ = writeln!(text, "    the node has no {resource}");
    }
    for zone in &trial.zones {
        let _ = writeln!(text, "    {}", one_zone(zone, trial.zone == Some(zone.id)));
    }
}

fn one_zone(zone: &ZoneVerdict, chosen: bool) -> String {
    if zone.fits {
        let mark = if chosen { " (chosen)" } else { "" };
        return format!("zone {}: fits{mark}", zone.id);
    }
    let lacking: Vec<String> = zone
        .lacking
        .iter()
        .map(|lack| {
            let available = lack.available.as_ref().map_or_else(
                || "none".to_owned(),
                |available| format!("{available} left"),
            );
            format!("{} {available}, wanted {}", lack.resource, lack.wanted)
        })
        .collect();
    format!("zone {}: {}", zone.id, lacking.join("; "))
}

/// Writes columns as wide as their widest cell.
fn table(text: &mut String, rows: &[[String; 4]]) {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].len())
            .max()
            .unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2)];
    for [name, verdict, score, why] in rows {
        let _ = writeln!(
            text,
            "{name:<0$}  {verdict:<1$}  {score:>2$}  {why}",
            widths[0], widths[1], widths[2]
        );
    }
}

//! What an API server says of a manifest, without what differs from run to run, and where two servers differ.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Begin of the line with the verdict.
const VERDICT: &str = "verdict ";

static VARYING: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        (
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<uid>",
        ),
        (
            r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?\+0000 UTC|\+00:00)",
            "<time>",
        ),
        (r#"(resourceVersion"?: ?"?)\d+"#, "$1<version>"),
        // ports of nodes, which each server draws
        (
            r"(?i)(nodePort:? (?:Duplicate value: |\{\w+ )?)\d+",
            "$1<port>",
        ),
        (r"\b10\.96\.\d+\.\d+\b", "<address>"),
        // addresses in memory, which Go writes of pointers
        (r"0x[0-9a-f]{8,}", "<pointer>"),
    ]
    .into_iter()
    .filter_map(|(pattern, name)| Some((Regex::new(pattern).ok()?, name)))
    .collect()
});

/// The answer of a server: one line for the verdict, and one for each cause, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(Vec<String>);

impl Answer {
    /// Reads an answer: status code and body.
    pub fn new(status: u16, body: &Value) -> Self {
        if status < 300 {
            return Self(vec![format!("{VERDICT}{status}")]);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut lines = vec![format!("{VERDICT}{status} {}", text(&body["reason"]))];
        let causes = body["details"]["causes"].as_array();
        match causes.filter(|causes| !causes.is_empty()) {
            Some(causes) => lines.extend(causes.iter().map(|cause| {
                let parts = ["reason", "field", "message"].map(|part| text(&cause[part]));
                parts.join(" ")
            })),
            None => lines.push(text(&body["message"])),
        }
        let steady = |line: String| {
            VARYING.iter().fold(line, |line, (pattern, name)| {
                pattern.replace_all(&line, *name).into_owned()
            })
        };
        let mut lines: Vec<String> = lines.into_iter().map(steady).collect();
        // Go goes through maps in any order
        lines[1..].sort();
        Self(lines)
    }

    /// Makes what stands for the answer of a server that gives none.
    pub(super) fn none() -> Self {
        Self(vec![
            format!("{VERDICT}none"),
            "the connection is closed".to_owned(),
        ])
    }

    /// Makes what stands for the answer where the object of the server has not the place that is to be changed.
    pub(super) fn nothing_to_change() -> Self {
        Self(vec!["nothing to change".to_owned()])
    }

    /// Returns the lines.
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

/// Where two answers to the same manifest differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What only the real server says.
    pub real: Vec<String>,
    /// What only ours says.
    pub ours: Vec<String>,
}

impl Difference {
    /// Compares two answers; the same line twice is not the same as once.
    pub fn between(real: &Answer, ours: &Answer) -> Self {
        let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
        for line in real.lines() {
            *counts.entry(line).or_default() += 1;
        }
        for line in ours.lines() {
            *counts.entry(line).or_default() -= 1;
        }
        let side = |wanted: i32| {
            let lines = counts.iter().filter(|(_, count)| **count * wanted > 0);
            lines.map(|(line, _)| (*line).to_owned()).collect()
        };
        Self {
            real: side(1),
            ours: side(-1),
        }
    }

    /// Returns whether the answers are the same.
    pub fn is_empty(&self) -> bool {
        self.real.is_empty() && self.ours.is_empty()
    }

    /// Returns whether a line is a verdict; it follows from the causes.
    pub(super) fn is_verdict(line: &str) -> bool {
        line.starts_with(VERDICT)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(causes: &[&str]) -> Answer {
        let causes: Vec<Value> = causes
            .iter()
            .map(|field| json!({"reason": "FieldValueRequired", "field": field, "message": "Required value"}))
            .collect();
        let body = json!({"reason": "Invalid", "message": "m", "details": {"causes": causes}});
        Answer::new(422, &body)
    }

    #[test]
    fn the_order_of_causes_has_no_meaning_and_their_number_has() {
        let none = Difference::default();
        let between = |real, ours| Difference::between(&refusal(real), &refusal(ours));
        assert_eq!(between(&["a", "b"], &["b", "a"]), none);
        let twice = between(&["a", "a"], &["a"]);
        assert_eq!(twice.real, ["FieldValueRequired a Required value"]);
        assert!(twice.ours.is_empty());
    }

    #[test]
    fn what_differs_from_run_to_run_is_no_difference() {
        let body = |uid: &str| json!({"reason": "Conflict", "message": format!("uid {uid}")});
        let answers = [
            "11111111-1111-1111-1111-111111111111",
            "22222222-2222-2222-2222-222222222222",
        ]
        .map(|uid| Answer::new(409, &body(uid)));
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0].lines(), ["verdict 409 Conflict", "uid <uid>"]);
    }
}

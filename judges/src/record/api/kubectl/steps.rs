//! Makes steps of a conversation from what kubectl asked. What it took from an earlier answer (a uid, a version, a name that the server has
//! made) becomes a reference to that answer, so that the same requests make sense to any server.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use judges::api::Exchange;
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// Paths by which kubectl finds out what the server can.
static DISCOVERY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^/(api|apis|api/v1|apis/[^/?]+(/[^/?]+)?|openapi/.*|version)(\?.*)?$").ok()
});
static UID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").ok()
});
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$").ok());
static VERSION_PARAMETER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(resourceVersion|continue)=([^&]+)").ok());
/// The limit of a watch, which kubectl draws.
static TIMEOUT_PARAMETER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\btimeoutSeconds=\d+").ok());
/// Time in place of one that kubectl took from its clock.
const SOME_TIME: &str = "2026-01-01T00:00:00Z";
/// Who kubectl says it is, without its build.
const AGENT: &str = "kubectl/v1";

/// A value of an answer that differs from run to run.
struct Seen {
    value: Value,
    key: String,
    step: usize,
    path: String,
}

/// The steps of one conversation.
pub(super) struct Steps<'a> {
    namespace: &'a str,
    list: Vec<Value>,
    seen: Vec<Seen>,
    /// What of `seen` is kept already, by its place there: the variables' names are `v` and that place.
    kept: BTreeSet<usize>,
    /// Watches to read, with the number of events.
    watches: Vec<(String, usize, bool)>,
}

fn is(regex: &LazyLock<Option<Regex>>, text: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

fn replace(
    regex: &LazyLock<Option<Regex>>,
    text: &str,
    with: impl FnMut(&Captures<'_>) -> String,
) -> String {
    match regex.as_ref() {
        Some(regex) => regex.replace_all(text, with).into_owned(),
        None => text.to_owned(),
    }
}

impl<'a> Steps<'a> {
    pub(super) fn new(namespace: &'a str) -> Self {
        Self {
            namespace,
            list: Vec::new(),
            seen: Vec::new(),
            kept: BTreeSet::new(),
            watches: Vec::new(),
        }
    }

    /// Adds what a command asked; `quiet` leaves its answers out of the recording.
    pub(super) fn add(
        &mut self,
        exchanges: &[Exchange],
        user: &str,
        quiet: bool,
    ) -> anyhow::Result<()> {
        for exchange in exchanges {
            if exchange.method == "GET" && is(&DISCOVERY, &exchange.path) {
                continue;
            }
            ensure!(
                exchange.status > 0,
                "no answer to {} {}",
                exchange.method,
                exchange.path
            );
            let mut step = self.step(exchange)?;
            if user != "admin" {
                step.insert("as".into(), json!(user));
            }
            if quiet {
                step.insert("quiet".into(), json!(true));
            }
            if exchange.watch && exchange.status == 200 {
                let name = format!("w{}", self.list.len());
                step.insert("stream".into(), json!(name));
                if exchange.events > 0 {
                    self.watches.push((name, exchange.events, quiet));
                }
            }
            self.list.push(Value::Object(step));
            self.note(&exchange.answer, "", "");
        }
        for (name, events, quiet) in std::mem::take(&mut self.watches) {
            let mut step = json!({"read": name, "events": events});
            if quiet {
                step["quiet"] = json!(true);
            }
            self.list.push(step);
        }
        Ok(())
    }

    /// Whether there is any answer to record.
    pub(super) fn asks(&self) -> bool {
        self.list.iter().any(|step| step["quiet"] != true)
    }

    /// Returns the steps, without those that neither change nor show anything.
    pub(super) fn finish(self) -> Vec<Value> {
        let reads = |step: &Value| {
            step["do"]
                .as_str()
                .is_some_and(|line| line.starts_with("GET "))
        };
        let matters = |step: &Value| {
            step["quiet"] != true
                || !reads(step)
                || step["keep"].is_object()
                || step["stream"].is_string()
        };
        self.list.into_iter().filter(matters).collect()
    }

    fn step(&mut self, exchange: &Exchange) -> anyhow::Result<Map<String, Value>> {
        let mut step = Map::new();
        let path = self.path(&exchange.path);
        step.insert("do".into(), json!(format!("{} {path}", exchange.method)));
        let mut headers = Map::new();
        headers.insert("user-agent".into(), json!(AGENT));
        for (name, value) in &exchange.headers {
            match name.as_str() {
                "accept" if value != "application/json" => {
                    step.insert("accept".into(), json!(value));
                }
                "content-type" if value != "application/json" => {
                    step.insert("type".into(), json!(value));
                }
                name if name.starts_with("impersonate-") => {
                    headers.insert(name.into(), json!(self.own(value)));
                }
                _ => {}
            }
        }
        step.insert("headers".into(), Value::Object(headers));
        if exchange.body.is_empty() {
            step.remove("type");
        } else if let Some(object) = apiserver::from_protobuf(&exchange.body) {
            step.remove("type");
            let body = self.body(&object, "");
            // what refers to an answer has to be readable
            if body.to_string().contains("{v") {
                step.insert("body".into(), body);
            } else {
                step.insert("protobuf".into(), json!(STANDARD.encode(&exchange.body)));
            }
        } else {
            let text = std::str::from_utf8(&exchange.body)
                .context("kubectl sends something that is no text")?;
            if let Ok(body) = serde_json::from_str(text) {
                step.insert("body".into(), self.body(&body, ""));
            } else {
                step.insert("text".into(), json!(self.own(text)));
            }
        }
        Ok(step)
    }

    /// Notes what differs from run to run in an answer, so that later requests can refer to it.
    fn note(&mut self, value: &Value, key: &str, path: &str) {
        match value {
            Value::Object(map) => {
                let generated = map
                    .get("generateName")
                    .and_then(Value::as_str)
                    .is_some_and(|prefix| !prefix.is_empty());
                for (inner, item) in map {
                    let shown = if inner.contains('.') {
                        format!("[{inner}]")
                    } else {
                        inner.clone()
                    };
                    let path = if path.is_empty() {
                        shown
                    } else {
                        format!("{path}.{shown}")
                    };
                    if inner == "name" && generated {
                        self.see(item, inner, &path);
                    } else {
                        self.note(item, inner, &path);
                    }
                }
            }
            Value::Array(list) => {
                for (number, item) in list.iter().enumerate() {
                    self.note(item, key, &format!("{path}.{number}"));
                }
            }
            Value::String(text) => {
                let varies = match key {
                    "resourceVersion" => text != "0",
                    "continue" | "clusterIP" | "clusterIPs" => text != "None",
                    _ => text.len() == 36 && is(&UID, text) || is(&TIME, text),
                };
                if varies && !text.is_empty() {
                    self.see(value, key, path);
                }
            }
            Value::Number(_) if matches!(key, "nodePort" | "healthCheckNodePort") => {
                self.see(value, key, path);
            }
            _ => {}
        }
    }

    fn see(&mut self, value: &Value, key: &str, path: &str) {
        self.seen.push(Seen {
            value: value.clone(),
            key: key.to_owned(),
            step: self.list.len().saturating_sub(1),
            path: path.to_owned(),
        });
    }

    /// Returns a reference to where a value was seen: best under the same key, then in the newest answer, then where it is the shortest way.
    fn refer(&mut self, value: &Value, key: &str) -> Option<String> {
        let (place, found) = self
            .seen
            .iter()
            .enumerate()
            // a version is a number like many others
            .filter(|(_, seen)| {
                let version = key == "resourceVersion" || seen.key == "resourceVersion";
                &seen.value == value && (!version || seen.key == key)
            })
            .max_by_key(|(_, seen)| {
                let steps = seen.path.matches('.').count();
                (seen.key == key, seen.step, std::cmp::Reverse(steps))
            })?;
        if self.kept.insert(place) {
            self.list[found.step]["keep"][format!("v{place}")] = json!(found.path);
        }
        Some(format!("{{v{place}}}"))
    }

    fn refer_to_text(&mut self, text: &str, key: &str) -> Option<String> {
        self.refer(&json!(text), key)
    }

    /// Puts the variable for the conversation's namespace in place of its name.
    fn own(&self, text: &str) -> String {
        text.replace(self.namespace, "{ns}")
    }

    /// Puts references in place of the uids in a text.
    fn refer_uids(&mut self, text: &str) -> String {
        replace(&UID, text, |found| {
            let reference = self.refer_to_text(&found[0], "uid");
            reference.unwrap_or_else(|| found[0].to_owned())
        })
    }

    /// Puts references in place of the uids in a text, and the variable for the namespace in place of its name.
    fn marked(&mut self, text: &str) -> String {
        let text = self.refer_uids(text);
        self.own(&text)
    }

    fn path(&mut self, path: &str) -> String {
        let path = replace(&TIMEOUT_PARAMETER, path, |_| "timeoutSeconds=60".into());
        let path = replace(&VERSION_PARAMETER, &path, |found| {
            let value = self.refer_to_text(&found[2], &found[1]);
            format!("{}={}", &found[1], value.as_deref().unwrap_or(&found[2]))
        });
        let path = self.refer_uids(&path);
        let segments: Vec<String> = path
            .split('/')
            .map(|segment| {
                let (name, rest) = match segment.find('?') {
                    Some(end) => segment.split_at(end),
                    None => (segment, ""),
                };
                let name = self
                    .refer_to_text(name, "name")
                    .unwrap_or_else(|| name.to_owned());
                format!("{name}{rest}")
            })
            .collect();
        self.own(&segments.join("/"))
    }

    fn body(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .map(|(inner, item)| (self.marked(inner), self.body(item, inner)))
                .collect(),
            Value::Array(list) => list.iter().map(|item| self.body(item, key)).collect(),
            Value::String(text) => {
                let plain = key == "resourceVersion" && text == "0" || text.is_empty();
                if !plain && let Some(reference) = self.refer(value, key) {
                    return json!(reference);
                }
                if is(&TIME, text) {
                    return json!(SOME_TIME);
                }
                json!(self.marked(text))
            }
            Value::Number(_) if matches!(key, "nodePort" | "healthCheckNodePort") => self
                .refer(value, key)
                .map_or_else(|| value.clone(), Value::String),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(method: &str, path: &str, body: &Value, answer: Value) -> Exchange {
        Exchange {
            method: method.into(),
            path: path.into(),
            headers: vec![("accept".into(), "application/json".into())],
            body: if body.is_null() {
                Vec::new()
            } else {
                body.to_string().into_bytes()
            },
            status: 200,
            answer,
            watch: path.contains("watch=true"),
            events: 0,
        }
    }

    const ID: &str = "0f3c3b4e-9a9e-4c55-8d3a-2a2b2c2d2e2f";

    #[test]
    fn what_was_taken_from_an_answer_refers_to_it() {
        let mut steps = Steps::new("kubectl-a-1");
        let object = json!({"metadata": {"name": "a-x7k2p", "generateName": "a-", "uid": ID, "resourceVersion": "12",
            "creationTimestamp": "2026-02-03T04:05:06Z"}});
        let asked = [
            exchange(
                "GET",
                "/api/v1/namespaces/kubectl-a-1/pods",
                &Value::Null,
                json!({"items": [object]}),
            ),
            exchange(
                "PUT",
                "/api/v1/namespaces/kubectl-a-1/pods/a-x7k2p",
                &object,
                Value::Null,
            ),
            exchange(
                "GET",
                &format!(
                    "/api/v1/events?fieldSelector=involvedObject.uid%3D{ID}&resourceVersion=12"
                ),
                &Value::Null,
                Value::Null,
            ),
        ];
        steps.add(&asked, "admin", false).unwrap();
        let steps = steps.finish();
        let keep = steps[0]["keep"].as_object().unwrap();
        let variable = |path: &str| {
            let found = keep.iter().find(|(_, kept)| *kept == path);
            format!("{{{}}}", found.expect(path).0)
        };
        let name = variable("items.0.metadata.name");
        let version = variable("items.0.metadata.resourceVersion");
        let uid = variable("items.0.metadata.uid");
        assert_eq!(
            steps[1]["do"],
            format!("PUT /api/v1/namespaces/{{ns}}/pods/{name}")
        );
        assert_eq!(
            steps[1]["body"]["metadata"],
            json!({"name": name, "generateName": "a-", "uid": uid, "resourceVersion": version,
                "creationTimestamp": variable("items.0.metadata.creationTimestamp")})
        );
        assert_eq!(
            steps[2]["do"],
            format!(
                "GET /api/v1/events?fieldSelector=involvedObject.uid%3D{uid}&resourceVersion={version}"
            )
        );
    }

    #[test]
    fn discovery_is_left_out_and_times_of_the_clock_are_one_time() {
        let mut steps = Steps::new("ns");
        let change = json!({"at": "2026-02-03T04:05:06+01:00", "replicas": 12, "version": "12"});
        let asked = [
            exchange(
                "GET",
                "/apis/apps/v1?timeout=32s",
                &Value::Null,
                Value::Null,
            ),
            exchange("GET", "/openapi/v3/apis/apps/v1", &Value::Null, Value::Null),
            exchange(
                "PATCH",
                "/apis/apps/v1/namespaces/ns/deployments/a",
                &change,
                Value::Null,
            ),
            exchange(
                "GET",
                "/api/v1/pods?watch=true&timeoutSeconds=432",
                &Value::Null,
                Value::Null,
            ),
        ];
        steps.add(&asked, "alice", false).unwrap();
        let steps = steps.finish();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0]["as"], "alice");
        assert_eq!(
            steps[0]["body"],
            json!({"at": SOME_TIME, "replicas": 12, "version": "12"})
        );
        assert_eq!(
            steps[1]["do"],
            "GET /api/v1/pods?watch=true&timeoutSeconds=60"
        );
        assert_eq!(steps[1]["stream"], "w1");
    }
}

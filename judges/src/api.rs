//! Conversations with an API server: lists of requests that are written once and sent to any server, so that the answers of a real server
//! can be compared with ours.
//!
//! `corpus/conversations` holds the requests, `corpus/recordings` the answers of a real server (`cargo xtask record api`). Further requests
//! are kubectl's own: `corpus/kubectl` has commands, `corpus/requests` what kubectl sent for each (`cargo xtask record api --kubectl`).
//! `tests/replay.rs` sends the same requests to this server and shows each difference. Reading order: [`load`], [`Caller::play`],
//! [`differences`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use self::compare::{Difference, differences};
pub use self::kubectl::{Command, Requests, commands};
pub use self::play::{Caller, Endpoint, PlayError};
pub use self::proxy::{Exchange, Proxy};
pub use self::webhook::Webhook;

mod client;
mod compare;
mod kubectl;
mod normaliser;
mod play;
mod proxy;
pub mod recordings;
mod webhook;

/// File whose steps prepare a server before the first conversation.
const PRELUDE: &str = "prelude";
/// File with tables. A conversation of any file can be repeated for each row of a table.
const TABLES: &str = "tables";

/// Users that both servers have: name in the corpus, token, user name, groups.
pub const USERS: &[(&str, &str, &str, &[&str])] = &[
    ("admin", "judge-admin", "judge", &["system:masters"]),
    ("alice", "judge-alice", "alice", &["developers"]),
    ("bob", "judge-bob", "bob", &["testers"]),
    (
        "robot",
        "judge-robot",
        "system:serviceaccount:judge:robot",
        &["system:serviceaccounts", "system:serviceaccounts:judge"],
    ),
];

/// Why the corpus cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not have the right format.
    #[error("cannot parse {path}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_yaml::Error,
    },
    /// A recording is no JSON of the right form.
    #[error("cannot parse {path}")]
    Recording {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A step does not have the right format.
    #[error("cannot parse step {step} of {conversation}")]
    Step {
        /// The conversation.
        conversation: String,
        /// Number of the step, from 0.
        step: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A conversation names a table that does not exist.
    #[error("{conversation} uses the table {table}, which does not exist")]
    Table {
        /// The conversation.
        conversation: String,
        /// The table.
        table: String,
    },
    /// Two conversations have the same name.
    #[error("two conversations have the name {0}")]
    DuplicateName(String),
}

/// A named list of requests.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// File and name, such as `pods/create`; for a row of a table, `kinds/create/pods`.
    pub id: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether a namespace with a service account is created first.
    namespaced: bool,
    /// Whether it disturbs what others do meanwhile.
    alone: bool,
}

impl Conversation {
    /// Returns the name of its file.
    pub fn subject(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }

    /// Returns whether it needs a server of its own: it disturbs others, or a step makes the server drop the history that watches of others may
    /// need.
    pub fn is_alone(&self) -> bool {
        self.alone || self.steps.iter().any(|step| step.compact)
    }

    /// Returns the name of its own namespace.
    pub fn namespace(&self) -> String {
        self.id.replace(['/', '.'], "-")
    }
}

/// One step: a request, or reading from a watch that an earlier step opened, or what the webhook was asked. `{name}` in any text stands for the value of a variable:
/// `{ns}` is the conversation's namespace, `{id}` is the same as a name, and `{x}` is what an earlier step kept as `x`. The webhook is at
/// `{webhook}`, on port `{port}`, with certificates of `{authority}`; its answers are in `webhook.yaml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Method and path.
    r#do: String,
    /// The user; `admin` by default. `anonymous` sends no token, `stranger` an unknown one.
    r#as: Option<String>,
    /// Content type of the body.
    r#type: Option<String>,
    /// `Accept` header.
    accept: Option<String>,
    /// Further headers.
    headers: BTreeMap<String, String>,
    /// Body as JSON.
    body: Value,
    /// Changes of the body, as a merge patch.
    with: Value,
    /// Body as plain text.
    text: Option<String>,
    /// Body in Kubernetes' protobuf form, in base 64.
    protobuf: Option<String>,
    /// Variables, with the paths in the answer that their values come from.
    keep: BTreeMap<String, String>,
    /// Repeats the request until the answer meets this condition.
    until: Option<Until>,
    /// Whether the answer is left out of the recording.
    quiet: bool,
    /// Name for the watch that the answer opens.
    stream: Option<String>,
    /// Name of the watch to read events from.
    read: Option<String>,
    /// How many events to read.
    events: usize,
    /// Whether to read the watch to its end.
    closed: bool,
    /// Whether the server drops its history.
    compact: bool,
    /// Shows what the webhook was asked at paths that begin with this.
    asked: Option<String>,
}

/// A condition on an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Until {
    status: Option<u16>,
    path: Option<String>,
    is: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConversationSource {
    name: String,
    /// What the conversation shows; only for readers.
    #[serde(rename = "about", default)]
    _about: String,
    #[serde(default)]
    each: Option<String>,
    /// Whether its objects change the answers to others' requests for a while, so that nothing may be played beside it.
    #[serde(default)]
    alone: bool,
    steps: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Variables of all conversations of the file, mostly paths.
    #[serde(default)]
    words: Map<String, Value>,
    #[serde(default)]
    tables: Tables,
    #[serde(default)]
    conversations: Vec<ConversationSource>,
}

type Tables = BTreeMap<String, Vec<Map<String, Value>>>;

/// The conversations of a directory.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The steps that prepare a server.
    pub prelude: Conversation,
    /// The conversations, by file and then in the order of the file.
    pub conversations: Vec<Conversation>,
}

/// Reads all conversations of a corpus: those written by hand, then those of kubectl.
pub fn load(corpus: &Path) -> Result<Corpus, LoadError> {
    let files: Vec<(String, File)> = read_all(&corpus.join("conversations"))?;
    let shared: Tables = files
        .iter()
        .filter(|(name, _)| name == TABLES)
        .flat_map(|(_, file)| file.tables.clone())
        .collect();
    let mut all = Vec::new();
    for (subject, file) in &files {
        for source in &file.conversations {
            let id = format!("{subject}/{}", source.name);
            let Some(table) = &source.each else {
                let made = conversation(id, &source.steps, &file.words)?;
                all.push(Conversation {
                    alone: source.alone,
                    ..made
                });
                continue;
            };
            let rows = file.tables.get(table).or_else(|| shared.get(table));
            for row in rows.ok_or_else(|| LoadError::Table {
                conversation: id.clone(),
                table: table.clone(),
            })? {
                let id = format!("{id}/{}", row["id"].as_str().unwrap_or_default());
                let mut variables = file.words.clone();
                variables.extend(row.clone());
                let made = conversation(id, &source.steps, &variables)?;
                all.push(Conversation {
                    alone: source.alone,
                    ..made
                });
            }
        }
    }
    all.extend(kubectl::conversations(&corpus.join("requests"))?);
    let mut seen = std::collections::BTreeSet::new();
    if let Some(duplicate) = all.iter().find(|one| !seen.insert(one.id.clone())) {
        return Err(LoadError::DuplicateName(duplicate.id.clone()));
    }
    let (mut preludes, conversations): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| one.subject() == PRELUDE);
    let prelude = if preludes.is_empty() {
        conversation(PRELUDE.into(), &[], &Map::new())?
    } else {
        preludes.remove(0)
    };
    Ok(Corpus {
        prelude,
        conversations,
    })
}

/// Reads the files of a directory, with their names without extension, sorted.
fn read_all<T: DeserializeOwned>(directory: &Path) -> Result<Vec<(String, T)>, LoadError> {
    let read = |source| LoadError::Read {
        path: directory.to_owned(),
        source,
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .map_err(read)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(read)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|source| LoadError::Read {
            path: path.clone(),
            source,
        })?;
        let file = serde_yaml::from_str(&text).map_err(|source| LoadError::Parse {
            path: path.clone(),
            source,
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        files.push((name.into_owned(), file));
    }
    Ok(files)
}

fn conversation(
    id: String,
    steps: &[Value],
    row: &Map<String, Value>,
) -> Result<Conversation, LoadError> {
    let mut made = Conversation {
        id,
        steps: Vec::new(),
        namespaced: false,
        alone: false,
    };
    let own = Value::String(made.namespace());
    let mut variables = row.clone();
    variables.insert("id".into(), own.clone());
    for (number, step) in steps.iter().enumerate() {
        let filled = fill(step, &variables);
        made.namespaced |= filled.to_string().contains("{ns}");
        variables.insert("ns".into(), own.clone());
        let filled = fill(&filled, &variables);
        variables.remove("ns");
        let step = serde_json::from_value(filled).map_err(|source| LoadError::Step {
            conversation: made.id.clone(),
            step: number,
            source,
        })?;
        made.steps.push(step);
    }
    Ok(made)
}

/// Replaces variables in a value. A text that is nothing but one variable becomes the variable's value, of whatever type.
fn fill(value: &Value, variables: &Map<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            let name = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
            if let Some(found) = name.and_then(|name| look_up(name, variables)) {
                return match found {
                    Value::String(_) => found.clone(),
                    // values of a table contain variables themselves
                    other => fill(other, variables),
                };
            }
            Value::String(fill_text(text, variables))
        }
        Value::Array(list) => list.iter().map(|item| fill(item, variables)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, item)| (fill_text(key, variables), fill(item, variables)))
            .collect(),
        other => other.clone(),
    }
}

/// Returns the value of a variable, such as `object`, or of one of its fields, such as `object.kind`.
fn look_up<'v>(name: &str, variables: &'v Map<String, Value>) -> Option<&'v Value> {
    if let Some(value) = variables.get(name) {
        return Some(value);
    }
    let (name, path) = name.split_once('.')?;
    let value = at(variables.get(name)?, path);
    (!value.is_null()).then_some(value)
}

fn fill_text(text: &str, variables: &Map<String, Value>) -> String {
    if !text.contains('{') {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    for (name, value) in variables {
        let shown = match value {
            Value::String(value) => value.clone(),
            other => other.to_string(),
        };
        text = text.replace(&format!("{{{name}}}"), &shown);
    }
    text
}

/// Returns the value at a path such as `metadata.resourceVersion` or `items.0.metadata.name`; the path may be empty. A step in brackets
/// (`annotations.[a.b/c]`) may contain dots.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    let mut value = value;
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']').unwrap_or((inner, ""));
            (step, after.strip_prefix('.').unwrap_or(after))
        } else {
            rest.split_once('.').unwrap_or((rest, ""))
        };
        value = match value {
            Value::Array(list) => step
                .parse::<usize>()
                .ok()
                .and_then(|index| list.get(index))
                .unwrap_or(&Value::Null),
            other => &other[step],
        };
        rest = after;
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_put_in_as_text_and_as_values() {
        let variables = json!({"ns": "a", "object": {"metadata": {"namespace": "{ns}"}}});
        let step = json!({"do": "POST /{ns}/x", "body": "{object}", "text": "{other}"});
        assert_eq!(
            fill(&step, variables.as_object().unwrap()),
            json!({"do": "POST /a/x", "body": {"metadata": {"namespace": "a"}}, "text": "{other}"})
        );
    }

    #[test]
    fn paths_reach_into_lists_and_names_with_dots() {
        let value = json!({"a": [{"b.c/d": {"e": 1}}]});
        assert_eq!(at(&value, "a.0.[b.c/d].e"), &json!(1));
        assert_eq!(at(&value, "a.1.x"), &Value::Null);
    }
}

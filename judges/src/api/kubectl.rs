//! Commands of kubectl, and the requests that kubectl sent for them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Conversation, LoadError, conversation, read_all};

/// File with manifests that commands of any file use.
const MANIFESTS: &str = "manifests";

/// A command, and what it needs. `{ns}` in any text stands for its namespace.
#[derive(Clone, Debug)]
pub struct Command {
    /// Name of its conversation: file, group, and number in the group from 1.
    pub id: String,
    /// What follows `kubectl`, for a shell.
    pub line: String,
    /// Whether kubectl has to fail.
    pub fails: bool,
    /// Commands that come first and whose answers are not recorded.
    pub before: Vec<String>,
    /// The user; the administrator by default.
    pub user: Option<String>,
    /// The editor that kubectl starts.
    pub editor: Option<String>,
    /// Files that commands name.
    pub manifests: BTreeMap<String, Value>,
}

/// What kubectl sent for a command: the form of a file of `corpus/requests`, by the names of conversations.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// The command.
    pub command: String,
    /// The steps of the conversation.
    pub steps: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    manifests: BTreeMap<String, Value>,
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    #[serde(default)]
    before: Vec<String>,
    #[serde(default)]
    r#as: Option<String>,
    #[serde(default)]
    editor: Option<String>,
    commands: Vec<Line>,
}

/// A command. One that begins with `!` has to fail.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Plain(String),
    /// A command that needs more than the others of its group.
    Needing {
        needs: Vec<String>,
        run: String,
    },
}

/// Reads all commands of a directory.
pub fn commands(directory: &Path) -> Result<Vec<Command>, LoadError> {
    let files: Vec<(String, File)> = read_all(directory)?;
    let shared: BTreeMap<String, Value> = files
        .iter()
        .filter(|(name, _)| name == MANIFESTS)
        .flat_map(|(_, file)| file.manifests.clone())
        .collect();
    let mut all = Vec::new();
    for (name, file) in files {
        for group in file.groups {
            for (number, line) in group.commands.iter().enumerate() {
                let (needs, line) = match line {
                    Line::Plain(line) => (&[][..], line),
                    Line::Needing { needs, run } => (needs.as_slice(), run),
                };
                let bare = line.strip_prefix('!').map(str::trim);
                let mut manifests = shared.clone();
                manifests.extend(file.manifests.clone());
                all.push(Command {
                    id: format!("kubectl-{name}/{}/{}", group.name, number + 1),
                    line: bare.unwrap_or(line).to_owned(),
                    fails: bare.is_some(),
                    before: [group.before.as_slice(), needs].concat(),
                    user: group.r#as.clone(),
                    editor: group.editor.clone(),
                    manifests,
                });
            }
        }
    }
    Ok(all)
}

/// Reads the conversations of a directory with recorded requests.
pub(super) fn conversations(directory: &Path) -> Result<Vec<Conversation>, LoadError> {
    let files: Vec<(String, BTreeMap<String, Requests>)> = read_all(directory)?;
    files
        .into_iter()
        .flat_map(|(_, requests)| requests)
        .map(|(id, requests)| conversation(id, &requests.steps, &Map::new()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Least number of commands.
    const LEAST: usize = 500;

    #[test]
    fn the_requests_of_every_command_are_recorded() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/api");
        let commands: BTreeMap<String, String> = commands(&corpus.join("kubectl"))
            .expect("the commands can be read")
            .into_iter()
            .map(|command| (command.id, command.line))
            .collect();
        let files: Vec<(String, BTreeMap<String, Requests>)> =
            read_all(&corpus.join("requests")).expect("the requests can be read");
        let recorded: BTreeMap<String, String> = files
            .into_iter()
            .flat_map(|(_, requests)| requests)
            .inspect(|(id, requests)| assert!(!requests.steps.is_empty(), "{id} asks nothing"))
            .map(|(id, requests)| (id, requests.command))
            .collect();
        assert_eq!(commands, recorded, "cargo xtask record api --kubectl");
        assert!(commands.len() >= LEAST, "{} commands", commands.len());
    }
}

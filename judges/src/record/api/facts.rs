//! `cargo xtask record api --facts`: what the embedded API server knows about Kubernetes, from a real kube-apiserver and the published Go
//! types of the same version. No file below `corpus/facts` is written by hand.
//!
//! Reading order: [`all`], `server` (requested from the server), `types` (read from the Go types), `go` (their source).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use judges::api::Caller;
use programs::console::note;
use serde_json::Value;

mod go;
mod server;
mod types;

/// The files by name.
type Files = BTreeMap<&'static str, String>;

/// Writes all facts, or with `check` reports which differ from the committed ones.
pub(super) async fn record(caller: &Caller, directory: &Path, check: bool) -> anyhow::Result<()> {
    let files = all(caller).await?;
    let mut drifted = Vec::new();
    for (name, text) in &files {
        let path = directory.join(name);
        let known = read(&path)?;
        if known.as_deref() == Some(text) {
            continue;
        }
        if check {
            drifted.push(format!(
                "{name}: {}",
                first_difference(known.as_deref(), text)
            ));
        } else {
            super::fs_write(&path, text)?;
            note(&format!("wrote {}", path.display()));
        }
    }
    drifted.extend(unexpected_files(directory, &files)?);
    ensure!(
        drifted.is_empty(),
        "these facts differ from Kubernetes:\n{}",
        drifted.join("\n")
    );
    note(&format!("{} files of facts", files.len()));
    Ok(())
}

async fn all(caller: &Caller) -> anyhow::Result<Files> {
    let discovery = server::discovery(caller).await?;
    let schemas = server::schemas(caller).await?;
    let types = types::Types::locate()?;
    Ok(BTreeMap::from([
        ("bootstrap.json", items(&server::bootstrap(caller).await?)),
        (
            "columns.json",
            fields(&server::columns(caller, &discovery).await?)?,
        ),
        ("discovery.json", format!("{discovery:#}\n")),
        ("embedded.json", fields(&types.embedded(&schemas)?)?),
        ("internal.json", fields(&types.internal()?)?),
        ("presence.json", fields(&types.presence(&schemas)?)?),
        ("protobuf.json", fields(&types.protobuf(&schemas)?)?),
        ("schemas.json", fields(&schemas)?),
        ("types.json", fields(&types.named(&schemas)?)?),
        (
            "version.json",
            format!("{:#}\n", server::version(caller).await?),
        ),
    ]))
}

/// Renders a map, one field per line.
fn fields(map: &BTreeMap<String, Value>) -> anyhow::Result<String> {
    let lines = map
        .iter()
        .map(|(name, value)| Ok(format!("{}:{value}", serde_json::to_string(name)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

/// Renders a list, one item per line.
fn items(list: &[Value]) -> String {
    let lines: Vec<String> = list.iter().map(Value::to_string).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn first_difference(known: Option<&str>, text: &str) -> String {
    let Some(known) = known else {
        return "not there".to_owned();
    };
    let different = known
        .lines()
        .zip(text.lines())
        .enumerate()
        .find(|(_, (known, line))| known != line);
    match different {
        Some((number, _)) => format!("line {} differs", number + 1),
        None => "its length differs".to_owned(),
    }
}

/// Returns files that no recording writes.
fn unexpected_files(directory: &Path, files: &Files) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path: PathBuf = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !files.contains_key(&*name) {
            found.push(format!("{name}: not a recorded file"));
        }
    }
    Ok(found)
}

//! `cargo xtask record api`: runs the conversations of the embedded API server's corpus with a real kube-apiserver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use judges::api::recordings::{self, Recordings};
use judges::api::{self, Caller, Endpoint, Webhook};
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use testbed::cli::print_progress;

use self::server::RealServer;

mod facts;
mod kubectl;
mod server;

/// What to record, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Changes nothing; fails and names the conversations whose answers differ from those recorded.
    #[arg(long)]
    check: bool,
    /// Only files whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Not the answers, but the requests that kubectl sends for the commands of the corpus. Their answers are recorded after that, with the
    /// others.
    #[arg(long, conflicts_with_all = ["check", "facts"])]
    kubectl: bool,
    /// Not the conversations, but what the embedded server knows of Kubernetes: discovery, schemas, tables, and what only the
    /// Go types have. Needs Go.
    #[arg(long, conflicts_with = "only")]
    facts: bool,
    /// Directory of the corpus.
    #[arg(long, default_value = "judges/corpus/api")]
    corpus: PathBuf,
    /// Directory of the facts.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "crates/apiserver/corpus/facts"
    )]
    facts_dir: PathBuf,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(record(args))
}

async fn record(args: Args) -> anyhow::Result<()> {
    let corpus = api::load(&args.corpus)?;
    let assets = kubernetes::locate(&SearchPath::from_environment(None), &print_progress)?;
    let server = RealServer::start(&assets)?;
    let etcd = server.etcd_port();
    let endpoint = Endpoint {
        address: server.address(),
        ca: server.authority().to_owned(),
    };
    let webhook = Webhook::start(&args.corpus.join("webhook.yaml")).await?;
    let caller = Caller::new(&endpoint, Arc::new(webhook), move || {
        server::compact(etcd).map_err(|error| format!("{error:#}"))
    })?;
    server.wait_until_ready(&caller).await?;
    if args.facts {
        return facts::record(&caller, &args.facts_dir, args.check).await;
    }
    caller.play(&corpus.prelude).await?;
    if args.kubectl {
        let only = args.only.as_deref().unwrap_or_default();
        return kubectl::record(&caller, &endpoint, &assets.kubectl, &args.corpus, only).await;
    }
    let mut recorded: BTreeMap<String, Recordings> = BTreeMap::new();
    for conversation in &corpus.conversations {
        let subject = conversation.subject();
        if args
            .only
            .as_ref()
            .is_some_and(|only| !subject.contains(only))
        {
            continue;
        }
        let answers = caller
            .play(conversation)
            .await
            .with_context(|| format!("cannot play {}", conversation.id))?;
        recorded
            .entry(subject.to_owned())
            .or_default()
            .insert(conversation.id.clone(), answers);
    }
    let count: usize = recorded.values().map(BTreeMap::len).sum();
    let mut changed = Vec::new();
    for (subject, recordings) in &recorded {
        let path = args.corpus.join(format!("recordings/{subject}.json"));
        let text = recordings::render(recordings);
        if args.check {
            changed.extend(differing(&path, recordings)?);
        } else {
            fs_write(&path, &text)?;
        }
    }
    note(&format!("{count} conversations"));
    ensure!(
        changed.is_empty(),
        "these answers differ from the recording:\n{}",
        changed.join("\n")
    );
    Ok(())
}

fn fs_write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn differing(path: &Path, now: &Recordings) -> anyhow::Result<Vec<String>> {
    let before = recordings::read(path)?;
    let mut list = Vec::new();
    for (id, answers) in now {
        let nothing = Vec::new();
        let recorded = before.get(id).unwrap_or(&nothing);
        for difference in api::differences(recorded, answers) {
            list.push(format!("{id}\n{difference}"));
        }
    }
    list.extend(
        before
            .keys()
            .filter(|id| !now.contains_key(*id))
            .map(|id| format!("{id}: recorded, but no longer a conversation")),
    );
    Ok(list)
}

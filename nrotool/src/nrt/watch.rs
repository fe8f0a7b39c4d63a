//! The picture, drawn again whenever something changes.

use std::time::Duration;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use api::nrt::v1alpha2::NodeResourceTopology;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::Api;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use serde::de::DeserializeOwned;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::observe::Snapshot;
use super::picture::Picture;
use super::{Args, Format, lines_of_terminal, write};

/// Shortest time between two drawings: changes come in bursts.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of kinds that are watched.
const KINDS: usize = 3;

/// A change, or why there is none.
type Change = Result<Option<usize>, watcher::Error>;

/// Draws until it is interrupted.
pub(super) async fn run(client: &Client, args: &Args) -> anyhow::Result<()> {
    let (topologies, first) = follow::<NodeResourceTopology>(client, 0);
    let (pods, second) = follow::<Pod>(client, 1);
    let (nodes, third) = follow::<Node>(client, 2);
    let mut changes = stream::select_all([first, second, third]);
    let mut resized = signal(SignalKind::window_change())?;
    let mut complete = [false; KINDS];
    loop {
        let trouble = next(&mut changes, &mut resized, &mut complete).await;
        if !complete.iter().all(|complete| *complete) {
            if let Some(error) = trouble {
                // Whoever has no right to list would wait for ever.
                return Err(anyhow::Error::new(error).context("cannot watch the cluster"));
            }
            continue;
        }
        let snapshot = Snapshot {
            topologies: listed(&topologies),
            pods: listed(&pods),
            nodes: listed(&nodes),
        };
        let picture = Picture::new(&snapshot, &args.nodes)?;
        let mut text = args.render(&picture)?;
        if let Some(error) = trouble.filter(|_| args.output == Format::Text) {
            text.extend(["! not up to date: ", &daemon::log::chain(&error), "\n"]);
        }
        show(&text, args)?;
    }
}

/// Waits until something changed and the burst of changes is over. Returns the last trouble of the watches.
async fn next(
    changes: &mut (impl futures::Stream<Item = Change> + Unpin),
    resized: &mut Signal,
    complete: &mut [bool; KINDS],
) -> Option<watcher::Error> {
    let mut trouble = None;
    let mut quiet: Option<std::pin::Pin<Box<tokio::time::Sleep>>> = None;
    loop {
        let over = async {
            match &mut quiet {
                Some(quiet) => quiet.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = changes.next() => match change {
                Some(Ok(listed)) => {
                    if let Some(kind) = listed {
                        complete[kind] = true;
                    }
                }
                Some(Err(error)) => trouble = Some(error),
                None => return trouble,
            },
            _ = resized.recv() => {}
            () = over => return trouble,
        }
        quiet.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE)));
    }
}

/// Watches a kind. The changes say when the objects are all there.
fn follow<K>(client: &Client, kind: usize) -> (Store<K>, BoxStream<'static, Change>)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store::<K>();
    let api: Api<K> = Api::all(client.clone());
    let changes = watch(api, watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .map(move |event| event.map(|event| matches!(event, Event::InitDone).then_some(kind)));
    (store, changes.boxed())
}

fn listed<K: kube::Resource<DynamicType = ()> + Clone>(store: &Store<K>) -> Vec<K> {
    store
        .state()
        .iter()
        .map(|object| (**object).clone())
        .collect()
}

/// Shows a picture: on a terminal in place of the one before, elsewhere after it.
fn show(text: &str, args: &Args) -> anyhow::Result<()> {
    let Some(height) = lines_of_terminal().filter(|_| args.output == Format::Text) else {
        let separator = if args.output == Format::Text {
            "\n"
        } else {
            ""
        };
        return write(&format!("{text}{separator}"));
    };
    let is_coloured = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
    let text = if is_coloured {
        text.to_owned()
    } else {
        strip_str(text).to_string()
    };
    let mut screen = String::from("\x1b[H");
    let count = text.lines().count();
    let shown = if count < height {
        count
    } else {
        height.saturating_sub(2)
    };
    for line in text.lines().take(shown) {
        screen += line;
        screen += "\x1b[K\n";
    }
    if shown < count {
        let rest = count - shown;
        screen.extend([
            "… ",
            &rest.to_string(),
            " more lines: name nodes with --node\x1b[K\n",
        ]);
    }
    screen += "\x1b[J";
    // the stream for colours would take the moves of the cursor for colours, too
    crate::output::write(std::io::stdout(), &screen)
}

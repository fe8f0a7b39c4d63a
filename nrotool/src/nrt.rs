//! `nrt`: a picture of the zones of each node, in the terminal. Called as `kubectl-nrt` it is a plugin of kubectl.
//!
//! Reading order: this file (the command), `observe` (the objects), `picture` (what they say, also as JSON) with `place` (a node), `holders` (which pod holds
//! what) and `fits` (which pending pod would fit where), `draw` (the text) with `text` and `amount`, `watch`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::cluster;

pub(crate) mod amount;
mod draw;
mod fits;
mod holders;
pub(crate) mod observe;
pub(crate) mod picture;
mod place;
mod text;
mod watch;

use picture::Picture;

/// Width of the picture where no terminal has one, in columns.
const DEFAULT_WIDTH: usize = 100;
/// The narrowest picture, in columns: half of a usual terminal.
const MIN_WIDTH: usize = 39;

const EXAMPLES: &str = "\
Examples:
  kubectl nrt                     every node, and which pending pod would fit where
  kubectl nrt --node worker-0     one node
  kubectl nrt --watch             drawn again whenever something changes
  kubectl nrt -o json             for programs

Exit codes: 0 drawn; 1 the cluster could not be read, or has no such node; 2 wrong usage.";

/// Draws what the zones of each node have, what of it is free, which pod holds what, and which pending pod would fit where.
///
/// Whether a pending pod fits is computed from the NodeResourceTopologies and from what is requested on the node. Taints, affinity and the
/// like are not looked at: `numaresources-scheduler explain POD` has all of it.
#[derive(Debug, Parser)]
#[command(name = "nrt", version, after_help = EXAMPLES)]
struct Args {
    /// Show only this node; may be repeated
    #[arg(short, long = "node", value_name = "NAME")]
    nodes: Vec<String>,
    /// Draw again whenever something changes, until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    /// Width of the picture in columns [default: that of the terminal, else 100]
    #[arg(long, value_name = "COLUMNS")]
    width: Option<usize>,
    /// Kubeconfig of the cluster [default: `KUBECONFIG`, `~/.kube/config`, or that of the pod this runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: one JSON object, with `--watch` one a line
    Json,
}

/// Runs the command with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let argv = std::iter::once("nrt").chain(words.iter().map(String::as_str));
    let args = match Args::try_parse_from(argv) {
        Ok(args) => args,
        Err(error) => return crate::output::usage(&error),
    };
    crate::output::block_on(async {
        let client = cluster::connect(args.kubeconfig.as_deref()).await?;
        if args.watch {
            watch::run(&client, &args).await?;
        } else {
            let snapshot = observe::look(&client).await?;
            let picture = Picture::new(&snapshot, &args.nodes)?;
            let text = args.render(&picture)?;
            write(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    fn render(&self, picture: &Picture) -> anyhow::Result<String> {
        Ok(match self.output {
            Format::Text => draw::draw(picture, self.columns()),
            Format::Json if self.watch => serde_json::to_string(picture)? + "\n",
            Format::Json => serde_json::to_string_pretty(picture)? + "\n",
        })
    }

    fn columns(&self) -> usize {
        let terminal = || {
            let (width, _) = terminal_size::terminal_size()?;
            Some(usize::from(width.0))
        };
        let width = self.width.or_else(terminal).unwrap_or(DEFAULT_WIDTH);
        width.max(MIN_WIDTH)
    }
}

/// Returns a picture without colours, for a file.
pub(crate) fn plain(picture: &Picture) -> String {
    anstream::adapter::strip_str(&draw::draw(picture, DEFAULT_WIDTH)).to_string()
}

/// Writes to the standard output, without colours unless it is a terminal that wants them.
fn write(text: &str) -> anyhow::Result<()> {
    crate::output::write(anstream::stdout(), text)
}

/// Returns the number of lines of the terminal; `None` if the output goes elsewhere.
fn lines_of_terminal() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let (_, height) = terminal_size::terminal_size()?;
    Some(usize::from(height.0))
}

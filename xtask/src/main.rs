//! Automation of the workspace: code generation with drift check, checks of layers and citations, tests, mutants.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod accounting;
mod cargo;
mod citations;
mod codegen;
mod compatibility;
mod forward;
mod fuzz;
mod image;
mod layers;
mod mutants;
mod protos;
mod test;
mod units;

/// Automation of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares published accounts with the kubelets' own files, for many random sequences of pods. Needs Linux and root.
    Accounting(accounting::Args),
    /// Measures a product against its goals (`cargo xtask bench --help`).
    #[command(disable_help_flag = true)]
    Bench(forward::Args),
    /// Drives the whole stack through churn and faults that a seed decides, and checks what must hold (`cargo xtask chaos --help`).
    #[command(disable_help_flag = true)]
    Chaos(forward::Args),
    /// Checks that every citation of a page names a heading that is there, and that links of the documentation lead somewhere.
    Citations,
    /// Renders the files under config/ from the types and manifests.
    Codegen {
        /// Changes nothing; fails and names the files that differ.
        #[arg(long)]
        check: bool,
    },
    /// Renders docs/compatibility.md, which compares the stack with the original, from its table.
    Compatibility {
        /// Changes nothing; fails when the page differs from the table.
        #[arg(long)]
        check: bool,
    },
    /// Runs Kubernetes' own conformance tests against an embedded cluster (`cargo xtask conformance --help`).
    #[command(disable_help_flag = true)]
    Conformance(forward::Args),
    /// Feeds the parsers and the scheduler with hostile input, for as long as one likes.
    Fuzz(fuzz::Args),
    /// Makes the container image.
    Image(image::Args),
    /// Checks that every package uses only what its layer allows.
    Layers,
    /// Builds deliberate faults into the programs one at a time, and tells which scenarios of the suite notice each.
    Mutants(mutants::Args),
    /// Loads the whole stack for a long time and watches its memory, files and requests (`cargo xtask load --help`).
    #[command(disable_help_flag = true)]
    Load(forward::Args),
    /// Generates the gRPC code from the interface definitions.
    Protos {
        /// Changes nothing; fails and names the files that differ.
        #[arg(long)]
        check: bool,
    },
    /// Records what the real parts of Kubernetes do (`cargo xtask record --help`).
    #[command(disable_help_flag = true)]
    Record(forward::Args),
    /// Builds and runs the tests of the workspace: plain ones, with --real all that CI runs, with --all what takes long, too.
    Test(test::Args),
    /// Checks that no package is compiled twice, within a build of the workspace or by another build.
    Units,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Accounting(args) => accounting::run(&args),
        Command::Bench(args) => return forward::run("bench", &[], args),
        Command::Chaos(args) => return forward::run("chaos", &["chaos"], args),
        Command::Citations => citations::run(),
        Command::Codegen { check } => {
            image::size_table().and_then(|sizes| codegen::run(check, sizes))
        }
        Command::Compatibility { check } => compatibility::run(check),
        Command::Conformance(args) => return forward::run("judges", &["conformance"], args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Layers => layers::run(),
        Command::Load(args) => return forward::run("chaos", &["load"], args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Protos { check } => protos::run(check),
        Command::Record(args) => return forward::run("judges", &[], args),
        Command::Test(args) => test::run(&args),
        Command::Units => units::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // a failure is ignored, because there is no other place to report it
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! The subcommand `cluster`. The testbed does most of it; here is what the stack adds.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kube::Client;
use reports::event::SETUP;
use reports::stream::Stream;
use reports::terminal::Terminal;
use testbed::cli::{ClusterCommand, UpArgs};

use super::arguments::{Cluster, ClusterUpArgs};
use crate::binaries;
use crate::images;
use crate::recorder::Recorder;
use crate::session;
use crate::setup::kept::{self, Stack};
use crate::setup::{self, ClusterSource, Options, Partial, allow};
use crate::step::StepError;

/// Runs a `cluster` command. `cluster up` also builds the programs of the stack, marks the cluster as usable and installs the stack;
/// `cluster status` also reports on the stack. Everything else is done by the testbed.
pub(super) async fn run(command: Cluster) -> anyhow::Result<ExitCode> {
    match command {
        Cluster::Up(ClusterUpArgs {
            up,
            print_kind_config: Some(dir),
            ..
        }) => print_kind_config(&up, &dir),
        Cluster::Up(args) => up(args).await,
        Cluster::Run(args) => ClusterCommand::Run(args).run().await,
        Cluster::Down(args) => ClusterCommand::Down(args).run().await,
        Cluster::Status(args) => {
            let text = testbed::cli::status(&args.resolve(), about_stack).await?;
            std::io::stdout().write_all(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn up(args: ClusterUpArgs) -> anyhow::Result<ExitCode> {
    let ClusterUpArgs {
        mut up, with_stack, ..
    } = args;
    let progress = |line: &str| {
        let _ = writeln!(std::io::stderr(), "  {line}");
    };
    let bin_dir = binaries::locate(up.plan.bin_dir.as_deref(), progress).await?;
    up.plan.bin_dir = Some(bin_dir.clone());
    let prepare = async |client: Client| {
        let marked = allow(&client).await;
        marked.map_err(|_| anyhow::anyhow!("cannot mark the cluster as usable for tests"))?;
        if with_stack {
            install(&up, &bin_dir).await?;
        }
        Ok(())
    };
    let kubeconfig = up
        .up_detached(&testbed::cli::print_progress, prepare)
        .await?;
    if with_stack {
        let name = match up.name.name.as_str() {
            "default" => String::new(),
            name => format!(" --name {name}"),
        };
        let root = match &up.name.root.state_root {
            None => String::new(),
            Some(root) => format!(" --state-root {}", root.display()),
        };
        progress(&format!(
            "the stack is kept: numaresources-tests --cluster kept{name}{root} ID runs a scenario on it, as does numaresources-tests ID with the \
             line below in the environment"
        ));
    }
    writeln!(
        std::io::stdout(),
        "export KUBECONFIG={}",
        kubeconfig.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the configuration of a kind cluster with the workers of the arguments, after it wrote what the nodes mount. What is to be done with it
/// goes to standard error.
fn print_kind_config(up: &UpArgs, dir: &Path) -> anyhow::Result<ExitCode> {
    let name = match up.name.name.as_str() {
        "default" => "numaresources",
        name => name,
    };
    let dir = std::path::absolute(dir)?;
    let configuration = testbed::cli::kind_configuration(&up.plan, name, &dir, setup::ALLOW_ALL)?;
    std::io::stdout().write_all(serde_yaml::to_string(&configuration)?.as_bytes())?;
    let labels = dir.join(testbed::cli::KIND_LABELS);
    let _ = writeln!(
        std::io::stderr(),
        "The nodes mount files below {}, which have to stay while the cluster exists. With the configuration above in kind.yaml:\n  \
         kind create cluster --config kind.yaml\n  \
         kind load image-archive --name {name} tests.tar\n  \
         kubectl apply --server-side -f {}\n  \
         export {}={image} {}={image}\n  \
         KUBECONFIG=~/.kube/config numaresources-tests --label tier0",
        dir.display(),
        labels.display(),
        images::STACK_VARIABLE,
        images::TESTS_VARIABLE,
        image = api::names::TESTS_IMAGE,
    );
    Ok(ExitCode::SUCCESS)
}

/// Installs the stack on a cluster that was just brought up, and keeps it there.
async fn install(up: &UpArgs, bin_dir: &Path) -> anyhow::Result<()> {
    let failed = |error: StepError| {
        anyhow::anyhow!(
            "the stack cannot be installed, the cluster is taken down: {}",
            error.into_failure("set-up")
        )
    };
    let dir = cluster_state::dir(&up.name.root.resolve(), &up.name.name);
    Stack::begin(&dir, up.cluster, up.plan.runtime, bin_dir).map_err(failed)?;
    let options = Options {
        cluster: ClusterSource::Kubeconfig(dir.join("kubeconfig").into()),
        plan: up.plan.clone(),
        ..Options::own(up.cluster, &[])?
    };
    let stream = Stream::new(vec![Box::new(Terminal::new(anstream::stderr(), false))]);
    let recorder = Recorder::new(&stream, SETUP);
    let cluster = setup::run(&options, &recorder, &mut Partial::default())
        .await
        .map_err(failed)?;
    let limit = cluster.deadlines.gone;
    session::namespaces_are_gone(&recorder, &cluster.client, &cluster.run, limit)
        .await
        .map_err(failed)
}

/// Describes for `cluster status` what is kept on a cluster.
async fn about_stack(dir: PathBuf) -> String {
    let kubeconfig = dir.join("kubeconfig");
    match Stack::load(&kubeconfig) {
        Ok(None) => String::new(),
        Ok(Some(stack)) => format!(
            "  {}\n{}",
            kept::availability(&kubeconfig).await,
            stack.describe(&kubeconfig)
        ),
        Err(error) => format!("  {}\n", error.into_failure("").message),
    }
}

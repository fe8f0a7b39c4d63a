//! The program: its command line, logs, TLS and exit codes. What it does is in [`crate::run`].

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use goflags::command_line;

use crate::config::{self, go_flags};
use crate::kubelet::configuration;
use crate::run;

/// Name of the program, independent of the name of its file.
const PROGRAM: &str = "resource-topology-exporter";
/// Exit code after an invalid command line.
const USAGE_ERROR: u8 = 2;
/// Exit code after any other error.
const FATAL: u8 = 255;

/// What `--version` prints after the program's name.
const BUILD: &str = goflags::build_line!();

/// Runs the exporter as a program. Takes the command line, including the program's name, and returns the exit code of the process
/// (rte.md 2.1): 0 after SIGTERM, SIGINT, `--version` and the like, 2 after a usage error, 255 after an error at start.
///
/// Sets up logging and TLS for the whole process and starts its own runtime, so it must be called only once and outside of any runtime.
pub fn entry(args: impl Iterator<Item = OsString>) -> ExitCode {
    let words = args.skip(1).map(|word| word.to_string_lossy().into_owned());
    let args = match go_flags::parse(&config::specs(), words) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let has = |name: &str| args.flags.iter().rev().find(|(flag, _)| *flag == name);
    // as upstream, before the value is checked
    if has("version").is_some_and(|(_, value)| go_flags::boolean(value) != Ok(false)) {
        return show(&format!("{PROGRAM} {BUILD}\n"));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let os_hostname = nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let loaded = config::load(&config::Sources {
        args: &args,
        variable: &variable,
        uid: nix::unistd::getuid().as_raw(),
        os_hostname: &os_hostname,
        defaults: &config::Defaults::default(),
    });
    let verbose = match &loaded {
        Ok(loaded) => loaded.config.global.verbose,
        Err(_) => config::Global::default().verbose,
    };
    if let Err(config::Error::Flag(error)) = &loaded {
        return usage(error);
    }
    // a value that is no format is a usage error, which was told above
    let format = has("logging-format").and_then(|(_, value)| value.parse().ok());
    if let Err(error) = daemon::log::init(format.unwrap_or_default(), verbose) {
        tracing::debug!(%error, "Logging was set up before");
    }
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            return fatal(&format!(
                "failed to parse args: {}",
                daemon::log::chain(&error)
            ));
        }
    };
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if loaded.config.global.debug {
        tracing::info!(configuration = loaded.config.dump(), "Configuration");
    }
    if let Some((_, value)) = has("dump-config") {
        let dump = effective(&loaded.config).dump();
        match value.as_str() {
            ".andexit" => return show(&dump),
            ".log" => tracing::info!(configuration = dump, "Configuration"),
            _ => drop(show(&dump)),
        }
    }
    let identity = run::Identity {
        node: variable(api::names::ENV_NODE_NAME).unwrap_or(os_hostname),
        namespace: variable("REFERENCE_NAMESPACE").filter(|value| !value.is_empty()),
        pod: variable("REFERENCE_POD_NAME").filter(|value| !value.is_empty()),
        status_dump: variable(api::names::ENV_PFP_STATUS_DUMP)
            .filter(|value| !value.is_empty())
            .map(Into::into),
    };
    match serve(loaded.config, identity) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fatal(&format!("failed to execute: {error:#}")),
    }
}

/// Returns the configuration with the topology manager settings that are published, because readers of a dump expect values there.
fn effective(config: &config::Config) -> config::Config {
    let mut shown = config.clone();
    if let Ok(settings) = configuration::topology_manager(&config.topology_exporter) {
        shown.topology_exporter.topology_manager_policy = settings.policy;
        shown.topology_exporter.topology_manager_scope = settings.scope;
    }
    shown
}

fn serve(config: config::Config, identity: run::Identity) -> anyhow::Result<()> {
    daemon::client::install_crypto_provider();
    // one thread: the exporter waits most of the time, and the memory of its node belongs to the workloads
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let exporter = async {
        let stop = daemon::shutdown::token()?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %identity.node, "Starting");
        run::run(config, identity, stop).await
    };
    // as a task: each event that wakes what `block_on` itself polls costs two system calls more, and they are what a scan consists of
    runtime.block_on(async { tokio::spawn(exporter).await? })
}

fn usage(error: &go_flags::Error) -> ExitCode {
    let mut text = go_flags::usage(PROGRAM, &config::specs());
    let code = if *error == go_flags::Error::Words(command_line::Error::Help) {
        0
    } else {
        text = format!("{error}\n{text}");
        USAGE_ERROR
    };
    // a failed write does not change the outcome
    drop(io::stderr().write_all(text.as_bytes()));
    ExitCode::from(code)
}

fn show(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FATAL),
    }
}

fn fatal(message: &str) -> ExitCode {
    tracing::error!("{message}");
    ExitCode::from(FATAL)
}

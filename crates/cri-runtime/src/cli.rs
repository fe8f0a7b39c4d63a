//! Command lines of everything in this module: subcommands of the testbed's helper program, and the small programs that it contains, chosen
//! by the name in `argv[0]`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use super::control::by_cri;
use super::programs::{connect, device_plugin, files, numacell, pause, podresources_proxy, sleep};
use super::spec::NodeSpec;
use super::{helper, server};

/// Exit code for invalid arguments.
const USAGE: u8 = 2;

/// Subcommands of the helper program.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Run pods as processes: a container runtime for one kubelet
    Node(NodeArgs),
    /// Control the containers of another runtime by its CRI
    Control(by_cri::Args),
    /// Serve devices of one resource to the kubelet
    #[command(name = "deviceplugin")]
    DevicePlugin(device_plugin::Args),
    /// Forward the kubelet's PodResources API
    #[command(name = "podresources-proxy")]
    PodResourcesProxy(podresources_proxy::Args),
    /// Run as the first process of a container (internal)
    #[command(hide = true)]
    ContainerInit,
    /// Run as a process in a container (internal)
    #[command(hide = true)]
    ContainerExec,
}

/// Arguments of `node`.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// JSON file with the node's specification (`NodeSpec`)
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
}

impl Command {
    /// Runs the subcommand. The process must have only one thread, because the container roles change its namespaces and replace its
    /// program.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Node(args) => {
                let text = fs_err::read_to_string(&args.spec)?;
                let spec: NodeSpec = serde_json::from_str(&text)
                    .with_context(|| format!("cannot parse {}", args.spec.display()))?;
                serve(|| server::run(spec))
            }
            Self::Control(args) => serve(|| by_cri::run(args)),
            Self::DevicePlugin(args) => serve(|| device_plugin::run(args)),
            Self::PodResourcesProxy(args) => serve(|| podresources_proxy::run(args)),
            Self::ContainerInit => helper::container_init(),
            Self::ContainerExec => helper::container_exec(),
        }
    }
}

/// Runs a server with logs on standard error.
pub fn serve<F: Future<Output = anyhow::Result<()>>>(
    server: impl FnOnce() -> F,
) -> anyhow::Result<ExitCode> {
    // Another part of the program may have set up logging already.
    let _ = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .try_init();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?
        .block_on(server())?;
    Ok(ExitCode::SUCCESS)
}

/// Serves devices of one resource to the kubelet.
#[derive(Debug, clap::Parser)]
#[command(name = "deviceplugin")]
struct DevicePluginProgram {
    #[command(flatten)]
    args: device_plugin::Args,
}

/// Forwards the kubelet's PodResources API from one socket to another.
#[derive(Debug, clap::Parser)]
#[command(name = "podresources-proxy")]
struct PodResourcesProxyProgram {
    #[command(flatten)]
    args: podresources_proxy::Args,
}

/// Names of the small programs, see [`run_as_program`].
pub const PROGRAMS: [&str; 8] = [
    "pause",
    "sleep",
    "cat",
    "touch",
    "connect",
    "numacell",
    "deviceplugin",
    "podresources-proxy",
];

/// Names of the programs that any container may need, see [`run_as_tool`].
pub const TOOLS: [&str; 4] = ["pause", "sleep", "cat", "touch"];

/// Runs the tool named by the file name of the first argument; returns `None` if there is no such tool. The process must have only one
/// thread.
pub fn run_as_tool(argv: &[OsString]) -> Option<anyhow::Result<ExitCode>> {
    let name = Path::new(argv.first()?).file_name()?.to_str()?;
    let arguments = || argv.iter().skip(1).filter_map(|argument| argument.to_str());
    Some(match name {
        "pause" => pause::run().context("cannot wait for signals"),
        "sleep" => match sleep::parse(arguments()) {
            Ok(duration) => sleep::run(duration).context("cannot sleep"),
            Err(error) => usage(&format!("sleep: {error}")),
        },
        "cat" => {
            let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
            let files: Vec<&str> = arguments().collect();
            let done = files::cat(&files, &mut input, &mut out, &mut std::io::stderr());
            done.context("cannot write")
        }
        "touch" => {
            let files: Vec<&str> = arguments().collect();
            files::touch(&files, &mut std::io::stderr()).context("cannot write")
        }
        _ => return None,
    })
}

/// Runs the small program named by the file name of the first argument; returns `None` if there is no such program. The process must have
/// only one thread.
pub fn run_as_program(argv: &[OsString]) -> Option<anyhow::Result<ExitCode>> {
    if let Some(outcome) = run_as_tool(argv) {
        return Some(outcome);
    }
    let name = Path::new(argv.first()?).file_name()?.to_str()?;
    let arguments = || argv.iter().skip(1).filter_map(|argument| argument.to_str());
    Some(match name {
        "connect" => match connect::Options::parse(arguments()) {
            Ok(options) => connect::run(&options).context("cannot connect"),
            Err(error) => usage(&format!("connect: {error}")),
        },
        "numacell" => match numacell::Options::parse(arguments()) {
            Ok(options) => serve(|| numacell::run(options)),
            Err(error) => {
                let (message, code) = refusal(&error);
                end(&message, code)
            }
        },
        "deviceplugin" => match DevicePluginProgram::try_parse_from(argv) {
            Ok(program) => serve(|| device_plugin::run(program.args)),
            Err(error) => usage(&error.to_string()),
        },
        "podresources-proxy" => run_podresources_proxy(argv),
        _ => return None,
    })
}

/// Runs `podresources-proxy`, whatever the first argument is.
pub fn run_podresources_proxy(argv: &[OsString]) -> anyhow::Result<ExitCode> {
    match PodResourcesProxyProgram::try_parse_from(argv) {
        Ok(program) => serve(|| podresources_proxy::run(program.args)),
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(USAGE);
            end(&error.to_string(), code)
        }
    }
}

/// Returns what `numacell` writes after arguments that it refuses, and its exit code. Both are those of Go's `flag.Parse`: help is no error.
fn refusal(error: &numacell::OptionsError) -> (String, u8) {
    let usage = numacell::usage();
    if error.is_help() {
        (usage, 0)
    } else {
        (format!("{error}\n{usage}"), USAGE)
    }
}

/// Writes what is wrong with the arguments.
fn usage(message: &str) -> anyhow::Result<ExitCode> {
    end(message, USAGE)
}

/// Writes a message to standard error before the program ends with this exit code.
fn end(message: &str, code: u8) -> anyhow::Result<ExitCode> {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{}", message.trim_end()).context("cannot write")?;
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Probe {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn command_lines_are_consistent() {
        use clap::CommandFactory as _;
        Probe::command().debug_assert();
    }

    #[test]
    fn device_plugin_takes_several_devices() {
        let probe = Probe::try_parse_from([
            "t",
            "deviceplugin",
            "--resource",
            "example.com/deviceA",
            "--device",
            "a=0",
            "--device",
            "b=1",
        ])
        .unwrap();
        let Command::DevicePlugin(args) = probe.command else {
            panic!("{probe:?}");
        };
        assert_eq!(args.devices.len(), 2);
    }

    #[rstest]
    #[case::help("-h", "", 0)]
    #[case::long_help("--help", "", 0)]
    #[case::three_dashes("---v", "bad flag syntax: ---v\n", 2)]
    #[case::no_name("-=x", "bad flag syntax: -=x\n", 2)]
    #[case::unknown("-w", "flag provided but not defined: -w\n", 2)]
    #[case::no_value("-v", "flag needs an argument: -v\n", 2)]
    fn numacell_answers_as_a_go_program(
        #[case] argument: &str,
        #[case] heading: &str,
        #[case] code: u8,
    ) {
        let error = numacell::Options::parse([argument]).unwrap_err();
        let (message, ended_with) = refusal(&error);
        let expected = format!("{heading}Usage of numacell:\n  -alsologtostderr\n");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(ended_with, code);
    }

    #[rstest]
    #[case::help("-h", ExitCode::SUCCESS)]
    #[case::bad_syntax("---v", ExitCode::from(USAGE))]
    fn numacell_has_the_exit_code_of_its_refusal(
        #[case] argument: &str,
        #[case] expected: ExitCode,
    ) {
        let argv = ["/bin/numacell", argument].map(OsString::from);
        assert_eq!(run_as_program(&argv).unwrap().unwrap(), expected);
    }

    #[test]
    fn other_names_are_not_ours() {
        let argv = [OsString::from("/target/debug/numaresources-testbed")];
        assert!(run_as_program(&argv).is_none());
    }
}

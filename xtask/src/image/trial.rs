//! The trial of the images: podman runs them in each of their roles, without network, writable files, capabilities and root, and the one
//! with a shell as CI systems start it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::geteuid;
use programs::child::{output_within, status_within};
use programs::console::note;
use programs::path::{find_in, find_program};
use wait_timeout::ChildExt as _;

use super::Made;
use super::variant::{HELP_DESK, Variant};

mod ci;

/// How long one command of podman may take, the main job included.
const LIMIT: Duration = Duration::from_mins(10);
/// How long a container may take to start.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two polls of a container.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Options of every container: as few rights as possible.
const CONFINED: [&str; 7] = [
    "--rm",
    "--read-only",
    "--cap-drop",
    "ALL",
    "--user",
    "65534",
    "--tmpfs=/tmp",
];
/// The areas of tier 0 that run on a cluster inside the container: some that work as they do outside, and those that need files and
/// processes of the host.
const SCENARIOS_INSIDE: &str = "^(config|hostlevel|install|tls|tmpol)/";
/// Scenarios on a cluster outside: the image installs the stack there, places pods in zones, and keeps others pending.
const SCENARIOS_OUTSIDE: [&str; 4] = [
    "fundamentals/all-gu",
    "install/deploy-available",
    "tmpol/2cnt-same-pod",
    "tmpol/pend-cpu-cnt",
];
/// Upper limits of open files and processes for a container, if the machine allows more.
const FILES: u64 = 1_048_576;
const PROCESSES: u64 = 4_096;

/// Runs what each image is for. `programs` is the directory of the same programs outside.
pub(super) fn run(made: &[Made], programs: &Path) -> anyhow::Result<()> {
    install()?;
    keep_mounts_to_itself()?;
    let store = tempfile::tempdir().context("making a directory for podman")?;
    for image in made {
        let podman = Podman {
            store: store.path().to_owned(),
            reference: image.variant.reference(),
        };
        podman.load(&image.archive)?;
        match image.variant {
            Variant::Stack => stack(&podman)?,
            Variant::Tests => tests(&podman, programs)?,
            Variant::TestsShell => ci::run(&podman)?,
        }
        note(&format!("image {}: all roles work", image.variant.name()));
    }
    Ok(())
}

/// Gives this thread and what it starts mounts of their own. podman mounts memory for each container, which whoever looks at the mounts of
/// the machine would see: other tests do, that run at the same time. Without root podman has mounts of its own anyway.
fn keep_mounts_to_itself() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace for podman")?;
    let none: Option<&Path> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .context("keeping mounts of podman from the machine")
}

/// Runs what every image has: the stack's programs, and what people start in its containers.
fn roles(podman: &Podman) -> anyhow::Result<()> {
    for program in [
        "/bin/numaresources-operator",
        "/bin/numaresources-scheduler",
        "/bin/kube-scheduler",
        "/bin/resource-topology-exporter",
    ] {
        podman.role(program, &["--help"], 0)?;
    }
    podman.role("/bin/sleep", &["0"], 0)?;
    let origin = podman.role("/bin/cat", &["/usr/local/share/buildinfo.json"], 0)?;
    ensure!(origin.contains("\"commit\""), "unexpected origin: {origin}");
    Ok(())
}

fn stack(podman: &Podman) -> anyhow::Result<()> {
    roles(podman)?;
    let version = podman.plain(&["--version"])?;
    ensure!(
        version.contains("numaresources-operator"),
        "unexpected version: {version}"
    );
    for program in HELP_DESK {
        let help = podman.role(program, &["--help"], 0)?;
        // which is what the same program says under a name that it does not know
        ensure!(
            !help.contains("Usage of numaresources-operator"),
            "{program} is the operator: {help}"
        );
    }
    podman.pause()
}

/// Runs every role of the tests' image, then the main job on a cluster inside the container, and part of it on a cluster outside, which is
/// given by its kubeconfig.
fn tests(podman: &Podman, programs: &Path) -> anyhow::Result<()> {
    roles(podman)?;
    let version = podman.plain(&["--version"])?;
    ensure!(
        version.contains("numaresources-tests"),
        "unexpected version: {version}"
    );
    let list = podman.plain(&["--list", "--label", "tier0"])?;
    ensure!(list.contains("tier0"), "unexpected list: {list}");
    podman.role("/bin/numaresources-testbed", &["--help"], 0)?;
    let usage = podman.role("/bin/deviceplugin", &[], 2)?;
    ensure!(usage.contains("--resource"), "unexpected usage: {usage}");
    podman.role("/bin/numacell", &["--unknown"], 2)?;
    podman.pause()?;

    let started = Instant::now();
    podman.main_job()?;
    note(&format!(
        "image: the main job took {:.1} s",
        started.elapsed().as_secs_f64()
    ));

    let started = Instant::now();
    let place = tempfile::tempdir().context("making a directory for a cluster")?;
    let cluster = Outside::start(programs, place.path())?;
    podman.attached_job(&cluster)?;
    note(&format!(
        "image: the job on a cluster outside took {:.1} s",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// A cluster outside of any container; it is taken down when dropped.
struct Outside {
    /// Directory with the image's programs under all their names.
    programs: PathBuf,
    state: PathBuf,
    /// Readable by everybody, because a container without rights must read it.
    kubeconfig: PathBuf,
}

impl Outside {
    const NAME: &'static str = "image";

    fn start(programs: &Path, dir: &Path) -> anyhow::Result<Self> {
        let own = dir.join("bin");
        std::fs::create_dir(&own).context("making a directory for the programs")?;
        let names = Variant::Tests.programs().iter();
        let names = names.map(|program| (program.name, program.name));
        for (path, program) in Variant::Tests.links().into_iter().chain(names) {
            let path = own.join(Path::new(path).file_name().unwrap_or_default());
            let target = programs.join(program);
            // some names lead to the same program from two directories of the image
            if !path.exists() {
                std::os::unix::fs::symlink(&target, &path)
                    .with_context(|| format!("linking {}", path.display()))?;
            }
        }
        let cluster = Self {
            programs: own,
            state: dir.join("state"),
            kubeconfig: dir.join("kubeconfig"),
        };
        let bin_dir = cluster
            .programs
            .to_str()
            .context("the path of the directory is not UTF-8")?;
        let options = ["--cluster", "embedded", "--bin-dir", bin_dir];
        let up = cluster.command("up").args(options).output();
        let up = up.context("starting a cluster outside")?;
        ensure!(up.status.success(), "no cluster outside: {}", text(&up));
        let own = cluster.state.join(Self::NAME).join("kubeconfig");
        std::fs::copy(own, &cluster.kubeconfig).context("copying the kubeconfig")?;
        let everybody = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&cluster.kubeconfig, everybody)
            .context("making the kubeconfig readable")?;
        Ok(cluster)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(self.programs.join("numaresources-tests"));
        command
            .args(["cluster", verb, "--name", Self::NAME, "--state-root"])
            .arg(&self.state)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        match self.command("down").output() {
            Ok(down) if down.status.success() => {}
            Ok(down) => note(&format!("cannot take the cluster down: {}", text(&down))),
            Err(error) => note(&format!("cannot take the cluster down: {error}")),
        }
    }
}

/// Installs podman, and a runtime that works with all control group layouts, if they are missing and apt-get is available.
fn install() -> anyhow::Result<()> {
    let missing: Vec<&str> = ["podman", "runc"]
        .into_iter()
        .filter(|program| find(program).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    note(&format!("installing {}", missing.join(" and ")));
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(&missing);
    let installed = apt(&install) || (apt(&["update"]) && apt(&install));
    // podman may have another suitable runtime
    if !installed && missing.contains(&"podman") {
        bail!("there is no podman, and apt-get cannot install it");
    }
    Ok(())
}

/// Finds a program on the PATH, and where runc is, which the PATH of an ordinary user leaves out.
fn find(program: &str) -> Option<PathBuf> {
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    find_program(program).or_else(|| find_in(more, program))
}

/// podman with its own store, so that the images of this machine are not affected.
struct Podman {
    store: PathBuf,
    reference: String,
}

impl Podman {
    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .arg("--root")
            .arg(self.store.join("root"))
            .arg("--runroot")
            .arg(self.store.join("run"))
            // needs neither kernel support nor rights
            .args(["--storage-driver", "vfs"])
            .args(["--cgroup-manager", "cgroupfs", "--events-backend", "file"])
            .stdin(Stdio::null());
        if let Some(runc) = find("runc") {
            command.arg("--runtime").arg(runc);
        }
        command
    }

    fn load(&self, archive: &Path) -> anyhow::Result<()> {
        let mut load = self.command();
        load.args(["load", "--quiet", "--input"]).arg(archive);
        let loaded = output_within(&mut load, LIMIT).context("starting podman")?;
        ensure!(
            loaded.status.success(),
            "podman cannot load the image: {}",
            text(&loaded)
        );
        Ok(())
    }

    /// Builds a `podman run` command without network, up to the image.
    fn run(&self, more: &[&str]) -> anyhow::Result<Command> {
        self.run_in("none", more)
    }

    /// Builds a `podman run` command in a network, up to the image.
    fn run_in(&self, network: &str, more: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.command();
        command.args(["run", "--network", network]);
        command.args(CONFINED).args(more);
        // podman's defaults exceed the limits if the right to raise them is missing
        for (name, resource, most) in [
            ("nofile", Resource::RLIMIT_NOFILE, FILES),
            ("nproc", Resource::RLIMIT_NPROC, PROCESSES),
        ] {
            let (_, hard) = getrlimit(resource).context("reading a limit of this process")?;
            let limit = hard.min(most);
            command
                .arg("--ulimit")
                .arg(format!("{name}={limit}:{limit}"));
        }
        Ok(command)
    }

    /// Runs a program of the image and returns its output.
    fn role(&self, program: &str, arguments: &[&str], code: i32) -> anyhow::Result<String> {
        let mut run = self.run(&["--entrypoint", program])?;
        run.arg(&self.reference).args(arguments);
        let output = output_within(&mut run, LIMIT).context("starting podman")?;
        let text = text(&output);
        ensure!(
            output.status.code() == Some(code),
            "{program} {} ended with {} instead of {code}: {text}",
            arguments.join(" "),
            output.status
        );
        Ok(text)
    }

    /// Runs the image as it starts by itself, with arguments, and returns its output.
    fn plain(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut run = self.run(&[])?;
        run.arg(&self.reference).args(arguments);
        let output = output_within(&mut run, LIMIT).context("starting podman")?;
        let text = text(&output);
        ensure!(
            output.status.success(),
            "the image with {} ended with {}: {text}",
            arguments.join(" "),
            output.status
        );
        Ok(text)
    }

    /// Runs the image as a pause image: it waits, and ends properly on a signal.
    fn pause(&self) -> anyhow::Result<()> {
        const NAME: &str = "pause";
        let mut pause = self
            .run(&["--name", NAME, "--entrypoint", "/pause"])?
            .arg(&self.reference)
            .spawn()
            .context("starting podman")?;
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.is_running(NAME)? {
            ensure!(Instant::now() < deadline, "pause does not start");
            std::thread::sleep(POLL_INTERVAL);
        }
        let stopped = output_within(self.command().args(["stop", "--time", "20", NAME]), LIMIT)
            .context("starting podman")?;
        ensure!(stopped.status.success(), "cannot stop: {}", text(&stopped));
        let status = pause
            .wait_timeout(LIMIT)
            .context("waiting for podman")?
            .context("pause does not end")?;
        ensure!(
            status.success(),
            "pause ended with {status} when it was stopped"
        );
        Ok(())
    }

    fn is_running(&self, name: &str) -> anyhow::Result<bool> {
        let mut inspect = self.command();
        inspect.args(["inspect", "--format", "{{.State.Running}}", name]);
        let state = output_within(&mut inspect, LIMIT).context("starting podman")?;
        Ok(String::from_utf8_lossy(&state.stdout).trim() == "true")
    }

    /// Runs the main job with its output: `--label tier0`, restricted because the suite's own tests run all of it outside.
    fn main_job(&self) -> anyhow::Result<()> {
        let mut run = self.run(&[])?;
        run.arg(&self.reference)
            .args(["--label", "tier0", "--focus", SCENARIOS_INSIDE]);
        let status = status_within(&mut run, LIMIT).context("starting podman")?;
        ensure!(status.success(), "the main job ended with {status}");
        Ok(())
    }

    /// Runs some scenarios on the cluster of a mounted kubeconfig, with their output.
    fn attached_job(&self, cluster: &Outside) -> anyhow::Result<()> {
        let mount = format!("{}:/kubeconfig:ro", cluster.kubeconfig.display());
        let mut run = self.run_in("host", &["--env", "KUBECONFIG=/kubeconfig"])?;
        run.args(["--volume", &mount])
            .arg(&self.reference)
            .args(SCENARIOS_OUTSIDE);
        let status = status_within(&mut run, LIMIT).context("starting podman")?;
        ensure!(
            status.success(),
            "the job on a cluster outside ended with {status}"
        );
        Ok(())
    }
}

/// Returns what a command printed, for people.
fn text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

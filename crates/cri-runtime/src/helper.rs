//! The helper processes: `container-init` becomes the first process of a container, `container-exec` an additional one.
//!
//! Both have one thread, read their request from standard input ([`super::handoff`]) and end by executing the program.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, chdir, dup2_stdin, execve, setgroups, setresgid, setresuid, setsid};
use serde::{Deserialize, Serialize};

use super::handoff::{self, Reply};
use super::programs::pause;
use super::rootfs::apply;
use super::rootfs::step::Step;
use super::stop;

/// Exit code if the program could not be started, as with real runtimes.
pub const START_ERROR: u8 = 128;

/// A program with its environment, user and other attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Program and arguments; the program is searched in `PATH` unless it contains a slash.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory; created if missing.
    pub directory: PathBuf,
    /// User ID.
    pub uid: u32,
    /// Primary group ID.
    pub gid: u32,
    /// Supplemental groups.
    pub groups: Vec<u32>,
    /// Whether set-user-ID programs gain no privileges.
    pub no_new_privileges: bool,
}

/// Kinds of namespaces that a helper joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceKind {
    /// Network.
    Net,
    /// System V and POSIX message queues, shared memory.
    Ipc,
    /// Host name.
    Uts,
    /// Mounts.
    Mount,
}

impl NamespaceKind {
    fn flag(self) -> CloneFlags {
        match self {
            Self::Net => CloneFlags::CLONE_NEWNET,
            Self::Ipc => CloneFlags::CLONE_NEWIPC,
            Self::Uts => CloneFlags::CLONE_NEWUTS,
            Self::Mount => CloneFlags::CLONE_NEWNS,
        }
    }

    /// Returns the name of its file below `/proc/PID/ns`.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Mount => "mnt",
        }
    }
}

/// The request of `container-init`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InitRequest {
    /// Namespaces of the sandbox: kind and a path to each.
    pub namespaces: Vec<(NamespaceKind, PathBuf)>,
    /// The role of the process.
    pub role: Role,
}

/// The role of the first process of a PID namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A container.
    Container {
        /// An existing directory over which the root is built.
        root: PathBuf,
        /// The steps that build the root.
        steps: Vec<Step>,
        /// Whether the finished root is read-only.
        read_only: bool,
        /// The program.
        program: Program,
    },
    /// The holder of a PID namespace that the containers of a pod share.
    Pause,
}

/// The request of `container-exec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Namespaces of the container: kind and a path to each.
    pub namespaces: Vec<(NamespaceKind, PathBuf)>,
    /// Path of the pipe with its standard input; without it the input is empty.
    pub stdin: Option<PathBuf>,
    /// The program.
    pub program: Program,
}

/// Runs `container-init`; returns only if it executes no program.
pub fn container_init() -> anyhow::Result<ExitCode> {
    let (request, mut reply) = handoff::receive::<InitRequest>()?;
    let outcome = become_init(request, &mut reply);
    Ok(finish(outcome, &mut reply))
}

/// Runs `container-exec`; returns only if it could not execute the program.
pub fn container_exec() -> anyhow::Result<ExitCode> {
    let (request, mut reply) = handoff::receive::<ExecRequest>()?;
    let outcome = become_exec(&request, &mut reply);
    Ok(finish(outcome, &mut reply))
}

fn become_exec(request: &ExecRequest, reply: &mut Reply) -> anyhow::Result<ExitCode> {
    if let Some(path) = &request.stdin {
        let input = File::open(path).context("cannot open standard input")?;
        dup2_stdin(&input).context("cannot replace standard input")?;
    }
    join(&request.namespaces)?;
    execute(&request.program, reply).map(|never| match never {})
}

fn finish(outcome: anyhow::Result<ExitCode>, reply: &mut Reply) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        reply.refuse(&error);
        ExitCode::from(START_ERROR)
    })
}

fn become_init(request: InitRequest, reply: &mut Reply) -> anyhow::Result<ExitCode> {
    join(&request.namespaces)?;
    match request.role {
        Role::Container {
            root,
            steps,
            read_only,
            program,
        } => {
            unshare(CloneFlags::CLONE_NEWNS).context("cannot create a mount namespace")?;
            apply::enter(&root, &steps, read_only)?;
            execute(&program, reply).map(|never| match never {})
        }
        Role::Pause => {
            prctl::set_pdeathsig(Signal::SIGKILL).context("cannot set the parent death signal")?;
            reply.ready().context("cannot send the answer")?;
            // No `exec` follows that would close the socket.
            reply.end().context("cannot send the answer")?;
            pause::run().context("cannot wait for signals")
        }
    }
}

fn join(namespaces: &[(NamespaceKind, PathBuf)]) -> anyhow::Result<()> {
    let opened: Vec<(NamespaceKind, File)> = namespaces
        .iter()
        .map(|(kind, path)| {
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            Ok((*kind, file))
        })
        .collect::<anyhow::Result<_>>()?;
    for (kind, file) in opened {
        setns(&file, kind.flag())
            .with_context(|| format!("cannot join the {} namespace", kind.file_name()))?;
    }
    Ok(())
}

/// Replaces the process with the program; the texts of the last errors are those of real runtimes.
fn execute(program: &Program, reply: &mut Reply) -> anyhow::Result<Infallible> {
    let name = program.argv.first().context("no command specified")?;
    // A new session, so that no signals of a terminal arrive. It fails only for a process that leads a process group already.
    let _ = setsid();
    std::fs::create_dir_all(&program.directory)
        .and_then(|()| chdir(&program.directory).map_err(Into::into))
        .with_context(|| format!("cannot change into {}", program.directory.display()))?;
    let path = find_program(name, &program.env)?;
    let groups: Vec<Gid> = program.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).context("cannot set the groups")?;
    let gid = Gid::from_raw(program.gid);
    setresgid(gid, gid, gid).context("cannot switch to the group")?;
    let uid = Uid::from_raw(program.uid);
    setresuid(uid, uid, uid).context("cannot switch to the user")?;
    if program.no_new_privileges {
        prctl::set_no_new_privs().context("cannot set no_new_privs")?;
    }
    // Set after the change of the user, which would clear it.
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot set the parent death signal")?;
    reply.ready().context("cannot send the answer")?;
    if is_ours(&path) {
        return execute_blocked(&path, program);
    }
    let error = Command::new(&path)
        .arg0(name)
        .args(&program.argv[1..])
        .env_clear()
        .envs(program.env.iter().map(|(key, value)| (key, value)))
        .exec();
    Err(anyhow::anyhow!("exec {name:?}: {error}"))
}

/// Executes a program of ours while the signals that ask it to end are blocked, a state that the standard library would undo. Otherwise the
/// first process of a PID namespace would lose them until it is ready to handle them.
fn execute_blocked(path: &Path, program: &Program) -> anyhow::Result<Infallible> {
    stop::signals()
        .thread_block()
        .context("cannot block signals")?;
    let path = CString::new(path.as_os_str().as_encoded_bytes())
        .context("the path of the program has a NUL byte")?;
    let (argv, env) = (c_strings(&program.argv)?, c_environment(&program.env)?);
    execve(&path, &argv, &env).context("exec")
}

/// Returns whether a program is this one, under any name.
fn is_ours(path: &Path) -> bool {
    let identity =
        |path: &Path| std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    match (identity(path), identity(Path::new("/proc/self/exe"))) {
        (Ok(program), Ok(own)) => program == own,
        _ => false,
    }
}

fn c_strings(words: &[String]) -> anyhow::Result<Vec<CString>> {
    words
        .iter()
        .map(|word| CString::new(word.as_str()).context("an argument has a NUL byte"))
        .collect()
}

fn c_environment(env: &[(String, String)]) -> anyhow::Result<Vec<CString>> {
    env.iter()
        .map(|(key, value)| {
            CString::new(format!("{key}={value}"))
                .with_context(|| format!("variable {key:?} has a NUL byte"))
        })
        .collect()
}

/// Why a program was not found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum FindError {
    #[error("exec: {0:?}: executable file not found in $PATH")]
    NotInPath(String),
    #[error("exec: {0:?}: stat {0}: no such file or directory")]
    Missing(String),
    #[error("exec: {0:?}: permission denied")]
    Denied(String),
}

fn find_program(name: &str, env: &[(String, String)]) -> Result<PathBuf, FindError> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match std::fs::metadata(&path) {
            Err(_) => Err(FindError::Missing(name.to_owned())),
            Ok(_) if is_executable(&path) => Ok(path),
            Ok(_) => Err(FindError::Denied(name.to_owned())),
        };
    }
    env.iter()
        .find(|(key, _)| key == "PATH")
        .into_iter()
        .flat_map(|(_, path)| path.split(':'))
        .map(|directory| Path::new(directory).join(name))
        .find(|path| is_executable(path))
        .ok_or_else(|| FindError::NotInPath(name.to_owned()))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_env(path: &str) -> Vec<(String, String)> {
        vec![("PATH".to_owned(), path.to_owned())]
    }

    #[test]
    fn program_is_looked_up_in_the_path_of_the_container() {
        let found = find_program("sh", &mk_env("/nowhere:/usr/bin"));
        assert_eq!(found, Ok("/usr/bin/sh".into()));
    }

    #[test]
    fn unknown_program_is_reported_as_by_a_real_runtime() {
        let error = find_program("no-such", &mk_env("/usr/bin")).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"exec: "no-such": executable file not found in $PATH"#
        );
    }

    #[test]
    fn missing_path_is_reported_as_by_a_real_runtime() {
        let error = find_program("/no/such", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"exec: "/no/such": stat /no/such: no such file or directory"#
        );
    }

    #[test]
    fn file_that_is_no_program_is_denied() {
        let error = find_program("/etc/passwd", &[]).unwrap_err();
        assert_eq!(error, FindError::Denied("/etc/passwd".to_owned()));
    }
}

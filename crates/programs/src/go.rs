//! Programs that are built from Go modules. A first build is slow, so it reports progress.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cluster_spec::progress::{Progress, Report};

use crate::child::output_within;
use crate::path::find_program;

/// Oldest Go that builds the programs.
pub(crate) const MIN_VERSION: (u32, u32) = (1, 25);
/// How long a program may take to tell its version.
pub(crate) const VERSION_LIMIT: Duration = Duration::from_mins(1);
/// Number of lines of the compiler's output that an error shows.
const TAIL: usize = 15;
/// Shortest time between two reports of progress.
const PAUSE: Duration = Duration::from_millis(300);

/// Why programs could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no Go on `PATH`.
    #[error(
        "there is no go on PATH to build what is missing: install Go {}.{} or newer, or put ready programs on PATH, or name their directory \
         by --assets (that of Kubernetes' programs also by KUBEBUILDER_ASSETS)",
        MIN_VERSION.0,
        MIN_VERSION.1
    )]
    NoGo,
    /// Go is too old.
    #[error("{found} is too old to build what is missing: install Go {}.{} or newer", MIN_VERSION.0, MIN_VERSION.1)]
    OldGo {
        /// Output of `go version`.
        found: String,
    },
    /// A directory or file could not be used.
    #[error("cannot use the cache")]
    Cache(#[from] std::io::Error),
    /// A command failed.
    #[error("`{command}` failed:\n{tail}")]
    Command {
        /// The command line.
        command: String,
        /// Its last lines.
        tail: String,
    },
}

/// Returns the program `go`, if it is new enough.
pub(crate) fn find() -> Result<PathBuf, Error> {
    let go = find_program("go").ok_or(Error::NoGo)?;
    let output = output_within(Command::new(&go).arg("version"), VERSION_LIMIT)?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if version(&text).is_some_and(|version| version >= MIN_VERSION) {
        Ok(go)
    } else {
        Err(Error::OldGo { found: text })
    }
}

/// Parses major and minor number out of `go version go1.26.8 linux/amd64`.
fn version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.split_whitespace().nth(2)?.strip_prefix("go")?;
    let mut parts = numbers.split('.');
    let digits = |part: &str| {
        part.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()
    };
    Some((digits(parts.next()?)?, digits(parts.next()?)?))
}

/// A module that names programs of others, with the sums of everything that they are built of. They are in `modules`, one directory for each;
/// after a change of a version `go mod tidy` there brings both files up to date.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    /// The file `go.mod`.
    pub(crate) requirements: &'static str,
    /// The file `go.sum`. Go refuses what has another sum, or none.
    pub(crate) sums: &'static str,
    /// The module's own program, if it has one.
    pub(crate) main: Option<&'static str>,
}

#[cfg(test)]
impl Module {
    /// Returns whether the module asks for this version of another one.
    pub(crate) fn requires(&self, module: &str, version: &str) -> bool {
        let words: Vec<&str> = self.requirements.split_whitespace().collect();
        words.windows(2).any(|pair| pair == [module, version])
    }
}

/// What keeps the compiler and the linker from writing information for debuggers. The compiler's part takes a fifth of the time of a build.
const WITHOUT_DEBUG_INFORMATION: (&str, &str) = ("-gcflags=all=-dwarf=false", "-s -w");

/// Builds packages of a module in an empty directory; the programs are in the directory `out` below it then.
pub(crate) fn compile(
    go: &Path,
    work: &Path,
    module: Module,
    packages: &[&str],
    linker_flags: &str,
    report: Report<'_>,
) -> Result<(), Error> {
    let out = prepare(work, module)?;
    // -v prints each package when it is compiled, which serves as progress.
    run(
        go,
        work,
        &["build", "-v"],
        linker_flags,
        &out,
        packages,
        report,
    )
}

/// Builds the tests of a package of a module in an empty directory; their program has the given name in the directory `out` below it then.
pub(crate) fn compile_tests(
    go: &Path,
    work: &Path,
    module: Module,
    package: &str,
    name: &str,
    linker_flags: &str,
    report: Report<'_>,
) -> Result<(), Error> {
    let program = prepare(work, module)?.join(name);
    // Go would also look for mistakes in the tests, which are not ours to mend.
    let command = ["test", "-c", "-vet=off"];
    run(
        go,
        work,
        &command,
        linker_flags,
        &program,
        &[package],
        report,
    )
}

/// Writes a module to an empty directory, and returns the directory of its programs.
fn prepare(work: &Path, module: Module) -> Result<PathBuf, Error> {
    fs_err::write(work.join("go.mod"), module.requirements)?;
    fs_err::write(work.join("go.sum"), module.sums)?;
    if let Some(main) = module.main {
        fs_err::write(work.join("main.go"), main)?;
    }
    let out = work.join("out");
    fs_err::create_dir_all(&out)?;
    Ok(out)
}

/// Runs go and reports the lines that it writes as progress, at most a few per second.
fn run(
    go: &Path,
    work: &Path,
    command: &[&str],
    linker_flags: &str,
    out: &Path,
    packages: &[&str],
    report: Report<'_>,
) -> Result<(), Error> {
    let (compiler, linker) = WITHOUT_DEBUG_INFORMATION;
    let linker = format!("{linker} {linker_flags}");
    let out = out.to_string_lossy();
    let mut arguments = command.to_vec();
    arguments.extend(["-mod=readonly", compiler, "-ldflags", &linker, "-o", &out]);
    arguments.extend(packages);
    let mut child = Command::new(go)
        .args(&arguments)
        .current_dir(work)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut tail: Vec<String> = Vec::new();
    let mut lines = 0_usize;
    let mut last = Instant::now();
    if let Some(output) = child.stderr.take() {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            lines += 1;
            if last.elapsed() >= PAUSE {
                report(Progress::Advanced(format!(
                    "{} {lines}: {text}",
                    arguments.first().unwrap_or(&"go")
                )));
                last = Instant::now();
            }
            if tail.len() == TAIL {
                tail.remove(0);
            }
            tail.push(text);
        }
    }
    if child.wait()?.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: format!("go {}", arguments.join(" ")),
        tail: tail.join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::release("go version go1.26.8 linux/amd64", Some((1, 26)))]
    #[case::candidate("go version go1.25rc1 linux/amd64", Some((1, 25)))]
    #[case::nonsense("gccgo", None)]
    fn go_versions_are_read(#[case] text: &str, #[case] expected: Option<(u32, u32)>) {
        assert_eq!(version(text), expected);
    }
}

//! The container image: every program of the project, linked statically, and nothing else.
//!
//! This module writes the archive itself, so that neither a base image nor a container tool is needed; podman and docker load it. With
//! `--root` the same files are written to a directory, which the `Containerfile` copies. With `--test` podman runs the image as a cluster
//! with the strictest policies would (see [`trial`]).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use programs::console::note;

use self::archive::Layout;
use self::origin::Origin;
use self::size::Measured;
use crate::cargo;

mod archive;
mod contents;
mod origin;
mod size;
mod trial;

/// Image name in the manifests of a development cluster.
const REFERENCE: &str = "localhost/numaresources/stack:dev";
/// Cargo profile of the programs.
const PROFILE: &str = "image";
/// Packages with programs, and the programs, by cargo's names.
const PROGRAMS: [(&str, &str); 3] = [
    ("operator", "numaresources-operator"),
    ("scheduler", "numaresources-scheduler"),
    ("suite", "numaresources-tests"),
];
/// Largest size of all programs together, in bytes.
const LARGEST: u64 = 80 * 1024 * 1024;

/// What to make of the image.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The archive; it holds the image for `podman load` and `docker load`.
    #[arg(long, value_name = "FILE", default_value = "target/image/stack.tar")]
    archive: PathBuf,
    /// Lays the image's files out below a new directory, and writes no archive.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Rust target to build for; the host's own with a static C library when left out.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Takes the programs of this directory instead of building them.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Links what a development build compiled into an image for trials: takes seconds, not optimised for size.
    #[arg(long, conflicts_with_all = ["bin_dir", "target"])]
    development: bool,
    /// Skips the build if the programs were already measured with these profiles and dependencies; otherwise builds and measures them.
    #[arg(long, conflicts_with_all = ["bin_dir", "target", "root", "development", "test"])]
    size: bool,
    /// Runs the image with podman afterwards (and installs podman where apt-get can): every role, the main job without network,
    /// writable files, capabilities and root, and the main job on a cluster outside.
    #[arg(long, conflicts_with = "root")]
    test: bool,
}

/// Builds the image.
///
/// # Errors
/// Returns an error if a program cannot be built or is not static, the image is too large, a file cannot be written, or a role of it fails.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let started = Instant::now();
    if args.size {
        return match Measured::current()? {
            Some(measured) => {
                note(&format!(
                    "programs: {:.1} MB of at most {:.0}, measured with these profiles and dependencies before",
                    mega(measured.bytes),
                    mega(LARGEST)
                ));
                Ok(())
            }
            None => measure(),
        };
    }
    let origin = Origin::find();
    let bin_dir = match &args.bin_dir {
        Some(dir) => std::path::absolute(dir).context("resolving the directory of the programs")?,
        None if args.development => link_development()?,
        None => build(args.target.as_deref(), &origin)?,
    };
    let contents = contents::of(&bin_dir, &origin)?;
    let size = contents.size();
    print_size(&contents, started);
    // a development build is not optimised for size
    if !args.development {
        check_size(size)?;
    }
    if let Some(root) = &args.root {
        return contents.lay_out(root);
    }
    let layout = Layout::new(&contents, REFERENCE)?;
    layout
        .write(&args.archive)
        .with_context(|| format!("writing {}", args.archive.display()))?;
    note(&format!("{REFERENCE} in {}", args.archive.display()));
    if args.test {
        // the same files outside of the container, for a cluster that the image works on
        let outside = tempfile::tempdir().context("making a directory for the programs")?;
        let root = outside.path().join("root");
        contents.lay_out(&root)?;
        // links in the image are absolute paths from its own root
        let inner = root.join("bin/numaresources-testbed");
        std::fs::remove_file(&inner)
            .and_then(|()| std::os::unix::fs::symlink("numaresources-tests", &inner))
            .with_context(|| format!("linking {}", inner.display()))?;
        trial::run(&args.archive, REFERENCE, &root.join("bin"))?;
    }
    Ok(())
}

/// Builds the programs. Returns the directory that they are in.
fn build(target: Option<&str>, origin: &Origin) -> anyhow::Result<PathBuf> {
    let target = match target {
        Some(target) => {
            add_target(target)?;
            target.to_owned()
        }
        None => host()?,
    };
    let variable = target.to_uppercase().replace(['-', '.'], "_");
    let mut build = cargo::command();
    build
        .args(["build", "--locked", "--bins", "--profile", PROFILE])
        .args(["--target", &target])
        .args(PROGRAMS.iter().flat_map(|(package, _)| ["-p", package]))
        // cargo ignores the profile's `strip` for a package with an optimisation level of its own
        .env(
            format!("CARGO_TARGET_{variable}_RUSTFLAGS"),
            // unpacked relocations of the method tables would take a twelfth of the image
            // `shipped`: only the features that the programs need (crates/features)
            "--cfg shipped -C target-feature=+crt-static -C strip=symbols -C link-arg=-Wl,-z,pack-relative-relocs",
        );
    origin.apply_to(&mut build);
    if target.ends_with("-musl") {
        // the C parts need no C library, so the host's compiler is sufficient if there is none for musl
        let name = format!("CC_{}", target.replace('-', "_"));
        if std::env::var_os(&name).is_none() {
            build.env(name, "cc");
        }
    }
    let status = build.status().context("starting cargo build")?;
    ensure!(status.success(), "cargo build ended with {status}");
    Ok(cargo::target_dir()?.join(target).join(PROFILE))
}

/// Builds the programs with the image's settings, checks their size and stores it for the next time.
///
/// # Errors
/// Returns an error if a program cannot be built or is not static, or if the image is too large.
pub(crate) fn measure() -> anyhow::Result<()> {
    let started = Instant::now();
    let origin = Origin::find();
    let contents = contents::of(&build(None, &origin)?, &origin)?;
    print_size(&contents, started);
    check_size(contents.size())?;
    Measured::write(contents.size())
}

fn print_size(contents: &contents::Contents, started: Instant) {
    note(&format!(
        "programs: {:.1} MB after {} s",
        mega(contents.size()),
        started.elapsed().as_secs()
    ));
    for (path, size) in contents.largest() {
        note(&format!("  {path}: {:.1} MB", mega(size)));
    }
}

fn check_size(size: u64) -> anyhow::Result<()> {
    ensure!(
        size <= LARGEST,
        "the image is larger than {:.0} MB",
        mega(LARGEST)
    );
    Ok(())
}

/// Links the programs statically from the libraries of the development build. Returns the directory that they are in.
///
/// The flags apply only to the programs' own few lines, so that no library is compiled again. Whether the C library is static is decided
/// where a program is linked.
fn link_development() -> anyhow::Result<PathBuf> {
    let target = cargo::target_dir()?;
    let dir = target.join("image").join("development");
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    for (package, program) in PROGRAMS {
        let mut build = cargo::command();
        build
            .args(["rustc", "--locked", "--quiet", "--package", package])
            .args(["--bin", program, "--"])
            .args(["-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
        let status = build.status().context("starting cargo rustc")?;
        ensure!(status.success(), "cargo rustc ended with {status}");
        let made = target.join("debug").join(program);
        std::fs::copy(&made, dir.join(program))
            .with_context(|| format!("copying {}", made.display()))?;
    }
    Ok(dir)
}

/// Returns rustc's default target.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("asking rustc for its host")?;
    let text = String::from_utf8(output.stdout).context("reading the output of rustc")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc reports no host")
}

/// Installs a target's standard library with rustup.
fn add_target(target: &str) -> anyhow::Result<()> {
    let status = Command::new("rustup")
        .args(["target", "add", target])
        .status()
        .context("starting rustup")?;
    if !status.success() {
        bail!("rustup cannot install the target {target}");
    }
    Ok(())
}

/// Converts bytes to MB of 1024 * 1024 bytes, as image sizes are usually given.
fn mega(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Creates the directories above a file.
fn make_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

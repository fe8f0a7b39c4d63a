//! The container images: every program of the project, linked statically, and nothing else; one of them also has a shell.
//!
//! This module writes the archives itself, so that neither a base image nor a container tool is needed; podman and docker load them. With
//! `--root` the same files are written to directories, which the `Containerfile` copies. With `--test` podman runs the images as a cluster
//! with the strictest policies would, and as CI systems do (see [`trial`]).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use programs::console::note;

use self::archive::Layout;
use self::build::Build;
use self::origin::Origin;
use self::push::Registry;
use self::sbom::{Hashes, Linked};
use self::shell::Shell;
use self::size::Measured;
use self::variant::{PROGRAMS, Program, Variant};
use crate::{cargo, codegen};

mod archive;
mod build;
mod contents;
mod elf;
mod labels;
mod named;
mod origin;
mod push;
mod sbom;
mod shell;
mod size;
mod trial;
mod variant;

/// Cargo profile of the programs.
const PROFILE: &str = "image";
/// Largest size of all programs together, in bytes.
const LARGEST: u64 = 80 * 1024 * 1024;

/// What to make of the images.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The images to make; all of them when left out.
    #[arg(value_enum, value_name = "IMAGE")]
    images: Vec<Variant>,
    /// Directory of the archives; `podman load` and `docker load` read them.
    #[arg(long, value_name = "DIR", default_value = "target/image")]
    out: PathBuf,
    /// Lays the images' files out in a new directory, each below its name, and writes no archive.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Rust target to build for; the host's own with a static C library when left out.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Takes the programs of this directory instead of building them.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Builds this program alone, as the images have it, and prints its path.
    #[arg(long, value_name = "NAME", exclusive = true, value_parser = PROGRAMS.map(|(_, program)| program))]
    program: Option<String>,
    /// A statically linked BusyBox for `tests-shell`; this machine's, or that of Debian's package busybox-static, when left out.
    #[arg(long, value_name = "FILE")]
    busybox: Option<PathBuf>,
    /// Links what a development build compiled into images for trials: takes seconds, not optimised for size.
    #[arg(long, conflicts_with_all = ["bin_dir", "target"])]
    development: bool,
    /// Checks that the programs fit. They are measured again where profiles or dependencies have changed, or where development builds have
    /// grown so much that the programs may not fit; otherwise the last measurement counts.
    #[arg(long, conflicts_with_all = ["images", "bin_dir", "target", "root", "development", "test"])]
    size: bool,
    /// Runs the images with podman afterwards (and installs podman where apt-get can): every role, the main job without network,
    /// writable files, capabilities and root, the main job on a cluster outside, and scripts as CI systems start them.
    #[arg(long, conflicts_with = "root")]
    test: bool,
    /// Pushes the images to a registry as REGISTRY/numaresources/IMAGE, with skopeo or podman and their credentials, and writes the
    /// installation of the stack's into config/pushed, the Job of the tests' into config/pushed/tests.
    #[arg(long, value_name = "REGISTRY", conflicts_with_all = ["size", "root"])]
    push: Option<Registry>,
}

impl Args {
    /// Returns the images to make, each once.
    fn variants(&self) -> Vec<Variant> {
        let all = Variant::ALL.into_iter();
        all.filter(|variant| self.images.is_empty() || self.images.contains(variant))
            .collect()
    }
}

/// Builds the images.
///
/// # Errors
/// Returns an error if a program cannot be built or is not static, the programs are too large, a file cannot be written, a program that the
/// stack's objects start is missing, or a role of an image fails.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let started = Instant::now();
    if args.size {
        return size();
    }
    if let Some(name) = &args.program {
        return one(name);
    }
    let origin = Origin::find()?;
    let variants = args.variants();
    let with_shell = variants.iter().any(|variant| variant.has_shell());
    let shell = with_shell.then(|| Shell::find(args.busybox.as_deref()));
    let shell = shell.transpose()?;
    if let Some(shell) = &shell {
        note(&format!("shell: BusyBox {}", shell.version()?));
    }
    let settings = Build::find(args.target.as_deref(), args.development)?;
    let bin_dir = match &args.bin_dir {
        Some(dir) => std::path::absolute(dir).context("resolving the directory of the programs")?,
        None if args.development => link_development()?,
        None => {
            if let Some(target) = &args.target {
                add_target(target)?;
            }
            compile(&PROGRAMS, &settings, &origin)?
        }
    };
    // a development build is not optimised for size
    let size = print_size(&bin_dir, started)?;
    if !args.development {
        check_size(size)?;
    }
    let linked = Linked::find(&settings)?;
    let (mut made, mut hashes) = (Vec::new(), Hashes::default());
    for variant in variants {
        let shell = shell.as_ref().filter(|_| variant.has_shell());
        let contents = contents::of(variant, &bin_dir, shell, &origin)?;
        if let Some(root) = &args.root {
            contents.lay_out(&root.join(variant.name()))?;
            continue;
        }
        let bill = sbom::render(variant, &contents, &linked, shell, &origin, &mut hashes)?;
        sbom::write(
            &bill,
            &args.out.join(format!("{}.cdx.json", variant.name())),
        )?;
        let layout = Layout::new(&contents, variant, &origin, settings.architecture())?;
        made.push(write(variant, &layout, contents.size(), &args.out)?);
    }
    if args.test {
        trial::run(&made, &bin_dir)?;
    }
    match &args.push {
        Some(registry) => push_all(&made, registry),
        None => Ok(()),
    }
}

/// An image that was made.
struct Made {
    variant: Variant,
    archive: PathBuf,
}

/// Pushes the images, and has the installation name what was pushed.
fn push_all(made: &[Made], registry: &Registry) -> anyhow::Result<()> {
    for image in made {
        let pushed = push::push(image, registry)?;
        let in_full = |path: PathBuf| path.canonicalize().unwrap_or(path);
        match image.variant {
            Variant::Stack => {
                let directory = codegen::pushed::write(&pushed.repository, &pushed.digest)?;
                note(&format!(
                    "install it with `kubectl apply -k {0}` and `kubectl apply -f {0}/samples.yaml`",
                    in_full(directory).display()
                ));
            }
            Variant::Tests => {
                let directory = codegen::pushed::write_tests(&pushed.repository, &pushed.digest)?;
                note(&format!(
                    "run it in a cluster with `kubectl apply -k {}`",
                    in_full(directory).display()
                ));
            }
            Variant::TestsShell => {}
        }
    }
    Ok(())
}

/// Writes an image's archive. The size is that of its files.
fn write(variant: Variant, layout: &Layout, size: u64, out: &Path) -> anyhow::Result<Made> {
    let archive = out.join(format!("{}.tar", variant.name()));
    layout
        .write(&archive)
        .with_context(|| format!("writing {}", archive.display()))?;
    note(&format!(
        "{}@{} in {}, {:.1} MB",
        variant.reference(),
        layout.digest(),
        archive.display(),
        mega(size)
    ));
    Ok(Made { variant, archive })
}

/// Builds a program and prints its path.
fn one(name: &str) -> anyhow::Result<()> {
    let program = PROGRAMS.into_iter().find(|(_, program)| *program == name);
    let program = program.with_context(|| format!("no image has a program {name}"))?;
    let directory = compile(&[program], &Build::find(None, false)?, &Origin::find()?)?;
    let path = directory.join(name);
    writeln!(std::io::stdout(), "{}", path.display()).context("printing its path")
}

/// Builds programs. Returns the directory that they are in.
fn compile(programs: &[Program], settings: &Build, origin: &Origin) -> anyhow::Result<PathBuf> {
    let target = &settings.target;
    let mut build = cargo::command();
    build
        .args(["build", "--locked", "--bins", "--profile", PROFILE])
        .args(["--target", target])
        .args(programs.iter().flat_map(|(package, _)| ["-p", package]));
    settings.apply_to(&mut build);
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

/// Checks the size of the programs: by the last measurement and the growth of the development builds where that is sufficient.
fn size() -> anyhow::Result<()> {
    let development = sum(&sizes(&link_development()?)?);
    if let Some(measured) = Measured::current()? {
        let estimate = measured.estimate(development);
        note(&format!(
            "programs: about {:.1} MB of at most {:.0} ({:.1} when they were measured)",
            mega(estimate),
            mega(LARGEST),
            mega(measured.bytes)
        ));
        if estimate <= LARGEST {
            return Ok(());
        }
    }
    measure()
}

/// Builds the programs with the image's settings, checks their size and stores it for the next time, with that of the development builds.
///
/// # Errors
/// Returns an error if a program cannot be built or is not static, or if the image is too large.
pub(crate) fn measure() -> anyhow::Result<()> {
    let development = sum(&sizes(&link_development()?)?);
    let started = Instant::now();
    let size = print_size(
        &compile(&PROGRAMS, &Build::find(None, false)?, &Origin::find()?)?,
        started,
    )?;
    check_size(size)?;
    Measured::write(size, development)
}

/// Prints the sizes of all programs. Returns their sum.
fn print_size(bin_dir: &Path, started: Instant) -> anyhow::Result<u64> {
    let sizes = sizes(bin_dir)?;
    let sum = sum(&sizes);
    let elapsed = started.elapsed().as_secs();
    note(&format!("programs: {:.1} MB after {elapsed} s", mega(sum)));
    for (program, size) in sizes {
        note(&format!("  {program}: {:.1} MB", mega(size)));
    }
    Ok(sum)
}

fn sum(sizes: &[(&str, u64)]) -> u64 {
    sizes.iter().map(|(_, size)| size).sum()
}

/// Returns the size of each program, in bytes.
fn sizes(bin_dir: &Path) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let sizes = PROGRAMS.iter().map(|(_, program)| {
        let path = bin_dir.join(program);
        let file = std::fs::metadata(&path);
        let file = file.with_context(|| format!("no program {}", path.display()))?;
        Ok((*program, file.len()))
    });
    sizes.collect()
}

fn check_size(size: u64) -> anyhow::Result<()> {
    ensure!(
        size <= LARGEST,
        "the programs are larger than {:.0} MB",
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

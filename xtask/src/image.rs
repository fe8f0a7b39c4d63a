//! The container images: every program of the project, linked statically, and nothing else; one of them also has a shell.
//!
//! This module writes the archives itself, so that neither a base image nor a container tool is needed; podman and docker load them. With
//! `--root` the same files are written to directories, which the `Containerfile` copies. With `--test` podman runs the images as a cluster
//! with the strictest policies would, and as CI systems do (see [`trial`]).

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use programs::console::note;

use self::archive::Layout;
use self::build::Build;
use self::origin::Origin;
use self::push::Registry;
use self::sbom::{Hashes, Linked};
use self::shell::Shell;
use self::size::Sizes;
use self::variant::{PROGRAMS, Variant};
use crate::codegen;

mod archive;
mod build;
mod compile;
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

pub(crate) use self::size::{measure, table as size_table};

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
    #[arg(long, value_name = "NAME", exclusive = true, value_parser = PROGRAMS.map(|program| program.name))]
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
        return size::check();
    }
    if let Some(name) = &args.program {
        return compile::one(name);
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
        None if args.development => compile::development()?,
        None => {
            if let Some(target) = &args.target {
                compile::add_target(target)?;
            }
            compile::all(&settings, &origin)?
        }
    };
    let sizes = Sizes::of(&bin_dir)?;
    note(&format!(
        "programs after {} s:",
        started.elapsed().as_secs()
    ));
    sizes.print();
    // a development build is not optimised for size
    if !args.development {
        sizes.check()?;
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

/// Converts bytes to MB of 1024 * 1024 bytes, as image sizes are usually given.
fn mega(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Creates the directories above a file.
fn make_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

//! Generates the Rust code of the gRPC interfaces of `crates/podresources` from its `proto/` folder, without `protoc`.
//!
//! The result is committed, so that building the product needs no generator; `--check` reports when the two differ.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// One generated file: where its definitions are, and the names of the output.
struct Interface {
    /// The file that imports all others of its package, relative to `proto/`.
    root: &'static str,
    /// The file that prost writes: the name of the protobuf package.
    package_file: &'static str,
    /// Our name of it in `src/generated/`.
    target: &'static str,
}

const INTERFACES: &[Interface] = &[
    Interface {
        root: "podresources/v1.proto",
        package_file: "v1.rs",
        target: "podresources_v1.rs",
    },
    Interface {
        root: "deviceplugin/v1beta1.proto",
        package_file: "v1beta1.rs",
        target: "deviceplugin_v1beta1.rs",
    },
    Interface {
        root: "cri/v1/api.proto",
        package_file: "runtime.v1.rs",
        target: "cri_v1.rs",
    },
];

/// Generates all interfaces. With `check` nothing is written, and a difference to the committed code is an error.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/podresources");
    let target_dir = package.join("src/generated");
    let scratch = scratch_dir(&package)?;
    let outcome = INTERFACES
        .iter()
        .try_fold(Vec::new(), |mut drifted, interface| {
            let fresh = generate(&package.join("proto"), &scratch, interface)?;
            let target = target_dir.join(interface.target);
            if std::fs::read_to_string(&target).is_ok_and(|committed| committed == fresh) {
                return Ok(drifted);
            }
            if check {
                drifted.push(interface.target);
            } else {
                std::fs::create_dir_all(&target_dir)?;
                std::fs::write(&target, fresh)
                    .with_context(|| format!("writing {}", target.display()))?;
            }
            anyhow::Ok(drifted)
        });
    std::fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    let drifted = outcome?;
    if !drifted.is_empty() {
        bail!(
            "generated code of crates/podresources is not up to date, run `cargo xtask protos`: {}",
            drifted.join(", ")
        );
    }
    Ok(())
}

/// Creates an empty directory in the target directory.
fn scratch_dir(package: &Path) -> anyhow::Result<PathBuf> {
    let dir = package.join(format!("../../target/xtask-protos-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

/// Generates the formatted Rust source of one interface.
fn generate(protos: &Path, scratch: &Path, interface: &Interface) -> anyhow::Result<String> {
    let descriptors = protox::compile([interface.root], [protos])
        .with_context(|| format!("compiling {}", interface.root))?;
    tonic_prost_build::configure()
        .build_transport(false)
        // an RPC that a server does not implement answers Unimplemented
        .generate_default_stubs(true)
        // maps in a stable order, so that printed and compared values are the same every time
        .btree_map(".")
        .out_dir(scratch)
        .compile_fds(descriptors)
        .with_context(|| format!("generating code for {}", interface.root))?;
    let written = scratch.join(interface.package_file);
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .arg(&written)
        .status()
        .context("running rustfmt")?;
    if !status.success() {
        bail!(
            "rustfmt failed on the code generated for {}: {status}",
            interface.root
        );
    }
    std::fs::read_to_string(&written).with_context(|| format!("reading {}", written.display()))
}

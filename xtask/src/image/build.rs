//! How the programs are built: for which target, and with which settings of the compiler.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// `shipped`: only the features that the programs need (crates/features). Unpacked relocations of the method tables would take a twelfth of
/// the image. Cargo ignores the profile's `strip` for a package with an optimisation level of its own.
const FLAGS: &str = "--cfg shipped -C target-feature=+crt-static -C strip=symbols -C link-arg=-Wl,-z,pack-relative-relocs";

/// The settings of a build.
#[derive(Clone, Debug)]
pub(super) struct Build {
    /// Rust's name of the target.
    pub(super) target: String,
    /// Version of the compiler.
    pub(super) rustc: String,
    /// Flags of the compiler; none for development builds, which nobody ships.
    flags: Option<String>,
}

impl Build {
    /// Finds the settings for a target, or for this machine's own.
    ///
    /// # Errors
    /// Returns an error if the compiler does not answer.
    pub(super) fn find(target: Option<&str>, development: bool) -> anyhow::Result<Self> {
        let output = Command::new("rustc")
            .arg("-vV")
            .output()
            .context("starting rustc")?;
        let text = String::from_utf8(output.stdout).context("reading the output of rustc")?;
        let line = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found
                .map(str::to_owned)
                .with_context(|| format!("rustc reports no {name}"))
        };
        let target = match target {
            Some(target) => target.to_owned(),
            None => line("host: ")?,
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.context("the workspace has no directory")?;
        let home = std::env::var_os("CARGO_HOME").or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".cargo").into_os_string())
        });
        let mut flags = format!("{FLAGS} {}", remapped(root, "/src"));
        if let Some(home) = home {
            flags = format!("{flags} {}", remapped(Path::new(&home), "/cargo"));
        }
        Ok(Self {
            target,
            rustc: line("release: ")?,
            flags: (!development).then_some(flags),
        })
    }

    /// Passes the settings to cargo.
    pub(super) fn apply_to(&self, cargo: &mut Command) {
        if let Some(flags) = &self.flags {
            let variable = self.target.to_uppercase().replace(['-', '.'], "_");
            cargo.env(format!("CARGO_TARGET_{variable}_RUSTFLAGS"), flags);
        }
    }

    /// Returns what the OCI image specification calls the target's processor.
    pub(super) fn architecture(&self) -> &str {
        oci_archive::architecture(self.target.split('-').next().unwrap_or_default())
    }

    /// Returns name and version of the C library that the programs contain.
    pub(super) fn libc(&self) -> String {
        if self.target.ends_with("-musl") {
            // the one that comes with Rust's standard library, which does not tell its version
            return "musl".to_owned();
        }
        let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
        let text = output.ok().filter(|output| output.status.success());
        let text = text.and_then(|output| String::from_utf8(output.stdout).ok());
        text.map_or_else(|| "glibc".to_owned(), |text| text.trim().to_owned())
    }
}

/// Returns the flag by which messages of a program name the same files wherever it was built.
fn remapped(directory: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a program that knows where its source is.
    fn compiled(root: &Path, remap: bool) -> Vec<u8> {
        let source = root.join("main.rs");
        let text = "fn main() { let none: Option<u8> = std::env::args().next().map(|_| 1); println!(\"{} {}\", file!(), none.unwrap()); }\n";
        std::fs::write(&source, text).unwrap();
        let program = root.join("program");
        let mut rustc = Command::new("rustc");
        rustc
            .args(["-C", "strip=symbols", "-C", "codegen-units=1", "-o"])
            .arg(&program)
            .arg(&source);
        if remap {
            rustc.arg(remapped(root, "/src"));
        }
        assert!(rustc.status().unwrap().success());
        std::fs::read(&program).unwrap()
    }

    #[test]
    fn a_program_is_the_same_wherever_it_was_built() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let both = |remap| [&one, &other].map(|root| compiled(root.path(), remap));
        let [first, second] = both(true);
        assert!(first == second, "the folder is in the program");
        // or this test would show nothing
        let [first, second] = both(false);
        assert!(first != second, "the compiler names no folder any more");
    }

    #[test]
    fn a_development_build_has_no_flags_that_would_compile_everything_again() {
        let mut cargo = Command::new("true");
        Build::find(None, true).unwrap().apply_to(&mut cargo);
        assert_eq!(cargo.get_envs().count(), 0);
        let build = Build::find(Some("x86_64-unknown-linux-musl"), false).unwrap();
        assert_eq!(build.architecture(), "amd64");
        build.apply_to(&mut cargo);
        let (name, value) = cargo.get_envs().next().unwrap();
        assert_eq!(name, "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS");
        let flags = value.unwrap().to_str().unwrap();
        assert!(flags.contains("--cfg shipped") && flags.contains("=/src"));
    }
}

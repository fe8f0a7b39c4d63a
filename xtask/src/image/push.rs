//! Pushes images to a registry, by skopeo or podman, which know where credentials are, and reads back their digests.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use programs::console::note;
use programs::path::find_program;

use super::Made;
use super::origin::VERSION;

/// The program that pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Skopeo,
    Podman,
}

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    /// Registry and path, without tag.
    pub(super) repository: String,
    /// `sha256:…`. It is not that of the archive, because the layers are compressed on their way.
    pub(super) digest: String,
}

/// A registry, with a path below it if images are to be in one: `registry.example.com/team`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registry(String);

impl std::str::FromStr for Registry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/:[]".contains(&byte)
        };
        let name = text.trim_end_matches('/');
        if name.is_empty() || name.contains("//") || !name.bytes().all(allowed) {
            return Err(format!(
                "{text:?} is no registry: write a host in lower case, with a port and a path if there are any, such as registry.example.com/team"
            ));
        }
        Ok(Self(name.to_owned()))
    }
}

impl Registry {
    /// Returns whether it is on this machine. Such a registry has no certificate, as a rule.
    fn is_loopback(&self) -> bool {
        let host = self.0.split('/').next().unwrap_or_default();
        let host = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => host,
        };
        host == "localhost" || host == "[::1]" || host.starts_with("127.")
    }
}

/// Pushes an image.
///
/// # Errors
/// Returns an error if there is no program for it, or if the registry refuses the image.
pub(super) fn push(image: &Made, registry: &Registry) -> anyhow::Result<Pushed> {
    let tool = Tool::find()?;
    let repository = format!("{}/numaresources/{}", registry.0, image.variant.name());
    let tagged = format!("{repository}:{VERSION}");
    note(&format!("pushing {tagged}"));
    let place = tempfile::tempdir().context("making a directory for the digest")?;
    let file = place.path().join("digest");
    let mut commands = tool.commands(image, &tagged, registry.is_loopback(), place.path());
    for command in &mut commands {
        let status = command
            .status()
            .with_context(|| format!("starting {tool:?}"))?;
        ensure!(
            status.success(),
            "{tool:?} cannot push {tagged}: it ended with {status}. Where the registry wants a user, log in first (`podman login` or `skopeo login`)"
        );
    }
    let digest =
        std::fs::read_to_string(&file).context("reading the digest of the pushed image")?;
    let digest = digest.trim().to_owned();
    ensure!(
        digest.starts_with("sha256:"),
        "{tool:?} reports no digest for {tagged}, but {digest:?}"
    );
    note(&format!("pushed {repository}@{digest}"));
    Ok(Pushed { repository, digest })
}

impl Tool {
    fn find() -> anyhow::Result<Self> {
        if find_program("skopeo").is_some() {
            return Ok(Self::Skopeo);
        }
        if find_program("podman").is_some() {
            return Ok(Self::Podman);
        }
        bail!("neither skopeo nor podman is on the PATH: install one of them to push images")
    }

    /// Returns what is run, one after another. The last command writes the digest to the file `digest` of the directory.
    fn commands(self, image: &Made, tagged: &str, insecure: bool, place: &Path) -> Vec<Command> {
        let digest = place.join("digest");
        let archive = image.archive.display();
        match self {
            Self::Skopeo => {
                let mut copy = Command::new("skopeo");
                copy.args(["copy", "--quiet", "--digestfile"]).arg(digest);
                if insecure {
                    copy.arg("--dest-tls-verify=false");
                }
                copy.arg(format!("oci-archive:{archive}"))
                    .arg(format!("docker://{tagged}"));
                vec![copy]
            }
            Self::Podman => {
                // a store of its own, so that the images of this machine are not affected
                let podman = || {
                    let mut podman = Command::new("podman");
                    podman
                        .arg("--root")
                        .arg(place.join("root"))
                        .arg("--runroot")
                        .arg(place.join("run"))
                        .args(["--storage-driver", "vfs"]);
                    podman
                };
                let mut load = podman();
                load.args(["load", "--quiet", "--input"])
                    .arg(&image.archive);
                let mut push = podman();
                push.args(["push", "--quiet", "--digestfile"]).arg(digest);
                if insecure {
                    push.arg("--tls-verify=false");
                }
                push.arg(image.variant.reference())
                    .arg(format!("docker://{tagged}"));
                vec![load, push]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::image::variant::Variant;

    #[rstest]
    #[case::name("localhost:5000", true)]
    #[case::address("127.0.0.1:5000/team", true)]
    #[case::version_6("[::1]:5000", true)]
    #[case::elsewhere("registry.example.com/localhost", false)]
    #[case::like_it("localhost.example.com", false)]
    fn only_this_machine_needs_no_certificate(#[case] registry: &str, #[case] is_loopback: bool) {
        let registry: Registry = registry.parse().unwrap();
        assert_eq!(registry.is_loopback(), is_loopback);
        for tool in [Tool::Skopeo, Tool::Podman] {
            let image = Made {
                variant: Variant::Stack,
                archive: "stack.tar".into(),
            };
            let place = Path::new("/place");
            let commands = tool.commands(&image, "r/s:1", registry.is_loopback(), place);
            let words = format!("{:?}", commands.last().unwrap());
            assert_eq!(words.contains("tls-verify=false"), is_loopback, "{words}");
            assert!(words.contains("\"docker://r/s:1\""), "{words}");
        }
    }

    #[rstest]
    #[case::scheme("https://registry.example.com")]
    #[case::upper_case("Registry.example.com")]
    #[case::empty("/")]
    #[case::blank("a b")]
    fn what_is_no_registry_is_refused(#[case] text: &str) {
        let error = text.parse::<Registry>().unwrap_err();
        assert!(error.contains("is no registry"), "{error}");
    }
}

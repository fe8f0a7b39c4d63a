//! Images: references and what they resolve to.
//!
//! Our own runtimes pull nothing: an image is a repository name with programs of the host ([`Image`]). Every tag and every digest of a known
//! repository refers to that image, and it is always present. A cluster with containerd has a registry, and a file that says what is in it
//! ([`Published`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// An image: programs of the host at the paths that they would have in the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Image {
    /// Path inside the container → program on the host.
    pub programs: BTreeMap<PathBuf, PathBuf>,
    /// Numeric user of the image; containers run as this user unless the pod specifies another.
    #[serde(default)]
    pub user: Option<u32>,
    /// Command of the image, for containers without a command.
    pub entrypoint: Vec<String>,
}

/// The program with the small ones of the stack's image, each of which it becomes by its file name.
pub const HELPER: &str = "numaresources-testbed";
/// Program of the tests: the path in their image, and the name of the program that is there.
const TESTS: (&str, &str) = ("/bin/numaresources-tests", "numaresources-tests");
/// Programs of the stack's image: the path in the image, and the name of the program that is there.
pub const STACK: [(&str, &str); 10] = [
    ("/bin/numaresources-operator", "numaresources-operator"),
    (
        "/bin/resource-topology-exporter",
        "resource-topology-exporter",
    ),
    ("/bin/kube-scheduler", "numaresources-scheduler"),
    ("/pause", HELPER),
    ("/bin/sleep", HELPER),
    ("/bin/cat", HELPER),
    ("/bin/touch", HELPER),
    ("/bin/connect", HELPER),
    ("/bin/numacell", HELPER),
    ("/bin/deviceplugin", HELPER),
];

impl Image {
    /// Returns the stack's image, made of the programs in a directory. It lacks programs that are not built when the cluster comes up.
    pub fn of_stack(bin_dir: &Path) -> Self {
        let mut image = Self {
            entrypoint: vec!["/pause".to_owned()],
            ..Self::default()
        };
        for (path, program) in STACK {
            image.add(path, bin_dir.join(program));
        }
        image
    }

    /// Returns the image of the tests: the programs of the stack and, as its command, that of the tests. Without that program it is the
    /// image of the stack.
    pub fn of_tests(bin_dir: &Path) -> Self {
        let mut image = Self::of_stack(bin_dir);
        image.add(TESTS.0, bin_dir.join(TESTS.1));
        if image.programs.contains_key(Path::new(TESTS.0)) {
            image.entrypoint = vec![TESTS.0.to_owned()];
        }
        image
    }

    /// Adds a program of this machine, if it exists.
    pub fn add(&mut self, path: &str, program: PathBuf) {
        if program.is_file() {
            self.programs.insert(PathBuf::from(path), program);
        }
    }
}

/// The images of a cluster's own registry: for each name with a tag the reference by digest. A cluster without a registry has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Published(pub BTreeMap<String, String>);

impl Published {
    /// Name of the file that has them, beside the kubeconfig of the cluster.
    pub const FILE: &str = "published-images.json";

    /// Returns those of the cluster of a kubeconfig; none if there is no such file beside it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn beside(kubeconfig: &Path) -> std::io::Result<Self> {
        match fs_err::read_to_string(kubeconfig.with_file_name(Self::FILE)) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the file into the directory of a cluster.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write(&self, cluster_dir: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs_err::write(cluster_dir.join(Self::FILE), text)
    }

    /// Returns the reference by digest of an image that is named by its tag, if the registry has it.
    pub fn by_digest(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// A parsed reference: `repository[:tag][@digest]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Everything before tag and digest, including the registry.
    pub repository: &'a str,
    /// The part after the last colon, unless that belongs to the registry's port.
    pub tag: Option<&'a str>,
    /// The part after the `@`.
    pub digest: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// Splits a reference into its parts, without checks.
    pub fn parse(text: &'a str) -> Self {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let last_part = name.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match name[last_part..].rfind(':') {
            Some(colon) => (
                &name[..last_part + colon],
                Some(&name[last_part + colon + 1..]),
            ),
            None => (name, None),
        };
        Self {
            repository,
            tag,
            digest,
        }
    }

    /// Returns the reference with the defaults of Docker's conventions: registry, `library/` and the tag `latest`.
    fn normalized(&self) -> String {
        let first = self.repository.split('/').next().unwrap_or_default();
        let has_registry =
            self.repository.contains('/') && (first.contains(['.', ':']) || first == "localhost");
        let mut text = match (has_registry, self.repository.contains('/')) {
            (true, _) => self.repository.to_owned(),
            (false, true) => format!("docker.io/{}", self.repository),
            (false, false) => format!("docker.io/library/{}", self.repository),
        };
        match (self.tag, self.digest) {
            (None, None) => text.push_str(":latest"),
            (tag, digest) => {
                for (mark, part) in [(':', tag), ('@', digest)] {
                    if let Some(part) = part {
                        text.push(mark);
                        text.push_str(part);
                    }
                }
            }
        }
        text
    }
}

/// There is no image of that name; the text is that of a real runtime whose registry does not know it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to pull and unpack image \"{normalized}\": failed to resolve reference \"{normalized}\": {normalized}: not found"
)]
pub struct NotFound {
    normalized: String,
}

/// A resolved image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// `sha256:…`, computed from the repository's name.
    pub id: String,
    /// The repository.
    pub repository: String,
    /// Repository and digest.
    pub digest_reference: String,
    /// Repository and tag, if the request had a tag.
    pub tag_reference: Option<String>,
    /// The programs.
    pub image: Image,
}

impl Resolved {
    /// Returns the size of its programs in bytes, at least 1: a kubelet takes an image of size 0 for broken.
    pub fn size(&self) -> u64 {
        let programs = self.image.programs.values();
        let sizes = programs.filter_map(|program| std::fs::metadata(program).ok());
        sizes.map(|metadata| metadata.len()).sum::<u64>().max(1)
    }
}

/// The images of a node.
#[derive(Clone, Debug)]
pub struct Images {
    by_repository: BTreeMap<String, Image>,
}

impl Images {
    /// Creates the images of a node by repository.
    pub fn new(by_repository: BTreeMap<String, Image>) -> Self {
        Self { by_repository }
    }

    /// Finds an image by ID, or by reference with any tag and digest.
    pub fn resolve(&self, name: &str) -> Result<Resolved, NotFound> {
        if let Some((repository, image)) = self
            .by_repository
            .iter()
            .find(|(repository, _)| id(repository) == name || bare_id(repository) == name)
        {
            return Ok(resolved(repository, image, None));
        }
        let reference = Reference::parse(name);
        let normalized = reference.normalized();
        let repository = [
            reference.repository,
            Reference::parse(&normalized).repository,
        ]
        .into_iter()
        .find_map(|repository| self.by_repository.get_key_value(repository));
        match repository {
            Some((repository, image)) => Ok(resolved(repository, image, reference.tag)),
            None => Err(NotFound { normalized }),
        }
    }

    /// Returns all images.
    pub fn all(&self) -> impl Iterator<Item = Resolved> {
        self.by_repository
            .iter()
            .map(|(repository, image)| resolved(repository, image, None))
    }
}

fn resolved(repository: &str, image: &Image, tag: Option<&str>) -> Resolved {
    let id = id(repository);
    Resolved {
        digest_reference: format!("{repository}@{id}"),
        tag_reference: tag.map(|tag| format!("{repository}:{tag}")),
        id,
        repository: repository.to_owned(),
        image: image.clone(),
    }
}

fn id(repository: &str) -> String {
    format!("sha256:{}", bare_id(repository))
}

fn bare_id(repository: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(repository))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("nginx", "nginx", None, None)]
    #[case::tag("localhost/a/b:dev", "localhost/a/b", Some("dev"), None)]
    #[case::port_is_no_tag("localhost:5000/a", "localhost:5000/a", None, None)]
    #[case::port_and_tag("localhost:5000/a:1", "localhost:5000/a", Some("1"), None)]
    #[case::digest("r/a@sha256:ab", "r/a", None, Some("sha256:ab"))]
    #[case::both("r/a:1@sha256:ab", "r/a", Some("1"), Some("sha256:ab"))]
    fn references_come_apart(
        #[case] text: &str,
        #[case] repository: &str,
        #[case] tag: Option<&str>,
        #[case] digest: Option<&str>,
    ) {
        let expected = Reference {
            repository,
            tag,
            digest,
        };
        assert_eq!(Reference::parse(text), expected);
    }

    /// The Job of `config/tests` gives the tests arguments and no command.
    #[test]
    fn a_container_of_the_image_of_the_tests_runs_the_tests() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Image::of_tests(dir.path()).entrypoint, ["/pause"]);
        fs_err::write(dir.path().join(TESTS.1), "").unwrap();
        let image = Image::of_tests(dir.path());
        assert_eq!(image.entrypoint, [TESTS.0]);
        assert!(image.programs.contains_key(Path::new(TESTS.0)));
        assert_eq!(Image::of_stack(dir.path()).entrypoint, ["/pause"]);
    }

    #[test]
    fn published_images_are_found_beside_the_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        assert_eq!(
            Published::beside(&kubeconfig).unwrap(),
            Published::default()
        );
        let published = Published([("r/a:dev".to_owned(), "r/a@sha256:ab".to_owned())].into());
        published.write(dir.path()).unwrap();
        let read = Published::beside(&kubeconfig).unwrap();
        assert_eq!(read.by_digest("r/a:dev"), Some("r/a@sha256:ab"));
        assert_eq!(read.by_digest("r/a:1"), None);
    }

    fn mk_images() -> Images {
        let image = Image {
            user: Some(1000),
            entrypoint: vec!["/pause".to_owned()],
            ..Default::default()
        };
        Images::new([("localhost/numaresources/stack".to_owned(), image)].into())
    }

    #[rstest]
    #[case::our_tag("localhost/numaresources/stack:dev")]
    #[case::any_tag("localhost/numaresources/stack:v9")]
    #[case::no_tag("localhost/numaresources/stack")]
    #[case::any_digest(
        "localhost/numaresources/stack@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    )]
    fn known_repository_resolves_with_any_tag_and_digest(#[case] reference: &str) {
        let resolved = mk_images().resolve(reference).unwrap();
        assert_eq!(resolved.repository, "localhost/numaresources/stack");
        assert_eq!(resolved.image.user, Some(1000));
    }

    #[test]
    fn image_is_found_again_by_its_id() {
        let images = mk_images();
        let by_tag = images.resolve("localhost/numaresources/stack:dev").unwrap();
        let by_id = images.resolve(&by_tag.id).unwrap();
        assert_eq!(by_id.repository, by_tag.repository);
    }

    #[rstest]
    #[case::short_name("nginx", "docker.io/library/nginx:latest")]
    #[case::user_and_tag("someone/thing:1", "docker.io/someone/thing:1")]
    #[case::other_registry("quay.io/x/y:1", "quay.io/x/y:1")]
    #[case::like_ours(
        "localhost/numaresources/stacks",
        "localhost/numaresources/stacks:latest"
    )]
    fn unknown_image_is_not_found_as_by_a_real_runtime(
        #[case] reference: &str,
        #[case] normalized: &str,
    ) {
        let error = mk_images().resolve(reference).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "failed to pull and unpack image \"{normalized}\": failed to resolve reference \"{normalized}\": {normalized}: not found"
            )
        );
    }
}

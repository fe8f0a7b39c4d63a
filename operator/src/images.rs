//! Decides which images may run (operator.md 2.3, 4.2, 5.2).

use std::collections::BTreeSet;

/// Variable with additional trusted digests.
pub const ENV_DIGESTS: &str = "SCHEDULER_IMAGE_DIGESTS";
/// Variable that disables the check of the scheduler's image with the exact value `false`.
pub const ENV_VALIDATION: &str = "SCHEDULER_IMAGE_VALIDATION";
/// Variable that allows custom exporter images with the exact value `false`.
pub const ENV_RESTRICTION: &str = "EXPORTER_IMAGE_RESTRICTION";

/// Digests that the original's operator trusts without being told: of its current and of its previous scheduler (operator.md 5.2). A resource
/// that names one of them stays valid when the operator is exchanged.
const OF_THE_ORIGINAL: [&str; 2] = [
    "sha256:55d3fe347f35c257b6f828ec0da1aeef057f723bbcec1576d4d0f9018fb74fe7",
    "sha256:fe33777a6227cfc85949982b9b01c56abc03eab6fad7104132b54d7c940feb8c",
];

/// Rules for images, read from the environment at start.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Whether `spec.imageSpec` of the operator resource is allowed.
    pub exporter_image_allowed: bool,
    /// Whether the scheduler's image must be pinned to a trusted digest.
    pub scheduler_image_validated: bool,
    /// Trusted digests, `sha256:...`.
    pub trusted: BTreeSet<String>,
}

impl Policy {
    /// Reads the rules from environment variables.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let is_false = |name| lookup(name).is_some_and(|value| value == "false");
        let mut trusted = BTreeSet::from(OF_THE_ORIGINAL.map(str::to_owned));
        for item in lookup(ENV_DIGESTS)
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            if is_digest(item) {
                trusted.insert(item.to_owned());
            } else {
                tracing::warn!(
                    digest = item,
                    variable = ENV_DIGESTS,
                    "Malformed digest skipped"
                );
            }
        }
        Self {
            exporter_image_allowed: is_false(ENV_RESTRICTION),
            scheduler_image_validated: !is_false(ENV_VALIDATION),
            trusted,
        }
    }
}

/// The image of the scheduler is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The reference has a tag, which may move to another image.
    #[error("image {0:?} must be referenced by digest, not by tag")]
    ByTag(String),
    /// The digest is malformed.
    #[error("image {image:?} has malformed digest {digest:?}: expected sha256:<64 hex chars>")]
    Malformed {
        /// The reference.
        image: String,
        /// The digest of the reference.
        digest: String,
    },
    /// The digest is not trusted.
    #[error(
        "image {image:?} digest {digest:?} is not in the trusted list. To extend the list, update the environment variable \
         \"SCHEDULER_IMAGE_DIGESTS\" with comma separated list of digests"
    )]
    Untrusted {
        /// The reference.
        image: String,
        /// The digest of the reference.
        digest: String,
    },
}

/// Checks the scheduler's image. Only the digest counts; the registry and repository do not.
pub fn validate_scheduler(policy: &Policy, image: &str) -> Result<(), Error> {
    if !policy.scheduler_image_validated {
        return Ok(());
    }
    let Some((_, digest)) = image.split_once('@') else {
        return Err(Error::ByTag(image.into()));
    };
    if !is_digest(digest) {
        return Err(Error::Malformed {
            image: image.into(),
            digest: digest.into(),
        });
    }
    if !policy.trusted.contains(digest) {
        return Err(Error::Untrusted {
            image: image.into(),
            digest: digest.into(),
        });
    }
    Ok(())
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn policy(pairs: &[(&str, &str)]) -> Policy {
        Policy::from_env(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[rstest]
    #[case::tag(
        "repo/image:tag",
        r#"image "repo/image:tag" must be referenced by digest, not by tag"#
    )]
    #[case::short(
        "i@sha256:12",
        r#"image "i@sha256:12" has malformed digest "sha256:12": expected sha256:<64 hex chars>"#
    )]
    #[case::second_at(
        "i@x@y",
        r#"image "i@x@y" has malformed digest "x@y": expected sha256:<64 hex chars>"#
    )]
    fn images_without_a_good_digest_are_refused(#[case] image: &str, #[case] message: &str) {
        assert_eq!(
            validate_scheduler(&policy(&[]), image)
                .unwrap_err()
                .to_string(),
            message
        );
    }

    #[test]
    fn only_trusted_digests_pass() {
        let image = format!("any.where/image@{DIGEST}");
        let refused = validate_scheduler(&policy(&[]), &image)
            .unwrap_err()
            .to_string();
        assert_eq!(
            refused,
            format!(
                "image \"{image}\" digest \"{DIGEST}\" is not in the trusted list. To extend the list, update the environment variable \
                 \"SCHEDULER_IMAGE_DIGESTS\" with comma separated list of digests"
            )
        );
        let list = format!("nonsense, {DIGEST}");
        assert_eq!(
            validate_scheduler(&policy(&[(ENV_DIGESTS, &list)]), &image),
            Ok(())
        );
    }

    #[test]
    fn schedulers_of_the_original_are_trusted_unasked() {
        for digest in OF_THE_ORIGINAL {
            let image = format!("registry.example/scheduler@{digest}");
            assert_eq!(validate_scheduler(&policy(&[]), &image), Ok(()));
        }
    }

    #[rstest]
    #[case::exact("false", false)]
    #[case::other_case("False", true)]
    #[case::number("0", true)]
    #[case::empty("", true)]
    fn only_the_exact_word_switches_the_check_off(#[case] value: &str, #[case] checked: bool) {
        let policy = policy(&[(ENV_VALIDATION, value), (ENV_RESTRICTION, value)]);
        assert_eq!(policy.scheduler_image_validated, checked);
        assert_eq!(policy.exporter_image_allowed, !checked);
        assert_eq!(validate_scheduler(&policy, "i:tag").is_err(), checked);
    }
}

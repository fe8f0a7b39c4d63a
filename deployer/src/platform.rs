//! The platform that the user names with `-P` (deployer.md 1.1).

use manifests::platform::Platform;

use crate::version::Version;

/// First versions whose API servers have admission policies (`admissionregistration.k8s.io/v1`), of Kubernetes and of OpenShift, with all of their
/// pre-releases.
const POLICIES_SINCE: [&str; 2] = ["1.30.0-0", "4.17.0-0"];

/// Returns whether the API server of this version of a platform has admission policies.
pub fn has_admission_policies(platform: Platform, version: &Version) -> bool {
    let first = POLICIES_SINCE[usize::from(platform.is_openshift())];
    Version::parse(first).is_ok_and(|first| version.is_at_least(&first))
}

/// What `-P` says; what it does not say is detected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Kind of cluster.
    pub platform: Option<Platform>,
    /// Its version.
    pub version: Option<Version>,
}

/// The text is not of the form `KIND:VERSION`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported platform spec: {0:?}")]
pub struct Unsupported(String);

impl Given {
    /// Parses the value of `-P`. As in the original a kind or a version that is not known counts as not given; [`Self::ignored`] tells.
    pub fn parse(text: &str) -> Result<Self, Unsupported> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let fields: Vec<&str> = text.split(':').filter(|field| !field.is_empty()).collect();
        let [kind, version] = fields[..] else {
            return Err(Unsupported(text.to_owned()));
        };
        Ok(Self {
            platform: Platform::parse(kind),
            version: Version::parse(version).ok(),
        })
    }

    /// Returns what of the text was not understood, for a warning.
    pub fn ignored(&self, text: &str) -> Option<String> {
        let mut fields = text.split(':').filter(|field| !field.is_empty());
        let (kind, version) = (fields.next()?, fields.next()?);
        match (self.platform, &self.version) {
            (Some(_), Some(_)) => None,
            (None, _) => Some(format!(
                "{kind:?} is no platform: kubernetes, openshift or hypershift; it is detected instead"
            )),
            (_, None) => Some(format!("{version:?} is no version; it is detected instead")),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("", None, None)]
    #[case::usual("kubernetes:v1.26", Some(Platform::Kubernetes), Some("v1.26"))]
    #[case::any_case("OpenShift:4.20.0", Some(Platform::OpenShift), Some("4.20.0"))]
    #[case::unknown_kind("mars:v1", None, Some("v1"))]
    #[case::bad_version("hypershift:new", Some(Platform::HyperShift), None)]
    #[case::empty_fields("::kubernetes::1.2:", Some(Platform::Kubernetes), Some("1.2"))]
    fn kind_and_version_are_read(
        #[case] text: &str,
        #[case] platform: Option<Platform>,
        #[case] version: Option<&str>,
    ) {
        let given = Given::parse(text).unwrap();
        let seen = given.version.as_ref().map(ToString::to_string);
        assert_eq!((given.platform, seen.as_deref()), (platform, version));
        let understood = text.is_empty() || (platform.is_some() && version.is_some());
        assert_eq!(given.ignored(text).is_none(), understood);
    }

    #[rstest]
    #[case::before(Platform::Kubernetes, "v1.29.9", false)]
    #[case::since(Platform::Kubernetes, "v1.30.0", true)]
    #[case::of_a_vendor(Platform::Kubernetes, "v1.30.0-gke.1", true)]
    #[case::openshift_before(Platform::OpenShift, "4.16.20", false)]
    #[case::openshift_since(Platform::HyperShift, "4.17.0-rc.0", true)]
    fn admission_policies_are_there_from_a_version_on(
        #[case] platform: Platform,
        #[case] version: &str,
        #[case] expected: bool,
    ) {
        let version = Version::parse(version).unwrap();
        assert_eq!(has_admission_policies(platform, &version), expected);
    }

    #[rstest]
    #[case::kind_only("kubernetes")]
    #[case::three("kubernetes:v1:2")]
    fn other_numbers_of_fields_are_refused(#[case] text: &str) {
        let error = Given::parse(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("unsupported platform spec: {text:?}")
        );
    }
}

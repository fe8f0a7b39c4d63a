//! Versions of clusters: their grammar and order (deployer.md 9), and the version of this program.

use std::cmp::Ordering;

/// Version of this program.
pub const OWN: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Returns the commit of the build; `unknown` if the build did not set it.
pub fn commit() -> &'static str {
    option_env!("NUMARESOURCES_BUILD_COMMIT").unwrap_or("unknown")
}

/// A version of a cluster: an optional `v`, numbers separated by dots, an optional pre-release and build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    text: String,
    numbers: Vec<u64>,
    pre_release: Option<String>,
}

/// The text is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed version: {0}")]
pub struct Malformed(String);

impl Version {
    /// Parses a version.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed(text.to_owned());
        let body = text.strip_prefix('v').unwrap_or(text);
        let body = body.split_once('+').map_or(body, |(body, _)| body);
        let end = body
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(body.len());
        let (numbers, rest) = body.split_at(end);
        let numbers: Result<Vec<u64>, _> = numbers.split('.').map(str::parse).collect();
        let pre_release = rest.strip_prefix('-').unwrap_or(rest);
        let is_clean = pre_release
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        if !is_clean || (rest.starts_with('-') && pre_release.is_empty()) {
            return Err(malformed());
        }
        Ok(Self {
            text: text.to_owned(),
            numbers: numbers.map_err(|_| malformed())?,
            pre_release: (!pre_release.is_empty()).then(|| pre_release.to_owned()),
        })
    }

    /// Returns whether this version is the other one or a newer one. A pre-release is older than its release.
    pub fn is_at_least(&self, other: &Self) -> bool {
        self.order(other) != Ordering::Less
    }

    fn order(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        let padded = |version: &Self| -> Vec<u64> {
            let zeros = std::iter::repeat(0);
            version
                .numbers
                .iter()
                .copied()
                .chain(zeros)
                .take(length)
                .collect()
        };
        let by_numbers = padded(self).cmp(&padded(other));
        by_numbers.then_with(|| match (&self.pre_release, &other.pre_release) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(one), Some(two)) => one.cmp(two),
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::same("1.21", "v1.21.0", true)]
    #[case::newer("v1.35.0+k3s1", "1.21", true)]
    #[case::by_number_not_by_text("v1.9", "1.21", false)]
    #[case::pre_release("4.18.0-rc.1", "v4.18", false)]
    #[case::pre_release_without_dash("v1.22beta", "1.21", true)]
    fn versions_compare_by_numbers(#[case] one: &str, #[case] other: &str, #[case] expected: bool) {
        let [one, other] = [one, other].map(|text| Version::parse(text).unwrap());
        assert_eq!(one.is_at_least(&other), expected);
    }

    #[rstest]
    #[case::empty("")]
    #[case::word("latest")]
    #[case::no_number("v1..2")]
    #[case::nothing_after_the_dash("1.2-")]
    #[case::blank("1.2 3")]
    fn other_texts_are_malformed(#[case] text: &str) {
        let error = Version::parse(text).unwrap_err();
        assert_eq!(error.to_string(), format!("malformed version: {text}"));
    }

    #[test]
    fn the_own_version_is_one() {
        assert!(Version::parse(OWN).is_ok());
    }
}

//! Pod fingerprint: a short name for a set of pods, computed by the exporter from what the kubelet reports and by the scheduler
//! from what the API server reports (rte.md 6). Equal fingerprints mean that an NRT accounts for exactly these pods.

use std::fmt;
use std::str::FromStr;

use api::attributes::{
    FINGERPRINT_ALL, FINGERPRINT_EXCLUSIVE, POD_FINGERPRINT, POD_FINGERPRINT_METHOD,
};
use api::nrt::{AttributeInfo, attribute};
use twox_hash::XxHash64;

/// First characters of every fingerprint.
const PREFIX: &str = "pfp0";
/// Version of the algorithm. It follows the prefix.
const VERSION: &str = "v001";
/// Length of the shortest text that is recognized as a fingerprint of some version.
const SHORTEST: usize = 16;

/// Fingerprint of a set of pods, algorithm version v001.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{VERSION}{:016x}", self.0)
    }
}

/// Why a text is not a comparable fingerprint.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// Too short, with another prefix, or not canonical lower-case hexadecimal.
    #[error("malformed fingerprint")]
    Malformed,
    /// Made by another version of the algorithm.
    #[error("incompatible version")]
    IncompatibleVersion,
}

impl FromStr for Fingerprint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.len() < SHORTEST {
            return Err(ParseError::Malformed);
        }
        let rest = text.strip_prefix(PREFIX).ok_or(ParseError::Malformed)?;
        let digits = rest
            .strip_prefix(VERSION)
            .ok_or(ParseError::IncompatibleVersion)?;
        // the original compares texts, so upper case or another length never equals a fingerprint
        let canonical = digits.len() == 16
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !canonical {
            return Err(ParseError::Malformed);
        }
        u64::from_str_radix(digits, 16)
            .map(Self)
            .map_err(|_| ParseError::Malformed)
    }
}

/// Computes the fingerprint of pods given as (namespace, name). The order does not matter; a pod given twice counts twice.
pub fn compute<'a>(pods: impl IntoIterator<Item = (&'a str, &'a str)>) -> Fingerprint {
    compute_from_hashes(
        pods.into_iter()
            .map(|(namespace, name)| pod_hash(namespace, name))
            .collect(),
    )
}

/// Computes the fingerprint of pods given by their [`pod_hash`], for callers that compute it repeatedly from the same pods.
pub fn compute_from_hashes(mut hashes: Vec<u64>) -> Fingerprint {
    hashes.sort_unstable();
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    Fingerprint(XxHash64::oneshot(0, &bytes))
}

/// Returns the contribution of one pod to a fingerprint.
pub fn pod_hash(namespace: &str, name: &str) -> u64 {
    XxHash64::oneshot(XxHash64::oneshot(0, namespace.as_bytes()), name.as_bytes())
}

/// Which pods a fingerprint covers (rte.md 6.2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Method {
    /// Every pod of the node.
    All,
    /// Only pods that hold resources with a NUMA locality.
    #[default]
    WithExclusiveResources,
}

impl Method {
    /// Returns the name used in flags and in the attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => FINGERPRINT_ALL,
            Self::WithExclusiveResources => FINGERPRINT_EXCLUSIVE,
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_lowercase().as_str() {
            FINGERPRINT_ALL => Ok(Self::All),
            FINGERPRINT_EXCLUSIVE => Ok(Self::WithExclusiveResources),
            // the original prints two blanks here
            _ => Err(format!("unsupported method  {text:?}")),
        }
    }
}

/// Returns what an NRT publishes: the text of the fingerprint and the method that computed it.
///
/// Without the fingerprint attribute the result is `None`. Without a method attribute, or with an unknown method, every pod counts
/// (scheduler.md 5.8).
pub fn published(attributes: &[AttributeInfo]) -> Option<(&str, Method)> {
    let text = attribute(attributes, POD_FINGERPRINT)?;
    let method = match attribute(attributes, POD_FINGERPRINT_METHOD) {
        Some(FINGERPRINT_EXCLUSIVE) => Method::WithExclusiveResources,
        _ => Method::All,
    };
    Some((text, method))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(&[], "pfp0v001ef46db3751d8e999")]
    #[case::one(&[("default", "pod-1")], "pfp0v0010c5658d8bde5056f")]
    #[case::two(&[("default", "pod-1"), ("kube-system", "coredns-0")], "pfp0v001eab251937a99874d")]
    #[case::two_in_another_order(&[("kube-system", "coredns-0"), ("default", "pod-1")], "pfp0v001eab251937a99874d")]
    #[case::the_same_twice(&[("default", "pod-1"), ("default", "pod-1")], "pfp0v001dd8e38145964ce5b")]
    #[case::shared_namespaces(
        &[("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")],
        "pfp0v001b92008c14168b3a6"
    )]
    #[case::empty_namespace(&[("", "pod-1")], "pfp0v00126126f354694967d")]
    #[case::four(
        &[("default", "pod-1"), ("kube-system", "coredns-0"), ("monitoring", "node-exporter"), ("ns", "dev-nonuma")],
        "pfp0v001cd567b7c7abc032a"
    )]
    #[case::long_names(
        &[(
            "very-long-namespace-name-with-more-than-32-bytes-in-it",
            "web-frontend-deployment-with-long-name-68b4594b44-c8kl7",
        )],
        "pfp0v00173133a166bafdf3f"
    )]
    fn vectors_of_the_original(#[case] pods: &[(&str, &str)], #[case] expected: &str) {
        assert_eq!(compute(pods.iter().copied()).to_string(), expected);
        assert_eq!(expected.parse(), Ok(compute(pods.iter().copied())));
    }

    #[rstest]
    #[case("default", "pod-1", 0xf058_4c8a_7428_e6ed)]
    #[case("kube-system", "coredns-0", 0x722a_4b53_43d4_6421)]
    #[case("ns1", "n1", 0x6fe7_d8da_4b83_52c3)]
    #[case("ns1", "n2", 0xfdd2_50f5_ccd8_b03f)]
    #[case("", "pod-1", 0x6187_c922_2e7f_7e7d)]
    #[case(
        "very-long-namespace-name-with-more-than-32-bytes-in-it",
        "web-frontend-deployment-with-long-name-68b4594b44-c8kl7",
        0xbb28_c610_d536_8fe1
    )]
    fn pod_hashes_of_the_original(
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] expected: u64,
    ) {
        assert_eq!(pod_hash(namespace, name), expected);
    }

    #[rstest]
    #[case::empty("", ParseError::Malformed)]
    #[case::short("pfp0v001abc", ParseError::Malformed)]
    #[case::prefix("xyz0v001ef46db3751d8e999", ParseError::Malformed)]
    #[case::version("pfp0v002ef46db3751d8e999", ParseError::IncompatibleVersion)]
    #[case::digits("pfp0v001ef46db3751d8e99z", ParseError::Malformed)]
    #[case::upper_case("pfp0v001EF46DB3751D8E999", ParseError::Malformed)]
    #[case::too_long("pfp0v001ef46db3751d8e9990", ParseError::Malformed)]
    fn other_texts_are_refused(#[case] text: &str, #[case] expected: ParseError) {
        assert_eq!(text.parse::<Fingerprint>(), Err(expected));
    }

    #[test]
    fn without_a_method_every_pod_counts() {
        let attributes = [AttributeInfo {
            name: POD_FINGERPRINT.to_owned(),
            value: "pfp0v001ef46db3751d8e999".to_owned(),
        }];
        assert_eq!(
            published(&attributes),
            Some(("pfp0v001ef46db3751d8e999", Method::All))
        );
        assert_eq!(published(&[]), None);
    }

    proptest! {
        #[test]
        fn the_order_of_pods_does_not_matter(
            pods in proptest::collection::vec(("[a-z]{1,12}", "[a-z0-9-]{1,40}"), 0..20),
            seed in any::<prop::sample::Index>(),
        ) {
            let straight = compute(pods.iter().map(|(ns, name)| (ns.as_str(), name.as_str())));
            let mut rotated = pods.clone();
            if !rotated.is_empty() {
                let by = seed.index(rotated.len());
                rotated.rotate_left(by);
                rotated.reverse();
            }
            prop_assert_eq!(straight, compute(rotated.iter().map(|(ns, name)| (ns.as_str(), name.as_str()))));
        }

        #[test]
        fn the_text_form_reads_back(pods in proptest::collection::vec(("[a-z]{1,5}", "[a-z]{1,5}"), 0..6)) {
            let fingerprint = compute(pods.iter().map(|(ns, name)| (ns.as_str(), name.as_str())));
            prop_assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        }
    }

    mod fuzz {
        use super::*;

        #[test]
        fn no_text_stops_the_reader_and_an_accepted_one_is_written_alike() {
            ::fuzz::run(file!(), |input| {
                let text = ::fuzz::mutate::text("pfp0v001ef46db3751d8e999", input)?;
                if let Ok(read) = text.parse::<Fingerprint>() {
                    assert_eq!(read.to_string(), text);
                }
                Ok(())
            });
        }
    }
}

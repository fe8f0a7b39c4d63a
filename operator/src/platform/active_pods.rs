//! Which versions of OpenShift have kubelets that leave terminated pods out of their answers to exporters (operator.md 2.1).

use manifests::platform::Platform;

/// Returns whether the kubelets leave terminated pods out of their answers to exporters. Kubelets of OpenShift do so from 4.20 on; each
/// known form of its version numbers has its own first version (operator.md 2.1).
pub fn lists_active_pods(platform: Platform, version: &str) -> bool {
    platform.is_openshift() && active_pods_since(version) == Some(true)
}

/// Compares a version with the first such version of its form; `None` for an unknown form.
fn active_pods_since(version: &str) -> Option<bool> {
    let (numbers, rest) = version.split_once('-').unwrap_or((version, ""));
    let numbers: Vec<u64> = numbers
        .split('.')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let since = [4, 20, 0];
    if numbers != since {
        return Some(numbers.as_slice() > since.as_slice()).filter(|_| is_known(rest));
    }
    if rest.is_empty() {
        return Some(true);
    }
    // the timestamps sort as text
    for (kind, first) in [
        ("0.nightly-", "2025-08-04-154809"),
        ("0.ci-", "2025-08-01-195417"),
    ] {
        if let Some(time) = rest.strip_prefix(kind) {
            return Some(time >= first);
        }
    }
    for (kind, first) in [("ec.", 6), ("rc.", 0)] {
        if let Some(number) = rest.strip_prefix(kind) {
            return Some(number.parse::<u64>().ok()? >= first);
        }
    }
    None
}

/// Returns whether the text after the numbers has a known form.
fn is_known(rest: &str) -> bool {
    let kinds = ["0.nightly-", "0.ci-", "ec.", "rc."];
    rest.is_empty() || kinds.iter().any(|kind| rest.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first_release("4.20.0", true)]
    #[case::older_release("4.19.12", false)]
    #[case::newer_release("4.20.1", true)]
    #[case::next_line("4.21.0-ec.1", true)]
    #[case::nightly("4.20.0-0.nightly-2025-08-04-154809", true)]
    #[case::older_nightly("4.20.0-0.nightly-2025-08-04-154808", false)]
    #[case::ci("4.20.0-0.ci-2025-08-01-195417", true)]
    #[case::older_ci("4.20.0-0.ci-2025-08-01-195416", false)]
    #[case::candidate("4.20.0-ec.6", true)]
    #[case::older_candidate("4.20.0-ec.5", false)]
    #[case::release_candidate("4.20.0-rc.0", true)]
    #[case::other_form("4.20.0-okd", false)]
    #[case::other_form_of_a_newer_one("4.21.0-okd", false)]
    #[case::no_version("soon", false)]
    fn kubelets_leave_terminated_pods_out_from_4_20_on(
        #[case] version: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(lists_active_pods(Platform::OpenShift, version), expected);
        assert!(!lists_active_pods(Platform::Kubernetes, version));
    }
}

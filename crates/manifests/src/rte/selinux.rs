//! The legacy SELinux policy of the exporters, in the Common Intermediate Language: the type of their processes, and what it may do
//! (deployer.md 5.5). The statements depend on the version of OpenShift; the text is ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use self::expression::Expression;

mod expression;

/// Name of the block; with the name of the type it is the type that pods ask for: `rte.process`.
const BLOCK: &str = "rte";
const TYPE: &str = "process";
const ROLE: &str = "system_r";
/// Attributes of every container's type.
const ATTRIBUTES: [&str; 5] = [
    "domain",
    "container_domain",
    "container_net_domain",
    "svirt_sandbox_domain",
    "sandbox_net_domain",
];
/// What is done with the kubelet's socket.
const USE_SOCKET: [&str; 7] = [
    "append", "getattr", "ioctl", "lock", "open", "read", "write",
];

/// The versions of OpenShift that differ, in order. Newer ones are treated as the last, older ones as the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Era {
    /// 4.10.
    Runtime,
    /// 4.11 to 4.17: the kubelet has a type of its own, and categories separate containers.
    Kubelet,
    /// 4.18: the kubelet's directory has a type of its own.
    KubeletDirectory,
}

impl Era {
    const ALL: [Self; 3] = [Self::Runtime, Self::Kubelet, Self::KubeletDirectory];

    /// Returns the era of a version. A version before the release of a minor version, such as `4.18.0-rc.1`, belongs to the one before
    /// (deployer.md 9). An unreadable version counts as the newest.
    fn of(version: &str) -> Self {
        let release = version.trim_start_matches('v');
        let release = release.split('+').next().unwrap_or_default();
        let (numbers, early) = release.split_once('-').unwrap_or((release, ""));
        let numbers: Option<Vec<u32>> = numbers.split('.').map(|one| one.parse().ok()).collect();
        let Some([major, minor, rest @ ..]) = numbers.as_deref() else {
            return Self::KubeletDirectory;
        };
        let is_before = !early.is_empty() && rest.iter().all(|number| *number == 0);
        let minor = minor.saturating_sub(u32::from(is_before));
        match (*major, minor) {
            (..4, _) | (4, ..11) => Self::Runtime,
            (4, 11..18) => Self::Kubelet,
            (4.., _) => Self::KubeletDirectory,
        }
    }
}

/// One thing that the type has or may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grant {
    /// It has an attribute.
    Attribute(String),
    /// It has a permission on a class of objects of another type.
    Allow {
        /// The other type, and the class.
        on: (String, String),
        /// The permission.
        permission: String,
    },
}

/// A policy: all that the type has and may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy(BTreeSet<Grant>);

impl Policy {
    /// Returns the policy for a version of OpenShift.
    pub(super) fn for_version(version: &str) -> Self {
        Self::of(Era::of(version))
    }

    fn of(era: Era) -> Self {
        let mut policy = Self::default();
        for attribute in ATTRIBUTES {
            policy.0.insert(Grant::Attribute(attribute.into()));
        }
        // the notification file, which is below /run
        policy.allow("container_var_run_t", "dir", &["add_name", "write"]);
        policy.allow(
            "container_var_run_t",
            "file",
            &["create", "open", "read", "write"],
        );
        policy.allow("container_var_lib_t", "sock_file", &USE_SOCKET);
        let listener = if era == Era::Runtime {
            "container_runtime_t"
        } else {
            policy
                .0
                .insert(Grant::Attribute("mcs_constrained_type".into()));
            policy.allow("proc_type", "file", &["open", "read"]);
            "kubelet_t"
        };
        policy.allow(listener, "unix_stream_socket", &["connectto"]);
        if era == Era::KubeletDirectory {
            policy.allow("kubelet_var_lib_t", "sock_file", &USE_SOCKET);
        }
        policy
    }

    fn allow(&mut self, target: &str, class: &str, permissions: &[&str]) {
        let grants = permissions.iter().map(|permission| Grant::Allow {
            on: (target.into(), class.into()),
            permission: (*permission).into(),
        });
        self.0.extend(grants);
    }

    /// Reads a policy. `None` if the text is not one, or says more than a policy of this kind does.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let [Expression::List(block)] = &expression::parse(text)?[..] else {
            return None;
        };
        let [keyword, name, statements @ ..] = &block[..] else {
            return None;
        };
        if keyword.atom()? != "block" || name.atom()? != BLOCK {
            return None;
        }
        let mut policy = Self::default();
        let (mut has_type, mut has_role) = (false, false);
        for statement in statements {
            let Expression::List(words) = statement else {
                return None;
            };
            match &words[..] {
                [first, name] if first.atom()? == "type" => has_type = name.atom()? == TYPE,
                [first, role, name] if first.atom()? == "roletype" => {
                    has_role = role.atom()? == ROLE && name.atom()? == TYPE;
                }
                [first, attribute, members] if first.atom()? == "typeattributeset" => {
                    if members.atoms()? != [TYPE] {
                        return None;
                    }
                    policy.0.insert(Grant::Attribute(attribute.atom()?.into()));
                }
                [first, source, target, Expression::List(what)] if first.atom()? == "allow" => {
                    let [class, permissions] = &what[..] else {
                        return None;
                    };
                    if source.atom()? != TYPE {
                        return None;
                    }
                    policy.allow(target.atom()?, class.atom()?, &permissions.atoms()?);
                }
                _ => return None,
            }
        }
        (has_type && has_role).then_some(policy)
    }

    /// Returns whether this policy has all that a version needs, and nothing that no version needs.
    pub(super) fn suffices_for(&self, version: &str) -> bool {
        let needed = Self::for_version(version);
        let known: BTreeSet<Grant> = Era::ALL
            .into_iter()
            .flat_map(|era| Self::of(era).0)
            .collect();
        needed.0.is_subset(&self.0) && self.0.is_subset(&known)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "(block {BLOCK}")?;
        writeln!(formatter, "    (type {TYPE})")?;
        writeln!(formatter, "    (roletype {ROLE} {TYPE})")?;
        let mut allowed: BTreeMap<&(String, String), Vec<&str>> = BTreeMap::new();
        for grant in &self.0 {
            match grant {
                Grant::Attribute(name) => {
                    writeln!(formatter, "    (typeattributeset {name} ({TYPE}))")?;
                }
                Grant::Allow { on, permission } => {
                    allowed.entry(on).or_default().push(permission);
                }
            }
        }
        for ((target, class), permissions) in allowed {
            let permissions = permissions.join(" ");
            writeln!(
                formatter,
                "    (allow {TYPE} {target} ({class} ({permissions})))"
            )?;
        }
        writeln!(formatter, ")")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::oldest("4.9.3", Era::Runtime)]
    #[case::first("4.10.0", Era::Runtime)]
    #[case::release_candidate("4.11.0-rc.1", Era::Runtime)]
    #[case::second("v4.11.0", Era::Kubelet)]
    #[case::last_of_it("4.17.44", Era::Kubelet)]
    #[case::before_the_release("4.18.0-0.nightly-2025-01-01-000000", Era::Kubelet)]
    #[case::after_the_release("4.18.3-rc.1", Era::KubeletDirectory)]
    #[case::two_numbers("4.18", Era::KubeletDirectory)]
    #[case::build("4.17.0+5", Era::Kubelet)]
    #[case::newer("5.0.0", Era::KubeletDirectory)]
    #[case::unreadable("soon", Era::KubeletDirectory)]
    fn policy_is_that_of_the_newest_version_up_to_the_clusters(
        #[case] version: &str,
        #[case] expected: Era,
    ) {
        assert_eq!(Era::of(version), expected);
    }

    /// The table of deployer.md 5.5 in other words.
    #[rstest]
    #[case::runtime("4.10.0", &["container_runtime_t"], &["mcs_constrained_type", "proc_type", "kubelet_t", "kubelet_var_lib_t"])]
    #[case::kubelet(
        "4.15.0",
        &["(typeattributeset mcs_constrained_type (process))", "(allow process proc_type (file (open read)))", "kubelet_t"],
        &["container_runtime_t", "kubelet_var_lib_t"]
    )]
    #[case::directory(
        "4.20.0",
        &["kubelet_t", "(allow process kubelet_var_lib_t (sock_file (append getattr ioctl lock open read write)))"],
        &["container_runtime_t"]
    )]
    fn text_grants_what_the_version_needs(
        #[case] version: &str,
        #[case] has: &[&str],
        #[case] lacks: &[&str],
    ) {
        let policy = Policy::for_version(version);
        let text = policy.to_string();
        for part in [
            "(type process)",
            "(roletype system_r process)",
            "(typeattributeset sandbox_net_domain (process))",
            "(allow process container_var_run_t (file (create open read write)))",
            "(allow process container_var_run_t (dir (add_name write)))",
        ]
        .iter()
        .chain(has)
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in lacks {
            assert!(!text.contains(part), "{part}: {text}");
        }
        assert_eq!(Policy::parse(&text), Some(policy));
    }

    #[rstest]
    #[case::same("4.15.0", "4.15.0", true)]
    #[case::of_a_newer_version("4.18.0", "4.15.0", true)]
    #[case::of_an_older_version("4.15.0", "4.18.0", false)]
    #[case::other_listener("4.10.0", "4.15.0", false)]
    fn policy_suffices_if_it_grants_all_that_is_needed(
        #[case] there: &str,
        #[case] needed: &str,
        #[case] expected: bool,
    ) {
        let policy = Policy::for_version(there);
        assert_eq!(policy.suffices_for(needed), expected);
    }

    #[test]
    fn policy_that_grants_what_no_version_needs_does_not_suffice() {
        let mut policy = Policy::for_version("4.20.0");
        policy.allow("shadow_t", "file", &["read"]);
        assert!(!policy.suffices_for("4.20.0"));
    }

    #[rstest]
    #[case::empty("")]
    #[case::other_block("(block other (type process) (roletype system_r process))")]
    #[case::no_type("(block rte (roletype system_r process))")]
    #[case::no_role("(block rte (type process))")]
    #[case::unknown_statement(
        "(block rte (type process) (roletype system_r process) (blockinherit container))"
    )]
    #[case::other_source(
        "(block rte (type process) (roletype system_r process) (allow other a (file (read))))"
    )]
    #[case::two_blocks("(block rte (type process) (roletype system_r process)) (block b)")]
    fn what_is_no_policy_of_ours_is_not_read(#[case] text: &str) {
        assert_eq!(Policy::parse(text), None);
    }
}

//! The user and groups of a container, and the files of its `/etc` that depend on them.

use std::fmt::Write as _;

use podresources::cri::v1 as cri;

use super::rootfs::plan::EtcFiles;

/// User ID of `nobody`, and group ID of its group.
const NOBODY: u32 = 65534;

/// The user and groups of a container's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User ID.
    pub uid: u32,
    /// Primary group ID.
    pub gid: u32,
    /// Supplemental groups.
    pub groups: Vec<u32>,
}

/// Why the user of a container could not be determined.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A user name is neither in the image nor a number.
    #[error("unable to find user {0}: no matching entries in passwd file")]
    UnknownUser(String),
    /// An ID is outside Linux's range.
    #[error("{0} is not a user or group ID")]
    Range(i64),
}

impl Identity {
    /// Returns the user and groups of the security context; where it has none, the image's user (root without one) and group 0.
    pub fn resolve(
        security: Option<&cri::LinuxContainerSecurityContext>,
        image_user: Option<u32>,
    ) -> Result<Self, Error> {
        let uid = match security {
            Some(cri::LinuxContainerSecurityContext {
                run_as_user: Some(user),
                ..
            }) => id(user.value)?,
            Some(security) if !security.run_as_username.is_empty() => {
                by_name(&security.run_as_username)?
            }
            _ => image_user.unwrap_or(0),
        };
        let gid = match security.and_then(|security| security.run_as_group.as_ref()) {
            Some(group) => id(group.value)?,
            None => 0,
        };
        let groups = security
            .into_iter()
            .flat_map(|security| &security.supplemental_groups)
            .map(|group| id(*group))
            .collect::<Result<_, _>>()?;
        Ok(Self { uid, gid, groups })
    }

    /// Returns the identity as a message of the CRI.
    pub fn to_cri(&self) -> cri::ContainerUser {
        cri::ContainerUser {
            linux: Some(cri::LinuxContainerUser {
                uid: self.uid.into(),
                gid: self.gid.into(),
                supplemental_groups: self.groups.iter().copied().map(i64::from).collect(),
            }),
        }
    }

    /// Returns the home directory, by the same rule as for the users of [`etc_files`].
    pub fn home(&self) -> &'static str {
        if self.uid == 0 { "/root" } else { "/" }
    }
}

fn id(value: i64) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Range(value))
}

fn by_name(name: &str) -> Result<u32, Error> {
    match name {
        "root" => Ok(0),
        "nobody" => Ok(NOBODY),
        _ => name
            .parse()
            .map_err(|_| Error::UnknownUser(name.to_owned())),
    }
}

/// Returns the files for `/etc`: the users root, nobody and the container's own; the sandbox's name, address and resolver settings.
pub fn etc_files(
    identity: &Identity,
    hostname: &str,
    address: &str,
    dns: Option<&cri::DnsConfig>,
) -> EtcFiles {
    let mut passwd = format!(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:{NOBODY}:{NOBODY}:nobody:/nonexistent:/bin/false\n"
    );
    let mut group = format!("root:x:0:\nnogroup:x:{NOBODY}:\n");
    // Writing to a string cannot fail.
    if ![0, NOBODY].contains(&identity.uid) {
        let Identity { uid, gid, .. } = identity;
        let _ = writeln!(passwd, "user{uid}:x:{uid}:{gid}:user:/:/bin/sh");
    }
    if ![0, NOBODY].contains(&identity.gid) {
        let gid = identity.gid;
        let _ = writeln!(group, "group{gid}:x:{gid}:");
    }
    EtcFiles {
        passwd,
        group,
        hostname: format!("{hostname}\n"),
        hosts: format!(
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n{address}\t{hostname}\n"
        ),
        resolv_conf: resolv_conf(dns),
    }
}

fn resolv_conf(dns: Option<&cri::DnsConfig>) -> String {
    let Some(dns) = dns else {
        return String::new();
    };
    let mut text = String::new();
    if !dns.searches.is_empty() {
        let _ = writeln!(text, "search {}", dns.searches.join(" "));
    }
    for server in &dns.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !dns.options.is_empty() {
        let _ = writeln!(text, "options {}", dns.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_security(user: Option<i64>, group: Option<i64>) -> cri::LinuxContainerSecurityContext {
        let value = |value| cri::Int64Value { value };
        cri::LinuxContainerSecurityContext {
            run_as_user: user.map(value),
            run_as_group: group.map(value),
            ..Default::default()
        }
    }

    #[rstest]
    #[case::nothing_said(None, None, None, 0, 0)]
    #[case::image(None, None, Some(1000), 1000, 0)]
    #[case::pod_before_image(Some(2000), None, Some(1000), 2000, 0)]
    #[case::root_before_image(Some(0), None, Some(1000), 0, 0)]
    #[case::group(Some(2000), Some(3000), None, 2000, 3000)]
    fn user_and_group(
        #[case] user: Option<i64>,
        #[case] group: Option<i64>,
        #[case] image: Option<u32>,
        #[case] uid: u32,
        #[case] gid: u32,
    ) {
        let identity = Identity::resolve(Some(&mk_security(user, group)), image).unwrap();
        assert_eq!((identity.uid, identity.gid), (uid, gid));
    }

    #[test]
    fn supplemental_groups_are_kept() {
        let security = cri::LinuxContainerSecurityContext {
            supplemental_groups: vec![5, 6],
            ..Default::default()
        };
        let identity = Identity::resolve(Some(&security), None).unwrap();
        assert_eq!(identity.groups, [5, 6]);
    }

    #[rstest]
    #[case::root("root", Ok(0))]
    #[case::nobody("nobody", Ok(65534))]
    #[case::number("12", Ok(12))]
    #[case::stranger("bob", Err(Error::UnknownUser("bob".to_owned())))]
    fn names_of_users(#[case] name: &str, #[case] expected: Result<u32, Error>) {
        let security = cri::LinuxContainerSecurityContext {
            run_as_username: name.to_owned(),
            ..Default::default()
        };
        let uid = Identity::resolve(Some(&security), None).map(|identity| identity.uid);
        assert_eq!(uid, expected);
    }

    #[test]
    fn negative_id_is_refused() {
        let identity = Identity::resolve(Some(&mk_security(Some(-1), None)), None);
        assert_eq!(identity, Err(Error::Range(-1)));
    }

    #[test]
    fn own_user_has_an_entry() {
        let identity = Identity {
            uid: 1000,
            gid: 2000,
            groups: Vec::new(),
        };
        let files = etc_files(&identity, "web", "10.244.0.2", None);
        assert!(
            files.passwd.contains("\nuser1000:x:1000:2000:"),
            "{}",
            files.passwd
        );
        assert!(
            files.group.contains("\ngroup2000:x:2000:\n"),
            "{}",
            files.group
        );
        assert!(files.hosts.contains("10.244.0.2\tweb\n"), "{}", files.hosts);
        assert_eq!(files.resolv_conf, "");
    }

    #[test]
    fn resolver_settings_are_written() {
        let dns = cri::DnsConfig {
            servers: vec!["10.96.0.10".to_owned()],
            searches: vec!["a.local".to_owned(), "b.local".to_owned()],
            options: vec!["ndots:5".to_owned()],
        };
        assert_eq!(
            resolv_conf(Some(&dns)),
            "search a.local b.local\nnameserver 10.96.0.10\noptions ndots:5\n"
        );
    }
}

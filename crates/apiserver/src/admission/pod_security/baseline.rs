//! The rules of the level `baseline`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::parts::{
    PodParts, Setters, Violation, name, named, plural, quoted, subject, texts, violation,
};
use crate::values::annotations::{LOCAL, SECCOMP_OF_CONTAINER, SECCOMP_OF_POD};
use crate::values::app_armor;
use crate::values::fields::{elements, members};
use crate::values::pods::all_containers;

/// Capabilities that the baseline lets containers add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Kernel parameters that the baseline lets pods set, each with the first version that does.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

/// Checks AppArmor profiles, in fields and annotations.
pub(super) fn app_armor(pod: PodParts<'_>) -> Option<Violation> {
    let setters = Setters::of(pod.spec, |context| {
        let kind = context["appArmorProfile"]["type"].as_str()?;
        (!["RuntimeDefault", "Localhost"].contains(&kind)).then(|| kind.to_owned())
    });
    let annotations = members(pod.annotations);
    let mut forbidden: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with(app_armor::OF_CONTAINER))
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(_, value)| *value == "unconfined" || !app_armor::is_profile(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    forbidden.sort();
    let mut who: Vec<String> = Vec::new();
    who.extend((!setters.are_none()).then(|| setters.subject()));
    who.extend(
        (!forbidden.is_empty())
            .then(|| plural("annotation", "annotations", forbidden.len()).to_owned()),
    );
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = setters.values.into_iter().chain(forbidden).collect();
    let reason = plural(
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
        values.len(),
    );
    let detail = format!(
        "{} must not set AppArmor profile type to {}",
        who.join(" and "),
        quoted(&values)
    );
    Some(violation(reason, detail))
}

/// Returns the containers that add capabilities beside those allowed, and the capabilities.
pub(super) fn added(spec: &Value, allowed: &[&str]) -> (Vec<String>, BTreeSet<String>) {
    let mut forbidden = BTreeSet::new();
    let containers = named(spec, |container| {
        let added = texts(&container["securityContext"]["capabilities"]["add"]);
        let wrong: Vec<&str> = added.filter(|name| !allowed.contains(name)).collect();
        forbidden.extend(wrong.iter().map(|name| (*name).to_owned()));
        !wrong.is_empty()
    });
    (containers, forbidden)
}

/// Checks added capabilities.
pub(super) fn capabilities(spec: &Value) -> Option<Violation> {
    let (containers, forbidden) = added(spec, &CAPABILITIES);
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        subject(&containers),
        quoted(&forbidden)
    );
    Some(violation("non-default capabilities", detail))
}

/// Checks namespaces that are shared with the node.
pub(super) fn host_namespaces(spec: &Value) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"];
    let shared: Vec<String> = shared
        .into_iter()
        .filter(|field| spec[field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() {
        return None;
    }
    Some(violation("host namespaces", shared.join(", ")))
}

/// Checks volumes from paths of the node.
pub(super) fn host_paths(spec: &Value) -> Option<Violation> {
    let names: Vec<String> = elements(&spec["volumes"])
        .filter(|volume| !volume["hostPath"].is_null())
        .map(name)
        .collect();
    if names.is_empty() {
        return None;
    }
    let noun = plural("volume", "volumes", names.len());
    Some(violation(
        "hostPath volumes",
        format!("{noun} {}", quoted(&names)),
    ))
}

/// Checks ports of the node.
pub(super) fn host_ports(spec: &Value) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let containers = named(spec, |container| {
        let used = elements(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let is_wrong = !used.is_empty();
        ports.extend(used);
        is_wrong
    });
    if containers.is_empty() {
        return None;
    }
    let shown: Vec<String> = ports.iter().cloned().collect();
    let detail = format!(
        "{} {} {} {}",
        subject(&containers),
        plural("uses", "use", containers.len()),
        plural("hostPort", "hostPorts", ports.len()),
        shown.join(", ")
    );
    Some(violation("hostPort", detail))
}

/// Checks that probes and hooks go to the pod itself.
pub(super) fn hosts(spec: &Value) -> Option<Violation> {
    let mut forbidden = BTreeSet::new();
    let containers = named(spec, |container| {
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &container["lifecycle"]["postStart"],
            &container["lifecycle"]["preStop"],
        ];
        let hosts = handlers.into_iter().flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|kind| handler[kind]["host"].as_str().unwrap_or_default())
        });
        let hosts: Vec<&str> = hosts.filter(|host| !host.is_empty()).collect();
        forbidden.extend(hosts.iter().map(|host| (*host).to_owned()));
        !hosts.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let mut sorted = containers;
    sorted.sort();
    let detail = format!(
        "{} {} {} {}",
        subject(&sorted),
        plural("uses", "use", sorted.len()),
        plural(
            "probe or lifecycle host",
            "probe or lifecycle hosts",
            forbidden.len()
        ),
        quoted(&forbidden)
    );
    Some(violation("probe or lifecycle host", detail))
}

/// Checks privileged containers.
pub(super) fn privileged(spec: &Value) -> Option<Violation> {
    let names = named(spec, |container| {
        container["securityContext"]["privileged"] == true
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.privileged=true",
        subject(&names)
    );
    Some(violation("privileged", detail))
}

/// Checks the masks of `/proc`.
pub(super) fn proc_mount(spec: &Value) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let names = named(
        spec,
        |container| match container["securityContext"]["procMount"].as_str() {
            None | Some("Default") => false,
            Some(other) => {
                values.insert(other.to_owned());
                true
            }
        },
    );
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        subject(&names),
        quoted(&values)
    );
    Some(violation("procMount", detail))
}

/// Checks SELinux options.
pub(super) fn selinux(spec: &Value, minor: u32) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut sets_user, mut sets_role) = (false, false);
    let setters = Setters::of(spec, |context| {
        let given = |field: &str| {
            context["seLinuxOptions"][field]
                .as_str()
                .unwrap_or_default()
        };
        let is_allowed = match given("type") {
            "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
            "container_engine_t" => minor >= 31,
            _ => false,
        };
        if !is_allowed {
            types.insert(given("type").to_owned());
        }
        sets_user |= !given("user").is_empty();
        sets_role |= !given("role").is_empty();
        let is_wrong = !is_allowed || !given("user").is_empty() || !given("role").is_empty();
        is_wrong.then(String::new)
    });
    if setters.are_none() {
        return None;
    }
    let mut what = Vec::new();
    if !types.is_empty() {
        let noun = plural("type", "types", types.len());
        what.push(format!("{noun} {}", quoted(&types)));
    }
    what.extend(sets_user.then(|| "user may not be set".to_owned()));
    what.extend(sets_role.then(|| "role may not be set".to_owned()));
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        setters.subject(),
        what.join("; ")
    );
    Some(violation("seLinuxOptions", detail))
}

fn wrong_seccomp(context: &Value) -> Option<String> {
    let profile = &context["seccompProfile"];
    let kind = profile["type"].as_str().unwrap_or_default();
    let is_wrong = profile.is_object() && !["RuntimeDefault", "Localhost"].contains(&kind);
    is_wrong.then(|| kind.to_owned())
}

/// Checks the seccomp profiles that are set.
pub(super) fn wrong_seccomp_fields(spec: &Value) -> Option<Violation> {
    let setters = Setters::of(spec, wrong_seccomp);
    if setters.are_none() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.seccompProfile.type to {}",
        setters.subject(),
        quoted(&setters.values)
    );
    Some(violation("seccompProfile", detail))
}

/// Checks seccomp profiles, once in annotations.
pub(super) fn seccomp_of_baseline(pod: PodParts<'_>, minor: u32) -> Option<Violation> {
    if minor >= 19 {
        return wrong_seccomp_fields(pod.spec);
    }
    let of_containers = all_containers(pod.spec)
        .map(|container| format!("{SECCOMP_OF_CONTAINER}{}", name(container)));
    let keys = std::iter::once(SECCOMP_OF_POD.to_owned()).chain(of_containers);
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| {
            let value = pod.annotations[&key].as_str()?;
            let is_allowed =
                ["runtime/default", "docker/default"].contains(&value) || value.starts_with(LOCAL);
            (!is_allowed).then(|| format!("{key}={value:?}"))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let noun = plural("annotation", "annotations", forbidden.len());
    let shown: Vec<String> = forbidden.into_iter().collect();
    let detail = format!("forbidden {noun} {}", shown.join(", "));
    Some(violation("seccompProfile", detail))
}

/// Checks kernel parameters.
pub(super) fn sysctls(spec: &Value, minor: u32) -> Option<Violation> {
    let names = elements(&spec["securityContext"]["sysctls"]).map(name);
    let forbidden: Vec<String> = names
        .filter(|name| {
            !SYSCTLS
                .iter()
                .any(|(known, first)| known == name && minor >= *first)
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    Some(violation("forbidden sysctls", forbidden.join(", ")))
}

/// Checks Windows containers that are processes of the node.
pub(super) fn windows_host(spec: &Value) -> Option<Violation> {
    let setters = Setters::of(spec, |context| {
        (context["windowsOptions"]["hostProcess"] == true).then(String::new)
    });
    if setters.are_none() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.windowsOptions.hostProcess=true",
        setters.subject()
    );
    Some(violation("hostProcess", detail))
}

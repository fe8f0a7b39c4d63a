//! Which rules of the Pod Security Standards hold, in each version and level.

use super::baseline::{
    app_armor, capabilities, host_namespaces, host_paths, host_ports, hosts, privileged,
    proc_mount, seccomp_of_baseline, selinux, sysctls, windows_host,
};
use super::parts::{PodParts, Violation};
use super::restricted::{
    dropped_capabilities, escalation, run_as_non_root, run_as_user, seccomp, volumes,
};
use super::{Level, Standard};

/// The newest version that changed a rule.
const NEWEST: u32 = 35;

/// Returns the rules that a pod violates, in the order in which a real server names them.
pub(super) fn violations(standard: Standard, pod: PodParts<'_>) -> Vec<Violation> {
    if standard.level == Level::Privileged {
        return Vec::new();
    }
    let minor = standard.minor.unwrap_or(NEWEST).min(NEWEST);
    let is_restricted = standard.level == Level::Restricted;
    // a rule of the restricted level replaces that of the baseline
    let replaced_from = |first: u32| is_restricted && minor >= first;
    let from = |first: u32| minor >= first;
    let spec = pod.spec;
    let mut found = vec![app_armor(pod)];
    found.extend((!replaced_from(22)).then(|| capabilities(spec)));
    found.push(host_namespaces(spec));
    found.extend((!is_restricted).then(|| host_paths(spec)));
    found.push(host_ports(spec));
    found.extend(from(34).then(|| hosts(spec)));
    found.push(privileged(spec));
    let masks_matter = !(from(35) && pod.has_own_users());
    found.extend((!replaced_from(35) && masks_matter).then(|| proc_mount(spec)));
    found.push(selinux(spec, minor));
    found.extend((!replaced_from(19)).then(|| seccomp_of_baseline(pod, minor)));
    found.push(sysctls(spec, minor));
    found.push(windows_host(spec));
    if is_restricted {
        let is_exempt = from(25) && pod.is_windows();
        let roots_matter = !(from(35) && pod.has_own_users());
        found.extend((from(8) && !is_exempt).then(|| escalation(spec)));
        found.extend((from(22) && !is_exempt).then(|| dropped_capabilities(spec)));
        found.extend(from(35).then(|| proc_mount(spec)));
        found.push(volumes(spec));
        found.extend(roots_matter.then(|| run_as_non_root(spec)));
        found.extend((from(23) && roots_matter).then(|| run_as_user(spec)));
        found.extend((from(19) && !is_exempt).then(|| seccomp(spec)));
    }
    found.into_iter().flatten().collect()
}

//! Checks of the security contexts of pods and containers.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::checks::{filled, indexed, one_of, text};
use super::{internal, volumes};
use crate::failure::Cause;
use crate::values::app_armor::LONGEST_PATH;
use crate::values::fields::elements;

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// Longest name of a kernel parameter.
const LONGEST_SYSCTL: usize = 253;

static SYSCTL_FORM: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SYSCTL).ok());

fn id(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let most = i64::from(i32::MAX);
    if value.as_i64().is_some_and(|id| !(0..=most).contains(&id)) {
        let why = format!("must be between 0 and {most}, inclusive");
        causes.push(Cause::invalid(path, value, &why));
    }
}

/// Checks the context of a pod at a path.
pub(super) fn of_pod(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let context = &spec["securityContext"];
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context[field], &format!("{path}.{field}"), causes);
    }
    for (at, group) in indexed(
        &context["supplementalGroups"],
        &format!("{path}.supplementalGroups"),
    ) {
        id(group, &at, causes);
    }
    if context.is_object() && spec["hostPID"] == true && spec["shareProcessNamespace"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        let at = format!("{path}.shareProcessNamespace");
        causes.push(Cause::invalid(at, &json!(true), why));
    }
    sysctls(spec, &format!("{path}.sysctls"), causes);
    let choices: [(&str, &[&str]); 3] = [
        ("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", &["Merge", "Strict"]),
        // the other one needs a feature that is off
        ("seLinuxChangePolicy", &["Recursive"]),
    ];
    for (field, allowed) in choices {
        if !context[field].is_null() {
            one_of(&context[field], allowed, &format!("{path}.{field}"), causes);
        }
    }
    profiles(context, path, causes);
}

fn sysctls(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, sysctl) in indexed(&spec["securityContext"]["sysctls"], path) {
        let (name, at) = (text(&sysctl["name"]), format!("{at}.name"));
        let form = SYSCTL_FORM.as_ref();
        let fits = form.is_none_or(|form| form.is_match(name)) && name.len() <= LONGEST_SYSCTL;
        if name.is_empty() {
            causes.push(Cause::required(&*at, ""));
        } else if !fits {
            let why =
                format!("must have at most {LONGEST_SYSCTL} characters and match regex {SYSCTL}");
            causes.push(Cause::invalid(&*at, &json!(name), &why));
        } else if seen.contains(name) {
            causes.push(Cause::duplicate(&*at, &json!(name)));
        }
        let of_host = |field: &str, why: &str, causes: &mut Vec<Cause>| {
            if spec[field] == true {
                causes.push(Cause::invalid(&*at, &json!(name), why));
            }
        };
        let dotted = name.replace('/', ".");
        let of_ipc = ["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."];
        if dotted.starts_with("net.") {
            of_host(
                "hostNetwork",
                "may not be specified when 'hostNetwork' is true",
                causes,
            );
        } else if of_ipc.iter().any(|part| dotted.starts_with(part)) {
            of_host(
                "hostIPC",
                "may not be specified when 'hostIPC' is true",
                causes,
            );
        }
        seen.insert(name);
    }
}

/// Checks the profiles of seccomp and AppArmor.
fn profiles(context: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (field, called) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let (profile, path) = (&context[field], format!("{path}.{field}"));
        if profile.is_null() {
            continue;
        }
        let (local, at) = (
            &profile["localhostProfile"],
            format!("{path}.localhostProfile"),
        );
        let is_local = profile["type"] == "Localhost";
        let only_local = format!("can only be set when {called} type is Localhost");
        let at_type = format!("{path}.type");
        if filled(&profile["type"]) {
            let types = ["Localhost", "RuntimeDefault", "Unconfined"];
            one_of(&profile["type"], &types, &at_type, causes);
        } else {
            let why = format!("type is required when {field} is set");
            causes.push(Cause::required(at_type, &why));
        }
        let missing = format!("must be set when {called} type is Localhost");
        match (called, local.as_str()) {
            ("seccomp", Some(given)) if is_local => volumes::descending(given, &at, causes),
            ("seccomp", Some(_)) => {
                let written = internal::written("SeccompProfile", profile);
                let cause = Cause::invalid(at, &Value::Null, &only_local);
                causes.push(cause.with_value(&written));
            }
            (_, Some(given)) if is_local && given.trim() != given => {
                let why = "must not be padded with whitespace";
                causes.push(Cause::invalid(at, local, why));
            }
            (_, Some(given)) if is_local && given.len() > LONGEST_PATH => {
                causes.push(Cause::too_long(at, LONGEST_PATH));
            }
            (_, None | Some("")) if is_local => causes.push(Cause::required(at, &missing)),
            (_, Some(_)) if ["RuntimeDefault", "Unconfined"].contains(&text(&profile["type"])) => {
                causes.push(Cause::invalid(at, local, &only_local));
            }
            _ => {}
        }
    }
}

/// Checks the context of a container; `has_own_users` says whether its users are others than the node's.
pub(super) fn of_container(
    context: &Value,
    has_own_users: bool,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    for field in ["runAsUser", "runAsGroup"] {
        id(&context[field], &format!("{path}.{field}"), causes);
    }
    let (mount, at) = (&context["procMount"], format!("{path}.procMount"));
    if !mount.is_null() {
        one_of(mount, &["Default", "Unmasked"], &at, causes);
        if mount == "Unmasked" && !has_own_users {
            let why = "`hostUsers` must be false to use `Unmasked`";
            causes.push(Cause::invalid(at, mount, why));
        }
    }
    profiles(context, path, causes);
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
    let mut refuse = |why: &str| {
        let cause = Cause::invalid(path, &Value::Null, why);
        causes.push(cause.with_value(&internal::written("SecurityContext", context)));
    };
    if context["privileged"] == true {
        refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    let added = elements(&context["capabilities"]["add"]);
    for _ in added.filter(|one| *one == "CAP_SYS_ADMIN") {
        refuse(
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        );
    }
}

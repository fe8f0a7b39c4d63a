//! Compares roles with the requests of their subjects: rules that nobody uses, and requests that no rule allows.

use std::collections::BTreeSet;

use apiserver::audit::Decision;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// One permission that a role grants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// Namespace that it holds in; none means everywhere.
    pub namespace: Option<String>,
    /// Verb that is allowed.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Resource, with the subresource after a slash.
    pub resource: String,
    /// The only object name that it covers; none means all.
    pub name: Option<String>,
}

impl Permission {
    /// Returns all permissions that rules grant, in a namespace or everywhere. Rules about non-resource URLs are left out.
    pub fn all_of(rules: &[PolicyRule], namespace: Option<&str>) -> BTreeSet<Self> {
        let mut permissions = BTreeSet::new();
        for rule in rules {
            let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
                None | Some([]) => vec![None],
                Some(names) => names.iter().cloned().map(Some).collect(),
            };
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        permissions.extend(names.iter().map(|name| Self {
                            namespace: namespace.map(str::to_owned),
                            verb: verb.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
        permissions
    }

    fn allows(&self, asked: &Decision) -> bool {
        let resource = if asked.subresource.is_empty() {
            asked.resource.clone()
        } else {
            format!("{}/{}", asked.resource, asked.subresource)
        };
        self.namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == asked.namespace)
            && self.verb == asked.verb
            && self.group == asked.group
            && self.resource == resource
            && self.name.as_ref().is_none_or(|name| *name == asked.name)
    }
}

/// Permissions that nobody uses but that a role must have, because the original's role has them.
#[derive(Debug)]
pub struct RequiredPermission {
    /// Line of the reference that grants them.
    pub line: &'static str,
    /// Verbs that are allowed.
    pub verbs: &'static [&'static str],
    /// API groups.
    pub groups: &'static [&'static str],
    /// Resources, with the subresource after a slash.
    pub resources: &'static [&'static str],
}

impl RequiredPermission {
    fn covers(&self, permission: &Permission) -> bool {
        self.groups.contains(&permission.group.as_str())
            && self.verbs.contains(&permission.verb.as_str())
            && self.resources.contains(&permission.resource.as_str())
    }
}

/// What is wrong with roles; nothing is when all lists are empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Requests that were refused, except where a permission that covers them allowed another request: a role that is being removed refuses
    /// what it granted before.
    pub denied: Vec<Decision>,
    /// Granted, but neither used nor required.
    pub unused: Vec<Permission>,
    /// Lines of the required permissions that have no effect: all that they name is used by now, or not granted.
    pub stale: Vec<&'static str>,
}

/// Compares the granted permissions with the requests.
pub fn compare(
    granted: &BTreeSet<Permission>,
    asked: &[Decision],
    required: &[RequiredPermission],
) -> Findings {
    let is_used =
        |permission: &Permission| asked.iter().any(|decision| permission.allows(decision));
    let has_worked = |permission: &&Permission| {
        let mut allowed = asked.iter().filter(|decision| decision.allowed);
        allowed.any(|decision| permission.allows(decision))
    };
    let working: Vec<&Permission> = granted.iter().filter(has_worked).collect();
    let is_denied =
        |one: &&Decision| !one.allowed && !working.iter().any(|permission| permission.allows(one));
    let unused: Vec<&Permission> = granted
        .iter()
        .filter(|permission| !is_used(permission))
        .collect();
    let is_required =
        |permission: &Permission| required.iter().any(|entry| entry.covers(permission));
    let stale = required
        .iter()
        .filter(|entry| !unused.iter().any(|permission| entry.covers(permission)));
    Findings {
        denied: asked.iter().filter(is_denied).cloned().collect(),
        stale: stale.map(|entry| entry.line).collect(),
        unused: unused
            .into_iter()
            .filter(|permission| !is_required(permission))
            .cloned()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<PolicyRule> {
        let rule = |group: &str, resource: &str, verbs: &[&str], names: &[&str]| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            resource_names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        vec![
            rule("", "pods", &["get", "list"], &[]),
            rule("", "pods/status", &["patch"], &[]),
            rule("apps", "deployments", &["get"], &["mine"]),
        ]
    }

    fn asked(
        verb: &str,
        (group, resource, subresource): (&str, &str, &str),
        name: &str,
    ) -> Decision {
        Decision {
            user: "u".to_owned(),
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            path: String::new(),
            allowed: true,
        }
    }

    const REQUIRED: RequiredPermission = RequiredPermission {
        line: "somewhere",
        verbs: &["list"],
        groups: &[""],
        resources: &["pods"],
    };

    #[test]
    fn a_rule_is_used_by_a_request_of_its_verb_group_resource_and_name() {
        let granted = Permission::all_of(&rules(), None);
        let all = [
            asked("get", ("", "pods", ""), "a"),
            asked("patch", ("", "pods", "status"), "a"),
            asked("get", ("apps", "deployments", ""), "mine"),
        ];
        assert_eq!(compare(&granted, &all, &[REQUIRED]), Findings::default());
    }

    #[test]
    fn other_names_and_subresources_leave_a_rule_unused() {
        let granted = Permission::all_of(&rules(), None);
        let others = [
            asked("get", ("", "pods", "status"), "a"),
            asked("get", ("apps", "deployments", ""), "others"),
        ];
        let findings = compare(&granted, &others, &[REQUIRED]);
        assert_eq!(findings.unused.len(), 3, "{:?}", findings.unused);
    }

    #[test]
    fn rules_of_a_namespace_are_not_used_elsewhere() {
        let granted = Permission::all_of(&rules(), Some("elsewhere"));
        let findings = compare(&granted, &[asked("get", ("", "pods", ""), "a")], &[]);
        assert_eq!(findings.unused, granted.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_demand_about_nothing_and_a_refused_request_are_told() {
        let refused = Decision {
            allowed: false,
            ..asked("delete", ("", "pods", ""), "a")
        };
        let granted = Permission::all_of(&rules()[..1], None);
        let all = [asked("get", ("", "pods", ""), "a"), refused.clone()];
        let entry = RequiredPermission {
            verbs: &["watch"],
            ..REQUIRED
        };
        let findings = compare(&granted, &all, &[entry]);
        assert_eq!(
            (findings.denied, findings.stale),
            (vec![refused], vec!["somewhere"])
        );
    }

    #[test]
    fn a_request_that_is_refused_while_its_role_goes_is_not_told_but_one_that_never_worked_is() {
        let granted = Permission::all_of(&rules()[..1], None);
        let refused = |verb: &str| Decision {
            allowed: false,
            ..asked(verb, ("", "pods", ""), "a")
        };
        let all = [
            asked("get", ("", "pods", ""), "b"),
            refused("get"),
            refused("list"),
        ];
        assert_eq!(compare(&granted, &all, &[]).denied, [refused("list")]);
    }
}

//! Checks of what shares the API server's time out: flow schemas and priority levels.

use serde_json::{Value, json};

use super::checks::{filled, indexed, name, one_of, text, wrong};
use super::names;
use crate::failure::Cause;
use crate::values::fields::elements;

const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
/// Highest number of a schema; higher ones come later.
const LAST: i64 = 10_000;
/// Most queues of a level.
const MOST_QUEUES: i64 = 10_000_000;
/// Number of bits of the hash that deals queues.
const HASH_BITS: f64 = 60.0;
const NOT_NEGATIVE: &str = "must be a non-negative integer";

/// Checks a flow schema.
pub(super) fn schema(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let given = spec["matchingPrecedence"].as_i64().unwrap_or_default();
    let mut refuse = |why: &str| {
        causes.push(Cause::invalid(
            "spec.matchingPrecedence",
            &json!(given),
            why,
        ));
    };
    if given <= 0 {
        refuse("must be a positive value");
    }
    if given > LAST {
        refuse(&format!("must not be greater than {LAST}"));
    }
    if given == 1 && object["metadata"]["name"] != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = &spec["distinguisherMethod"];
    if !method.is_null() && !["ByNamespace", "ByUser"].contains(&text(&method["type"])) {
        let allowed = ["ByNamespace", "ByUser"].map(str::to_owned);
        let shown = json!({"Type": text(&method["type"])});
        causes.push(Cause::unsupported(
            "spec.distinguisherMethod.type",
            &shown,
            &allowed,
        ));
    }
    let (level, at) = (
        &spec["priorityLevelConfiguration"]["name"],
        "spec.priorityLevelConfiguration.name",
    );
    if filled(level) {
        wrong(names::subdomain(text(level)), text(level), at, causes);
    } else {
        causes.push(Cause::required(at, "must reference a priority level"));
    }
    for (path, rule) in indexed(&spec["rules"], "spec.rules") {
        if !filled(&rule["subjects"]) {
            let why = "subjects must contain at least one value";
            causes.push(Cause::required(format!("{path}.subjects"), why));
        }
        for (at, subject) in indexed(&rule["subjects"], &format!("{path}.subjects")) {
            check_subject(subject, &at, causes);
        }
        if !filled(&rule["resourceRules"]) && !filled(&rule["nonResourceRules"]) {
            let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
            causes.push(Cause::required(&*path, why));
        }
        for (at, rule) in indexed(&rule["resourceRules"], &format!("{path}.resourceRules")) {
            resource_rule(rule, &at, causes);
        }
        for (at, rule) in indexed(
            &rule["nonResourceRules"],
            &format!("{path}.nonResourceRules"),
        ) {
            verbs(rule, &at, causes);
            urls(
                &rule["nonResourceURLs"],
                &format!("{at}.nonResourceURLs"),
                causes,
            );
        }
    }
}

fn check_subject(subject: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kinds = [
        ("Group", "group"),
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
    ];
    let kind = text(&subject["kind"]);
    if !kinds.iter().any(|(known, _)| *known == kind) {
        let known = kinds.map(|(known, _)| known);
        return one_of(&subject["kind"], &known, &format!("{path}.kind"), causes);
    }
    for (known, field) in kinds {
        let (value, at) = (&subject[field], format!("{path}.{field}"));
        if known != kind {
            if !value.is_null() {
                let why = format!("{field} is forbidden when subject kind is not '{known}'");
                causes.push(Cause::forbidden(&*at, &why));
            }
        } else if value.is_null() {
            let why = format!("{field} is required when subject kind is '{known}'");
            causes.push(Cause::required(&*at, &why));
        } else if !filled(&value["name"]) {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if known == "ServiceAccount" && value["name"] != "*" {
            name(
                &value["name"],
                names::subdomain,
                &format!("{at}.name"),
                causes,
            );
        }
        if known == kind && known == "ServiceAccount" && !value.is_null() {
            let (namespace, at) = (text(&value["namespace"]), format!("{at}.namespace"));
            if namespace.is_empty() {
                let why = "must specify namespace for service account";
                causes.push(Cause::required(at, why));
            } else {
                wrong(names::label(namespace), namespace, &at, causes);
            }
        }
    }
}

/// Returns whether a list has `*`; beside others that is refused.
fn everything(list: &Value, called: &str, path: &str, causes: &mut Vec<Cause>) -> bool {
    let all = list.as_array();
    let found = all.is_some_and(|all| all.contains(&json!("*")));
    if found && all.is_some_and(|all| all.len() > 1) {
        let why = format!("if '*' is present, must not specify other {called}");
        causes.push(Cause::invalid(path, list, &why));
    }
    found
}

fn verbs(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (list, at) = (&rule["verbs"], format!("{path}.verbs"));
    if !filled(list) {
        let why = "verbs must contain at least one value";
        causes.push(Cause::required(at, why));
        return;
    }
    let mut all = elements(list);
    if !everything(list, "verbs", &at, causes) && !all.all(|verb| VERBS.contains(&text(verb))) {
        causes.push(Cause::unsupported(at, list, &VERBS.map(str::to_owned)));
    }
}

fn resource_rule(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    verbs(rule, path, causes);
    for (field, called, one) in [
        ("apiGroups", "api groups", "api group"),
        ("resources", "resources", "resource"),
    ] {
        let at = format!("{path}.{field}");
        if filled(&rule[field]) {
            everything(&rule[field], called, &at, causes);
        } else {
            let why = format!("resource rules must supply at least one {one}");
            causes.push(Cause::required(at, &why));
        }
    }
    let (list, at) = (&rule["namespaces"], format!("{path}.namespaces"));
    if !filled(list) && rule["clusterScope"] != true {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        causes.push(Cause::required(at, why));
    } else if !everything(list, "namespaces", &at, causes) {
        for (at, namespace) in indexed(list, &at) {
            for why in names::label(text(namespace)) {
                let why =
                    format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                causes.push(Cause::invalid(&*at, namespace, &why));
            }
        }
    }
}

fn urls(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !filled(list) {
        let why = "nonResourceURLs must contain at least one value";
        causes.push(Cause::required(path, why));
        return;
    }
    if everything(list, "non-resource URLs", path, causes) {
        return;
    }
    for (at, url) in indexed(list, path) {
        let given = text(url);
        let stars = given.matches('*').count();
        let why = if given.is_empty() {
            "must not be empty"
        } else if !given.starts_with('/') {
            "must start with slash"
        } else if given.contains(' ') {
            "must not contain white-space"
        } else if given.contains("//") {
            "must not contain double slash"
        } else if stars > 1 || (stars == 1 && !given.ends_with("/*")) {
            "wildcard can only do suffix matching"
        } else {
            continue;
        };
        causes.push(Cause::invalid(at, url, why));
    }
}

/// Checks a priority level.
pub(super) fn level(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let kind = text(&spec["type"]);
    let is_exempt = object["metadata"]["name"] == "exempt";
    if is_exempt != (kind == "Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        causes.push(Cause::invalid("spec.type", &json!(kind), why));
    }
    let (limited, exempt) = (&spec["limited"], &spec["exempt"]);
    match kind {
        "Exempt" => {
            if !limited.is_null() {
                let why = "must be nil if the type is not Limited";
                causes.push(Cause::forbidden("spec.limited", why));
            }
            shares(exempt, "spec.exempt", causes);
        }
        "Limited" => {
            if !exempt.is_null() {
                let why = "must be nil if the type is Limited";
                causes.push(Cause::forbidden("spec.exempt", why));
            }
            if limited.is_null() {
                let why = "must not be empty when type is Limited";
                causes.push(Cause::required("spec.limited", why));
            } else {
                shares(limited, "spec.limited", causes);
                limits(limited, causes);
            }
        }
        _ => one_of(&spec["type"], &["Exempt", "Limited"], "spec.type", causes),
    }
}

fn shares(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = |field: &str| value[field].as_i64();
    if number("nominalConcurrencyShares").is_some_and(|shares| shares < 0) {
        let at = format!("{path}.nominalConcurrencyShares");
        causes.push(Cause::invalid(
            at,
            &value["nominalConcurrencyShares"],
            NOT_NEGATIVE,
        ));
    }
    if number("lendablePercent").is_some_and(|percent| !(0..=100).contains(&percent)) {
        let why = "must be between 0 and 100, inclusive";
        let at = format!("{path}.lendablePercent");
        causes.push(Cause::invalid(at, &value["lendablePercent"], why));
    }
}

fn limits(limited: &Value, causes: &mut Vec<Cause>) {
    let borrowed = &limited["borrowingLimitPercent"];
    if borrowed.as_i64().is_some_and(|percent| percent < 0) {
        let why = "if specified, must be a non-negative integer";
        causes.push(Cause::invalid(
            "spec.limited.borrowingLimitPercent",
            borrowed,
            why,
        ));
    }
    let (response, path) = (&limited["limitResponse"], "spec.limited.limitResponse");
    let queuing = &response["queuing"];
    match text(&response["type"]) {
        "Reject" => {
            if !queuing.is_null() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                causes.push(Cause::forbidden(format!("{path}.queuing"), why));
            }
        }
        "Queue" if queuing.is_null() => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            causes.push(Cause::required(format!("{path}.queuing"), why));
        }
        "Queue" => queues(queuing, &format!("{path}.queuing"), causes),
        _ => one_of(
            &response["type"],
            &["Queue", "Reject"],
            &format!("{path}.type"),
            causes,
        ),
    }
}

fn queues(queuing: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = |field: &str| queuing[field].as_i64().unwrap_or_default();
    let mut refuse = |field: &str, why: &str| {
        causes.push(Cause::invalid(
            format!("{path}.{field}"),
            &json!(number(field)),
            why,
        ));
    };
    let (queues, hand) = (number("queues"), number("handSize"));
    for field in ["queueLengthLimit", "queues", "handSize"] {
        if number(field) <= 0 {
            refuse(field, "must be positive");
        }
    }
    if queues > MOST_QUEUES {
        refuse("queues", &format!("must not be greater than {MOST_QUEUES}"));
    }
    if hand <= 0 {
        return;
    }
    if hand > queues {
        refuse(
            "handSize",
            &format!("should not be greater than queues ({queues})"),
        );
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        refuse("handSize", &why);
    }
}

/// Returns how many bits say which hand of queues is dealt.
fn entropy_bits(queues: i64, hand: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "the real server loses it, too")]
    let [queues, hand] = [queues, hand].map(|number| number as f64);
    (queues.log2() * hand).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_of_many_queues_need_too_many_bits() {
        assert!(entropy_bits(64, 8) <= HASH_BITS);
        assert!(entropy_bits(10_000_000, 8) > HASH_BITS);
        assert!(entropy_bits(2_147_483_647, 2_147_483_647) > HASH_BITS);
    }
}

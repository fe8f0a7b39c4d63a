//! Checks of limit ranges and quotas.

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Amount;
use serde_json::{Value, json};

use super::checks::{indexed, text};
use super::{names, resources};
use crate::failure::Cause;
use crate::values::fields::{elements, members};
use crate::values::quantity;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

/// Checks the specification of a quota.
pub(super) fn quota(spec: &Value, causes: &mut Vec<Cause>) {
    for (name, amount) in members(&spec["hard"]) {
        let at = format!("spec.hard[{name}]");
        resources::any_name(name, &at, causes);
        if !name.contains('/') && !resources::is_standard_for_quota(name) {
            let why = "must be a standard resource for quota";
            causes.push(Cause::invalid(&*at, &json!(name), why));
        }
        resources::in_units(name, amount, &at, causes);
    }
    scopes(spec, causes);
    scope_selector(spec, causes);
}

/// Returns whether a scope selects what uses a resource.
fn fits(scope: &str, resource: &str) -> bool {
    let compute = [
        "cpu",
        "memory",
        "limits.cpu",
        "limits.memory",
        "requests.cpu",
        "requests.memory",
    ];
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || compute.contains(&resource),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            resource == "persistentvolumeclaims" || resource == "requests.storage"
        }
        _ => true,
    }
}

fn limited(spec: &Value) -> impl Iterator<Item = &str> {
    let hard = members(&spec["hard"]);
    hard.map(|(name, _)| name.as_str())
        .filter(|name| resources::is_standard_for_quota(name))
}

fn conflict(seen: &BTreeSet<&str>) -> usize {
    let pairs = [
        ["BestEffort", "NotBestEffort"],
        ["Terminating", "NotTerminating"],
    ];
    let both = |pair: &&[&str; 2]| pair.iter().all(|scope| seen.contains(scope));
    pairs.iter().filter(both).count()
}

fn scopes(spec: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.scopes";
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &spec["scopes"], why));
    let mut seen = BTreeSet::new();
    for scope in elements(&spec["scopes"]).map(text) {
        if !SCOPES.contains(&scope) {
            refuse("unsupported scope");
        }
        for _ in limited(spec).filter(|resource| !fits(scope, resource)) {
            refuse("unsupported scope applied to resource");
        }
        seen.insert(scope);
    }
    for _ in 0..conflict(&seen) {
        refuse("conflicting scopes");
    }
}

fn scope_selector(spec: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.scopeSelector.matchExpressions";
    let mut seen = BTreeSet::new();
    for expression in elements(&spec["scopeSelector"]["matchExpressions"]) {
        let (scope, operator) = (
            text(&expression["scopeName"]),
            text(&expression["operator"]),
        );
        let values = expression["values"].as_array().map_or(0, Vec::len);
        let mut refuse = |field: &str, value: Value, why: &str| {
            causes.push(Cause::invalid(format!("{path}.{field}"), &value, why));
        };
        if !SCOPES.contains(&scope) {
            refuse("scopeName", json!(scope), "unsupported scope");
        }
        let unfit = limited(spec)
            .filter(|resource| !fits(scope, resource))
            .count();
        let takes_values = ["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if SCOPES.contains(&scope) && !takes_values && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            refuse("operator", json!(operator), why);
        }
        match operator {
            "In" | "NotIn" => {
                if values == 0 {
                    let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    causes.push(Cause::required(format!("{path}.values"), why));
                }
            }
            "Exists" | "DoesNotExist" => {
                if values > 0 {
                    let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    refuse("values", expression["values"].clone(), why);
                }
            }
            _ => refuse("operator", json!(operator), "not a valid selector operator"),
        }
        for _ in 0..unfit {
            let why = "unsupported scope applied to resource";
            let cause = Cause::invalid(path, &Value::Null, why);
            causes.push(cause.with_value(&written(&spec["scopeSelector"])));
        }
        seen.insert(scope);
    }
    for _ in 0..conflict(&seen) {
        causes.push(Cause::invalid(
            "spec.scopes",
            &spec["scopes"],
            "conflicting scopes",
        ));
    }
}

/// Writes a selector of scopes as a real server does, with the names of its own types.
fn written(selector: &Value) -> String {
    let expressions = elements(&selector["matchExpressions"]);
    let expressions: Vec<String> = expressions
        .map(|one| {
            format!(
                "{{\"ScopeName\":{},\"Operator\":{},\"Values\":{}}}",
                one["scopeName"], one["operator"], one["values"]
            )
        })
        .collect();
    format!("{{\"MatchExpressions\":[{}]}}", expressions.join(","))
}

/// Checks the specification of a limit range.
pub(super) fn range(spec: &Value, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (path, limit) in indexed(&spec["limits"], "spec.limits") {
        let kind = text(&limit["type"]);
        let at = format!("{path}.type");
        let wrong = names::key(kind);
        let known = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind);
        if wrong.is_empty() && !known && !kind.contains('/') {
            let why = "must be a standard limit type or fully qualified";
            causes.push(Cause::invalid(&*at, &json!(kind), why));
        }
        super::checks::wrong(wrong, kind, &at, causes);
        if !seen.insert(kind) {
            causes.push(Cause::duplicate(at, &json!(kind)));
        }
        limit_of_type(limit, kind, &path, causes);
    }
}

type Amounts<'a> = BTreeMap<&'a str, (Amount, &'a Value)>;

/// Checks the names of the resources in a field, and returns their amounts.
fn amounts<'a>(
    limit: &'a Value,
    kind: &str,
    field: &str,
    path: &str,
    causes: &mut Vec<Cause>,
) -> Amounts<'a> {
    let given = members(&limit[field]);
    given
        .map(|(name, amount)| {
            let at = format!("{path}.{field}[{name}]");
            if kind == "Pod" || kind == "Container" {
                resources::name(name, &at, causes);
            } else {
                resources::any_name(name, &at, causes);
            }
            (name.as_str(), (quantity::amount(amount), amount))
        })
        .collect()
}

fn limit_of_type(limit: &Value, kind: &str, path: &str, causes: &mut Vec<Cause>) {
    let most = amounts(limit, kind, "max", path, causes);
    let least = amounts(limit, kind, "min", path, causes);
    let (mut default, mut request) = (Amounts::new(), Amounts::new());
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if super::checks::filled(&limit[field]) {
                let why = "may not be specified when `type` is 'Pod'";
                causes.push(Cause::forbidden(format!("{path}.{field}"), why));
            }
        }
    } else {
        default = amounts(limit, kind, "default", path, causes);
        request = amounts(limit, kind, "defaultRequest", path, causes);
    }
    if kind == "PersistentVolumeClaim"
        && !most.contains_key("storage")
        && !least.contains_key("storage")
    {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        causes.push(Cause::required(format!("{path}.limits"), why));
    }
    let ratio = amounts(limit, kind, "maxLimitRequestRatio", path, causes);
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    for one in [&most, &least, &default, &request, &ratio] {
        keys.extend(one.keys());
    }
    for key in keys {
        let all = Limits {
            least: least.get(key).copied(),
            most: most.get(key).copied(),
            default: default.get(key).copied(),
            request: request.get(key).copied(),
            ratio: ratio.get(key).copied(),
        };
        all.check(key, path, causes);
    }
}

/// What a limit says of one resource.
struct Limits<'a> {
    least: Option<(Amount, &'a Value)>,
    most: Option<(Amount, &'a Value)>,
    default: Option<(Amount, &'a Value)>,
    request: Option<(Amount, &'a Value)>,
    ratio: Option<(Amount, &'a Value)>,
}

impl Limits<'_> {
    fn check(&self, key: &str, path: &str, causes: &mut Vec<Cause>) {
        let (least, most) = (("min", self.least), ("max", self.most));
        let (default, request) = (("default", self.default), ("default request", self.request));
        // field, the smaller, the larger, how the larger is called, and which of the two is shown
        let pairs = [
            ("min", least, most, "max", false),
            ("defaultRequest", least, request, "default request", true),
            ("defaultRequest", request, most, "max", false),
            ("defaultRequest", request, default, "default limit", false),
            ("default", least, default, "default", false),
            ("default", default, most, "max", true),
        ];
        for (field, (name, smaller), (_, larger), called, larger_is_shown) in pairs {
            let (Some((low, low_value)), Some((high, high_value))) = (smaller, larger) else {
                continue;
            };
            if low > high {
                let why = format!(
                    "{name} value {} is greater than {called} value {}",
                    text(low_value),
                    text(high_value)
                );
                let shown = if larger_is_shown {
                    high_value
                } else {
                    low_value
                };
                causes.push(Cause::invalid(
                    format!("{path}.{field}[{key}]"),
                    shown,
                    &why,
                ));
            }
        }
        self.check_ratio(key, path, causes);
        if resources::is_overcommittable(key) {
            return;
        }
        if let (Some((one, one_value)), Some((other, other_value))) = (self.default, self.request)
            && one != other
        {
            let why = format!(
                "default value {} must equal to defaultRequest value {} in {key}",
                text(one_value),
                text(other_value)
            );
            let at = format!("{path}.defaultRequest[{key}]");
            causes.push(Cause::invalid(at, other_value, &why));
        }
    }

    fn check_ratio(&self, key: &str, path: &str, causes: &mut Vec<Cause>) {
        let Some((ratio, value)) = self.ratio else {
            return;
        };
        let at = format!("{path}.maxLimitRequestRatio[{key}]");
        if ratio.nanos() < 1_000_000_000 {
            let why = format!("ratio {} is less than 1", text(value));
            causes.push(Cause::invalid(&*at, value, &why));
        }
        if let (Some((least, _)), Some((most, _))) = (self.least, self.most) {
            // thousandths count only where those of all three amounts fit
            let all = [ratio, least, most];
            let is_fine = all.iter().all(|amount| amount.units() < i64::MAX / 1000);
            #[expect(clippy::cast_precision_loss, reason = "the real server loses it, too")]
            let [ratio, least, most] = if is_fine {
                let [ratio, least, most] = all.map(|amount| amount.milli() as f64);
                [ratio / 1000.0, least, most]
            } else {
                all.map(|amount| amount.units() as f64)
            };
            let bound = most / least;
            if ratio > bound {
                let why = format!("ratio {} is greater than max/min = {bound:.6}", text(value));
                causes.push(Cause::invalid(at, value, &why));
            }
        }
    }
}

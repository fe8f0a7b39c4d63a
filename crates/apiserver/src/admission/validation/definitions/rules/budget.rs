//! Cost limits of rules: for each rule, and for all rules of a schema together.
//!
//! The limits and the wording are those of apiextensions' `validation.go` and `cel_validation.go`.

use serde_json::Value;

use crate::failure::Cause;

/// Highest estimated cost of a rule.
const MAX_RULE_COST: u64 = 10_000_000;
/// Highest estimated cost of all rules of a schema together.
const MAX_SCHEMA_COST: u64 = 100_000_000;
/// Number of the most expensive rules that a refusal names.
const MAX_NAMED_RULES: usize = 4;

/// The estimated costs of the rules of a schema.
#[derive(Debug, Default)]
pub(in crate::admission::validation::definitions) struct Budget {
    total: u64,
    /// The most expensive rules, in descending order of cost.
    expensive: Vec<(u64, String)>,
    /// Whether a single rule may cost more, because the rules existed before.
    pub(in crate::admission::validation::definitions) skips_rule_limit: bool,
}

impl Budget {
    /// Adds the cost of an expression, and refuses the expression if it alone costs too much. `what` is what costs, `path` where it is.
    pub(super) fn charge(&mut self, cost: u64, what: &str, path: &str, causes: &mut Vec<Cause>) {
        if cost > MAX_RULE_COST && !self.skips_rule_limit {
            let why = exceeded(&format!("estimated {what} cost"), cost, MAX_RULE_COST);
            causes.push(Cause::forbidden(path, &why));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= MAX_SCHEMA_COST / 100 {
            self.expensive.push((cost, path.to_owned()));
            self.expensive
                .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(MAX_NAMED_RULES);
        }
    }

    /// Refuses the schema if its rules together cost too much.
    pub(in crate::admission::validation::definitions) fn check(
        self,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        if self.total <= MAX_SCHEMA_COST {
            return;
        }
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        causes.extend(
            self.expensive
                .into_iter()
                .map(|(_, path)| Cause::forbidden(path, why)),
        );
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let why = exceeded(what, self.total, MAX_SCHEMA_COST);
        causes.push(Cause::forbidden(path, &why));
    }
}

fn exceeded(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// How often the values of a part of a schema can occur in an object, by the limits of the lists and maps around them.
#[derive(Clone, Copy, Debug)]
pub(in crate::admission::validation::definitions) enum Occurrences {
    /// At most this often.
    AtMost(u64),
    /// As often as they fit into a request.
    Unlimited,
}

impl Default for Occurrences {
    fn default() -> Self {
        Self::AtMost(1)
    }
}

impl Occurrences {
    /// Returns how often what is inside a schema can occur, if values of the schema itself occur this often.
    pub(in crate::admission::validation::definitions) fn within(self, schema: &Value) -> Self {
        let limit = |word: &str| match schema[word].as_i64() {
            Some(limit) => Self::AtMost(u64::try_from(limit).unwrap_or_default()),
            None => Self::Unlimited,
        };
        let each = match schema["type"].as_str() {
            Some("array") => limit("maxItems"),
            Some("object") if !schema["additionalProperties"].is_null() => limit("maxProperties"),
            _ => Self::AtMost(1),
        };
        match (self, each) {
            (Self::AtMost(one), Self::AtMost(two)) => Self::AtMost(one.saturating_mul(two)),
            _ => Self::Unlimited,
        }
    }

    /// Returns the total cost of all occurrences; `max_occurrences` is how many fit into an object.
    pub(super) fn cost(self, each: u64, max_occurrences: u64) -> u64 {
        match self {
            Self::AtMost(count) => each.saturating_mul(count),
            Self::Unlimited => each.saturating_mul(max_occurrences),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_say_how_much_too_much_it_is() {
        let factor = |cost| {
            let text = exceeded("x", cost, 100);
            let (_, rest) = text.split_once("factor of ").unwrap();
            rest.split_once(" (").unwrap().0.to_owned()
        };
        assert_eq!(factor(101), "1.010000x");
        assert_eq!(factor(151), "1.5x");
        assert_eq!(factor(9999), "100.0x");
        assert_eq!(factor(10001), "more than 100x");
    }

    #[test]
    fn only_the_most_expensive_rules_are_named() {
        let (mut budget, mut causes) = (Budget::default(), Vec::new());
        for (number, cost) in [
            900_000, 30_000_000, 40_000_000, 20_000_000, 10_000_000, 5_000_000,
        ]
        .into_iter()
        .enumerate()
        {
            budget.charge(cost, "rule", &number.to_string(), &mut causes);
        }
        assert_eq!(causes.len(), 3);
        causes.clear();
        budget.check("root", &mut causes);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["2", "1", "3", "4", "root"]);
    }

    #[test]
    fn what_is_in_lists_without_a_limit_is_there_as_often_as_it_fits() {
        let list = |limit: Value| json!({"type": "array", "maxItems": limit});
        let three = Occurrences::default().within(&list(json!(3)));
        assert_eq!(three.cost(2, 1000), 6);
        assert_eq!(three.within(&json!({"type": "object"})).cost(2, 1000), 6);
        assert_eq!(three.within(&list(Value::Null)).cost(2, 1000), 2000);
    }
}

//! Rules: the requests that they match, and what happens to those.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

/// Which requests a rule matches: all given fields must agree. A text is compared as a whole, or as a prefix when it ends with `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// Verbs, as RBAC names them (`get`, `list`, `watch`, `create`, ...); empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// API group, empty for the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Resource, in plural.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Subresource, empty for the resource itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object, as the path or a field selector has it; a creation has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The client's `User-Agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The path; requests for resources have one, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A request's attributes that selectors compare.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestAttributes {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) user_agent: String,
    pub(crate) path: String,
}

impl Selector {
    /// Selects the requests for a resource.
    pub fn resource(group: &str, resource: &str) -> Self {
        Self {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..Self::default()
        }
    }

    /// Restricts the selection to these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = verbs.iter().map(|&verb| verb.to_owned()).collect();
        self
    }

    /// Restricts the selection to the requests of a user.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Restricts the selection to requests for an object.
    #[must_use]
    pub fn object(mut self, namespace: &str, name: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.name = Some(name.to_owned());
        self
    }

    pub(crate) fn matches(&self, attributes: &RequestAttributes) -> bool {
        let agrees = |wanted: &Option<String>, given: &str| {
            wanted
                .as_deref()
                .is_none_or(|wanted| match wanted.strip_suffix('*') {
                    Some(prefix) => given.starts_with(prefix),
                    None => wanted == given,
                })
        };
        (self.verbs.is_empty() || self.verbs.contains(&attributes.verb))
            && agrees(&self.group, &attributes.group)
            && agrees(&self.resource, &attributes.resource)
            && agrees(&self.subresource, &attributes.subresource)
            && agrees(&self.namespace, &attributes.namespace)
            && agrees(&self.name, &attributes.name)
            && agrees(&self.user, &attributes.user)
            && agrees(&self.user_agent, &attributes.user_agent)
            && agrees(&self.path, &attributes.path)
    }
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchEnd {
    /// In order, as when the time limit of the watch is over.
    Closed,
    /// As by a lost connection.
    Broken,
    /// With 410, as if the next changes were no longer in the history.
    Expired,
}

/// What happens to a struck request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Fault {
    /// 409, as for an object that somebody else has modified.
    Conflict,
    /// 410; a watch gets it as its first event.
    Expired,
    /// 429, as of a busy server.
    TooManyRequests {
        /// The `Retry-After` header, in seconds.
        retry_after_seconds: u64,
    },
    /// 500.
    InternalError,
    /// 503, as of a server that is not ready yet.
    Unavailable,
    /// 504 after a time; without a time, when the rule is removed. The client may have closed the connection by then.
    Hang {
        /// The time, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        milliseconds: Option<NonZeroU64>,
    },
    /// The request is served after a delay.
    Delay {
        /// The delay, in milliseconds.
        milliseconds: u64,
    },
    /// The connection ends without an answer, and the request has no effect.
    Disconnect,
    /// The request is served, but the connection ends without an answer.
    LoseAnswer,
    /// The request is served, but the answer is 504, as of a server that was too slow to see its own success.
    TimeOutAfterCommit,
    /// Reads see the state from before the latest changes (of any objects).
    Stale {
        /// How many changes.
        versions: u64,
    },
    /// Reads, and watches that are already open, see nothing newer than the rule.
    Freeze,
    /// A watch ends after a number of events.
    EndWatch {
        /// The number of events that are still sent.
        after_events: u64,
        /// How it ends.
        how: WatchEnd,
    },
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Which requests it matches.
    #[serde(default)]
    pub select: Selector,
    /// What happens to the requests that it strikes.
    pub fault: Fault,
    /// How many matching requests pass before the first can be struck.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip: u64,
    /// How many requests are struck at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The share of the requests that is struck, from 0 to 1.
    #[serde(default = "always")]
    pub probability: f64,
    /// Seed of the share: the same seed strikes the same requests, counted from the first match.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn always() -> f64 {
    1.0
}

impl Rule {
    /// Makes a rule that strikes all selected requests.
    pub fn new(select: Selector, fault: Fault) -> Self {
        Self {
            select,
            fault,
            skip: 0,
            times: None,
            probability: 1.0,
            seed: 0,
        }
    }

    /// Limits the number of struck requests.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Lets the first requests pass.
    #[must_use]
    pub fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Strikes only a share of the requests, drawn with a seed.
    #[must_use]
    pub fn probability(mut self, probability: f64, seed: u64) -> Self {
        self.probability = probability;
        self.seed = seed;
        self
    }
}

/// Id of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub(crate) u64);

/// A rule and its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleStatus {
    /// Its id.
    pub id: RuleId,
    /// The rule.
    pub rule: Rule,
    /// How many requests it matched.
    pub seen: u64,
    /// How many it has struck.
    pub hits: u64,
    /// The version at which it freezes reads; 0 when it does not freeze them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frozen_at: u64,
}

/// A rule in use.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: RuleId,
    pub(crate) rule: Rule,
    pub(crate) version: u64,
    seen: u64,
    hits: u64,
}

impl Entry {
    pub(crate) fn new(id: RuleId, rule: Rule, version: u64) -> Self {
        Self {
            id,
            rule,
            version,
            seen: 0,
            hits: 0,
        }
    }

    pub(crate) fn status(&self) -> RuleStatus {
        RuleStatus {
            id: self.id,
            rule: self.rule.clone(),
            seen: self.seen,
            hits: self.hits,
            frozen_at: match self.rule.fault {
                Fault::Freeze => self.version,
                _ => 0,
            },
        }
    }

    /// Returns whether the fault is possible for a request: only watches end, only reads are stale.
    fn applies(&self, attributes: &RequestAttributes) -> bool {
        match self.rule.fault {
            Fault::EndWatch { .. } => attributes.verb == "watch",
            Fault::Stale { .. } => ["get", "list"].contains(&attributes.verb.as_str()),
            Fault::Freeze => ["get", "list", "watch"].contains(&attributes.verb.as_str()),
            Fault::Conflict
            | Fault::Expired
            | Fault::TooManyRequests { .. }
            | Fault::InternalError
            | Fault::Unavailable
            | Fault::Hang { .. }
            | Fault::Delay { .. }
            | Fault::Disconnect
            | Fault::LoseAnswer
            | Fault::TimeOutAfterCommit => true,
        }
    }

    /// Counts a request; returns whether it is struck.
    pub(crate) fn strikes(&mut self, attributes: &RequestAttributes) -> bool {
        if !self.applies(attributes) || !self.rule.select.matches(attributes) {
            return false;
        }
        self.seen += 1;
        let struck = self.seen > self.rule.skip
            && self.rule.times.is_none_or(|times| self.hits < times)
            && pseudo_random(self.rule.seed, self.seen) < self.rule.probability;
        self.hits += u64::from(struck);
        struck
    }

    /// Returns the newest version that an already open watch may see.
    pub(crate) fn version_limit(&self, attributes: &RequestAttributes) -> Option<u64> {
        let freezes = self.rule.fault == Fault::Freeze && self.rule.select.matches(attributes);
        freezes.then_some(self.version)
    }
}

/// Returns the `n`th number of a seed, at least 0 and below 1. It is the same on every machine and in every version of this program.
fn pseudo_random(seed: u64, n: u64) -> f64 {
    let bits = XxHash64::oneshot(seed, &n.to_le_bytes()) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(verb: &str, resource: &str, agent: &str) -> RequestAttributes {
        RequestAttributes {
            verb: verb.into(),
            resource: resource.into(),
            user_agent: agent.into(),
            ..RequestAttributes::default()
        }
    }

    #[test]
    fn selectors_compare_whole_texts_or_prefixes() {
        let selector = Selector {
            user_agent: Some("kube-*".into()),
            ..Selector::resource("", "pods").verbs(&["list", "watch"])
        };
        assert!(selector.matches(&attributes("list", "pods", "kube-scheduler/1")));
        assert!(!selector.matches(&attributes("get", "pods", "kube-scheduler/1")));
        assert!(!selector.matches(&attributes("list", "podtemplates", "kube-scheduler/1")));
        assert!(!selector.matches(&attributes("list", "pods", "kubectl")));
        assert!(Selector::default().matches(&attributes("get", "x", "y")));
    }

    fn struck(rule: Rule, requests: usize) -> Vec<usize> {
        let mut entry = Entry::new(RuleId(1), rule, 0);
        (0..requests)
            .filter(|_| entry.strikes(&attributes("get", "pods", "")))
            .collect()
    }

    #[test]
    fn some_pass_and_only_so_many_are_struck() {
        let rule = Rule::new(Selector::default(), Fault::Conflict)
            .skip(2)
            .times(3);
        assert_eq!(struck(rule, 10), [2, 3, 4]);
    }

    #[test]
    fn a_seed_strikes_the_same_requests_again_and_another_seed_others() {
        let rule = |seed| Rule::new(Selector::default(), Fault::Conflict).probability(0.3, seed);
        let first = struck(rule(7), 1_000);
        assert_eq!(first, struck(rule(7), 1_000));
        assert_ne!(first, struck(rule(8), 1_000));
        assert!((250..350).contains(&first.len()), "{}", first.len());
    }

    #[test]
    fn rules_are_written_and_read_as_json() {
        let text = r#"{"select":{"verbs":["list"],"resource":"pods"},"fault":{"kind":"tooManyRequests","retryAfterSeconds":3},"times":2,"probability":0.5,"seed":9}"#;
        let rule: Rule = serde_json::from_str(text).unwrap();
        assert_eq!(
            rule.fault,
            Fault::TooManyRequests {
                retry_after_seconds: 3
            }
        );
        assert_eq!(serde_json::to_string(&rule).unwrap(), text);
        let unknown = serde_json::from_str::<Rule>(r#"{"fault":{"kind":"conflict"},"tims":1}"#);
        assert!(unknown.is_err());
    }
}

//! The faults over HTTP, for tests in another process:
//!
//! | request | does |
//! |---|---|
//! | `GET /testing/faults` | lists the rules and what they did |
//! | `POST /testing/faults` with a [`Rule`] | adds it, answers its status |
//! | `DELETE /testing/faults/ID`, `DELETE /testing/faults` | removes one or all |
//! | `POST /testing/watches` with `{"select": ..., "how": ...}` | ends open watches, answers `{"ended": N}` |
//! | `POST /testing/outage` with `{"milliseconds": N}` | takes the server down for a while; the answer may still arrive |
//! | `POST /testing/compact` | forgets the history |

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::control::Faults;
use super::rule::{Rule, RuleId, Selector, WatchEnd};
use crate::failure::Failure;

/// Longest outage that a request may ask for: no request can end an outage, because the server is down.
const LONGEST_OUTAGE: Duration = Duration::from_mins(10);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndWatches {
    #[serde(default)]
    select: Selector,
    how: WatchEnd,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Outage {
    milliseconds: u64,
}

/// Answers a request below `/testing`, given the path segments after it.
pub(crate) fn answer(
    faults: &Faults,
    method: &Method,
    segments: &[&str],
    body: &[u8],
) -> Result<Value, Failure> {
    match (method.as_str(), segments) {
        ("GET", ["faults"]) => Ok(json!(faults.rules())),
        ("POST", ["faults"]) => {
            let rule: Rule = parse(body)?;
            let id = faults.add(rule);
            Ok(json!({"id": id}))
        }
        ("DELETE", ["faults"]) => {
            faults.clear();
            Ok(json!({}))
        }
        ("DELETE", ["faults", id]) => id
            .parse()
            .ok()
            .and_then(|id| faults.remove(RuleId(id)))
            .map(|status| json!(status))
            .ok_or_else(Failure::resource_not_found),
        ("POST", ["watches"]) => {
            let EndWatches { select, how } = parse(body)?;
            Ok(json!({"ended": faults.end_watches(&select, how)}))
        }
        ("POST", ["outage"]) => {
            let Outage { milliseconds } = parse(body)?;
            let length = Duration::from_millis(milliseconds).min(LONGEST_OUTAGE);
            let faults = faults.clone();
            tokio::spawn(async move { faults.outage(length).await });
            Ok(json!({}))
        }
        ("POST", ["compact"]) => {
            faults.compact();
            Ok(json!({}))
        }
        _ => Err(Failure::resource_not_found()),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::bad_request(error.to_string()))
}

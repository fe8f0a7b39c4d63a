//! Reads: single objects, pages of lists, and selection.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::request::{Answer, Request};
use crate::failure::{Cause, Failure, Subject};
use crate::objects::selectors::{FieldSelector, LabelSelector};
use crate::objects::views::View;
use crate::storage::{Key, Object, State};

/// Version of continue tokens.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// Selects the objects of a list or a watch.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    labels: LabelSelector,
    fields: FieldSelector,
    name: String,
}

impl Filter {
    /// Returns whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.name.is_empty() || object["metadata"]["name"] == self.name.as_str())
            && self.labels.matches(object)
            && self.fields.matches(object)
    }

    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.labels.is_empty() && self.fields.is_empty()
    }
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// Metadata of the list.
    pub(crate) metadata: Value,
    /// The objects in their stored form.
    pub(crate) objects: Vec<Arc<Object>>,
}

/// The start of a page.
struct Position {
    /// The version that all pages show; `None` for the newest.
    version: Option<u64>,
    /// Pages continue after this key, which does not include the list's own prefix.
    start: String,
}

/// The state that a list shows.
struct Snapshot {
    /// The state at an older version; `None` for the present state.
    past: Option<State>,
    version: u64,
    start: String,
}

fn is_set(text: &str) -> bool {
    !text.is_empty()
}

fn unparsable(text: &str) -> String {
    format!(
        "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
    )
}

impl Request<'_> {
    /// Returns the selectors of the query.
    pub(crate) fn filter(&self) -> Result<Filter, Failure> {
        Ok(Filter {
            labels: LabelSelector::parse(self.parameter("labelSelector"))?,
            fields: FieldSelector::parse(self.parameter("fieldSelector"), self.resource)?,
            name: self.name.to_owned(),
        })
    }

    /// Checks that the options of a list or a watch can be combined.
    pub(crate) fn check_options(&self, watching: bool) -> Result<(), Failure> {
        for number in ["limit", "timeoutSeconds"] {
            let text = self.parameter(number);
            if is_set(text) && text.parse::<i64>().is_err() {
                return Err(Failure::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                )));
            }
        }
        let forbidden = |field: &str, why: &str| Cause::forbidden(field, why);
        let field = "resourceVersionMatch";
        let wanted = self.parameter(field);
        let initial = is_set(self.parameter("sendInitialEvents"));
        let mut causes = Vec::new();
        if watching {
            if initial && wanted != "NotOlderThan" {
                causes.push(forbidden(
                    field,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            if is_set(wanted) && !initial {
                causes.push(forbidden(
                    field,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
        } else if is_set(wanted) && !is_set(self.parameter("resourceVersion")) {
            causes.push(forbidden(
                field,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        // a watch without a version starts with a list, which requires `NotOlderThan`
        let lists = watching && ["", "0"].contains(&self.parameter("resourceVersion"));
        let continues = (is_set(wanted) || lists) && is_set(self.parameter("continue"));
        if continues && !watching {
            causes.push(forbidden(
                field,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        let allowed: &[&str] = if watching {
            &["NotOlderThan"]
        } else {
            &["Exact", "NotOlderThan", ""]
        };
        if is_set(wanted) && !allowed.contains(&wanted) {
            let allowed: Vec<String> = allowed.iter().map(|&text| text.to_owned()).collect();
            causes.push(Cause::unsupported(field, &json!(wanted), &allowed));
        }
        if continues && watching {
            causes.push(forbidden(
                field,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !watching && wanted == "Exact" && self.parameter("resourceVersion") == "0" {
            causes.push(forbidden(
                field,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        if !watching && initial {
            causes.push(forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        if causes.is_empty() {
            return Ok(());
        }
        let subject = Subject {
            group: "meta.k8s.io",
            resource: "ListOptions",
            name: "",
        };
        Err(Failure::invalid(&subject, &causes))
    }

    /// Returns the version of the query, 0 for none. A version that is not a number is an error without a reason.
    pub(crate) fn version(&self) -> Result<u64, Failure> {
        match self.parameter("resourceVersion") {
            "" => Ok(0),
            text => text
                .parse()
                .map_err(|_| Failure::internal_without_reason(unparsable(text))),
        }
    }

    /// Reads an object.
    pub(crate) fn get(&self, state: &State) -> Result<Answer, Failure> {
        let wanted = self.version()?;
        if wanted > state.version() {
            return Err(Failure::future_version(wanted, state.version()));
        }
        Ok(Answer::ok(self.in_requested_version(self.existing(state)?)))
    }

    /// Reads a page of a list.
    pub(crate) fn list(&self, state: &State) -> Result<Answer, Failure> {
        let page = self.page(state)?;
        let mut items: Vec<Value> = page
            .objects
            .iter()
            .map(|object| self.in_requested_version(object))
            .collect();
        if self.resource.custom.is_none() {
            // built-in lists have the kind only once
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.remove("apiVersion");
                item.remove("kind");
            }
        }
        let mut list = View::Whole.list(self.resource, &page.metadata).fields;
        list["items"] = items.into();
        Ok(Answer::ok(list))
    }

    /// Returns the objects of a page, without copying them, and the metadata of the list.
    pub(crate) fn page(&self, state: &State) -> Result<Page, Failure> {
        let filter = self.filter()?;
        self.check_options(false)?;
        let mut limit: usize = self.parameter("limit").parse().unwrap_or(0);
        if self.parameter("resourceVersion") == "0" && self.parameter("continue").is_empty() {
            // any state is acceptable, so a real server reads from its cache, which has no pages
            limit = 0;
        }
        let snapshot = self.snapshot(state, limit > 0)?;
        let shown = snapshot.past.as_ref().unwrap_or(state);
        let mut rest = shown
            .list(&self.resource.storage, self.namespace)
            .filter(|(key, _)| snapshot.start.is_empty() || self.position(key) >= snapshot.start);
        let mut objects = Vec::new();
        let mut last = None;
        for (key, object) in rest.by_ref() {
            if !filter.matches(object) {
                continue;
            }
            objects.push(Arc::clone(object));
            if objects.len() == limit {
                last = Some(self.position(key));
                break;
            }
        }
        let left = rest.count();
        let mut metadata = json!({"resourceVersion": snapshot.version.to_string()});
        if self.resource.custom.is_some() {
            metadata["continue"] = json!("");
        }
        if let Some(last) = last
            && left > 0
        {
            metadata["continue"] = json!(token(snapshot.version as i64, &format!("{last}\0")));
            // with a filter, the number of remaining matches is unknown, because they were not checked
            if filter.is_empty() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        Ok(Page { metadata, objects })
    }

    /// Returns the position of an object in a list: its key without the prefix that all objects of the list share.
    fn position(&self, key: &Key) -> String {
        if self.namespace.is_empty() && !key.namespace.is_empty() {
            format!("{}/{}", key.namespace, key.name)
        } else {
            key.name.clone()
        }
    }

    /// Returns the state that the query asks for.
    fn snapshot(&self, state: &State, in_pages: bool) -> Result<Snapshot, Failure> {
        let newest = state.version();
        let at = |version: u64, start: String| Snapshot {
            past: (version < newest).then(|| state.at_version(&self.resource.storage, version)),
            version,
            start,
        };
        let text = self.parameter("resourceVersion");
        let continue_token = self.parameter("continue");
        if is_set(continue_token) {
            let position = parse_token(continue_token)
                .map_err(|why| Failure::bad_request(format!("invalid continue token: {why}")))?;
            if is_set(text) && text != "0" {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let version = position.version.unwrap_or(newest);
            if version < state.compacted() {
                return Err(Failure::expired_page(token(-1, &position.start)));
            }
            return Ok(at(version.min(newest), position.start));
        }
        let wanted: u64 = if is_set(text) {
            text.parse().map_err(|_| {
                Failure::bad_request(format!("invalid resource version: {}", unparsable(text)))
            })?
        } else {
            0
        };
        if wanted > newest {
            return Err(Failure::future_version(wanted, newest));
        }
        let exact = match self.parameter("resourceVersionMatch") {
            "Exact" => true,
            "" => in_pages && wanted > 0,
            _ => false,
        };
        if !exact {
            return Ok(at(newest, String::new()));
        }
        if wanted < state.compacted() {
            return Err(Failure::expired(
                "The resourceVersion for the provided list is too old.",
            ));
        }
        Ok(at(wanted, String::new()))
    }
}

/// Returns a continue token in the form of a real server.
fn token(version: i64, start: &str) -> String {
    let text = json!({"v": TOKEN_VERSION, "rv": version, "start": start}).to_string();
    URL_SAFE_NO_PAD.encode(text)
}

/// Parses a continue token.
fn parse_token(token: &str) -> Result<Position, String> {
    const INVALID: &str = "continue key is not valid";
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => token.len(),
        };
        format!("{INVALID}: illegal base64 data at input byte {at}")
    })?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let first = bytes.first().copied().map_or(' ', char::from);
        format!("{INVALID}: invalid character {first:?} looking for beginning of value")
    })?;
    if value["v"] != TOKEN_VERSION {
        let version = value["v"].as_str().unwrap_or_default();
        return Err(format!(
            "{INVALID}: server does not recognize this encoded version {version}"
        ));
    }
    let version = match value["rv"].as_i64().unwrap_or(0) {
        0 => {
            return Err(format!(
                "{INVALID}: incorrect encoded start resourceVersion (version {TOKEN_VERSION})"
            ));
        }
        version => u64::try_from(version).ok(),
    };
    match value["start"].as_str().unwrap_or_default() {
        "" => Err(format!(
            "{INVALID}: encoded start key empty (version {TOKEN_VERSION})"
        )),
        start => Ok(Position {
            version,
            start: start.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_written() {
        let position = parse_token(&token(7, "a/b\0")).ok().unwrap();
        assert_eq!(
            (position.version, position.start.as_str()),
            (Some(7), "a/b\0")
        );
        let newest = parse_token(&token(-1, "a")).ok().unwrap();
        assert_eq!(newest.version, None);
    }
}

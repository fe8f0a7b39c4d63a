//! Plays a conversation with a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use super::client::{self, Client, Lines};
use super::normaliser::Normaliser;
use super::webhook::Webhook;
use super::{Conversation, Step, USERS, at, fill};

/// Longest wait for an answer or for one event.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between two attempts of a step that waits for an answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Type of bodies unless a step says another.
const JSON: &str = "application/json";
/// Type of bodies in Kubernetes' protobuf form.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Headers that are recorded.
const RECORDED_HEADERS: &[&str] = &[
    "content-type",
    "warning",
    "retry-after",
    "allow",
    "location",
];

/// Where a server is.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: SocketAddr,
    /// Certificate of its authority as PEM.
    pub ca: String,
}

/// Why a conversation could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A request failed.
    #[error("step {step} of {conversation} failed")]
    Request {
        /// The conversation.
        conversation: String,
        /// Number of the step, from 0.
        step: usize,
        /// Why.
        #[source]
        source: client::Error,
    },
    /// A step cannot be carried out.
    #[error("step {step} of {conversation}: {why}")]
    Step {
        /// The conversation.
        conversation: String,
        /// Number of the step, from 0.
        step: usize,
        /// Why.
        why: String,
    },
}

enum StepError {
    Client(client::Error),
    Step(String),
}

impl StepError {
    /// Names the step that failed.
    fn of(self, conversation: &str, step: usize) -> PlayError {
        let conversation = conversation.to_owned();
        match self {
            Self::Client(source) => PlayError::Request {
                conversation,
                step,
                source,
            },
            Self::Step(why) => PlayError::Step {
                conversation,
                step,
                why,
            },
        }
    }
}

impl From<client::Error> for StepError {
    fn from(error: client::Error) -> Self {
        Self::Client(error)
    }
}

impl From<hyper::Error> for StepError {
    fn from(error: hyper::Error) -> Self {
        Self::Client(error.into())
    }
}

/// Plays conversations with one server.
pub struct Caller {
    client: Client,
    webhook: Arc<Webhook>,
    compact: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    /// Makes a caller of a server, for conversations that configure a webhook; `compact` makes the server drop its history.
    pub fn new(
        endpoint: &Endpoint,
        webhook: Arc<Webhook>,
        compact: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, client::Error> {
        Ok(Self {
            client: Client::new(endpoint.address, &endpoint.ca)?,
            webhook,
            compact: Box::new(compact),
        })
    }

    /// Requests a path as the administrator and returns the status code.
    pub async fn status(&self, path: &str) -> Result<u16, client::Error> {
        let request = Request::get(path)
            .header("authorization", "Bearer judge-admin")
            .body(Full::default())?;
        let mut sender = self.client.connect().await?;
        Ok(self.client.send(&mut sender, request).await?.status)
    }

    /// Requests a path as the administrator, with an `Accept` header, and returns the body.
    pub async fn get(&self, path: &str, accept: &str) -> Result<Vec<u8>, client::Error> {
        let request = Request::get(path)
            .header("authorization", "Bearer judge-admin")
            .header("accept", accept)
            .body(Full::default())?;
        let mut sender = self.client.connect().await?;
        let answer = self.client.send(&mut sender, request).await?;
        Ok(answer.body.collect().await?.to_bytes().to_vec())
    }

    /// Creates the namespace of a conversation, and the account that a controller would create.
    pub async fn open(&self, conversation: &str, namespace: &str) -> Result<(), PlayError> {
        let mut session = self.session();
        let opened = session.prepare(namespace).await;
        opened.map_err(|error| error.of(conversation, 0))
    }

    fn session(&self) -> Session<'_> {
        let mut normaliser = Normaliser::default();
        normaliser.hide(&self.webhook.address().to_string(), "<webhook>");
        normaliser.hide(self.webhook.authority(), "<authority>");
        let mut variables = Map::new();
        let url = format!("https://{}", self.webhook.address());
        variables.insert("webhook".into(), json!(url));
        variables.insert("port".into(), json!(self.webhook.address().port()));
        variables.insert("authority".into(), json!(self.webhook.authority()));
        Session {
            caller: self,
            sender: None,
            variables,
            streams: BTreeMap::new(),
            normaliser,
        }
    }

    /// Plays a conversation; returns the normalised answers, without those of quiet steps.
    pub async fn play(&self, conversation: &Conversation) -> Result<Vec<Value>, PlayError> {
        if conversation.namespaced {
            self.open(&conversation.id, &conversation.namespace())
                .await?;
        }
        let mut session = self.session();
        let mut answers = Vec::new();
        for (number, step) in conversation.steps.iter().enumerate() {
            let answer = session
                .step(step)
                .await
                .map_err(|error| error.of(&conversation.id, number))?;
            if step.quiet {
                continue;
            }
            answers.extend(answer.map(|answer| session.normaliser.normalise(answer)));
        }
        Ok(answers)
    }
}

/// Parses a YAML body, because its text would contain values that differ from run to run.
fn as_yaml(content_type: &Value, body: &[u8]) -> Option<Value> {
    (content_type == "application/yaml")
        .then(|| serde_yaml::from_slice(body).ok())
        .flatten()
}

/// Changes a body as a merge patch says. A patch that is null changes nothing, because a step without one has none.
fn change(body: &mut Value, patch: &Value) {
    if !patch.is_null() {
        json_patch::merge(body, patch);
    }
}

/// Percent-encodes characters that may not stand in a path.
fn escape(path: &str) -> String {
    let mut escaped = String::new();
    for letter in path.chars() {
        match letter {
            ' ' | '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '}' | '|' => {
                // writing to a `String` cannot fail
                let _ = write!(escaped, "%{:02X}", u32::from(letter));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

struct Session<'a> {
    caller: &'a Caller,
    sender: Option<SendRequest<Full<Bytes>>>,
    variables: Map<String, Value>,
    streams: BTreeMap<String, Lines>,
    normaliser: Normaliser,
}

impl Session<'_> {
    /// Creates the conversation's namespace, and the account that a controller would create.
    async fn prepare(&mut self, namespace: &str) -> Result<(), StepError> {
        let made = [
            (
                "POST /api/v1/namespaces".to_owned(),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            ),
            (
                format!("POST /api/v1/namespaces/{namespace}/serviceaccounts"),
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
            ),
        ];
        for (request, body) in made {
            let step = Step {
                r#do: request,
                body,
                ..Step::default()
            };
            let answer = self.send(&step).await?;
            if answer["status"] != 201 {
                return Err(StepError::Step(format!("no namespace: {answer}")));
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<Option<Value>, StepError> {
        if step.compact {
            (self.caller.compact)().map_err(StepError::Step)?;
            return Ok(None);
        }
        if let Some(asker) = &step.asked {
            return Ok(Some(json!({"asked": self.caller.webhook.take(asker)})));
        }
        if let Some(name) = &step.read {
            return self.read(name, step).await.map(Some);
        }
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let answer = self.send(step).await?;
            let Some(until) = &step.until else {
                return Ok(Some(answer));
            };
            let wanted = until.status.is_none_or(|status| answer["status"] == status)
                && until
                    .path
                    .as_ref()
                    .is_none_or(|path| at(&answer["body"], path) == &until.is);
            // an answer that never meets the condition shows up as a difference in the comparison
            if wanted || Instant::now() >= deadline {
                return Ok(Some(answer));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    fn request(&self, step: &Step) -> Result<Request<Full<Bytes>>, StepError> {
        let text = |text: &str| match fill(&Value::String(text.to_owned()), &self.variables) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let line = text(&step.r#do);
        let (method, path) = line
            .split_once(' ')
            .ok_or_else(|| StepError::Step(format!("not a method and a path: {line:?}")))?;
        let (body, default_type) = match (&step.protobuf, &step.text) {
            (Some(bytes), _) => {
                let decoded = STANDARD.decode(bytes);
                let no_bytes = |error| StepError::Step(format!("not in base 64: {error}"));
                (decoded.map_err(no_bytes)?, PROTOBUF)
            }
            (None, Some(body)) => (text(body).into_bytes(), JSON),
            (None, None) if step.body.is_null() => (Vec::new(), JSON),
            (None, None) => {
                let mut body = fill(&step.body, &self.variables);
                change(&mut body, &fill(&step.with, &self.variables));
                (body.to_string().into_bytes(), JSON)
            }
        };
        let mut request = Request::builder()
            .method(method)
            .uri(escape(path))
            .header("accept", step.accept.as_deref().unwrap_or(JSON));
        if !body.is_empty() {
            request = request.header(
                "content-type",
                step.r#type.as_deref().unwrap_or(default_type),
            );
        }
        let who = step.r#as.as_deref().unwrap_or("admin");
        let token = match who {
            "anonymous" => None,
            "stranger" => Some("nobody-has-this"),
            known => match USERS.iter().find(|(name, ..)| *name == known) {
                Some((_, token, ..)) => Some(*token),
                None => self.variables.get(known).and_then(Value::as_str),
            },
        };
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !step.headers.contains_key("user-agent") {
            request = request.header("user-agent", "judge/1.0");
        }
        for (name, value) in &step.headers {
            request = request.header(name, text(value));
        }
        request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| StepError::Client(error.into()))
    }

    async fn send(&mut self, step: &Step) -> Result<Value, StepError> {
        let request = self.request(step)?;
        let client = &self.caller.client;
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => client.connect().await?,
        };
        let late = |_| StepError::Step("no answer in time".into());
        let answer = timeout(ANSWER_TIMEOUT, client.send(&mut sender, request))
            .await
            .map_err(late)??;
        let mut headers = Map::new();
        for name in RECORDED_HEADERS {
            let values: Vec<&str> = answer
                .headers
                .get_all(*name)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .collect();
            match values.as_slice() {
                [] => {}
                [one] => drop(headers.insert((*name).to_owned(), json!(one))),
                many => drop(headers.insert((*name).to_owned(), json!(many))),
            }
        }
        let mut shown = json!({"status": answer.status, "headers": headers});
        if let Some(name) = &step.stream
            && answer.status == 200
        {
            self.streams.insert(name.clone(), Lines::new(answer.body));
            // while the watch is open, the connection carries nothing else
            return Ok(shown);
        }
        let body = timeout(ANSWER_TIMEOUT, answer.body.collect())
            .await
            .map_err(late)??
            .to_bytes();
        shown["body"] = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body)
                .ok()
                .or_else(|| as_yaml(&shown["headers"]["content-type"], &body))
                .unwrap_or_else(|| json!(String::from_utf8_lossy(&body)))
        };
        self.sender = Some(sender);
        for (name, path) in &step.keep {
            let value = at(&shown["body"], path).clone();
            if value.is_null() {
                // the following answers differ as well, and the comparison shows why
                self.variables.insert(name.clone(), json!("missing"));
            } else {
                self.variables.insert(name.clone(), value);
            }
        }
        Ok(shown)
    }

    async fn read(&mut self, name: &str, step: &Step) -> Result<Value, StepError> {
        let Some(lines) = self.streams.get_mut(name) else {
            return Ok(json!({"events": [], "end": "never opened"}));
        };
        let mut events = Vec::new();
        let mut end = "open";
        while step.closed || events.len() < step.events {
            match timeout(ANSWER_TIMEOUT, lines.next()).await {
                Err(_) => {
                    end = "nothing more came in time";
                    break;
                }
                Ok(line) => match line? {
                    None => {
                        end = "closed";
                        break;
                    }
                    Some(line) => events.push(
                        serde_json::from_slice::<Value>(&line)
                            .unwrap_or_else(|_| json!(String::from_utf8_lossy(&line))),
                    ),
                },
            }
        }
        for (name, path) in &step.keep {
            let value = at(&json!({"events": events}), path).clone();
            self.variables.insert(name.clone(), value);
        }
        Ok(json!({"events": events, "end": end}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_body_add_replace_and_remove() {
        let mut body = json!({"metadata": {"name": "one", "labels": {"app": "x"}}, "data": [1]});
        change(
            &mut body,
            &json!({"metadata": {"name": null, "generateName": "a-", "labels": {"b": "y"}}, "data": {"c": "d"}}),
        );
        assert_eq!(
            body,
            json!({"metadata": {"generateName": "a-", "labels": {"app": "x", "b": "y"}}, "data": {"c": "d"}})
        );
        change(&mut body["data"], &Value::Null);
        assert_eq!(body["data"], json!({"c": "d"}));
    }
}

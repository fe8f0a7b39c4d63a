//! Sends manifests to a real API server and to ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;

use super::answers::{Answer, Difference};
use super::documents::Document;
use super::known::Known;
use super::shrink::{places, without};
use super::{Case, Verb};

/// How many manifests are on their way at a time.
const AT_A_TIME: usize = 8;
/// Most manifests that are tried for one difference.
const TRIES: usize = 300;
/// Number of differences whose smallest manifests are looked for.
const SHRUNK: usize = 10;

/// Why manifests could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server does not start.
    #[error("an API server for manifests does not start")]
    Server(#[from] api_server::Error),
    /// A request got no answer.
    #[error("{server} does not answer to {request}")]
    Request {
        /// Which server.
        server: &'static str,
        /// Method and path.
        request: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// A request could not be made.
    #[error("cannot make the request for a manifest")]
    Http(#[from] http::Error),
    /// An object that changes start from is refused.
    #[error("{server} refuses the valid object {object}: {}", answer.join("; "))]
    Refused {
        /// Which server.
        server: &'static str,
        /// Name of the document or namespace.
        object: String,
        /// What the server says.
        answer: Vec<String>,
    },
}

/// A difference that is not listed.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The case.
    pub case: String,
    /// Resource and group.
    pub kind: String,
    /// The manifest, for the first findings the smallest one that shows the difference.
    pub manifest: Value,
    /// What the real server says.
    pub real: Answer,
    /// What ours says.
    pub ours: Answer,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  manifest: {}", self.case, self.manifest)?;
        for (who, answer) in [("real", &self.real), ("ours", &self.ours)] {
            writeln!(f, "  {who}: {}", answer.lines().join("\n        "))?;
        }
        Ok(())
    }
}

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of manifests that both servers were sent.
    pub compared: usize,
    /// Differences that are not listed.
    pub findings: Vec<Finding>,
    /// Listed rules that were met.
    pub met: BTreeSet<String>,
    /// Listed rules that were met where the servers do not differ, with a case that shows it.
    pub mended: BTreeMap<String, String>,
}

/// One of the two servers.
struct Side {
    name: &'static str,
    client: Client,
    /// Keeps the server running.
    _server: ApiServer,
}

/// Both servers.
pub struct Judge {
    real: Side,
    ours: Side,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl Judge {
    /// Starts both servers.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn start() -> Result<Self, Error> {
        let (real, ours) = tokio::try_join!(
            Side::start("the real API server", Lane::Local),
            Side::start("the embedded API server", Lane::Embedded)
        )?;
        Ok(Self { real, ours })
    }

    /// Sends cases to both servers, and compares the answers. A judge runs once: the valid objects stay.
    ///
    /// # Errors
    /// When a server does not answer, or refuses an object that is valid.
    pub async fn run(&self, cases: &[Case<'_>], known: &Known) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let documents: BTreeMap<&str, &Document> = cases
            .iter()
            .map(|case| (case.document.id.as_str(), case.document))
            .collect();
        for document in documents.values() {
            self.make_namespace(&document.namespace).await?;
        }
        // before the valid objects exist, because their names are taken then
        self.compare_all(cases, Verb::Create, known, &mut outcome)
            .await?;
        let replaced = |id: &str| {
            let of = |case: &Case<'_>| case.verb == Verb::Update && case.document.id == id;
            cases.iter().any(of)
        };
        for document in documents.values().filter(|one| replaced(&one.id)) {
            for side in [&self.real, &self.ours] {
                side.make(&document.id, &document.collection, &document.object)
                    .await?;
            }
        }
        self.compare_all(cases, Verb::Update, known, &mut outcome)
            .await?;
        for finding in outcome.findings.iter_mut().take(SHRUNK) {
            let case = cases.iter().find(|case| case.to_string() == finding.case);
            if let Some(case) = case.filter(|case| case.verb == Verb::Create) {
                self.shrink(case.document, finding).await?;
            }
        }
        Ok(outcome)
    }

    async fn make_namespace(&self, name: &str) -> Result<(), Error> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for side in [&self.real, &self.ours] {
            side.make(name, "/api/v1/namespaces", &object).await?;
        }
        Ok(())
    }

    async fn compare_all(
        &self,
        cases: &[Case<'_>],
        verb: Verb,
        known: &Known,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let cases = cases.iter().filter(|case| case.verb == verb);
        let compared =
            cases.map(|case| async move { Ok::<_, Error>((case, self.compare(case).await?)) });
        let mut compared = stream::iter(compared).buffered(AT_A_TIME);
        while let Some((case, (manifest, real, ours))) = compared.try_next().await? {
            outcome.compared += 1;
            let verdict = known.judge(&case.document.kind, &real, &ours);
            outcome.met.extend(verdict.met);
            let mended = verdict.mended.into_iter();
            outcome
                .mended
                .extend(mended.map(|rule| (rule, case.to_string())));
            if verdict.is_new {
                outcome.findings.push(Finding {
                    case: case.to_string(),
                    kind: case.document.kind.clone(),
                    manifest,
                    real,
                    ours,
                });
            }
        }
        Ok(())
    }

    async fn compare(&self, case: &Case<'_>) -> Result<(Value, Answer, Answer), Error> {
        match case.verb {
            Verb::Create => {
                let mut manifest = case.document.object.clone();
                if let Some(change) = &case.change {
                    change.make(&mut manifest);
                }
                let (real, ours) = self.create(case.document, &manifest).await?;
                Ok((manifest, real, ours))
            }
            Verb::Update => {
                let (real, ours) =
                    tokio::try_join!(self.real.replace(case), self.ours.replace(case))?;
                Ok((real.0, real.1, ours.1))
            }
        }
    }

    /// Sends a manifest to both servers as a new object that is not kept.
    async fn create(
        &self,
        document: &Document,
        manifest: &Value,
    ) -> Result<(Answer, Answer), Error> {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", document.collection);
        tokio::try_join!(
            self.real.answer("POST", &path, manifest),
            self.ours.answer("POST", &path, manifest)
        )
    }

    /// Drops fields and items of a manifest while the servers differ about it in the same way.
    async fn shrink(&self, document: &Document, finding: &mut Finding) -> Result<(), Error> {
        let wanted = Difference::between(&finding.real, &finding.ours);
        let mut tries = 0;
        let mut places = places(&finding.manifest);
        while let Some(place) = places.pop() {
            let mut smaller = finding.manifest.clone();
            if !without(&mut smaller, &place) {
                continue;
            }
            tries += 1;
            if tries > TRIES {
                break;
            }
            let (real, ours) = self.create(document, &smaller).await?;
            if Difference::between(&real, &ours) == wanted {
                (finding.manifest, finding.real, finding.ours) = (smaller, real, ours);
            }
        }
        Ok(())
    }
}

impl Side {
    async fn start(name: &'static str, lane: Lane) -> Result<Self, Error> {
        let server = ApiServer::start(lane).await?;
        Ok(Self {
            name,
            client: server.client().await?,
            _server: server,
        })
    }

    /// Creates an object that must be accepted.
    async fn make(&self, name: &str, collection: &str, object: &Value) -> Result<(), Error> {
        let answer = self.answer("POST", collection, object).await?;
        if answer.lines() == ["verdict 201"] {
            return Ok(());
        }
        Err(Error::Refused {
            server: self.name,
            object: name.to_owned(),
            answer: answer.lines().to_vec(),
        })
    }

    /// Replaces the valid object of a case by a changed one, without keeping that; returns it with the answer.
    async fn replace(&self, case: &Case<'_>) -> Result<(Value, Answer), Error> {
        let document = case.document;
        let name = document.object["metadata"]["name"].as_str();
        let path = format!("{}/{}", document.collection, name.unwrap_or_default());
        let (_, mut object) = self.send("GET", &path, None).await?;
        if let Some(change) = &case.change
            && !change.make(&mut object)
        {
            return Ok((object, Answer::nothing_to_change()));
        }
        let path = format!("{path}?dryRun=All&fieldValidation=Strict");
        let answer = self.answer("PUT", &path, &object).await?;
        Ok((object, answer))
    }

    async fn answer(&self, method: &str, path: &str, body: &Value) -> Result<Answer, Error> {
        match self.send(method, path, Some(body)).await {
            Ok((status, body)) => Ok(Answer::new(status, &body)),
            // a real server panics about some objects, and then closes the connection
            Err(Error::Request { .. }) => Ok(Answer::none()),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Error> {
        let content = body.map(|body| body.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(content.unwrap_or_default()))?;
        let failed = |source| Error::Request {
            server: self.name,
            request: format!("{method} {path}"),
            source: Box::new(source),
        };
        let answer = self.client.send(request).await.map_err(failed)?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await.map_err(failed)?;
        // an answer that is no JSON differs from one that is
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok((status, body))
    }
}

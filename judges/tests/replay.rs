//! Plays every conversation of the corpus with this server: its answers must be those of a real kube-apiserver.
//!
//! `cargo test -p judges --test replay -- pods/` plays those whose name contains `pods/`. Allowed differences are listed in
//! `corpus/api/differences.yaml`, each with its reason; a listed difference that does not occur is a failure, too.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use apiserver::{Options, Running, Server, User};
use judges::api::recordings::{self, Recordings};
use judges::api::{self, Caller, Conversation, Difference, Endpoint, USERS, Webhook};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use tokio::runtime::Runtime;

/// Largest number of allowed differences.
const MAX_KNOWN_DIFFERENCES: usize = 10;
/// Least number of conversations.
const LEAST_CONVERSATIONS: usize = 2_500;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifference {
    conversation: String,
    path: String,
    reason: String,
}

struct TestServer {
    /// Keeps the server running.
    _running: Arc<Running>,
    caller: Caller,
}

async fn start(prelude: &Conversation, webhook: &Arc<Webhook>) -> TestServer {
    let tokens: HashMap<String, User> = USERS
        .iter()
        .map(|(_, token, name, groups)| {
            let user = User {
                name: (*name).into(),
                groups: groups.iter().map(|group| (*group).into()).collect(),
                // the token table of the real server has the same uids
                uid: (*name).into(),
            };
            ((*token).to_owned(), user)
        })
        .collect();
    let options = Options {
        tokens,
        ..Options::default()
    };
    let running = Arc::new(Server::start(options).await.expect("the server starts"));
    let address = running
        .url
        .trim_start_matches("https://")
        .parse()
        .expect("an address");
    let endpoint = Endpoint {
        address,
        ca: running.ca.clone(),
    };
    let compacted = Arc::clone(&running);
    let caller = Caller::new(&endpoint, Arc::clone(webhook), move || {
        compacted.compact();
        Ok(())
    })
    .expect("a caller");
    caller.play(prelude).await.expect("the prelude is played");
    TestServer {
        _running: running,
        caller,
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/api");
    let conversations = api::load(&corpus).expect("the conversations can be read");
    let known = std::fs::read_to_string(corpus.join("differences.yaml"))
        .expect("the known differences can be read");
    let known: Vec<KnownDifference> =
        serde_yaml::from_str(&known).expect("the known differences are of the format");
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    let prelude = Arc::new(conversations.prelude);
    let webhook = runtime.block_on(Webhook::start(&corpus.join("webhook.yaml")));
    let webhook = Arc::new(webhook.expect("the webhook starts"));
    let server = Arc::new(runtime.block_on(start(&prelude, &webhook)));
    let mut trials = vec![Trial::test("at_most_ten_differences_are_known", {
        let known = known.clone();
        move || check_known_differences(&known)
    })];
    let count = conversations.conversations.len();
    trials.push(Trial::test("there_are_2500_conversations", move || {
        if count < LEAST_CONVERSATIONS {
            return Err(format!("{count} conversations").into());
        }
        Ok(())
    }));
    let mut recorded_files: BTreeMap<String, Recordings> = BTreeMap::new();
    for conversation in conversations.conversations {
        let subject = conversation.subject().to_owned();
        let recorded = recorded_files
            .entry(subject.clone())
            .or_insert_with(|| {
                let path = corpus.join(format!("recordings/{subject}.json"));
                recordings::read(&path).expect("the recordings can be read")
            })
            .remove(&conversation.id);
        let (runtime, server) = (Arc::clone(&runtime), Arc::clone(&server));
        let (prelude, webhook) = (Arc::clone(&prelude), Arc::clone(&webhook));
        let known: Vec<KnownDifference> = known
            .iter()
            .filter(|known| known.conversation == conversation.id)
            .cloned()
            .collect();
        trials.push(Trial::test(conversation.id.clone(), move || {
            let recorded = recorded.ok_or("not recorded: cargo xtask record api")?;
            let answers = runtime.block_on(async {
                if conversation.is_alone() {
                    let server = start(&prelude, &webhook).await;
                    server.caller.play(&conversation).await
                } else {
                    server.caller.play(&conversation).await
                }
            });
            let answers = answers.map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
            compare_with_known(&known, api::differences(&recorded, &answers))
        }));
    }
    for (subject, rest) in recorded_files {
        let left: Vec<String> = rest.into_keys().collect();
        trials.push(Trial::test(
            format!("nothing_is_left_over_of/{subject}"),
            move || {
                if left.is_empty() {
                    Ok(())
                } else {
                    Err(format!("recorded, but no conversation: {left:?}").into())
                }
            },
        ));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(server);
    conclusion.exit();
}

fn check_known_differences(known: &[KnownDifference]) -> Result<(), Failed> {
    if let Some(bare) = known.iter().find(|known| known.reason.trim().is_empty()) {
        return Err(format!("no reason for {} {}", bare.conversation, bare.path).into());
    }
    if known.len() > MAX_KNOWN_DIFFERENCES {
        return Err(format!("{} differences are listed", known.len()).into());
    }
    Ok(())
}

fn compare_with_known(known: &[KnownDifference], found: Vec<Difference>) -> Result<(), Failed> {
    let (listed, new): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|one| known.iter().any(|known| known.path == one.path));
    let mut text = String::new();
    for difference in new {
        writeln!(text, "{difference}")?;
    }
    for known in known {
        if !listed.iter().any(|one| one.path == known.path) {
            writeln!(text, "  listed, but no difference: {}", known.path)?;
        }
    }
    if text.is_empty() {
        Ok(())
    } else {
        Err(text.into())
    }
}

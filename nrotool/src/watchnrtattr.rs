//! `watchnrtattr`: the attributes of each NodeResourceTopology that changes (scenarios-other.md 10.3). Unlike the original it begins to watch
//! again when the API server ends a watch.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context as _;
use api::nrt::v1alpha2::NodeResourceTopology;
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};

use crate::cluster;
use crate::flags::{Given, KUBECONFIG, Usage};
use crate::output::{FAILURE, USAGE_ERROR, complain};

const USAGE: Usage = Usage {
    name: "watchnrtattr",
    about: "Writes a line to the standard error for each NodeResourceTopology that is modified: its name and its attributes. Ends when it is interrupted.",
    flags: &[KUBECONFIG],
    refusal: USAGE_ERROR,
    failure: FAILURE,
};

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, run)
}

async fn run(given: Given) -> anyhow::Result<ExitCode> {
    let client = cluster::connect(given.kubeconfig().as_deref()).await?;
    let topologies: Api<NodeResourceTopology> = Api::all(client);
    let mut known = BTreeSet::new();
    let mut is_begun = false;
    let mut events = watch(topologies, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                is_begun |= matches!(event, Event::InitDone);
                if let Some(line) = line(event, &mut known) {
                    complain(&line);
                }
            }
            // whoever has no right, or asks a cluster without the kind, would wait for ever
            Err(error) if !is_begun => {
                return Err(error).context("cannot watch NodeResourceTopologies");
            }
            Err(error) => complain(&format!("watching again: {error}\n")),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line of an event that modifies an object; `None` for others.
fn line(event: Event<NodeResourceTopology>, known: &mut BTreeSet<String>) -> Option<String> {
    match event {
        Event::InitApply(object) => {
            known.insert(object.name_any());
            None
        }
        Event::Apply(object) => {
            let name = object.name_any();
            if known.insert(name.clone()) {
                return None;
            }
            let attributes: Vec<String> = object
                .attributes
                .iter()
                .map(|attribute| format!("{}={}", attribute.name, attribute.value))
                .collect();
            Some(format!("{name}: {}\n", attributes.join(" ")))
        }
        Event::Delete(object) => {
            known.remove(&object.name_any());
            None
        }
        Event::Init | Event::InitDone => None,
    }
}

#[cfg(test)]
mod tests {
    use api::nrt::AttributeInfo;

    use super::*;

    #[test]
    fn only_modified_objects_are_told() {
        let mut object = NodeResourceTopology::new("n");
        object.attributes = vec![AttributeInfo {
            name: "a".to_owned(),
            value: "1".to_owned(),
        }];
        let mut known = BTreeSet::new();
        let mut tell = |event| line(event, &mut known);
        assert_eq!(tell(Event::Apply(object.clone())), None, "added");
        assert_eq!(
            tell(Event::Apply(object.clone())),
            Some("n: a=1\n".to_owned())
        );
        assert_eq!(tell(Event::Delete(object.clone())), None);
        assert_eq!(tell(Event::Apply(object.clone())), None, "added again");
        assert_eq!(tell(Event::InitApply(object)), None);
    }
}

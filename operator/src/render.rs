//! Renders the objects as YAML documents (operator.md 2.4).

use api::operator::v1::NodeGroupConfig;
use api::{labels, names};
use manifests::platform::Platform;
use manifests::rte::machine_config::machine_config;
use manifests::rte::{self, NodeSelection};
use manifests::{scheduler, to_value};
use serde_json::Value;

use crate::args::Args;

/// The pool in the rendered legacy machine configuration.
const WORKER_POOL: &str = "worker";

/// The objects cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags enable the scheduler but give no image for it.
    #[error("missing scheduler image")]
    NoSchedulerImage,
    /// The scheduler's configuration cannot be rendered.
    #[error("failed to render the scheduler configuration")]
    Scheduler(#[source] scheduler::config::Error),
    /// An object cannot be written as YAML.
    #[error("failed to write an object as YAML")]
    Yaml(#[source] serde_yaml::Error),
}

/// Renders the documents that the flags select: first the scheduler, then the exporters; or only the NRT definition.
pub fn render(args: &Args, platform: Platform) -> Result<String, Error> {
    if args.is_on("render-nrt-crd") {
        return documents(&[to_value(&api::crd::node_resource_topology())]);
    }
    let namespace = args.text("render-namespace");
    let mut objects = Vec::new();
    if args.is_on("enable-scheduler") {
        let image = args.text("render-image-scheduler");
        if image.is_empty() {
            return Err(Error::NoSchedulerImage);
        }
        let set = scheduler::Set::new(&scheduler_options(namespace, image, platform))
            .map_err(Error::Scheduler)?;
        objects.extend(set.objects());
    }
    let image = match args.text("render-image") {
        "" => names::BUILTIN_RTE_IMAGE,
        image => image,
    };
    objects.extend(rte_objects(namespace, image, platform));
    documents(&objects)
}

/// Formats objects as YAML documents, each after a `---` line.
pub fn documents(objects: &[Value]) -> Result<String, Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(object).map_err(Error::Yaml)?);
    }
    Ok(text)
}

fn scheduler_options(namespace: &str, image: &str, platform: Platform) -> scheduler::Options {
    scheduler::Options {
        api_server_ports: vec![crate::run::API_SERVER_PORT],
        ..scheduler::Options::new(namespace, platform, image)
    }
}

fn rte_objects(namespace: &str, image: &str, platform: Platform) -> Vec<Value> {
    let options = rte::Options {
        api_server_ports: vec![crate::run::API_SERVER_PORT],
        ..rte::Options::new(namespace, platform, image)
    };
    let pool = rte::Pool {
        name: names::RTE_CONTAINER.into(),
        nodes: NodeSelection::NotControlPlane,
        config: NodeGroupConfig::defaults(),
        config_hash: String::new(),
        config_is_partial: false,
        custom_selinux_policy: false,
    };
    let mut objects = Vec::new();
    if platform == Platform::OpenShift {
        // without a cluster its version is unknown, so the policy is the newest
        let version = "";
        let name = names::machine_config(names::OPERATOR_CR, WORKER_POOL);
        let labels = [(labels::MACHINE_CONFIG_ROLE.into(), WORKER_POOL.into())];
        objects.push(to_value(&machine_config(&name, labels.into(), version)));
    }
    objects.extend(rte::Set::new(&options, &[pool]).objects());
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(platform: Platform, arguments: &[&str]) -> Vec<String> {
        let args = Args::parse(arguments.iter().map(|argument| (*argument).to_owned())).unwrap();
        let text = render(&args, platform).unwrap();
        text.split("---\n")
            .skip(1)
            .map(|document| {
                serde_yaml::from_str::<Value>(document).unwrap()["kind"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn scheduler_comes_before_the_exporters() {
        let kinds = |arguments: &[&str]| kinds(Platform::Kubernetes, arguments);
        let all = kinds(&["-render", "-render-image-scheduler=s@sha256:1"]);
        assert_eq!(&all[..3], ["ServiceAccount", "ConfigMap", "ClusterRole"]);
        assert_eq!(all.last().unwrap(), "Service");
        assert_eq!(
            kinds(&["-render", "-enable-scheduler=false"]).len(),
            all.len() - 9
        );
        assert_eq!(
            kinds(&["-render", "-render-nrt-crd"]),
            ["CustomResourceDefinition"]
        );
    }

    #[test]
    fn openshift_adds_its_own_kinds() {
        let exporters = ["-render", "-enable-scheduler=false"];
        let all = kinds(Platform::OpenShift, &exporters);
        assert_eq!(all[0], "MachineConfig");
        let constraints = all
            .iter()
            .filter(|kind| *kind == "SecurityContextConstraints");
        assert_eq!(constraints.count(), 2);
        let hosted = kinds(Platform::HyperShift, &exporters);
        assert_eq!(hosted[..], all[1..]);
    }

    #[test]
    fn scheduler_needs_an_image() {
        let args = Args::parse(["-render".to_owned()]).unwrap();
        assert_eq!(
            render(&args, Platform::Kubernetes).unwrap_err().to_string(),
            "missing scheduler image"
        );
    }
}

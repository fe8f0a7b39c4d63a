//! The images of the components, and the variables that choose others (deployer.md 8).

use api::names;
use serde::Serialize;

/// Variable with the image of the scheduler.
pub const ENV_SCHEDULER: &str = "TAS_SCHEDULER_PLUGIN_IMAGE";
/// Variable with the image of the controller of pod groups, which is deployed only where this is set.
pub const ENV_CONTROLLER: &str = "TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE";
/// Variable with the image of our exporter.
pub const ENV_EXPORTER: &str = "TAS_RESOURCE_EXPORTER_IMAGE";
/// Variable with the image of node-feature-discovery.
pub const ENV_NFD: &str = "TAS_NODE_FEATURE_DISCOVERY_IMAGE";
/// Variable that makes `deploy` and `render` name images by digest, whatever its value is.
pub const ENV_USE_SHA: &str = "TAS_IMAGES_USE_SHA";

const NFD: &str = "registry.k8s.io/nfd/node-feature-discovery:v0.15.1";
const NFD_BY_DIGEST: &str = "registry.k8s.io/nfd/node-feature-discovery@sha256:cab8506a76c96a4318d4cb1858ead6fe55a2e0499f69b4201b01d69d4fa14f10";

/// Which program publishes the topologies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdaterType {
    /// Our exporter.
    #[default]
    Rte,
    /// The topology updater of node-feature-discovery.
    Nfd,
}

/// The images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// The scheduler.
    pub scheduler: String,
    /// The controller of pod groups. Our scheduler knows no pod groups, so none is deployed unless somebody names an image that has it.
    pub controller: Option<String>,
    /// Our exporter.
    pub exporter: String,
    /// The topology updater of node-feature-discovery.
    pub nfd: String,
}

#[derive(Serialize)]
struct Named<'a> {
    topology_updater: &'a str,
    scheduler_plugin: &'a str,
    scheduler_controller: &'a str,
}

impl Images {
    /// Returns the images, those that variables name among them. A variable counts when it is set, even to nothing.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>, by_digest: bool) -> Self {
        let stack = if by_digest {
            names::pinned_stack_image()
        } else {
            names::STACK_IMAGE.to_owned()
        };
        let nfd = if by_digest { NFD_BY_DIGEST } else { NFD };
        let or = |name: &str, default: &str| lookup(name).unwrap_or_else(|| default.to_owned());
        Self {
            scheduler: or(ENV_SCHEDULER, &stack),
            controller: lookup(ENV_CONTROLLER).filter(|image| !image.is_empty()),
            exporter: or(ENV_EXPORTER, &stack),
            nfd: or(ENV_NFD, nfd),
        }
    }

    /// Returns the image of an updater.
    pub fn updater(&self, kind: UpdaterType) -> &str {
        match kind {
            UpdaterType::Rte => &self.exporter,
            UpdaterType::Nfd => &self.nfd,
        }
    }

    /// Formats the output of `images`, with a newline at the end.
    pub fn format(&self, updater: UpdaterType, json: bool, raw: bool) -> String {
        let named = Named {
            topology_updater: self.updater(updater),
            scheduler_plugin: &self.scheduler,
            scheduler_controller: self.controller.as_deref().unwrap_or_default(),
        };
        let all = [
            named.topology_updater,
            named.scheduler_plugin,
            named.scheduler_controller,
        ];
        match (json, raw) {
            (true, true) => line(&all),
            (true, false) => line(&named),
            (false, true) => all.map(|image| format!("{image}\n")).concat(),
            (false, false) => {
                // the key is the one that takes effect for this updater; the original has that of RTE for both
                let key = match updater {
                    UpdaterType::Rte => ENV_EXPORTER,
                    UpdaterType::Nfd => ENV_NFD,
                };
                format!(
                    "{ENV_SCHEDULER}={}\n{ENV_CONTROLLER}={}\n{key}={}\n",
                    named.scheduler_plugin, named.scheduler_controller, named.topology_updater
                )
            }
        }
    }
}

/// Formats a value as one line of JSON, with the keys in their own order.
fn line(value: &impl Serialize) -> String {
    // texts under fixed names are always valid JSON
    serde_json::to_string(value).map_or_else(|_| String::new(), |text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)], by_digest: bool) -> Images {
        let lookup = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Images::from_env(lookup, by_digest)
    }

    #[test]
    fn variables_choose_images_and_the_stack_is_the_default() {
        let images = with(&[(ENV_SCHEDULER, "s"), (ENV_CONTROLLER, "c")], false);
        assert_eq!(
            images.format(UpdaterType::Rte, false, false),
            "TAS_SCHEDULER_PLUGIN_IMAGE=s\nTAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE=c\n\
             TAS_RESOURCE_EXPORTER_IMAGE=localhost/numaresources/stack:dev\n"
        );
        assert_eq!(with(&[(ENV_EXPORTER, "")], false).exporter, "");
    }

    #[test]
    fn output_has_the_four_forms() {
        let images = with(&[(ENV_SCHEDULER, "s"), (ENV_NFD, "n")], false);
        let format = |json, raw| images.format(UpdaterType::Nfd, json, raw);
        assert_eq!(format(false, true), "n\ns\n\n");
        assert_eq!(format(true, true), "[\"n\",\"s\",\"\"]\n");
        assert_eq!(
            format(true, false),
            "{\"topology_updater\":\"n\",\"scheduler_plugin\":\"s\",\"scheduler_controller\":\"\"}\n"
        );
        assert!(format(false, false).contains("TAS_NODE_FEATURE_DISCOVERY_IMAGE=n\n"));
    }

    #[test]
    fn digests_are_used_on_request() {
        let images = with(&[], true);
        for image in [&images.scheduler, &images.exporter, &images.nfd] {
            assert!(image.contains("@sha256:"), "{image}");
        }
    }
}

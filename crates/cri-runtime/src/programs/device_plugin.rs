//! `deviceplugin` serves healthy devices of one resource, each on the NUMA nodes given for it.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use podresources::device_plugin::{DEVICE_PLUGIN_DIR, HEALTHY, Plugin};
use podresources::deviceplugin::v1beta1::{
    ContainerAllocateResponse, Device, NumaNode, TopologyInfo,
};

use crate::stop;

/// Arguments of `deviceplugin`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Name of the resource, for example `example.com/deviceA`.
    #[arg(long)]
    pub resource: String,
    /// A device as `ID=NUMA`, or `ID=NUMA,NUMA` for one near several nodes, or `ID` for one without topology. Repeatable.
    #[arg(long = "device", value_name = "ID[=NUMA,...]", required = true)]
    pub devices: Vec<DeviceArg>,
    /// Directory of the kubelet's socket, where the plugin's own socket goes as well.
    #[arg(long, default_value = DEVICE_PLUGIN_DIR)]
    pub plugin_dir: PathBuf,
}

/// The value of a `--device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceArg {
    /// ID of the device.
    pub id: String,
    /// NUMA nodes that it is near to; empty when unknown.
    pub numa: Vec<i64>,
}

/// Why a `--device` is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceArgError {
    /// There is no ID before the `=`.
    #[error("a device needs an id")]
    Id,
    /// A NUMA node is not a number.
    #[error("{0:?} is not a NUMA node number")]
    Numa(String),
}

impl FromStr for DeviceArg {
    type Err = DeviceArgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (id, numa) = match text.split_once('=') {
            Some((id, nodes)) => (id, Some(nodes)),
            None => (text, None),
        };
        if id.is_empty() {
            return Err(DeviceArgError::Id);
        }
        let numa = numa
            .map(|nodes| nodes.split(',').map(parse_node).collect())
            .transpose()?
            .unwrap_or_default();
        Ok(Self {
            id: id.to_owned(),
            numa,
        })
    }
}

fn parse_node(text: &str) -> Result<i64, DeviceArgError> {
    text.parse::<u16>()
        .map(i64::from)
        .map_err(|_| DeviceArgError::Numa(text.to_owned()))
}

impl From<DeviceArg> for Device {
    fn from(argument: DeviceArg) -> Self {
        let nodes: Vec<_> = argument
            .numa
            .into_iter()
            .map(|id| NumaNode { id })
            .collect();
        Self {
            id: argument.id,
            health: HEALTHY.to_owned(),
            topology: (!nodes.is_empty()).then_some(TopologyInfo { nodes }),
        }
    }
}

/// Creates a plugin with these devices.
///
/// A container gets the IDs of its devices in an environment variable named after the resource: for `example.com/deviceA` that is
/// `TESTBED_DEVICES_EXAMPLE_COM_DEVICEA`.
pub fn plugin(resource: String, devices: impl IntoIterator<Item = DeviceArg>) -> Plugin {
    let variable = variable(&resource);
    let devices = devices.into_iter().map(Device::from).collect();
    Plugin::new(resource, devices, move |ids: &[String]| {
        Ok(ContainerAllocateResponse {
            envs: [(variable.clone(), ids.join(","))].into(),
            ..Default::default()
        })
    })
}

/// Serves until `SIGTERM` or `SIGINT`.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let plugin = plugin(args.resource, args.devices);
    let stop = stop::signalled().context("cannot watch signals")?;
    plugin.run(&args.plugin_dir, stop).await?;
    Ok(())
}

fn variable(resource: &str) -> String {
    let name: String = resource
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    format!("TESTBED_DEVICES_{name}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one_node("d0=1", "d0", &[1])]
    #[case::several_nodes("d0=0,1", "d0", &[0, 1])]
    #[case::no_topology("d0", "d0", &[])]
    fn devices_by_argument(#[case] text: &str, #[case] id: &str, #[case] numa: &[i64]) {
        let expected = DeviceArg {
            id: id.to_owned(),
            numa: numa.to_vec(),
        };
        assert_eq!(text.parse(), Ok(expected));
    }

    #[rstest]
    #[case::no_id("=1", DeviceArgError::Id)]
    #[case::word("d0=x", DeviceArgError::Numa("x".to_owned()))]
    #[case::nothing_after("d0=", DeviceArgError::Numa(String::new()))]
    fn other_arguments_are_refused(#[case] text: &str, #[case] expected: DeviceArgError) {
        assert_eq!(text.parse::<DeviceArg>(), Err(expected));
    }

    #[test]
    fn device_without_nodes_has_no_topology() {
        let argument = DeviceArg {
            id: "d0".to_owned(),
            numa: Vec::new(),
        };
        assert_eq!(Device::from(argument).topology, None);
    }

    #[test]
    fn variable_is_fit_for_a_shell() {
        assert_eq!(
            variable("example.com/deviceA"),
            "TESTBED_DEVICES_EXAMPLE_COM_DEVICEA"
        );
    }
}

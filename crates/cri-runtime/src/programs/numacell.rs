//! `numacell` offers one device plugin resource per NUMA node, so that a pod can ask for a node (scenarios-serial.md 2.1).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use goflags::command_line;
use podresources::device_plugin::{DEVICE_PLUGIN_DIR, Plugin, device};
use podresources::deviceplugin::v1beta1::{ContainerAllocateResponse, Device, DeviceSpec};
use serde::Serialize;
use tokio::sync::watch;
use tonic::Status;

use super::go_flags::{self, Kind};
use crate::stop;

/// Default number of devices of a cell.
const DEFAULT_DEVICES: u32 = 15;
/// Environment variable with the ID of a container's cell.
const CELL_VARIABLE: &str = "KNI_NODE_CELL_ID";
/// The flags of the program. Those of the Go logging library are accepted and ignored.
const FLAGS: &[(&str, Kind)] = &[
    ("alsologtostderr", Kind::Switch),
    ("logtostderr", Kind::Switch),
    ("v", Kind::Value),
    ("devices", Kind::Value),
    ("sysfs", Kind::Value),
    ("discover", Kind::Switch),
    ("render", Kind::Switch),
    ("plugin-dir", Kind::Value),
];

/// The parsed arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of devices of each cell.
    pub devices: u32,
    /// Root of the sysfs that lists the cells.
    pub sysfs: PathBuf,
    /// Directory of the kubelet's socket, where the plugins' own sockets go as well.
    pub plugin_dir: PathBuf,
    /// What to do with the cells.
    pub action: Action,
}

/// What to do with the discovered cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Register with the kubelet and serve.
    Serve,
    /// `-discover`: print the IDs of the cells as JSON and end.
    Discover,
    /// `-render`: print resources and devices as JSON and end.
    Render,
}

/// Why the arguments are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The arguments are not valid flags.
    #[error(transparent)]
    Flags(#[from] go_flags::Error),
    /// The value of `-devices` is not a number.
    #[error("invalid value {0:?} for flag -devices: parse error")]
    Devices(String),
    /// The value of a switch is not a boolean.
    #[error("invalid boolean value {value:?} for -{flag}: parse error")]
    Switch {
        /// Name of the flag.
        flag: &'static str,
        /// The value.
        value: String,
    },
}

impl OptionsError {
    /// Returns whether the arguments are refused only because they ask for the usage text.
    pub fn is_help(&self) -> bool {
        *self == Self::Flags(go_flags::Error::Words(command_line::Error::Help))
    }
}

/// Returns the usage text.
pub fn usage() -> String {
    go_flags::usage("numacell", FLAGS)
}

impl Options {
    /// Parses the arguments (without the program's name).
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, OptionsError> {
        let flags = go_flags::parse(arguments, FLAGS)?;
        let is_on = |flag: &'static str| match flags.get(flag) {
            None => Ok(false),
            Some(value) => goflags::boolean(value).ok_or_else(|| OptionsError::Switch {
                flag,
                value: value.clone(),
            }),
        };
        let devices = match flags.get("devices") {
            None => DEFAULT_DEVICES,
            Some(text) => {
                let number: i64 = text
                    .parse()
                    .map_err(|_| OptionsError::Devices(text.clone()))?;
                if number <= 0 {
                    DEFAULT_DEVICES
                } else {
                    u32::try_from(number).map_err(|_| OptionsError::Devices(text.clone()))?
                }
            }
        };
        Ok(Self {
            devices,
            sysfs: flags.get("sysfs").map_or("/sys", String::as_str).into(),
            plugin_dir: flags
                .get("plugin-dir")
                .map_or(DEVICE_PLUGIN_DIR, String::as_str)
                .into(),
            action: if is_on("discover")? {
                Action::Discover
            } else if is_on("render")? {
                Action::Render
            } else {
                Action::Serve
            },
        })
    }
}

/// A cell, as its plugin registers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Cell {
    id: u32,
    resource: String,
    devices: Vec<String>,
}

impl Cell {
    fn new(id: u32, devices: u32) -> Self {
        Self {
            id,
            resource: format!("kni.node/numacell{id:02}"),
            devices: (0..devices)
                .map(|device| format!("numacell{id:02}-{device:03}"))
                .collect(),
        }
    }

    fn plugin(&self) -> Plugin {
        let numa = i64::from(self.id);
        let devices: Vec<Device> = self
            .devices
            .iter()
            .map(|id| device(id, true, Some(numa)))
            .collect();
        let id = self.id;
        Plugin::new(&self.resource, devices, move |ids: &[String]| {
            allocate(id, ids)
        })
    }
}

/// Allocates one device of a cell to a container, which gets the cell's ID; refuses more than one.
fn allocate(cell: u32, devices: &[String]) -> Result<ContainerAllocateResponse, Status> {
    if devices.len() > 1 {
        return Err(Status::unknown("can't allocate more than 1 numacell"));
    }
    Ok(ContainerAllocateResponse {
        envs: [(CELL_VARIABLE.to_owned(), cell.to_string())].into(),
        devices: vec![DeviceSpec {
            container_path: "/dev/null".to_owned(),
            host_path: "/dev/null".to_owned(),
            permissions: "rw".to_owned(),
        }],
        ..Default::default()
    })
}

/// Returns the IDs of the NUMA nodes below `sysfs`, in ascending order.
fn discover(sysfs: &Path) -> anyhow::Result<Vec<u32>> {
    let nodes = sysfs.join("devices/system/node");
    let mut ids = Vec::new();
    for entry in fs_err::read_dir(nodes)? {
        let name = entry?.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.strip_prefix("node"))
            && let Ok(id) = id.parse()
        {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    anyhow::ensure!(!ids.is_empty(), "no NUMA node below {}", sysfs.display());
    Ok(ids)
}

/// Runs the action of the options; serving ends on `SIGTERM` or `SIGINT`.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let cells: Vec<Cell> = discover(&options.sysfs)?
        .into_iter()
        .map(|id| Cell::new(id, options.devices))
        .collect();
    match options.action {
        Action::Serve => serve(&cells, &options.plugin_dir).await,
        Action::Discover => {
            let ids: Vec<u32> = cells.iter().map(|cell| cell.id).collect();
            serde_json::to_writer(std::io::stdout(), &ids).context("cannot print the cells")
        }
        Action::Render => serde_json::to_writer_pretty(std::io::stdout(), &cells)
            .context("cannot print the cells"),
    }
}

async fn serve(cells: &[Cell], dir: &Path) -> anyhow::Result<()> {
    let (stopping, stopped) = watch::channel(());
    let signalled = stop::signalled().context("cannot watch signals")?;
    let plugins: Vec<Plugin> = cells.iter().map(Cell::plugin).collect();
    let runs = plugins.iter().map(|plugin| {
        let mut stopped = stopped.clone();
        plugin.run(dir, async move {
            // The sender is dropped when the signal arrives.
            let _ = stopped.changed().await;
        })
    });
    let all = futures::future::try_join_all(runs);
    let stopping = async move {
        signalled.await;
        drop(stopping);
        Ok(())
    };
    futures::future::try_join(all, stopping).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_the_suite_starts_it(&["-alsologtostderr", "-v", "3"], 15, "/sys", Action::Serve)]
    #[case::other_sysfs(&["-sysfs", "/host/sys"], 15, "/host/sys", Action::Serve)]
    #[case::fewer_devices(&["-devices=3"], 3, "/sys", Action::Serve)]
    #[case::zero_is_the_default(&["-devices", "0"], 15, "/sys", Action::Serve)]
    #[case::negative_is_the_default(&["-devices", "-4"], 15, "/sys", Action::Serve)]
    #[case::discover(&["-discover"], 15, "/sys", Action::Discover)]
    #[case::render(&["-render"], 15, "/sys", Action::Render)]
    #[case::a_switch_set_by_a_number(&["-discover=1"], 15, "/sys", Action::Discover)]
    #[case::a_switch_that_is_off(&["-discover=false"], 15, "/sys", Action::Serve)]
    fn options_of_flags(
        #[case] arguments: &[&str],
        #[case] devices: u32,
        #[case] sysfs: &str,
        #[case] action: Action,
    ) {
        let expected = Options {
            devices,
            sysfs: sysfs.into(),
            plugin_dir: DEVICE_PLUGIN_DIR.into(),
            action,
        };
        assert_eq!(Options::parse(arguments.iter().copied()), Ok(expected));
    }

    #[rstest]
    #[case::no_number(&["-devices", "x"], "invalid value \"x\" for flag -devices: parse error")]
    #[case::no_boolean(&["-discover=maybe"], "invalid boolean value \"maybe\" for -discover: parse error")]
    fn values_of_another_type_are_refused(#[case] arguments: &[&str], #[case] message: &str) {
        let error = Options::parse(arguments.iter().copied()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn cell_is_named_with_two_digits_and_its_devices_with_three() {
        let cell = Cell::new(1, 2);
        assert_eq!(cell.resource, "kni.node/numacell01");
        assert_eq!(cell.devices, ["numacell01-000", "numacell01-001"]);
    }

    #[test]
    fn container_gets_the_id_of_the_cell() {
        let response = allocate(1, &["numacell01-000".to_owned()]).unwrap();
        assert_eq!(response.envs[CELL_VARIABLE], "1");
        assert_eq!(response.devices[0].host_path, "/dev/null");
    }

    #[test]
    fn second_device_of_a_cell_is_refused() {
        let status = allocate(1, &["a".to_owned(), "b".to_owned()]).unwrap_err();
        assert_eq!(status.message(), "can't allocate more than 1 numacell");
    }

    #[test]
    fn cells_are_the_nodes_of_the_sysfs() {
        let sysfs = tempfile::tempdir().unwrap();
        for name in ["node1", "node0", "node10", "power", "nodeX"] {
            fs_err::create_dir_all(sysfs.path().join("devices/system/node").join(name)).unwrap();
        }
        assert_eq!(discover(sysfs.path()).unwrap(), [0, 1, 10]);
    }

    #[test]
    fn sysfs_without_nodes_is_an_error() {
        let sysfs = tempfile::tempdir().unwrap();
        assert!(discover(sysfs.path()).is_err());
    }
}

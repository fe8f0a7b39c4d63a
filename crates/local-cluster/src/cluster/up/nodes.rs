//! The files of the nodes, which are written before the nodes start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cluster_spec::hardware;
use cluster_spec::images::Image;
use cluster_spec::plan::ClusterSpec;
use cluster_spec::runtime::Runtime;
use cri_runtime::spec::NodeSpec;

use super::Error;
use crate::cluster::LocalCluster;
use crate::containerd;
use crate::control_plane::{process, text};
use crate::enter::NodeLayout;
use crate::kubelet::runtime_process;
use crate::net::{self, POD_PREFIX};
use crate::node_handle::{NodeHandle, POD_RESOURCES, POD_RESOURCES_HIDDEN};
use crate::root::{self, ControlGroup, Root};
use crate::supervise::protocol::ProcessSpec;

/// User ID of the stack's image. On OpenShift the stack's pods specify no user and must not run as root.
const STACK_USER: u32 = 65532;

/// Writes hardware, roots, layouts and specifications of all nodes.
pub(super) fn prepare_nodes(cluster: &LocalCluster) -> Result<(), Error> {
    let spec = cluster.spec();
    let mut trees: Vec<(&fixtures::machines::Machine, PathBuf)> = Vec::new();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let plan = &spec.nodes[index];
        let known = trees.iter().find(|(machine, _)| *machine == &plan.machine);
        let hardware = if let Some((_, tree)) = known {
            tree.clone()
        } else {
            let tree = cluster.dir().join(format!("hardware/{}", trees.len()));
            hardware::write_tree(&plan.machine, &tree)?;
            trees.push((&plan.machine, tree.clone()));
            tree
        };
        fs_err::create_dir_all(node.dir())?;
        let layout = NodeLayout {
            root: Root {
                dir: node.dir().join("root"),
                sysctls: node.dir().join("sysctls"),
                hardware,
                state_dir: cluster.dir().to_owned(),
                program_dirs: program_dirs(spec),
                control_group: spec.control_group().map(|cluster| ControlGroup {
                    cluster,
                    node: node.name().to_owned(),
                }),
            },
            subnet: cluster.subnet(),
            index,
            nodes: spec.nodes.len(),
        };
        root::prepare(&layout.root, node.name(), node.address())?;
        write_json(&node.dir().join("place.json"), &layout)?;
        match &spec.runtime {
            Runtime::Builtin => {
                write_json(&node.dir().join("node.json"), &node_spec(spec, node, index))?;
            }
            Runtime::Containerd(programs) => {
                containerd::write(cluster.dir(), node, index, programs)?;
            }
        }
    }
    Ok(())
}

/// Returns the directories with programs, each once.
fn program_dirs(spec: &ClusterSpec) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = spec
        .assets
        .all()
        .into_iter()
        .filter_map(Path::parent)
        .chain([spec.bin_dir.as_path()])
        .map(Path::to_owned)
        .chain(spec.runtime.program_dirs())
        .collect();
    dirs.sort();
    dirs.dedup();
    dirs
}

fn node_spec(spec: &ClusterSpec, node: &NodeHandle, index: usize) -> NodeSpec {
    let mut overrides = std::collections::BTreeMap::new();
    if spec.hide_allocations {
        overrides.insert(
            PathBuf::from(POD_RESOURCES),
            PathBuf::from(POD_RESOURCES_HIDDEN),
        );
    }
    NodeSpec {
        node: node.name().to_owned(),
        cri_socket: node.cri_socket(),
        control_socket: node.control_socket(),
        state_dir: node.dir().join("runtime"),
        pod_gateway: net::pod_gateway(index),
        pod_prefix: POD_PREFIX,
        node_address: node.address(),
        images: images(spec),
        host_path_overrides: overrides,
    }
}

/// Returns the images of a node: the stack, and the same programs as an image that an administrator may choose, which runs as root.
fn images(spec: &ClusterSpec) -> BTreeMap<String, Image> {
    let stack = with_kubectl(spec, stack_image(spec));
    let exporter = as_root(&stack);
    BTreeMap::from([
        (api::names::STACK_REPOSITORY.to_owned(), stack),
        (api::names::EXPORTER_REPOSITORY.to_owned(), exporter),
    ])
}

/// Returns the images that a registry gets, by name: those of [`images`], and that of the tests, where kubectl is. Nodes pull what their pods ask
/// for, and most of them ask for the stack alone.
pub(super) fn pushed_images(spec: &ClusterSpec) -> Vec<(String, Image)> {
    let stack = stack_image(spec);
    let mut tests = with_kubectl(spec, Image::of_tests(&spec.bin_dir));
    tests.user = stack.user;
    let images = [
        (api::names::EXPORTER_IMAGE, as_root(&stack)),
        (api::names::STACK_IMAGE, stack),
        (api::names::TESTS_IMAGE, tests),
    ];
    images.map(|(name, image)| (name.to_owned(), image)).into()
}

fn stack_image(spec: &ClusterSpec) -> Image {
    let mut image = Image::of_stack(&spec.bin_dir);
    image.user = Some(STACK_USER);
    image
}

fn as_root(image: &Image) -> Image {
    Image {
        user: None,
        ..image.clone()
    }
}

fn with_kubectl(spec: &ClusterSpec, mut image: Image) -> Image {
    image.add("/usr/local/bin/kubectl", spec.assets.kubectl.clone());
    image
}

/// Returns the process of a node's runtime, which creates the node's namespaces and is the first process in them.
pub(super) fn runtime(cluster: &LocalCluster, node: &NodeHandle) -> ProcessSpec {
    let spec = cluster.spec();
    let helper = text(&spec.bin_dir.join("numaresources-testbed"));
    let mut argv: Vec<String> = vec![
        helper.clone(),
        "enter".to_owned(),
        "--place".to_owned(),
        text(&node.dir().join("place.json")),
        "--".to_owned(),
    ];
    let mut env = None;
    match &spec.runtime {
        Runtime::Builtin => {
            let spec = text(&node.dir().join("node.json"));
            argv.extend([helper, "node".to_owned(), "--spec".to_owned(), spec]);
        }
        Runtime::Containerd(programs) => {
            argv.extend(containerd::command(node, programs));
            env = Some(containerd::path(programs));
        }
    }
    let mut start = process(cluster.dir(), &runtime_process(node.name()), argv);
    if let Some(path) = env {
        start.env.insert("PATH".to_owned(), path);
    }
    start
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
    fs_err::write(path, text)?;
    Ok(())
}

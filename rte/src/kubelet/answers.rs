//! Source of the containers' resources: the kubelet's socket (`unix://`), or files in its place (`fake://`, rte.md 4.1).

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use podresources::client::{self, PodResources};
use podresources::socket::{self, Socket};
use podresources::v1;
use serde::de::DeserializeOwned;

mod json;

/// Scheme of endpoints that are directories with answer files.
const FAKE: &str = "fake://";

/// The source of answers.
#[derive(Clone, Debug)]
pub(crate) enum Kubelet {
    /// A real kubelet.
    Socket(PodResources),
    /// A directory with `list.json` and `get_allocatable_resources.json`, which are read at each call.
    Files(PathBuf),
}

/// The call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kubelet gave no answer.
    #[error(transparent)]
    Call(#[from] client::Error),
    /// The file with the answer cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not contain a valid answer.
    #[error("cannot parse {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

impl Kubelet {
    /// Creates the source for `endpoint`; each call takes at most `timeout`.
    pub(crate) fn new(endpoint: &str, timeout: Duration) -> Result<Self, socket::Error> {
        if let Some(dir) = endpoint.strip_prefix(FAKE) {
            return Ok(Self::Files(dir.into()));
        }
        let socket: Socket = endpoint.parse()?;
        Ok(Self::Socket(PodResources::new(&socket, timeout)))
    }

    /// Lists all active pods with the resources that their containers hold.
    pub(crate) async fn list(&self) -> Result<v1::ListPodResourcesResponse, Error> {
        match self {
            Self::Socket(kubelet) => Ok(kubelet.list().await?),
            Self::Files(dir) => Ok(read::<json::List>(dir, "list.json")?.into()),
        }
    }

    /// Returns the resources that the node can give to containers, whether held or free.
    pub(crate) async fn allocatable(&self) -> Result<v1::AllocatableResourcesResponse, Error> {
        match self {
            Self::Socket(kubelet) => Ok(kubelet.allocatable().await?),
            Self::Files(dir) => {
                Ok(read::<json::Allocatable>(dir, "get_allocatable_resources.json")?.into())
            }
        }
    }
}

fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<T, Error> {
    let path = dir.join(name);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| Error::Parse { path, source }),
        Err(source) => Err(Error::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_answer_in_place_of_a_kubelet() {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = Kubelet::new(
            &format!("fake://{}", dir.path().display()),
            Duration::from_secs(1),
        )
        .unwrap();
        assert!(matches!(kubelet.list().await, Err(Error::Read { .. })));

        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(
            "list.json",
            r#"{"pod_resources": [{"name": "p", "namespace": "n", "containers": [
                {"name": "c", "cpu_ids": [2, "3"],
                 "devices": [{"resource_name": "ex.com/d", "device_ids": ["a"], "topology": {"nodes": [{}]}}],
                 "memory": [{"memory_type": "memory", "size": "1024", "topology": {"nodes": [{"ID": 1}]}}]}]}]}"#,
        );
        write(
            "get_allocatable_resources.json",
            r#"{"cpuIds": ["0", "1"]}"#,
        );
        let list = kubelet.list().await.unwrap();
        let on = |id| {
            Some(v1::TopologyInfo {
                nodes: vec![v1::NumaNode { id }],
            })
        };
        let container = v1::ContainerResources {
            name: "c".to_owned(),
            cpu_ids: vec![2, 3],
            devices: vec![v1::ContainerDevices {
                resource_name: "ex.com/d".to_owned(),
                device_ids: vec!["a".to_owned()],
                topology: on(0),
            }],
            memory: vec![v1::ContainerMemory {
                memory_type: "memory".to_owned(),
                size: 1024,
                topology: on(1),
            }],
            ..Default::default()
        };
        assert_eq!(list.pod_resources.len(), 1);
        assert_eq!(list.pod_resources[0].containers, [container]);
        assert_eq!(kubelet.allocatable().await.unwrap().cpu_ids, [0, 1]);

        write("list.json", r#"{"pod_resources": 1}"#);
        assert!(matches!(kubelet.list().await, Err(Error::Parse { .. })));
    }

    #[test]
    fn other_schemes_are_refused() {
        assert!(Kubelet::new("tcp://x", Duration::from_secs(1)).is_err());
    }
}

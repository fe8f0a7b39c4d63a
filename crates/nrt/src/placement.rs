//! NUMA placement: which container runs on which NUMA node, compressed into attributes of the NRT (rte.md 7).
//!
//! Writer and reader know the same set of containers. A container's *offset* is its index among all containers sorted by hash. Each
//! NUMA node except the busiest publishes the offsets of its containers as differences, so names are never sent.

use std::collections::BTreeMap;
use std::fmt;

use twox_hash::XxHash64;

pub mod leb89;

/// First characters of the metadata.
const PREFIX: &str = "npv0v001";
/// Separator between the parts of the metadata.
const SEPARATOR: &str = "::";
/// The only supported encoding.
const ENCODING: &str = "leb89";

/// Identifies one container of the cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Container<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container.
    pub container: &'a str,
}

impl Container<'_> {
    fn hash(&self) -> u64 {
        let mut bytes =
            Vec::with_capacity(self.namespace.len() + self.pod.len() + self.container.len() + 2);
        bytes.extend_from_slice(self.namespace.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.pod.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.container.as_bytes());
        XxHash64::oneshot(0, &bytes)
    }
}

impl fmt::Display for Container<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

/// The published form of a placement.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Encoded {
    /// Value of the attribute on the NRT object.
    pub metadata: String,
    /// Values of the zone attributes by NUMA node. The busiest node and nodes without containers have none.
    pub vectors: BTreeMap<usize, String>,
}

/// Why a placement cannot be published.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// A container is on a NUMA node that the machine does not have.
    #[error("container {container} is on NUMA node {node}, but the machine has only {nodes}")]
    UnknownNode {
        /// The container.
        container: String,
        /// Its NUMA node.
        node: usize,
        /// Number of NUMA nodes of the machine.
        nodes: usize,
    },
    /// Two containers have the same hash, so a reader could not distinguish them.
    #[error("the hashes of containers {0} and {1} collide")]
    Collision(String, String),
}

/// Encodes where `containers` run on a machine of `nodes` NUMA nodes. A container given twice counts once, with its last entry.
///
/// # Errors
/// When a container's NUMA node does not exist on the machine or two hashes collide.
pub fn encode<'a>(
    containers: impl IntoIterator<Item = (Container<'a>, usize)>,
    nodes: usize,
) -> Result<Encoded, EncodeError> {
    let mut by_hash: BTreeMap<u64, (Container<'a>, usize)> = BTreeMap::new();
    for (container, node) in containers {
        if node >= nodes {
            return Err(EncodeError::UnknownNode {
                container: container.to_string(),
                node,
                nodes,
            });
        }
        if let Some((other, _)) = by_hash.insert(container.hash(), (container, node))
            && other != container
        {
            return Err(EncodeError::Collision(
                other.to_string(),
                container.to_string(),
            ));
        }
    }
    let mut offsets: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (offset, (_, node)) in by_hash.values().enumerate() {
        offsets.entry(*node).or_default().push(offset as u64);
    }
    let mut busiest = 0;
    let mut most = 0;
    for (node, list) in &offsets {
        if list.len() > most {
            (busiest, most) = (*node, list.len());
        }
    }
    let vectors = offsets
        .iter()
        .filter(|(node, _)| **node != busiest)
        .map(|(node, list)| (*node, encode_offsets(list)))
        .collect();
    let count = by_hash.len();
    Ok(Encoded {
        metadata: format!("{PREFIX}::ve={ENCODING}::cc={count}::nn={nodes}::bn={busiest}"),
        vectors,
    })
}

fn encode_offsets(ascending: &[u64]) -> String {
    let mut text = String::new();
    let mut previous = 0;
    for offset in ascending {
        leb89::push(&mut text, offset - previous);
        previous = *offset;
    }
    text
}

/// Why a published placement cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The metadata does not start with the required prefix.
    #[error("the metadata does not start with {PREFIX:?}")]
    Prefix,
    /// A part of the metadata is not a known `key=value`.
    #[error("the metadata has an invalid part {0:?}")]
    Part(String),
    /// The vectors use another encoding.
    #[error("the vectors are encoded as {0:?}, not as {ENCODING:?}")]
    Encoding(String),
    /// The numbers of the metadata contradict each other or the vectors.
    #[error("the metadata is inconsistent: {0}")]
    Inconsistent(&'static str),
    /// The reader knows a different number of containers than the writer.
    #[error("the writer counted {written} containers, the reader {known}")]
    Count {
        /// Containers that the writer saw.
        written: i64,
        /// Containers that the reader knows.
        known: usize,
    },
    /// A vector is not a list of offsets.
    #[error("the vector of NUMA node {node} cannot be read")]
    Vector {
        /// The node.
        node: usize,
        /// The cause.
        #[source]
        source: leb89::DecodeError,
    },
    /// A vector contains an offset outside the list, or one that is already used.
    #[error("offset {offset} of NUMA node {node} is out of range or taken")]
    Offset {
        /// The node.
        node: usize,
        /// The offset.
        offset: u64,
    },
}

/// Numbers of the metadata; -1 for a missing part.
struct Metadata {
    containers: i64,
    nodes: i64,
    busiest: i64,
}

impl Metadata {
    fn parse(text: &str) -> Result<Self, DecodeError> {
        let rest = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_prefix(SEPARATOR))
            .ok_or(DecodeError::Prefix)?;
        let mut encoding = "";
        let mut metadata = Self {
            containers: -1,
            nodes: -1,
            busiest: -1,
        };
        for part in rest.split(SEPARATOR) {
            let bad = || DecodeError::Part(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(bad)?;
            if value.is_empty() {
                return Err(bad());
            }
            let number = || value.parse::<i64>().map_err(|_| bad());
            match key {
                "ve" => encoding = value,
                "cc" => metadata.containers = number()?,
                "nn" => metadata.nodes = number()?,
                "bn" => metadata.busiest = number()?,
                _ => return Err(bad()),
            }
        }
        if encoding != ENCODING {
            return Err(DecodeError::Encoding(encoding.to_owned()));
        }
        Ok(metadata)
    }
}

/// Decodes a published placement: returns the NUMA node of each of `containers`.
///
/// # Errors
/// When the metadata or a vector is invalid, or the reader's container count differs from the writer's.
pub fn decode<'a>(
    encoded: &Encoded,
    containers: impl IntoIterator<Item = Container<'a>>,
) -> Result<BTreeMap<Container<'a>, usize>, DecodeError> {
    let metadata = Metadata::parse(&encoded.metadata)?;
    let nodes = usize::try_from(metadata.nodes).unwrap_or(0);
    let busiest = usize::try_from(metadata.busiest)
        .ok()
        .filter(|busiest| *busiest < nodes);
    let (true, Some(busiest)) = (metadata.containers >= 0 && nodes > 0, busiest) else {
        return Err(DecodeError::Inconsistent(
            "a count is negative, or the busiest NUMA node does not exist",
        ));
    };
    if encoded.vectors.len() >= nodes
        || encoded
            .vectors
            .keys()
            .any(|node| *node >= nodes || *node == busiest)
    {
        return Err(DecodeError::Inconsistent(
            "a vector belongs to no NUMA node or to the busiest",
        ));
    }
    if metadata.containers == 0 && !encoded.vectors.is_empty() {
        return Err(DecodeError::Inconsistent(
            "there are vectors but no containers",
        ));
    }
    let by_hash: BTreeMap<u64, Container<'a>> =
        containers.into_iter().map(|c| (c.hash(), c)).collect();
    if i64::try_from(by_hash.len()).ok() != Some(metadata.containers) {
        return Err(DecodeError::Count {
            written: metadata.containers,
            known: by_hash.len(),
        });
    }
    let ordered: Vec<Container<'a>> = by_hash.into_values().collect();
    let mut placement: BTreeMap<Container<'a>, usize> = BTreeMap::new();
    for (node, vector) in &encoded.vectors {
        let differences = leb89::decode(vector).map_err(|source| DecodeError::Vector {
            node: *node,
            source,
        })?;
        let mut offset: u64 = 0;
        for difference in differences {
            offset = offset.saturating_add(difference);
            let container = usize::try_from(offset)
                .ok()
                .and_then(|index| ordered.get(index));
            let taken =
                container.is_none_or(|container| placement.insert(*container, *node).is_some());
            if taken {
                return Err(DecodeError::Offset {
                    node: *node,
                    offset,
                });
            }
        }
    }
    for container in ordered {
        placement.entry(container).or_insert(busiest);
    }
    Ok(placement)
}

#[cfg(test)]
mod tests;

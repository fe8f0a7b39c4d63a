//! The registry of a cluster: its process beside the control plane, how nodes find it, and what is pushed to it.
//!
//! It has the images whose names begin with [`HOST`]. The nodes ask it at the address of the control plane, because each node has a loopback
//! network of its own.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_spec::images::{Published, Reference};
use cluster_spec::subnet::Subnet;
use futures::TryStreamExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST as HOST_HEADER, LOCATION};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use oci_archive::{Blob, MANIFEST};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::io::ReaderStream;

use super::images::Packed;
use crate::control_plane::{process, text};
use crate::supervise::protocol::ProcessSpec;

/// Name of the registry's process.
pub(crate) const PROCESS: &str = "registry";
/// Host of the names of images that the registry has.
const HOST: &str = "localhost";
const PORT: u16 = 5000;
/// Longest time for one request, which may carry a whole layer.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);
/// Bytes of a layer that are read at once.
const CHUNK: usize = 1 << 20;

type Body = BoxBody<Bytes, std::io::Error>;

/// An image could not be pushed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to the registry.
    #[error("cannot talk to the registry at {address}")]
    Connection {
        /// Where it listens.
        address: String,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It refused a request.
    #[error("the registry refused {request}: {status} {message}")]
    Refused {
        /// Method and path.
        request: String,
        /// Status of the answer.
        status: StatusCode,
        /// What it wrote.
        message: String,
    },
    /// A layer could not be read.
    #[error("cannot read the layer {}", file.display())]
    Layer {
        /// The file.
        file: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
}

/// Returns the address of the registry.
pub(crate) fn address(subnet: Subnet) -> (Ipv4Addr, u16) {
    (subnet.gateway(), PORT)
}

/// Returns the directory in which containerd looks for the registries of hosts.
pub(super) fn hosts_dir(cluster_dir: &Path) -> PathBuf {
    cluster_dir.join("registries")
}

/// Writes the registry's configuration, and where nodes find it.
pub(crate) fn write(cluster_dir: &Path, subnet: Subnet) -> std::io::Result<()> {
    let (gateway, port) = address(subnet);
    let config = json!({
        "version": "0.1",
        "log": { "level": "warn" },
        "storage": {
            "filesystem": { "rootdirectory": cluster_dir.join("registry") },
            "maintenance": { "uploadpurging": { "enabled": false } },
        },
        "http": { "addr": format!("{gateway}:{port}") },
    });
    let config = serde_yaml::to_string(&config).map_err(std::io::Error::other)?;
    fs_err::write(config_file(cluster_dir), config)?;
    let host = hosts_dir(cluster_dir).join(HOST);
    fs_err::create_dir_all(&host)?;
    let url = json!(format!("http://{gateway}:{port}"));
    let hosts = format!("server = {url}\n\n[host.{url}]\ncapabilities = [\"pull\", \"resolve\"]\n");
    fs_err::write(host.join("hosts.toml"), hosts)
}

fn config_file(cluster_dir: &Path) -> PathBuf {
    cluster_dir.join("registry.yaml")
}

/// Returns the process of the registry.
pub(crate) fn start(cluster_dir: &Path, program: &Path) -> ProcessSpec {
    let argv = [
        text(program),
        "serve".to_owned(),
        text(&config_file(cluster_dir)),
    ];
    let mut start = process(cluster_dir, PROCESS, argv.to_vec());
    // It would look for a collector of traces.
    let variable = ("OTEL_TRACES_EXPORTER", "none");
    start
        .env
        .insert(variable.0.to_owned(), variable.1.to_owned());
    start
}

/// Pushes images, and returns how pods name them.
pub(crate) async fn push(subnet: Subnet, images: &[Packed]) -> Result<Published, Error> {
    let mut registry = Registry::connect(address(subnet)).await?;
    // Layers that several images have are sent once.
    let mut sent: BTreeSet<(String, String)> = BTreeSet::new();
    for image in images {
        let name = Name::of(&image.name);
        let has = |blob: &Blob| {
            let sent = sent.iter().find(|(_, digest)| *digest == blob.digest);
            sent.map(|(repository, _)| repository.clone())
        };
        for layer in &image.layers {
            match has(&layer.blob) {
                Some(from) if from == name.repository => {}
                Some(from) => registry.mount(&name.repository, &layer.blob, &from).await?,
                None => {
                    let file = &layer.file;
                    let opened = tokio::fs::File::open(file).await;
                    let opened = opened.map_err(|source| Error::Layer {
                        file: file.clone(),
                        source,
                    })?;
                    let frames = ReaderStream::with_capacity(opened, CHUNK).map_ok(Frame::data);
                    let body = StreamBody::new(frames).boxed();
                    registry.upload(&name.repository, &layer.blob, body).await?;
                }
            }
        }
        let layers = image.layers.iter().map(|layer| layer.blob.digest.clone());
        sent.extend(layers.map(|digest| (name.repository.clone(), digest)));
        let config = Blob::of_bytes(image.config.as_bytes());
        let body = whole(image.config.clone());
        registry.upload(&name.repository, &config, body).await?;
        registry.tag(&name, &image.manifest).await?;
    }
    let references = images
        .iter()
        .map(|image| (image.name.clone(), image.reference()));
    Ok(Published(references.collect()))
}

/// The name of an image as the registry knows it.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    repository: String,
    tag: String,
}

impl Name {
    /// Reads a name that begins with [`HOST`].
    fn of(name: &str) -> Self {
        let reference = Reference::parse(name);
        let repository = reference.repository;
        let path = repository.strip_prefix(HOST).unwrap_or(repository);
        Self {
            repository: path.trim_start_matches('/').to_owned(),
            tag: reference.tag.unwrap_or("latest").to_owned(),
        }
    }
}

/// A connection to the registry.
struct Registry {
    address: String,
    sender: SendRequest<Body>,
}

impl Registry {
    async fn connect((host, port): (Ipv4Addr, u16)) -> Result<Self, Error> {
        let address = format!("{host}:{port}");
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(|error| broken(&address, error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&address, error))?;
        // It ends with the sender. Whatever goes wrong is also an error of the request.
        tokio::spawn(connection);
        Ok(Self { address, sender })
    }

    /// Sends a blob.
    async fn upload(&mut self, repository: &str, blob: &Blob, body: Body) -> Result<(), Error> {
        let path = format!("/v2/{repository}/blobs/uploads/");
        let begun = self.send(Method::POST, &path, None, empty()).await?;
        let answer = expected(begun, StatusCode::ACCEPTED, &path).await?;
        let place = answer
            .headers()
            .get(LOCATION)
            .and_then(|location| location.to_str().ok()?.parse::<Uri>().ok());
        let place = place
            .as_ref()
            .and_then(Uri::path_and_query)
            .map_or(path.as_str(), |place| place.as_str());
        let separator = if place.contains('?') { '&' } else { '?' };
        let path = format!("{place}{separator}digest={}", blob.digest);
        let head = Some(("application/octet-stream", blob.size));
        let done = self.send(Method::PUT, &path, head, body).await?;
        expected(done, StatusCode::CREATED, &path).await?;
        Ok(())
    }

    /// Makes a blob of one repository one of another.
    async fn mount(&mut self, repository: &str, blob: &Blob, from: &str) -> Result<(), Error> {
        let digest = &blob.digest;
        let path = format!("/v2/{repository}/blobs/uploads/?mount={digest}&from={from}");
        let done = self.send(Method::POST, &path, None, empty()).await?;
        expected(done, StatusCode::CREATED, &path).await?;
        Ok(())
    }

    /// Sends a manifest under a tag.
    async fn tag(&mut self, name: &Name, manifest: &str) -> Result<(), Error> {
        let Name { repository, tag } = name;
        let path = format!("/v2/{repository}/manifests/{tag}");
        let head = Some((MANIFEST, manifest.len() as u64));
        let body = whole(manifest.to_owned());
        let done = self.send(Method::PUT, &path, head, body).await?;
        expected(done, StatusCode::CREATED, &path).await?;
        Ok(())
    }

    /// Sends a request. `head` has type and size of the body.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        head: Option<(&str, u64)>,
        body: Body,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST_HEADER, &self.address);
        if let Some((kind, size)) = head {
            request = request
                .header(CONTENT_TYPE, kind)
                .header(CONTENT_LENGTH, size);
        }
        let request = request
            .body(body)
            .map_err(|error| broken(&self.address, error))?;
        let exchange = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        match tokio::time::timeout(REQUEST_LIMIT, exchange).await {
            Ok(answer) => answer.map_err(|error| broken(&self.address, error)),
            Err(late) => Err(broken(&self.address, late)),
        }
    }
}

/// Checks the status of an answer, and reads the rest of it, without which the connection takes no further request.
async fn expected(
    answer: Response<Incoming>,
    status: StatusCode,
    request: &str,
) -> Result<Response<()>, Error> {
    let (head, body) = answer.into_parts();
    // An answer that breaks off is still one: its status counts.
    let text = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    if head.status == status {
        return Ok(Response::from_parts(head, ()));
    }
    let text = text.unwrap_or_default();
    Err(Error::Refused {
        request: request.to_owned(),
        status: head.status,
        message: String::from_utf8_lossy(&text).trim().to_owned(),
    })
}

fn broken(address: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Connection {
        address: address.to_owned(),
        source: source.into(),
    }
}

fn empty() -> Body {
    whole(String::new())
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_knows_images_without_the_host_of_their_names() {
        let expected = Name {
            repository: "numaresources/stack".to_owned(),
            tag: "dev".to_owned(),
        };
        assert_eq!(Name::of("localhost/numaresources/stack:dev"), expected);
    }

    #[test]
    fn nodes_find_the_registry_by_the_host_of_the_names() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), Subnet(7)).unwrap();
        let hosts = hosts_dir(dir.path()).join("localhost/hosts.toml");
        let hosts = fs_err::read_to_string(hosts).unwrap();
        assert!(
            hosts.contains("[host.\"http://198.18.7.1:5000\"]"),
            "{hosts}"
        );
        assert!(api::names::STACK_IMAGE.starts_with("localhost/"));
    }
}

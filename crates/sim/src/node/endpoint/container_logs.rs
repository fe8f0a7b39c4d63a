//! Logs of containers, as `kubectl logs` requests them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Response, StatusCode};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::{Body, text};
use crate::node::kubelet::Kubelet;
use crate::node::kubelet::worker::snapshot::ContainerSnapshot;
use crate::node::status::facts::Run;

/// Interval between two reads of a log that is followed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<usize>,
    limit: Option<usize>,
}

impl LogOptions {
    fn parse(query: &str, now: Timestamp) -> Self {
        let mut options = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let is_set = matches!(value, "true" | "1");
            match name {
                "follow" => options.follow = is_set,
                "previous" => options.previous = is_set,
                "timestamps" => options.timestamps = is_set,
                "tailLines" => options.tail = value.parse().ok(),
                "limitBytes" => options.limit = value.parse().ok(),
                "sinceSeconds" => {
                    let seconds = value.parse().ok();
                    options.since = seconds.map(|seconds| now - SignedDuration::from_secs(seconds));
                }
                "sinceTime" => {
                    let value = value.replace("%3A", ":").replace("%2B", "+");
                    options.since = value.parse().ok();
                }
                _ => {}
            }
        }
        options
    }

    /// Returns the requested lines of a log.
    fn select(&self, log: &[u8]) -> Vec<u8> {
        let mut records: Vec<Record<'_>> = log
            .split_inclusive(|byte| *byte == b'\n')
            .filter_map(Record::parse)
            .filter(|record| {
                let since = self.since;
                since.is_none_or(|since| record.time().is_none_or(|time| time >= since))
            })
            .collect();
        if let Some(tail) = self.tail {
            let mut from = records.len();
            let mut lines = 0;
            // A line may consist of several records, of which only the last is full.
            while from > 0 {
                if records[from - 1].full {
                    if lines == tail {
                        break;
                    }
                    lines += 1;
                } else if lines == 0 {
                    lines = 1;
                }
                from -= 1;
            }
            if tail == 0 {
                from = records.len();
            }
            records.drain(..from);
        }
        let mut selected = Vec::new();
        for record in records {
            if self.timestamps {
                selected.extend_from_slice(record.stamp);
                selected.push(b' ');
            }
            selected.extend_from_slice(record.text);
            if record.full {
                selected.push(b'\n');
            }
        }
        if let Some(limit) = self.limit {
            selected.truncate(limit);
        }
        selected
    }
}

/// A record of a log file: time, stream, tag, text.
struct Record<'a> {
    stamp: &'a [u8],
    full: bool,
    text: &'a [u8],
}

impl<'a> Record<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n")?;
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let stamp = parts.next()?;
        let _stream = parts.next()?;
        let full = parts.next()? == b"F";
        Some(Self {
            stamp,
            full,
            text: parts.next()?,
        })
    }

    fn time(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.stamp).ok()?.parse().ok()
    }
}

/// Answers with the log of a container.
pub(super) async fn answer(
    kubelet: &Kubelet,
    [namespace, pod, container]: [&str; 3],
    query: &str,
) -> Response<Body> {
    let options = LogOptions::parse(query, Timestamp::now());
    let Some(snapshot) = super::streams::pod(kubelet, namespace, pod) else {
        let problem = format!("pod {pod:?} does not exist");
        return text(StatusCode::NOT_FOUND, &problem);
    };
    let mut containers = snapshot.containers.iter();
    let attempt = containers
        .find(|seen| seen.name == container)
        .ok_or_else(|| "is not available".to_owned())
        .and_then(|seen| Ok((seen, attempt(seen, options.previous)?)));
    let (seen, attempt) = match attempt {
        Ok(found) => found,
        Err(problem) => {
            let previous = if problem == NOT_FOUND {
                "previous terminated "
            } else {
                ""
            };
            let problem = format!("{previous}container {container:?} in pod {pod:?} {problem}");
            return text(StatusCode::BAD_REQUEST, &problem);
        }
    };
    let uid = snapshot.pod.metadata.uid.as_deref().unwrap_or_default();
    let file = kubelet
        .layout
        .pod_logs(namespace, pod, uid)
        .join(container)
        .join(format!("{attempt}.log"));
    let log = tokio::fs::read(&file).await.unwrap_or_default();
    // An incomplete record at the end is left for later.
    let whole = log
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let first = options.select(&log[..whole]);
    let process = seen
        .process
        .clone()
        .filter(|_| options.follow && !options.previous);
    let Some(process) = process else {
        return body(stream::iter([first]).boxed());
    };
    let ended = tokio::spawn(async move { process.ended().await });
    let rest = Following {
        file,
        at: whole as u64,
        options: LogOptions {
            tail: None,
            since: None,
            limit: options.limit.map(|limit| limit.saturating_sub(first.len())),
            ..options
        },
        ended,
        is_last: false,
    };
    let rest = stream::unfold(rest, |mut rest| async move {
        let bytes = rest.next().await?;
        Some((bytes, rest))
    });
    body(stream::iter([first]).chain(rest).boxed())
}

/// Problem text for a container without a previous run.
const NOT_FOUND: &str = "not found";

/// Returns the attempt of a container that has the requested log, or why there is none, in the kubelet's words.
fn attempt(seen: &ContainerSnapshot, previous: bool) -> Result<i32, String> {
    let is_waiting = matches!(seen.run, Run::Waiting { .. });
    match &seen.run {
        // A container that waits for its next start has the log of its last run, also for `previous`.
        _ if is_waiting && seen.id.is_some() => Ok(seen.attempt),
        _ if previous && (is_waiting || seen.attempt == 0) => Err(NOT_FOUND.to_owned()),
        _ if previous => Ok(seen.attempt - 1),
        Run::Waiting { reason, .. } => {
            let why = match reason.as_str() {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                reason => reason,
            };
            Err(format!("is waiting to start: {why}"))
        }
        _ => Ok(seen.attempt),
    }
}

fn body(chunks: stream::BoxStream<'static, Vec<u8>>) -> Response<Body> {
    let frames = chunks.map(|chunk| Ok(Frame::data(Bytes::from(chunk))));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let kind = hyper::header::HeaderValue::from_static("text/plain");
    answer
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    answer
}

/// A log that is followed.
struct Following {
    file: PathBuf,
    at: u64,
    options: LogOptions,
    ended: tokio::task::JoinHandle<crate::node::launcher::Exit>,
    is_last: bool,
}

impl Following {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.options.limit == Some(0) {
                return None;
            }
            let fresh = read_from(&self.file, self.at).await.unwrap_or_default();
            let whole = fresh
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            if whole > 0 {
                self.at += whole as u64;
                let selected = self.options.select(&fresh[..whole]);
                if let Some(limit) = &mut self.options.limit {
                    *limit -= selected.len();
                }
                return Some(selected);
            }
            if self.is_last {
                return None;
            }
            // After the container has ended, the file is read once more, because its last output is written by then.
            self.is_last = tokio::time::timeout(POLL_INTERVAL, &mut self.ended)
                .await
                .is_ok();
        }
    }
}

async fn read_from(file: &Path, at: u64) -> io::Result<Vec<u8>> {
    let mut file = tokio::fs::File::open(file).await?;
    file.seek(io::SeekFrom::Start(at)).await?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LOG: &str = "2026-01-01T00:00:00.000000000Z stdout F one\n\
        2026-01-01T00:00:10.000000000Z stderr P tw\n\
        2026-01-01T00:00:10.000000000Z stderr F o\n\
        2026-01-01T00:00:20.000000000Z stdout F three\n";

    #[rstest]
    #[case::all("", "one\ntwo\nthree\n")]
    #[case::tail("tailLines=2", "two\nthree\n")]
    #[case::no_tail("tailLines=0", "")]
    #[case::long_tail("tailLines=9", "one\ntwo\nthree\n")]
    #[case::since("sinceTime=2026-01-01T00%3A00%3A15Z", "three\n")]
    #[case::since_seconds("sinceSeconds=25", "two\nthree\n")]
    #[case::limit("limitBytes=5", "one\nt")]
    #[case::timestamps(
        "timestamps=true&tailLines=1",
        "2026-01-01T00:00:20.000000000Z three\n"
    )]
    fn wanted_lines_of_a_log(#[case] query: &str, #[case] expected: &str) {
        let now = "2026-01-01T00:00:30Z".parse().unwrap();
        let selected = LogOptions::parse(query, now).select(LOG.as_bytes());
        assert_eq!(String::from_utf8(selected).unwrap(), expected);
    }
}

//! Paths of unix sockets, written as `unix:///run/x.sock`, `unix:/run/x.sock` or the plain path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tonic::transport::{Channel, Endpoint};

/// Maximum length of a unix socket path on Linux, in bytes (108 with the terminating zero).
const MAX_PATH: usize = 107;

/// A unix socket, identified by its absolute path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Socket(PathBuf);

/// The text does not name a unix socket.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The scheme is not `unix`.
    #[error("unsupported endpoint \"{0}\": only unix sockets are supported")]
    Scheme(String),
    /// The path is relative or empty.
    #[error("socket path \"{0}\" is not absolute")]
    Relative(String),
    /// The path is too long for the operating system.
    #[error("socket path \"{0}\" is longer than {MAX_PATH} bytes")]
    TooLong(String),
    /// The path is not UTF-8, which endpoints require.
    #[error("socket path \"{0}\" is not UTF-8")]
    NotUtf8(String),
}

impl Socket {
    /// Creates a socket address from an absolute path.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let shown = path.display().to_string();
        if !path.is_absolute() {
            return Err(Error::Relative(shown));
        }
        match path.to_str() {
            None => Err(Error::NotUtf8(shown)),
            Some(text) if text.len() > MAX_PATH => Err(Error::TooLong(shown)),
            Some(_) => Ok(Self(path)),
        }
    }

    /// Returns the path in the file system.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a channel that connects at the first call, and again at the first call after the connection is lost. Creating the channel
    /// never fails; its calls may.
    #[expect(
        clippy::missing_panics_doc,
        reason = "any text after the scheme is taken as a path"
    )]
    pub fn channel(&self) -> Channel {
        let uri = format!("unix://{}", self.0.display());
        Endpoint::from_shared(uri)
            .expect("unix endpoints are not parsed further")
            .connect_lazy()
    }
}

impl FromStr for Socket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let path = match text.split_once(':') {
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((scheme, rest)) if rest.starts_with("//") && !scheme.contains('/') => {
                return Err(Error::Scheme(text.to_owned()));
            }
            _ => text,
        };
        Self::new(path)
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::url("unix:///var/lib/x.sock")]
    #[case::short_url("unix:/var/lib/x.sock")]
    #[case::path("/var/lib/x.sock")]
    fn socket_is_named_by_url_or_path(#[case] text: &str) {
        let socket: Socket = text.parse().unwrap();
        assert_eq!(socket.path(), Path::new("/var/lib/x.sock"));
        assert_eq!(socket.to_string(), "unix:///var/lib/x.sock");
    }

    #[rstest]
    #[case::tcp("tcp://1.2.3.4:5", Error::Scheme("tcp://1.2.3.4:5".into()))]
    #[case::fake("fake:///dir", Error::Scheme("fake:///dir".into()))]
    #[case::relative("x.sock", Error::Relative("x.sock".into()))]
    #[case::empty("", Error::Relative(String::new()))]
    #[case::host_part("unix://x/y", Error::Relative("x/y".into()))]
    fn other_texts_are_refused(#[case] text: &str, #[case] expected: Error) {
        assert_eq!(text.parse::<Socket>(), Err(expected));
    }

    #[test]
    fn path_beyond_the_systems_limit_is_refused() {
        let path = format!("/{}", "x".repeat(MAX_PATH));
        assert_eq!(Socket::new(path.clone()), Err(Error::TooLong(path)));
    }
}

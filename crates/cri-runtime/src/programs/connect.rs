//! `connect HOST PORT [SECONDS]` checks whether a port accepts connections, for containers that have no better tool.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::Duration;

/// Default time limit in seconds.
const DEFAULT_LIMIT: u64 = 5;

/// Why the arguments of `connect` were refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There are too few or too many arguments.
    #[error("expected HOST PORT [SECONDS]")]
    Number,
    /// A port or a time is not a number.
    #[error("invalid number '{0}'")]
    Invalid(String),
}

/// The target of the connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    host: String,
    port: u16,
    limit: Duration,
}

impl Options {
    /// Parses the arguments after the program's name.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseError> {
        let arguments: Vec<&str> = arguments.into_iter().collect();
        let (host, port, limit) = match arguments.as_slice() {
            [host, port] => (host, port, DEFAULT_LIMIT),
            [host, port, limit] => (host, port, number(limit)?),
            _ => return Err(ParseError::Number),
        };
        Ok(Self {
            host: (*host).to_owned(),
            port: number(port)?,
            limit: Duration::from_secs(limit),
        })
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, ParseError> {
    text.parse()
        .map_err(|_| ParseError::Invalid(text.to_owned()))
}

/// Connects and closes the connection again.
///
/// # Errors
/// If no address accepts the connection in time.
pub fn run(options: &Options) -> std::io::Result<ExitCode> {
    let mut last = std::io::Error::other("the name resolves to no address");
    for address in (options.host.as_str(), options.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, options.limit) {
            Ok(_) => return Ok(ExitCode::SUCCESS),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn somebody_who_listens_is_connected_to_and_nobody_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let options = Options::parse(["127.0.0.1", &port, "1"]).unwrap();
        assert!(run(&options).is_ok());
        drop(listener);
        assert!(run(&options).is_err());
    }

    #[test]
    fn wrong_arguments_are_told() {
        assert_eq!(Options::parse(["a"]), Err(ParseError::Number));
        assert_eq!(
            Options::parse(["a", "b"]),
            Err(ParseError::Invalid("b".to_owned()))
        );
        assert_eq!(
            Options::parse(["a", "70000"]),
            Err(ParseError::Invalid("70000".to_owned()))
        );
    }
}

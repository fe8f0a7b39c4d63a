//! `sleep` with the duration forms of GNU coreutils, and a prompt end on `SIGTERM`.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::stop;

/// Why the arguments of `sleep` are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no argument.
    #[error("missing operand")]
    Missing,
    /// An argument is not a duration.
    #[error("invalid time interval '{0}'")]
    Invalid(String),
}

/// Parses the arguments and returns the sum of their durations; `None` is forever (`infinity`).
///
/// Each is a decimal number with an optional unit: `s` (the default), `m`, `h` or `d`.
pub fn parse<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Option<Duration>, ParseError> {
    let mut total = Some(Duration::ZERO);
    let mut seen = false;
    for argument in arguments {
        seen = true;
        let one = parse_one(argument)?;
        // A sum that overflows is longer than any machine runs, so it counts as forever.
        total = total.zip(one).and_then(|(sum, one)| sum.checked_add(one));
    }
    if seen {
        Ok(total)
    } else {
        Err(ParseError::Missing)
    }
}

/// Parses one duration; `None` is forever.
fn parse_one(argument: &str) -> Result<Option<Duration>, ParseError> {
    let invalid = || ParseError::Invalid(argument.to_owned());
    let (number, unit) = match argument.char_indices().next_back() {
        None => return Err(invalid()),
        Some((at, 's')) => (&argument[..at], 1.0),
        Some((at, 'm')) => (&argument[..at], 60.0),
        Some((at, 'h')) => (&argument[..at], 3600.0),
        Some((at, 'd')) => (&argument[..at], 86400.0),
        Some(_) => (argument, 1.0),
    };
    if matches!(number, "inf" | "infinity") {
        return Ok(None);
    }
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(invalid());
    }
    let seconds = number.parse::<f64>().map_err(|_| invalid())? * unit;
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

/// Sleeps for `duration`; `SIGTERM` and `SIGINT` end it at once with exit code 128 + signal, as a shell reports it.
pub fn run(duration: Option<Duration>) -> Result<ExitCode, Errno> {
    let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
    let signals = stop::signals();
    // Blocked, so that they also reach the first process of a PID namespace.
    signals.thread_block()?;
    let signal_fd = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    loop {
        let timeout = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
            None => PollTimeout::NONE,
            Some(Duration::ZERO) => return Ok(ExitCode::SUCCESS),
            // Rounded up, and in slices if it exceeds the maximum of poll (24 days).
            Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
        };
        let mut fds = [PollFd::new(signal_fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => {
                let signal = signal_fd.read_signal()?.map_or(0, |info| info.ssi_signo);
                return Ok(ExitCode::from(
                    u8::try_from(128 + signal).unwrap_or(u8::MAX),
                ));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain_seconds(&["5"], Some(Duration::from_secs(5)))]
    #[case::seconds_unit(&["1s"], Some(Duration::from_secs(1)))]
    #[case::minutes(&["2m"], Some(Duration::from_mins(2)))]
    #[case::days(&["42d"], Some(Duration::from_hours(42 * 24)))]
    #[case::fraction(&["0.25"], Some(Duration::from_millis(250)))]
    #[case::sum(&["1h", "30m"], Some(Duration::from_mins(90)))]
    #[case::infinity(&["infinity"], None)]
    #[case::short_infinity(&["inf"], None)]
    #[case::infinity_in_a_sum(&["1", "infinity"], None)]
    #[case::beyond_the_clock(&["1e30d"], None)]
    fn durations_of_gnu_forms(#[case] arguments: &[&str], #[case] expected: Option<Duration>) {
        assert_eq!(parse(arguments.iter().copied()), Ok(expected));
    }

    #[rstest]
    #[case::word("soon")]
    #[case::empty("")]
    #[case::negative("-1")]
    #[case::unit_alone("m")]
    #[case::not_a_number("nan")]
    fn other_words_are_refused(#[case] argument: &str) {
        assert_eq!(
            parse([argument]),
            Err(ParseError::Invalid(argument.to_owned()))
        );
    }

    #[test]
    fn no_operand_is_refused() {
        assert_eq!(parse([]), Err(ParseError::Missing));
    }
}

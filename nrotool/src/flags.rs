//! Command lines in Go's form, as the tools of the original have them (scenarios-other.md 10).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use goflags::CommandLine;
use goflags::command_line;

use crate::output::{block_on_or, complain, print};

/// A flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    name: &'static str,
    /// `None` for a switch.
    default: Option<&'static str>,
    help: &'static str,
}

/// A flag with a value.
pub(crate) const fn text(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        default: Some(default),
        help,
    }
}

/// A flag that is on or off.
pub(crate) const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        default: None,
        help,
    }
}

/// The flag of every tool that asks a cluster.
pub(crate) const KUBECONFIG: Flag = text(
    "kubeconfig",
    "",
    "kubeconfig of the cluster; without it KUBECONFIG, ~/.kube/config, or that of the pod this runs in",
);

impl command_line::Flag for Flag {
    fn name(&self) -> &str {
        self.name
    }

    fn takes_value(&self) -> bool {
        self.default.is_some()
    }
}

/// The values of a tool's flags.
#[derive(Debug)]
pub(crate) struct Given(BTreeMap<&'static str, String>);

/// The value of a flag is none that it takes.
#[derive(Debug, thiserror::Error)]
#[error("invalid value {value:?} for flag -{flag}: {why}")]
pub(crate) struct InvalidValue {
    flag: &'static str,
    value: String,
    why: String,
}

impl Given {
    /// Returns the value of a flag; the default if it was not given.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns whether a switch is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        goflags::boolean(self.text(name)) == Some(true)
    }

    /// Returns the value of a flag as a value of some type.
    pub(crate) fn parsed<T: FromStr<Err: ToString>>(
        &self,
        name: &'static str,
    ) -> Result<T, InvalidValue> {
        self.text(name)
            .parse()
            .map_err(|error: T::Err| InvalidValue {
                flag: name,
                value: self.text(name).to_owned(),
                why: error.to_string(),
            })
    }

    /// Returns the path of the kubeconfig, if it was given.
    pub(crate) fn kubeconfig(&self) -> Option<PathBuf> {
        let path = Path::new(self.text(KUBECONFIG.name));
        (!path.as_os_str().is_empty()).then(|| path.to_owned())
    }
}

/// A tool's command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Name of the tool.
    pub(crate) name: &'static str,
    /// What it does, and its exit codes.
    pub(crate) about: &'static str,
    /// Its flags.
    pub(crate) flags: &'static [Flag],
    /// Exit code of wrong usage.
    pub(crate) refusal: u8,
    /// Exit code when the tool fails.
    pub(crate) failure: u8,
}

impl Usage {
    /// Reads the words after the tool's name and runs the tool to its end.
    pub(crate) fn run(
        &self,
        words: &[String],
        tool: impl AsyncFnOnce(Given) -> anyhow::Result<ExitCode>,
    ) -> ExitCode {
        match self.read(words) {
            Ok(given) => block_on_or(self.failure, tool(given)),
            Err(code) => code,
        }
    }

    /// Reads the words after the tool's name. Shows help, or what is wrong; the error is the exit code then.
    pub(crate) fn read(&self, words: &[String]) -> Result<Given, ExitCode> {
        let mut given: BTreeMap<&'static str, String> = self
            .flags
            .iter()
            .map(|flag| (flag.name, flag.default.unwrap_or("false").to_owned()))
            .collect();
        let mut line = CommandLine::new(self.flags, words.iter().cloned());
        for flag in line.by_ref() {
            match flag {
                Ok((flag, value)) => {
                    if flag.default.is_none() && goflags::boolean(&value).is_none() {
                        return Err(self.refuse(&format!(
                            "invalid boolean value {value:?} for -{}",
                            flag.name
                        )));
                    }
                    given.insert(flag.name, value);
                }
                Err(command_line::Error::Help) => return Err(print(&self.help())),
                Err(error) => return Err(self.refuse(&error.to_string())),
            }
        }
        match line.rest().first() {
            Some(word) => Err(self.refuse(&format!("unexpected argument {word:?}"))),
            None => Ok(Given(given)),
        }
    }

    /// Says what is wrong, and how to use the tool. Returns the exit code.
    pub(crate) fn refuse(&self, problem: &str) -> ExitCode {
        complain(&format!("{problem}\n{}", self.help()));
        ExitCode::from(self.refusal)
    }

    fn help(&self) -> String {
        let flags = self.flags.iter().map(|flag| {
            let Flag {
                name,
                default,
                help,
            } = flag;
            match default {
                None => format!("  -{name}\n    \t{help}\n"),
                Some("") => format!("  -{name} string\n    \t{help}\n"),
                Some(default) => format!("  -{name} string\n    \t{help} (default {default:?})\n"),
            }
        });
        let flags: String = flags.collect();
        format!("Usage of {}:\n{}\n{flags}", self.name, self.about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage {
        name: "t",
        about: "",
        flags: &[text("name", "x", ""), switch("quiet", "")],
        refusal: 3,
        failure: 1,
    };

    fn read(line: &str) -> Result<Given, ExitCode> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        USAGE.read(&words)
    }

    #[test]
    fn flags_have_their_defaults_until_they_are_given() {
        let given = read("").expect("valid");
        assert_eq!((given.text("name"), given.is_on("quiet")), ("x", false));
        let given = read("--quiet -name=y").expect("valid");
        assert_eq!((given.text("name"), given.is_on("quiet")), ("y", true));
    }

    #[test]
    fn what_is_no_flag_is_refused() {
        for line in ["--nope", "--quiet=maybe", "word"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}

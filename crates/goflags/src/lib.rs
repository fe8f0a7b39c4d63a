//! Texts in the forms of Go's standard library. The programs that this stack replaces are written in Go, so their command lines,
//! configuration files and custom resources have these forms.
//!
//! - [`command_line`]: splits a command line by the rules of Go's `flag` package;
//! - [`flags`]: a command line to edit and to render, for a program that starts another one;
//! - [`klog`]: the flags of klog, which all products take;
//! - [`boolean()`] and [`duration`]: values;
//! - [`build_line!`]: what `--version` says of a program.
//!
//! Everything is pure. What a program makes of a flag's value, and what it says of a wrong one, is the program's own.

mod boolean;
pub mod command_line;
pub mod duration;
pub mod flags;
pub mod klog;

pub use boolean::boolean;
pub use command_line::CommandLine;
pub use duration::GoDuration;
pub use flags::Flags;

/// Returns what `--version` prints after a program's name: version, commit, branch, language and date of the commit (operator.md 2). Only builds of an
/// image are told more than the version, so that no commit makes other builds compile anything again. It is a macro, so that such a build
/// compiles only the programs again, and nothing that they are made of.
#[macro_export]
macro_rules! build_line {
    () => {
        match option_env!("NUMARESOURCES_BUILD_LINE") {
            Some(line) => line,
            None => concat!(env!("CARGO_PKG_VERSION"), " unknown (devel) rust"),
        }
    };
}

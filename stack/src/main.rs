//! The program of the image; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    stack::main(std::env::args_os().collect())
}

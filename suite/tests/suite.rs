//! Runs the scenarios as `cargo test -p suite`, with libtest's command line (`suite::libtest`).

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

fn main() -> anyhow::Result<()> {
    let program = env!("CARGO_BIN_EXE_numaresources-tests");
    let artifacts = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suite");
    let error = Command::new(program)
        .arg("libtest")
        .arg(artifacts)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {program}")))
}

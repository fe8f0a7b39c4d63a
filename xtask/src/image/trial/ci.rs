//! The image with a shell, as CI systems start it: their own script runs in it, not the image's program.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use programs::child::output_within;
use wait_timeout::ChildExt as _;

use super::{LIMIT, POLL_INTERVAL, Podman, START_TIMEOUT, text};

/// What the script of a job does: tools, a file, and the suite.
const SCRIPT: &str = "set -eu; cd \"$(mktemp -d)\"; numaresources-tests --list --label tier0 | tee list | grep -q tier0; \
                      test -s list; numaresources-tests --version; echo script-is-done\n";
/// Lists links to the shell's program that it has no tool for.
const STRANGERS: &str = "for path in /bin/*; do if [ \"$(readlink $path)\" = /bin/busybox ]; then \
                         busybox --list | grep -qxF -- \"$(basename $path)\" || echo no tool $path; fi; done";

/// Runs the script in each of the ways.
pub(super) fn run(podman: &Podman) -> anyhow::Result<()> {
    let strangers = podman.plain(&["sh", "-c", STRANGERS])?;
    ensure!(strangers.is_empty(), "{strangers}");
    // GitLab: `sh` reads the script from its standard input
    let output = podman.piped("sh", SCRIPT)?;
    check("GitLab", &output)?;
    // Jenkins: `cat` with a terminal keeps the container, the script is started in it
    podman.kept(&["--tty"], &["cat"], |name| {
        check("Jenkins", &podman.exec(name)?)
    })?;
    // GitHub: `tail` in the place of the entry point keeps it
    podman.kept(&["--entrypoint", "tail"], &["-f", "/dev/null"], |name| {
        check("GitHub", &podman.exec(name)?)
    })
}

fn check(system: &str, output: &str) -> anyhow::Result<()> {
    ensure!(
        output.contains("script-is-done"),
        "a script as {system} starts it ended early: {output}"
    );
    Ok(())
}

impl Podman {
    /// Runs a command with text on its standard input. Returns its output.
    fn piped(&self, command: &str, input: &str) -> anyhow::Result<String> {
        let mut run = self.run(&["--interactive"])?;
        run.arg(&self.reference).arg(command);
        let mut child = run
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting podman")?;
        let mut stdin = child.stdin.take().context("podman has no input")?;
        stdin
            .write_all(input.as_bytes())
            .context("writing the script")?;
        drop(stdin);
        child
            .wait_timeout(LIMIT)
            .context("waiting for podman")?
            .context("the script does not end")?;
        let output = child.wait_with_output().context("reading from podman")?;
        Ok(text(&output))
    }

    /// Starts a command that keeps a container, does something with the container, and removes it.
    fn kept(
        &self,
        options: &[&str],
        command: &[&str],
        act: impl FnOnce(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        const NAME: &str = "kept";
        let mut run = self.run(&["--detach", "--name", NAME])?;
        run.args(options).arg(&self.reference).args(command);
        let started = output_within(&mut run, LIMIT).context("starting podman")?;
        ensure!(
            started.status.success(),
            "cannot start {}: {}",
            command.join(" "),
            text(&started)
        );
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.is_running(NAME)? {
            ensure!(
                Instant::now() < deadline,
                "{} does not keep its container",
                command.join(" ")
            );
            std::thread::sleep(POLL_INTERVAL);
        }
        let done = act(NAME);
        // the first process of a container ignores signals that it does not handle
        let removed = output_within(
            self.command().args(["rm", "--force", "--time", "0", NAME]),
            LIMIT,
        )
        .context("starting podman")?;
        done?;
        ensure!(
            removed.status.success(),
            "cannot remove a container: {}",
            text(&removed)
        );
        Ok(())
    }

    /// Runs the script in a container.
    fn exec(&self, name: &str) -> anyhow::Result<String> {
        let mut exec = self.command();
        exec.args(["exec", name, "sh", "-c", SCRIPT]);
        let output = output_within(&mut exec, LIMIT).context("starting podman")?;
        Ok(text(&output))
    }
}

//! The copy of the sources that gets the edits, with a build of its own. Nothing is ever edited in the sources themselves.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::Digest;
use super::list::Mutant;
use crate::cargo;

/// The programs that are built with a fault, each with its package.
const MUTATED: [(&str, &str); 3] = [
    ("operator", "numaresources-operator"),
    ("scheduler", "numaresources-scheduler"),
    ("rte", "resource-topology-exporter"),
];
/// The program that judges.
const SUITE: &str = "numaresources-tests";
/// Programs that judge, or that the judge's cluster consists of: never with a fault.
const CLEAN: [&str; 2] = ["numaresources-testbed", SUITE];
/// What of the tree has no part in a verdict.
const WITHOUT_EFFECT: [&str; 4] = ["bench/", "docs/", "judges/", "xtask/"];
const MARKDOWN: &str = ".md";
/// How many lines of a compiler's messages are shown.
const SHOWN: usize = 30;

/// The copy and what is built from it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    dir: PathBuf,
    digest: String,
    /// How many mutants are judged at the same time.
    jobs: u8,
}

impl Tree {
    /// Brings the copy up to date with the sources that git knows of, as they are on disk, and undoes every edit. Files that are the same
    /// keep their time, so only what has changed is compiled again.
    ///
    /// # Errors
    /// Returns an error if git cannot be started, or a file can be neither read nor written.
    pub(crate) fn prepare(root: &Path, dir: &Path, jobs: u8) -> anyhow::Result<Self> {
        let names = tracked(root)?;
        let copy = copy_in(dir);
        let list = dir.join("tree.files");
        let former = std::fs::read_to_string(&list).unwrap_or_default();
        for gone in former.split('\0').filter(|name| !name.is_empty()) {
            if !names.iter().any(|name| name == gone) {
                // it may be gone already
                let _ = std::fs::remove_file(copy.join(gone));
            }
        }
        let mut digest = Digest::default();
        for name in &names {
            let content =
                std::fs::read(root.join(name)).with_context(|| format!("reading {name}"))?;
            write_if_other(&copy.join(name), &content)?;
            if has_effect(name) {
                digest.add(name.as_bytes());
                digest.add(&content);
            }
        }
        std::fs::write(&list, names.join("\0"))
            .with_context(|| format!("writing {}", list.display()))?;
        Ok(Self {
            root: root.to_owned(),
            dir: dir.to_owned(),
            digest: digest.text(),
            jobs,
        })
    }

    /// Returns what identifies the sources: those of the products, of the suite and of its clusters.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the directories of programs under test: one for each job, and one for what is built meanwhile.
    pub(crate) fn bin_dirs(&self) -> impl Iterator<Item = PathBuf> {
        (0..=self.jobs).map(|number| self.dir.join(format!("bin-{number}")))
    }

    /// Builds the programs without a fault that judge, in the workspace itself, and puts them beside those under test.
    ///
    /// # Errors
    /// Returns an error if the build fails or a program cannot be copied.
    pub(crate) fn build_judge(&self) -> anyhow::Result<()> {
        let artifacts = cargo::artifacts(&["--bins", "-p", "testbed", "-p", "suite"])?;
        for program in CLEAN {
            let built = artifacts
                .iter()
                .filter_map(|artifact| artifact.executable.as_ref())
                .find(|executable| executable.file_name() == Some(program))
                .with_context(|| format!("cargo built no {program}"))?;
            for bin_dir in self.bin_dirs() {
                install(built.as_std_path(), &bin_dir, program)?;
            }
        }
        Ok(())
    }

    /// Edits the copy.
    ///
    /// # Errors
    /// Returns an error if the edit does not fit, or the file can be neither read nor written.
    pub(crate) fn apply(&self, mutant: &Mutant) -> anyhow::Result<()> {
        let text = self.original(mutant)?;
        let edited = mutant.apply(&text).map_err(anyhow::Error::msg)?;
        write_if_other(&self.copy(mutant), edited.as_bytes())
    }

    /// Undoes the edit of the copy.
    ///
    /// # Errors
    /// Returns an error if the file can be neither read nor written.
    pub(crate) fn revert(&self, mutant: &Mutant) -> anyhow::Result<()> {
        let text = self.original(mutant)?;
        write_if_other(&self.copy(mutant), text.as_bytes())
    }

    fn original(&self, mutant: &Mutant) -> anyhow::Result<String> {
        std::fs::read_to_string(self.root.join(&mutant.file))
            .with_context(|| format!("reading {}", mutant.file))
    }

    fn copy(&self, mutant: &Mutant) -> PathBuf {
        copy_in(&self.dir).join(&mutant.file)
    }

    /// Only checks that the copy compiles.
    ///
    /// # Errors
    /// Returns an error with the compiler's messages if it does not.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.cargo("check")
    }

    /// Builds the copy and puts its programs into one of [`Tree::bin_dirs`].
    ///
    /// # Errors
    /// Returns an error with the compiler's messages if it does not compile.
    pub(crate) fn build(&self, bin_dir: &Path) -> anyhow::Result<()> {
        self.cargo("build")?;
        for (_, program) in MUTATED {
            install(
                &self.build_dir().join("debug").join(program),
                bin_dir,
                program,
            )?;
        }
        Ok(())
    }

    fn build_dir(&self) -> PathBuf {
        self.dir.join("build")
    }

    fn cargo(&self, command: &str) -> anyhow::Result<()> {
        let output = cargo::command()
            .args([command, "--locked", "--quiet", "--bins"])
            .args(MUTATED.iter().flat_map(|(package, _)| ["-p", package]))
            .current_dir(copy_in(&self.dir))
            .env("CARGO_TARGET_DIR", self.build_dir())
            .env("CARGO_TERM_COLOR", "never")
            // an edit changes one function of a package, and the next build undoes it again
            .env("CARGO_INCREMENTAL", "1")
            .output()
            .with_context(|| format!("starting cargo {command}"))?;
        if output.status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        let shown: Vec<&str> = messages.lines().take(SHOWN).collect();
        bail!(
            "cargo {command} ended with {}:\n{}",
            output.status,
            shown.join("\n")
        )
    }
}

/// Returns the suite's program in one of [`Tree::bin_dirs`].
pub(crate) fn suite(bin_dir: &Path) -> PathBuf {
    bin_dir.join(SUITE)
}

/// Copies a program without what cargo says about its sources: the suite then takes it as it is.
fn install(from: &Path, bin_dir: &Path, name: &str) -> anyhow::Result<()> {
    let to = bin_dir.join(name);
    let what = || format!("copying {} to {}", from.display(), to.display());
    std::fs::create_dir_all(bin_dir).with_context(what)?;
    // a program that still runs cannot be written to, but another can take its name
    let draft = to.with_extension("new");
    std::fs::copy(from, &draft).with_context(what)?;
    std::fs::rename(&draft, &to).with_context(what)
}

/// Returns where the copy of the sources is.
fn copy_in(dir: &Path) -> PathBuf {
    dir.join("tree")
}

/// Returns the files that git knows of and that are there.
fn tracked(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["ls-files", "-z"]);
    let output = git.output().context("starting git ls-files")?;
    let status = output.status;
    ensure!(status.success(), "git ls-files ended with {status}");
    let names = String::from_utf8(output.stdout).context("reading the names of the files")?;
    let names = names.split('\0').filter(|name| root.join(name).is_file());
    Ok(names.map(str::to_owned).collect())
}

fn has_effect(name: &str) -> bool {
    !name.ends_with(MARKDOWN) && !WITHOUT_EFFECT.iter().any(|dir| name.starts_with(dir))
}

fn write_if_other(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if std::fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = std::fs::File::create(path)?;
        file.write_all(content)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::mutants::list::Source;

    fn git(root: &Path, arguments: &[&str]) {
        let mut git = Command::new("git");
        let status = git.arg("-C").arg(root).args(arguments).status();
        assert!(status.expect("git starts").success());
    }

    /// Makes a repository with one source, its copy, and an edit.
    fn repository() -> (tempfile::TempDir, Tree, Mutant) {
        let root = tempfile::tempdir().expect("temporary directory");
        git(root.path(), &["init", "--quiet"]);
        std::fs::create_dir_all(root.path().join("rte/src")).expect("directory");
        std::fs::write(root.path().join("rte/src/lib.rs"), "one two").expect("file");
        git(root.path(), &["add", "rte"]);
        let dir = root.path().join("target");
        std::fs::create_dir(&dir).expect("directory");
        let tree = Tree::prepare(root.path(), &dir, 1).expect("a copy");
        let mutant = Mutant {
            name: "exporter/a".to_owned(),
            source: Source::Feared,
            why: "Nothing works.".to_owned(),
            file: "rte/src/lib.rs".to_owned(),
            find: "two".to_owned(),
            replace: "three".to_owned(),
            noticed_by: Vec::new(),
            explained: None,
        };
        (root, tree, mutant)
    }

    #[test]
    fn an_edit_changes_the_copy_and_is_undone() {
        let (root, tree, mutant) = repository();
        let copy = root.path().join("target/tree/rte/src/lib.rs");
        let read = |path: &Path| std::fs::read_to_string(path).expect("file");
        tree.apply(&mutant).expect("an edit");
        assert_eq!(read(&copy), "one three");
        assert_eq!(read(&root.path().join("rte/src/lib.rs")), "one two");
        tree.revert(&mutant).expect("undone");
        assert_eq!(read(&copy), "one two");
    }

    #[test]
    fn a_new_copy_undoes_an_edit_that_a_killed_run_left() {
        let (root, tree, mutant) = repository();
        tree.apply(&mutant).expect("an edit");
        let dir = root.path().join("target");
        Tree::prepare(root.path(), &dir, 1).expect("a copy");
        let text = std::fs::read_to_string(dir.join("tree/rte/src/lib.rs"));
        assert_eq!(text.expect("file"), "one two");
    }

    #[test]
    fn what_is_the_same_keeps_its_time_and_what_is_gone_goes() {
        let (root, _tree, _mutant) = repository();
        let dir = root.path().join("target");
        let copy = dir.join("tree/rte/src/lib.rs");
        let past = SystemTime::now() - Duration::from_hours(1);
        let file = std::fs::File::options().append(true).open(&copy);
        file.expect("file").set_modified(past).expect("time is set");
        std::fs::write(root.path().join("rte/src/more.rs"), "").expect("file");
        git(root.path(), &["add", "rte"]);
        Tree::prepare(root.path(), &dir, 1).expect("a copy");
        let modified = std::fs::metadata(&copy).and_then(|data| data.modified());
        assert_eq!(modified.expect("time"), past);
        assert!(dir.join("tree/rte/src/more.rs").exists());
        std::fs::remove_file(root.path().join("rte/src/more.rs")).expect("removed");
        Tree::prepare(root.path(), &dir, 1).expect("a copy");
        assert!(!dir.join("tree/rte/src/more.rs").exists());
    }

    #[test]
    fn the_digest_is_that_of_what_decides_verdicts() {
        let (root, tree, _mutant) = repository();
        let digest = || {
            let dir = root.path().join("target");
            let tree = Tree::prepare(root.path(), &dir, 1).expect("a copy");
            tree.digest().to_owned()
        };
        for name in ["README.md", "docs/page.html", "xtask/main.rs"] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("directory");
            std::fs::write(path, "text").expect("file");
        }
        git(root.path(), &["add", "README.md", "docs", "xtask"]);
        assert_eq!(digest(), tree.digest());
        std::fs::write(root.path().join("rte/src/lib.rs"), "other").expect("file");
        assert_ne!(digest(), tree.digest());
    }
}

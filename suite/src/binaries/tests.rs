use std::time::Duration;

use rstest::rstest;

use super::cargo::Stamp;
use super::freshness::modified;
use super::*;

fn touch(path: &Path, age: u64) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("directory is made");
    let file = std::fs::File::create(path).expect("file is made");
    file.set_modified(SystemTime::now() - Duration::from_secs(age))
        .expect("time is set");
}

/// Makes programs that are 100 s old, each built from a source in a folder of its name and from one that all share.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("temporary directory");
    let bin = root.path().join("bin");
    let shared = root.path().join("shared library/lib.rs");
    touch(&shared, 300);
    for program in PROGRAMS {
        touch(&bin.join(program), 100);
        let main = root.path().join(program).join("main.rs");
        touch(&main, 200);
        let [program_path, main, shared] = [&bin.join(program), &main, &shared]
            .map(|path| path.display().to_string().replace(' ', "\\ "));
        let dep_info = format!("{program_path}: {main} {shared}\n");
        std::fs::write(bin.join(format!("{program}.d")), dep_info).expect("file is written");
    }
    (root, bin)
}

#[test]
fn programs_younger_than_their_sources_are_taken_whatever_else_has_changed() {
    let (root, bin) = tree();
    touch(&root.path().join("numaresources-scheduler/tests.rs"), 0);
    touch(&root.path().join("suite/src/lib.rs"), 0);
    assert_eq!(checked(bin.clone()).expect("fresh"), bin);
}

#[rstest]
#[case::own("numaresources-scheduler/main.rs", "numaresources-scheduler")]
#[case::shared("shared library/lib.rs", "numaresources-operator")]
fn a_program_older_than_one_of_its_sources_is_refused(
    #[case] changed: &str,
    #[case] refused: &str,
) {
    let (root, bin) = tree();
    let changed = root.path().join(changed);
    touch(&changed, 50);
    let error = checked(bin.clone()).expect_err("stale");
    let expected = format!(
        "{} is older than its source {};",
        bin.join(refused).display(),
        changed.display()
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn a_program_with_a_source_that_is_gone_is_refused() {
    let (root, bin) = tree();
    let main = root.path().join("numaresources-testbed/main.rs");
    std::fs::remove_file(&main).expect("file is removed");
    let error = checked(bin).expect_err("stale");
    assert!(matches!(error, Error::Gone { source_file, .. } if source_file == main));
}

#[test]
fn programs_that_were_built_elsewhere_are_taken_as_they_are() {
    let (root, bin) = tree();
    touch(&root.path().join("numaresources-operator/main.rs"), 0);
    std::fs::remove_file(bin.join("numaresources-operator.d")).expect("file is removed");
    checked(bin.clone()).expect("without dep-info nothing is known");
    for folder in PROGRAMS.iter().chain(&["shared library"]) {
        std::fs::remove_dir_all(root.path().join(folder)).expect("sources are removed");
    }
    checked(bin).expect("no source is on this machine");
}

#[test]
fn a_missing_program_is_named() {
    let (_root, bin) = tree();
    std::fs::remove_file(bin.join("numaresources-scheduler")).expect("file is removed");
    let error = checked(bin).expect_err("missing");
    assert!(matches!(
        error,
        Error::Missing {
            program: "numaresources-scheduler",
            ..
        }
    ));
}

/// Like [`tree`], with a stamp of 150 s ago and a manifest for each program.
fn stamped() -> (tempfile::TempDir, PathBuf) {
    let (root, bin) = tree();
    touch(&root.path().join("Cargo.lock"), 300);
    for program in PROGRAMS {
        touch(&root.path().join(program).join("Cargo.toml"), 300);
    }
    stamp(&bin);
    (root, bin)
}

fn stamp(bin: &Path) {
    let path = bin.join(Stamp::FILE);
    touch(&path, 150);
    let called_at = modified(&path).expect("it is there");
    let programs = builds(bin).expect("programs are there");
    let text = serde_json::to_string(&Stamp { programs }).expect("it is data");
    std::fs::write(&path, text).expect("file is written");
    let file = std::fs::File::options().append(true).open(&path);
    let file = file.expect("file is there");
    file.set_modified(called_at).expect("time is set");
}

#[test]
fn cargo_is_not_asked_again_while_nothing_of_the_programs_has_changed() {
    let (root, bin) = stamped();
    assert!(Stamp::is_current(root.path(), &bin));
    touch(&root.path().join("suite/src/lib.rs"), 0);
    touch(&root.path().join("suite/Cargo.toml"), 0);
    assert!(Stamp::is_current(root.path(), &bin));
}

#[rstest]
#[case::source("numaresources-scheduler/main.rs")]
#[case::manifest("numaresources-operator/Cargo.toml")]
#[case::lock_file("Cargo.lock")]
#[case::settings(".cargo/config.toml")]
#[case::program("bin/numaresources-testbed")]
fn cargo_is_asked_when_something_has_changed(#[case] changed: &str) {
    let (root, bin) = stamped();
    // includes what was saved while cargo worked, before the programs were written
    touch(&root.path().join(changed), 120);
    assert!(!Stamp::is_current(root.path(), &bin));
}

#[rstest]
#[case::stamp(Stamp::FILE)]
#[case::dep_info("numaresources-operator.d")]
#[case::program("numaresources-scheduler")]
#[case::source("../numaresources-scheduler/main.rs")]
fn cargo_is_asked_when_something_is_missing(#[case] missing: &str) {
    let (root, bin) = stamped();
    std::fs::remove_file(bin.join(missing)).expect("file is removed");
    assert!(!Stamp::is_current(root.path(), &bin));
}

#[test]
fn another_build_has_another_size_or_time() {
    let (_root, bin) = tree();
    let program = bin.join("numaresources-scheduler");
    let build = |program: &Path| Build::of(program).expect("it is there");
    let first = build(&program);
    assert_eq!(build(&program), first);
    let text = serde_json::to_string(&first).expect("it is data");
    assert_eq!(
        serde_json::from_str::<Build>(&text).expect("it is read back"),
        first
    );
    touch(&program, 10);
    assert_ne!(build(&program), first);
}

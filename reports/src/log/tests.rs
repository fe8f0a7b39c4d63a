use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;

fn record(seq: u64, event: Event) -> Record {
    Record {
        seq,
        at: Timestamp::UNIX_EPOCH,
        event,
    }
}

fn started() -> Record {
    record(
        0,
        Event::RunStarted {
            run: "r".into(),
            version: "0".into(),
            plan: Vec::new(),
            facts: BTreeMap::new(),
        },
    )
}

fn finished() -> Record {
    record(
        1,
        Event::RunFinished {
            interrupted: false,
            duration_ms: 0,
            exit_code: 0,
        },
    )
}

/// Returns the directory and the path of a log with these records.
fn written(records: &[Record]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("sub/events.jsonl");
    let mut writer = Writer::create(&path).expect("log is created");
    replay(records, &mut writer);
    assert_eq!(writer.failure(), None);
    (dir, path)
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let (_dir, path) = written(&[started(), finished()]);
    let log = read(&path).expect("log is readable");
    assert_eq!(log.records, [started(), finished()]);
    assert_eq!(log.damaged, 0);
    assert!(log.is_finished());
}

#[test]
fn a_log_whose_writer_was_killed_lacks_its_last_line_and_is_not_finished() {
    let (_dir, path) = written(&[started(), finished()]);
    let text = std::fs::read(&path).expect("log");
    std::fs::write(&path, &text[..text.len() - 10]).expect("truncated log");
    let log = read(&path).expect("log is readable");
    assert_eq!((log.records.as_slice(), log.damaged), (&[started()][..], 0));
    assert!(!log.is_finished());
}

#[test]
fn lines_that_are_no_records_are_counted_and_cost_no_other_line() {
    let (_dir, path) = written(&[started(), finished()]);
    let text = std::fs::read_to_string(&path).expect("log");
    let (first, second) = text.split_once('\n').expect("two lines");
    let garbage = b"\0\0\0\xff\n\n{\"seq\":1}\n";
    let text = [first.as_bytes(), b"\n", garbage, second.as_bytes()].concat();
    std::fs::write(&path, text).expect("damaged log");
    let log = read(&path).expect("log is readable");
    assert_eq!(log.records, [started(), finished()]);
    assert_eq!(log.damaged, 3);
}

#[test]
fn a_file_without_a_record_is_no_log() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("x");
    std::fs::write(&path, "no\njson\n").expect("file is written");
    assert!(matches!(read(&path), Err(Error::NoRecord { .. })));
    std::fs::write(&path, "").expect("file is written");
    assert_eq!(read(&path).expect("it was killed at once"), Log::default());
}

#[test]
fn the_log_of_another_run_is_never_replaced() {
    let (_dir, path) = written(&[started()]);
    assert!(matches!(Writer::create(&path), Err(Error::Open { .. })));
    assert_eq!(read(&path).expect("log is readable").records, [started()]);
}

#[test]
fn a_log_is_in_use_while_its_writer_lives() {
    let (_dir, path) = written(&[started()]);
    assert!(is_released(&path) && !is_in_use(&path));
    let writer = Writer::append(&path).expect("nobody writes it");
    assert!(is_in_use(&path) && !is_released(&path));
    assert!(matches!(Writer::append(&path), Err(Error::InUse { .. })));
    drop(writer);
    assert!(is_released(&path) && !is_in_use(&path));
    assert!(!is_released(&path.with_extension("none")));
}

#[test]
fn a_continued_log_keeps_what_comes_after_a_torn_line() {
    let (_dir, path) = written(&[started()]);
    let mut text = std::fs::read(&path).expect("log");
    text.extend_from_slice(b"{\"seq\":1,\"at");
    std::fs::write(&path, text).expect("torn log");
    let mut writer = Writer::append(&path).expect("nobody writes it");
    writer.read(&finished());
    let log = read(&path).expect("log is readable");
    assert_eq!(log.records, [started(), finished()]);
    assert_eq!(log.damaged, 1, "the torn line");
}

#[test]
fn a_full_disk_fails_the_writer_and_everything_that_must_be_secure() {
    let path = Path::new("/dev/full");
    let file = File::options().append(true).open(path);
    let mut writer = Writer::of(path, file.expect("the device")).expect("nobody locks it");
    writer.secure().expect("nothing was written yet");
    writer.read(&started());
    let failure = writer.failure().expect("the disk is full");
    assert!(
        failure.starts_with("cannot write the event log /dev/full: "),
        "{failure}"
    );
    assert_eq!(writer.secure(), Err(failure));
}

mod fuzz {
    use super::*;

    #[test]
    fn no_file_stops_the_reader_of_logs() {
        let (_dir, path) = written(&[started(), finished()]);
        let seed = std::fs::read_to_string(&path).expect("log");
        ::fuzz::run(file!(), |input| {
            std::fs::write(&path, ::fuzz::mutate::text(&seed, input)?).expect("written");
            drop(read(&path));
            Ok(())
        });
    }
}

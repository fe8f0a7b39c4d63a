//! `cat` and `touch`, for containers of images without a shell.

use std::fs::{File, FileTimes, OpenOptions};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Applies `act` to each file. A failure is written to `errors`, and the other files follow.
fn each(
    name: &str,
    files: &[&str],
    errors: &mut impl io::Write,
    mut act: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        if let Err(error) = act(file) {
            writeln!(errors, "{name}: {file}: {}", plain(&error))?;
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Returns the system's text without the error number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// Writes files to `out`, one after another; `-` stands for `input`, as does an empty list.
pub fn cat(
    files: &[&str],
    input: &mut impl io::Read,
    out: &mut impl io::Write,
    errors: &mut impl io::Write,
) -> io::Result<ExitCode> {
    let files = if files.is_empty() { &["-"] } else { files };
    let code = each("cat", files, errors, |file| {
        match file {
            "-" => io::copy(input, out)?,
            file => io::copy(&mut File::open(file)?, out)?,
        };
        Ok(())
    })?;
    out.flush()?;
    Ok(code)
}

/// Creates missing files, and sets the times of all files to now.
pub fn touch(files: &[&str], errors: &mut impl io::Write) -> io::Result<ExitCode> {
    each("touch", files, errors, |file| {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        let now = SystemTime::now();
        let times = FileTimes::new().set_accessed(now).set_modified(now);
        options.open(Path::new(file))?.set_times(times)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cat_goes_on_after_a_file_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs_err::write(&path, "from the file\n").unwrap();
        let (missing, file) = (dir.path().join("none"), path);
        let files = [missing.to_str().unwrap(), file.to_str().unwrap(), "-"];
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let mut input = b"from the input\n".as_slice();
        let code = cat(&files, &mut input, &mut out, &mut errors).unwrap();
        assert_eq!(code, ExitCode::FAILURE);
        assert_eq!(out, b"from the file\nfrom the input\n");
        let text = String::from_utf8(errors).unwrap();
        assert_eq!(
            text,
            format!("cat: {}: No such file or directory\n", missing.display())
        );
    }

    #[test]
    fn touch_makes_a_file_and_leaves_what_is_in_one() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs_err::write(&old, "text").unwrap();
        let past = SystemTime::UNIX_EPOCH;
        let file = File::options().write(true).open(&old).unwrap();
        file.set_times(FileTimes::new().set_modified(past)).unwrap();
        let files = [new.to_str().unwrap(), old.to_str().unwrap()];
        let code = touch(&files, &mut Vec::new()).unwrap();
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(new.is_file());
        assert_eq!(fs_err::read_to_string(&old).unwrap(), "text");
        let changed = fs_err::metadata(&old).unwrap().modified().unwrap();
        assert!(changed > past);
    }
}

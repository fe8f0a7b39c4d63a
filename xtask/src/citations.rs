//! The citation check: every citation of a page names a heading that is there, and every link of the documentation leads somewhere.
//!
//! A citation is the file name of a page, a blank, and numbers of its headings, also with a point of a heading's numbered list:
//! `(PAGE 3.2)`, `(PAGE 3.2, 3.4; OTHER 6)`, `(PAGE 9, point 16)`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use markdown::{Number, Page, joined, links, number, prose};

mod markdown;

/// Where the pages are that code cites.
const PAGES: &str = "docs/reference/";
/// What is read. Other files only have to be there where a link leads to them.
const READ: [&str; 4] = [RUST, MARKDOWN, ".toml", ".yaml"];
const MARKDOWN: &str = ".md";
const RUST: &str = ".rs";

/// Path → text.
type Files = BTreeMap<String, String>;

#[derive(Default)]
struct Found {
    citations: usize,
    files: usize,
    violations: Vec<String>,
}

/// Runs the check over all files that git knows of, prints how many citations there are, and names what leads nowhere.
///
/// # Errors
/// When git or a file cannot be read, or a citation or a link leads nowhere.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut git = Command::new("git");
    git.arg("-C").arg(&root).args(["ls-files", "-z"]);
    let output = git.output().context("starting git ls-files")?;
    let status = output.status;
    ensure!(status.success(), "git ls-files ended with {status}");
    let names = String::from_utf8(output.stdout).context("reading the names of the files")?;
    let mut files = Files::new();
    for name in names.split('\0') {
        let path = root.join(name);
        if !path.is_file() {
            continue;
        }
        let text = if READ.iter().any(|ending| name.ends_with(ending)) {
            std::fs::read_to_string(&path).with_context(|| format!("reading {name}"))?
        } else {
            String::new()
        };
        files.insert(name.to_owned(), text);
    }
    let found = check(&files);
    if found.violations.is_empty() {
        let (citations, files) = (found.citations, found.files);
        // nobody is left to tell when this fails
        let _ = writeln!(
            std::io::stdout(),
            "citations: {citations} in {files} files resolve"
        );
        return Ok(());
    }
    bail!(
        "{} citation(s) or link(s) lead nowhere:\n  {}",
        found.violations.len(),
        found.violations.join("\n  ")
    )
}

/// How many citations there are, and one sentence for each of them, and for each link, that leads nowhere.
fn check(files: &Files) -> Found {
    let pages: BTreeMap<&str, Page> = files
        .iter()
        .filter(|(file, _)| file.ends_with(MARKDOWN))
        .map(|(file, text)| (file.as_str(), Page::read(text)))
        .collect();
    let mut found = Found::default();
    for (file, text) in files {
        let before = found.citations;
        for (index, line) in text.lines().enumerate() {
            let (citations, wrong) = citations(files, &pages, file, line);
            found.citations += citations;
            let place = |what: String| format!("{file}:{}: {what}", index + 1);
            found.violations.extend(wrong.into_iter().map(place));
        }
        found.files += usize::from(found.citations > before);
        let is_guide = ["docs/", "README", "ARCHITECTURE", "CONTRIBUTING"]
            .iter()
            .any(|start| file.starts_with(start));
        if !is_guide || !file.ends_with(MARKDOWN) {
            continue;
        }
        for (index, line) in prose(text) {
            let lost = links(line)
                .into_iter()
                .filter(|target| !is_there(files, &pages, file, target));
            found.violations.extend(lost.map(|target| {
                let number = index + 1;
                format!("{file}:{number}: the link to {target} leads nowhere")
            }));
        }
    }
    found
}

/// The number of citations in a line, and what is wrong with them.
fn citations(
    files: &Files,
    pages: &BTreeMap<&str, Page>,
    file: &str,
    line: &str,
) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    for (at, ending) in line.match_indices(MARKDOWN) {
        let before = line[..at].trim_end_matches(is_name);
        let (name, behind) = line[before.len()..].split_at(at + ending.len() - before.len());
        if name == ending || behind.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            continue;
        }
        let Some(cited) = find(files, name) else {
            let in_parentheses = before.ends_with('(') || before.ends_with("; ");
            // the pages name files of the projects that they describe
            if in_parentheses && !before.ends_with("](") && !file.starts_with(PAGES) {
                wrong.push(format!("there is no page and no file {name}"));
            }
            continue;
        };
        let numbers = numbers(behind);
        if numbers.is_empty() && cited.starts_with(PAGES) && file.ends_with(RUST) {
            wrong.push(format!("{cited} is cited without the number of a heading"));
        }
        for (heading, point) in numbers {
            count += 1;
            wrong.extend(pages[cited].missing(heading, point, cited));
        }
    }
    (count, wrong)
}

/// The file that is meant by a name: a page of the reference, or one with such an end.
fn find<'a>(files: &'a Files, name: &str) -> Option<&'a str> {
    let (page, end) = (format!("{PAGES}{name}"), format!("/{name}"));
    let mut exact = files.keys().filter(|file| **file == page || **file == name);
    exact
        .next()
        .or_else(|| files.keys().find(|file| file.ends_with(&end)))
        .map(String::as_str)
}

/// The headings that are named behind a page, and the points of their lists.
fn numbers(mut text: &str) -> Vec<(Number, Option<Number>)> {
    let mut found: Vec<(Number, Option<Number>)> = Vec::new();
    let mut separator = " ";
    while let Some(rest) = text.strip_prefix(separator) {
        let last = found.last().map(|(heading, _)| heading.clone());
        let (heading, rest) = match rest.strip_prefix("point ") {
            Some(rest) => (last, rest),
            None => (None, rest),
        };
        let Some((number, rest)) = number(rest) else {
            break;
        };
        found.push(match heading {
            Some(heading) => (heading, Some(number)),
            None => (number, None),
        });
        (text, separator) = (rest, ", ");
    }
    found
}

/// Whether the target of a link in `file` exists. What is elsewhere is not looked up.
fn is_there(files: &Files, pages: &BTreeMap<&str, Page>, file: &str, target: &str) -> bool {
    if target.contains(':') {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = joined(file, path);
    if let Some(page) = pages.get(path.as_str()) {
        return anchor.is_empty() || page.anchors.contains(anchor);
    }
    let folder = format!("{path}/");
    path.is_empty() || files.keys().any(|f| *f == path || f.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// The violations in one file beside a page; PAGE and LOST stand for names that this file must not cite itself.
    fn violations(file: &str, text: &str) -> Vec<String> {
        let page =
            "# F\n## 3. Filter\n1. a\n2. b\n```\n## 5. No\n```\n### 3.2 `x` <= 1\n### A\n### A";
        let text = text.replace("PAGE", "facts.md").replace("LOST", "lost.md");
        let page = (format!("{PAGES}facts.md"), page.to_owned());
        check(&Files::from([page, (file.to_owned(), text)])).violations
    }

    #[test]
    fn lists_and_points_are_counted_and_resolve() {
        let line =
            "// as PAGE 3.2 says (PAGE 3, 3.2; PAGE 3, point 2). README.md and (https://PAGE)";
        assert_eq!(violations("a.rs", line), [""; 0]);
        let all = numbers(" 3, 3.2, point 2: 7, 8");
        assert_eq!(all.len(), 3, "{all:?}");
    }

    #[rstest]
    #[case(
        "(PAGE 3.9)",
        r#"docs/reference/PAGE has no heading 3.9 (nearest: 3.2 "`x` <= 1")"#
    )]
    #[case(
        "(PAGE 1)",
        r#"docs/reference/PAGE has no heading 1 (nearest: 3 "Filter")"#
    )]
    #[case("(PAGE 3, point 7)", "docs/reference/PAGE has no point 7 below 3")]
    #[case(
        "(PAGE)",
        "docs/reference/PAGE is cited without the number of a heading"
    )]
    #[case("(LOST 4)", "there is no page and no file LOST")]
    fn what_leads_nowhere_is_named(#[case] line: &str, #[case] expected: &str) {
        let expected = expected
            .replace("PAGE", "facts.md")
            .replace("LOST", "lost.md");
        assert_eq!(violations("a.rs", line), [format!("a.rs:1: {expected}")]);
    }

    #[rstest]
    #[case(
        "[a](reference/PAGE#32-x--1), [b](../docs/reference), [c](reference/PAGE#a-1), `[d](e)`",
        true
    )]
    #[case("[a](#title)\n# Title\n```\n[b](c)\n```", true)]
    #[case("[a](reference/PAGE#32)", false)]
    #[case("[a](other)", false)]
    fn links_lead_to_files_and_headings(#[case] text: &str, #[case] is_right: bool) {
        assert_eq!(violations("docs/a.md", text).is_empty(), is_right);
    }
}

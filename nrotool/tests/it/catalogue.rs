//! The table of the original's scenarios in `docs/tools.md`: each spec about must-gather and the tools has tests, and each test is there.

use std::collections::BTreeSet;

/// Name of the page of the reference.
const PAGE: &str = "scenarios-other";

/// Returns a file of the repository.
fn read(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    fs_err::read_to_string(format!("{root}/{path}")).unwrap()
}

/// Returns a part of a text, between two marks.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split(end).next().unwrap_or_default()
}

/// Returns the ids of the reference: bold in the section about must-gather, in the first column of the table of the tools.
fn specs() -> BTreeSet<String> {
    let page = read(&format!("docs/reference/{PAGE}.md"));
    let gather = between(&page, "\n## 5. ", "\n## 6.");
    let gather = gather.split("**").skip(1).step_by(2);
    let tools = between(&page, "\n### 10.1 ", "\n### 10.2");
    let tools = tools
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let ids = gather.filter(|id| id.starts_with("mg-"));
    ids.chain(tools.filter(|id| id.starts_with("tools-")))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_spec_of_the_original_has_tests_that_are_there() {
    let page = read("docs/tools.md");
    let table = page
        .split_once("\n## Scenarios of the original\n")
        .unwrap()
        .1;
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let mut covered = BTreeSet::new();
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, spec, _, tests, _] = cells[..] else {
            panic!("{row}");
        };
        assert!(covered.insert(spec.to_owned()), "{spec} is there twice");
        for test in tests.split(", ") {
            let (file, name) = test.split_once(": ").unwrap();
            let (file, name) = (file.trim_matches('`'), name.trim_matches('`'));
            let signature = format!("fn {name}(");
            assert!(
                read(&format!("nrotool/tests/it/{file}")).contains(&signature),
                "no {name} in {file}"
            );
        }
    }
    let specs = specs();
    assert_eq!(specs.len(), 7, "{specs:?}");
    assert_eq!(covered, specs);
}

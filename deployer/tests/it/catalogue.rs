//! The table of the original's scenarios in `docs/deployer.md`: each spec has a test, and each test is there.

use std::collections::BTreeSet;

/// Name of the page of the reference.
const PAGE: &str = "deployer";

/// Returns a file of the repository.
fn read(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    std::fs::read_to_string(format!("{root}/{path}")).unwrap()
}

/// Returns the ids of the reference, such as `L5` of `**L5-L8**` and `**N3** .. **N4**`.
fn specs() -> BTreeSet<String> {
    let page = read(&format!("docs/reference/{PAGE}.md"));
    let (_, catalogue) = page.split_once("\n## 12. e2e catalogue\n").unwrap();
    let (catalogue, _) = catalogue.split_once("\n## 13.").unwrap();
    let bold = catalogue.split("**").skip(1).step_by(2);
    let mut specs = BTreeSet::new();
    for ids in bold.flat_map(|words| words.split(", ")) {
        let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
        let Some(digits) = first.find(|letter: char| letter.is_ascii_digit()) else {
            continue;
        };
        let (area, first) = first.split_at(digits);
        // other words are bold, too
        if !area.chars().all(|letter| letter.is_ascii_uppercase()) {
            continue;
        }
        let first: u32 = first.parse().unwrap();
        let last = last.trim_start_matches(area).parse::<u32>().unwrap();
        specs.extend((first..=last).map(|number| format!("{area}{number}")));
    }
    specs
}

#[test]
fn every_spec_of_the_original_has_a_test_that_is_there() {
    let page = read("docs/deployer.md");
    let (_, table) = page.split_once("\n## Scenarios of the original\n").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let mut covered = BTreeSet::new();
    for row in rows.skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, specs, _, test, _] = cells[..] else {
            panic!("{row}");
        };
        for spec in specs.split(", ") {
            assert!(covered.insert(spec.to_owned()), "{spec} is there twice");
        }
        let (file, name) = test.split_once(": ").unwrap();
        let (file, name) = (file.trim_matches('`'), name.trim_matches('`'));
        let signature = format!("fn {name}(");
        assert!(read(file).contains(&signature), "no {name} in {file}");
    }
    let specs = specs();
    assert!(specs.contains("L9") && specs.contains("NP4"), "{specs:?}");
    assert_eq!(covered, specs);
}

//! The flags of the original, by the tables of its description, compared with what `--help` says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::process::{deployer, deployer_with};

/// Name of the page that describes the original.
const PAGE: &str = "deployer";
/// Defaults that differ from the original's, with what is in place of them.
const DIFFERENT: [(&str, &str); 1] = [
    // on OpenShift that namespace does not exist
    (
        "--sched-leader-elect-resource",
        "nrtmatch-scheduler in the scheduler's namespace",
    ),
];

/// Returns a part of the description: from the heading on that begins so, up to the next one.
fn section(heading: &str, next: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = root.join(format!("docs/reference/{PAGE}.md"));
    let page = fs_err::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("\n{heading}")).unwrap();
    rest.split(next).next().unwrap_or_default().to_owned()
}

/// Returns the rows of the table of global flags: flag, short form and default (deployer.md 1.1).
fn described() -> Vec<[String; 3]> {
    let section = section("### 1.1 ", "\n### ");
    let rows = section.lines().filter(|line| line.starts_with("| `--"));
    let cell = |text: &str| text.trim().trim_matches('`').trim_matches('"').to_owned();
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        [cells[1], cells[2], cells[3]].map(cell)
    })
    .collect()
}

/// Returns the flags in the help of a command: the short form and the default of each.
fn offered(command: &str) -> BTreeMap<String, [String; 2]> {
    let help = deployer(&format!("{command} --help")).stdout();
    let (_, options) = help.split_once("\nOptions").unwrap();
    // a flag begins where a line begins with a dash
    let mut flags: Vec<String> = Vec::new();
    for line in options.lines().map(str::trim) {
        match flags.last_mut() {
            Some(flag) if !line.starts_with('-') => {
                flag.push(' ');
                flag.push_str(line);
            }
            _ if line.starts_with('-') => flags.push(line.to_owned()),
            // the rest of the heading
            _ => {}
        }
    }
    let parse = |text: String| {
        let words: Vec<&str> = text.split([' ', ',', '[']).collect();
        let long = words.iter().find(|word| word.starts_with("--"));
        let is_short = |word: &&&str| word.starts_with('-') && !word.starts_with("--");
        let short = words.first().filter(|word| is_short(word));
        let default = text.split("[default: ").nth(1);
        let default = default.map_or("", |rest| rest.split(']').next().unwrap_or_default());
        let default = default.split_whitespace().collect::<Vec<_>>().join(" ");
        (
            (*long.unwrap()).to_owned(),
            [short.copied().unwrap_or_default().to_owned(), default],
        )
    };
    flags.into_iter().map(parse).collect()
}

#[test]
fn every_command_has_the_flags_of_the_original_with_its_defaults() {
    let described = described();
    assert_eq!(described.len(), 22, "{described:#?}");
    let commands = [
        "",
        "deploy",
        "deploy api",
        "remove",
        "remove topology-updater",
        "render",
        "render scheduler-plugin",
        "render policy",
        "setup",
        "validate",
        "detect",
        "images",
        "version",
    ];
    for command in commands {
        let offered = offered(command);
        for [flag, short, default] in &described {
            let [has_short, has_default] = offered
                .get(flag)
                .unwrap_or_else(|| panic!("{command:?} has no {flag}"));
            assert_eq!(has_short, short, "{command:?} {flag}");
            let different = DIFFERENT.iter().find(|(other, _)| other == flag);
            let expected = different.map_or(default.as_str(), |(_, default)| default);
            assert_eq!(has_default, expected, "{command:?} {flag}");
        }
    }
    for (command, flags) in [
        ("validate", &[("--json", "-J"), ("--strict", "")][..]),
        ("deploy", &[("--wait", "-W")]),
        ("deploy api", &[("--wait", "-W")]),
        ("remove", &[("--wait", "-W")]),
        ("detect", &[("--json", "-J"), ("--control-plane", "")]),
        (
            "images",
            &[("--json", "-J"), ("--raw", "-r"), ("--sha", "-S")],
        ),
        ("version", &[("--full", ""), ("--hash", "")]),
    ] {
        let offered = offered(command);
        for (flag, short) in flags {
            let found = offered.get(*flag);
            let found = found.unwrap_or_else(|| panic!("{command:?} has no {flag}"));
            assert_eq!(found[0], *short, "{command:?} {flag}");
        }
    }
}

#[test]
fn the_environment_variables_of_the_original_choose_images() {
    let section = section("## 8. ", "\n## ");
    let is_part = |character: char| character.is_ascii_uppercase() || character == '_';
    let words = section.split(|character: char| !is_part(character));
    let named: BTreeSet<&str> = words.filter(|word| word.starts_with("TAS_")).collect();
    assert_eq!(named.len(), 5, "{named:?}");
    for variable in named {
        let (value, expected) = match variable {
            "TAS_IMAGES_USE_SHA" => ("", "@sha256:"),
            _ => ("quay.io/foobar/x:dev", "image: quay.io/foobar/x:dev\n"),
        };
        let rendered = ["RTE", "NFD"].map(|updater| {
            let arguments = format!("-P kubernetes:v1.30 --updater-type={updater} render");
            deployer_with(&[(variable, value)], &arguments).stdout()
        });
        assert!(rendered.concat().contains(expected), "{variable}");
    }
}

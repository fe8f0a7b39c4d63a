//! A page that leads through the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use manifests::platform::Platform;

use super::folder::{ERRORS, Folder};

/// Name of the page.
const PAGE: &str = "index.html";

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}\
                     h2{margin-top:2rem}ul{columns:2 24rem;padding-left:1.2rem}li{overflow-wrap:anywhere}\
                     .errors li{color:#a40000}.errors{columns:1}";

/// What to look at first: start of the path, and what is there.
const FIRST: [(&str, &str); 7] = [
    (
        "nrt.txt",
        "What each zone has, what is free, which pod holds what, which pending pod would fit where",
    ),
    ("explain/", "Why pods wait, as the scheduler explains it"),
    (
        "cluster-scoped-resources/nodetopology.openshift.io/",
        "The resources that an administrator writes, with their conditions",
    ),
    (
        "cluster-scoped-resources/topology.node.k8s.io/",
        "NodeResourceTopologies",
    ),
    ("kubelets/", "Settings of the kubelets"),
    ("platform.json", "Platform and versions"),
    (ERRORS, "What could not be collected"),
];

/// Writes the page.
pub(super) fn write(folder: &Folder, platform: Option<Platform>) -> std::io::Result<()> {
    folder.write_index(PAGE, &page(&folder.files(), &folder.errors(), platform))
}

fn page(files: &[String], errors: &[String], platform: Option<Platform>) -> String {
    let platform = platform.map_or_else(|| "unknown platform".to_owned(), |it| it.to_string());
    let now = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>must-gather</title><style>{STYLE}</style></head><body>\n\
         <h1>NUMA-aware scheduling: must-gather</h1>\n<p>{platform}, collected at {now}. What looked like a secret is replaced by REDACTED.</p>\n\
         <h2>Look here first</h2>\n<ul>\n"
    );
    for (start, what) in FIRST {
        let is_there = start == ERRORS || files.iter().any(|file| file.starts_with(start));
        if is_there {
            // writing to a string cannot fail
            let _ = writeln!(text, "<li>{}: {}</li>", link(start, start), escaped(what));
        }
    }
    text += "</ul>\n";
    if !errors.is_empty() {
        let _ = writeln!(
            text,
            "<h2>Not collected ({})</h2>\n<ul class=\"errors\">",
            errors.len()
        );
        for error in errors {
            let _ = writeln!(text, "<li>{}</li>", escaped(error));
        }
        text += "</ul>\n";
    }
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        let (folder, _) = file.rsplit_once('/').unwrap_or_default();
        folders.entry(folder).or_default().push(file);
    }
    for (folder, files) in folders {
        let title = if folder.is_empty() { "." } else { folder };
        let _ = writeln!(text, "<h2>{}</h2>\n<ul>", escaped(title));
        for file in files {
            let (_, name) = file.rsplit_once('/').unwrap_or(("", file));
            let _ = writeln!(text, "<li>{}</li>", link(file, name));
        }
        text += "</ul>\n";
    }
    text + "</body></html>\n"
}

fn link(target: &str, text: &str) -> String {
    // of what paths contain only these mean something in a URL
    let target = target
        .replace('%', "%25")
        .replace('#', "%23")
        .replace('?', "%3F");
    format!("<a href=\"{}\">{}</a>", escaped(&target), escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_errors_are_listed_and_escaped() {
        let files = ["nrt.txt".to_owned(), "a/b#1.yaml".to_owned()];
        let page = page(&files, &["<script>".to_owned()], Some(Platform::OpenShift));
        for part in [
            "<li><a href=\"a/b%231.yaml\">b#1.yaml</a></li>",
            "<a href=\"nrt.txt\">",
            "<li>&lt;script&gt;</li>",
            "<p>OpenShift, collected at ",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        assert!(!page.contains("<a href=\"explain/\">"), "there is none");
    }
}

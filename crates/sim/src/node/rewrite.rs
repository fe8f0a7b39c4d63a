//! Translates paths of a container into paths of this machine. It replaces a mount namespace by rewriting words that contain paths.

use std::path::{Path, PathBuf};

/// Paths of a container and their places on this machine, the most specific first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    entries: Vec<(String, PathBuf)>,
}

impl Paths {
    /// Adds a directory or a file of the container; a later entry for the same path replaces the earlier one.
    pub(crate) fn add(&mut self, inside: &str, outside: impl Into<PathBuf>) {
        let inside = match inside.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        self.entries.retain(|(path, _)| path != inside);
        self.entries.push((inside.to_owned(), outside.into()));
        self.entries
            .sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    }

    /// Returns the place of a container's path, or `None` if the path is that of the machine itself.
    pub(crate) fn find(&self, path: &str) -> Option<PathBuf> {
        self.entries
            .iter()
            .find_map(|(inside, outside)| Some(join(outside, below(path, inside)?)))
    }

    /// Replaces the paths in a word: the word itself, what follows `=`, `:`, `,`, blanks or quotes, and the path of a `unix://` URL.
    pub(crate) fn rewrite(&self, word: &str) -> String {
        let mut text = String::with_capacity(word.len());
        let mut rest = word;
        while let Some(at) = rest.find('/') {
            let (before, from) = rest.split_at(at);
            text.push_str(before);
            if let Some(path) = from.strip_prefix("//").filter(|_| before.ends_with(':')) {
                // In a URL, only the socket of `unix:///path` is a path of the container.
                text.push_str("//");
                if path.starts_with('/') {
                    rest = self.path(path, &mut text);
                } else {
                    let end = path.find([' ', ',']).unwrap_or(path.len());
                    text.push_str(&path[..end]);
                    rest = &path[end..];
                }
                continue;
            }
            let starts = before.is_empty() && (text.is_empty() || text.ends_with("//"))
                || before.ends_with(['=', ':', ',', ' ', '"', '\'']);
            if starts {
                rest = self.path(from, &mut text);
            } else {
                let end = end_of_path(from);
                text.push_str(&from[..end]);
                rest = &from[end..];
            }
        }
        text.push_str(rest);
        text
    }

    /// Appends the translation of the path that `from` starts with; returns the rest.
    fn path<'a>(&self, from: &'a str, text: &mut String) -> &'a str {
        let (path, rest) = from.split_at(end_of_path(from));
        match self.find(path) {
            Some(outside) => text.push_str(&outside.to_string_lossy()),
            None => text.push_str(path),
        }
        rest
    }
}

fn end_of_path(text: &str) -> usize {
    text.find([' ', ',', ':', '"', '\'', ';', '='])
        .unwrap_or(text.len())
}

fn below<'a>(path: &'a str, inside: &str) -> Option<&'a str> {
    if inside == "/" {
        return Some(path.trim_start_matches('/'));
    }
    let rest = path.strip_prefix(inside)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

fn join(outside: &Path, rest: &str) -> PathBuf {
    if rest.is_empty() {
        outside.to_owned()
    } else {
        outside.join(rest)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole("/host-sys", "/n/sys")]
    #[case::below("/host-sys/devices", "/n/sys/devices")]
    #[case::flag("--sysfs=/host-sys", "--sysfs=/n/sys")]
    #[case::socket(
        "--podresources-socket=unix:///host-podresources/kubelet.sock",
        "--podresources-socket=unix:///n/pr/kubelet.sock"
    )]
    #[case::most_specific("/run/pfp/a", "/v/pfp/a")]
    #[case::less_specific("/run/rte/notify", "/c/run/rte/notify")]
    #[case::other_name("/host-sysfs", "/host-sysfs")]
    #[case::not_ours("/usr/bin/env", "/usr/bin/env")]
    #[case::url("https://host-sys/host-sys", "https://host-sys/host-sys")]
    #[case::list("a=/run:/host-sys,/run", "a=/c/run:/n/sys,/c/run")]
    #[case::script("cat /run/x; sleep 1", "cat /c/run/x; sleep 1")]
    #[case::namespaced_name("default/run/x", "default/run/x")]
    #[case::image("localhost/run:dev", "localhost/run:dev")]
    #[case::no_path("-v=2", "-v=2")]
    #[case::root_alone("/", "/")]
    fn paths_are_replaced_where_they_start(#[case] word: &str, #[case] expected: &str) {
        let mut paths = Paths::default();
        paths.add("/host-sys", "/n/sys");
        paths.add("/run", "/c/run");
        paths.add("/run/pfp/", "/v/pfp");
        paths.add("/host-podresources", "/n/pr");
        assert_eq!(paths.rewrite(word), expected);
    }
}

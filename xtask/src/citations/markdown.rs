//! What the citation check has to know of Markdown: headings, lists, anchors and links.

use std::collections::{BTreeMap, BTreeSet};

/// Number of a heading or of a point.
pub(super) type Number = Vec<u32>;

/// What others can name of a Markdown file.
#[derive(Default)]
pub(super) struct Page {
    headings: BTreeMap<Number, String>,
    /// Numbers of a heading and of a point in its list.
    points: BTreeSet<(Number, Number)>,
    pub(super) anchors: BTreeSet<String>,
}

/// The number at the start of a text, and what follows: `3.2` and `. Rest` of `3.2. Rest`.
pub(super) fn number(text: &str) -> Option<(Number, &str)> {
    let behind = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let digits = text[..text.len() - behind.len()].trim_end_matches('.');
    let number: Result<Number, _> = digits.split('.').map(str::parse::<u32>).collect();
    Some((number.ok()?, &text[digits.len()..]))
}

fn dotted(number: &[u32]) -> String {
    let parts: Vec<String> = number.iter().map(ToString::to_string).collect();
    parts.join(".")
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut section = None;
        for (_, line) in prose(text) {
            let title = line.trim_start_matches('#');
            if title.len() < line.len() && title.starts_with(' ') {
                page.add_anchor(title.trim());
                section = number(title.trim()).map(|(heading, rest)| {
                    let rest = rest.trim_start_matches(['.', ' ']);
                    page.headings.insert(heading.clone(), rest.to_owned());
                    heading
                });
            } else if let Some(heading) = &section
                && let Some((point, rest)) = number(line.trim_start())
                && rest.starts_with(". ")
            {
                page.points.insert((heading.clone(), point));
            }
        }
        page
    }

    /// The name that GitHub gives to a heading; a number tells headings with the same text apart.
    fn add_anchor(&mut self, title: &str) {
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let again = (1_u32..).map(|times| format!("{name}-{times}"));
        let mut names = std::iter::once(name.clone()).chain(again);
        let free = names.find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }

    /// What is wrong with a citation of this page, which is called `name`.
    pub(super) fn missing(
        &self,
        heading: Number,
        point: Option<Number>,
        name: &str,
    ) -> Option<String> {
        let cited = dotted(&heading);
        if !self.headings.contains_key(&heading) {
            let mut lower = self.headings.range(..heading);
            let nearest = lower
                .next_back()
                .or_else(|| self.headings.first_key_value());
            let nearest = nearest.map_or_else(String::new, |(number, title)| {
                format!(" (nearest: {} \"{title}\")", dotted(number))
            });
            return Some(format!("{name} has no heading {cited}{nearest}"));
        }
        let point = point?;
        let text = format!("{name} has no point {} below {cited}", dotted(&point));
        (!self.points.contains(&(heading, point))).then_some(text)
    }
}

/// The lines of a Markdown file outside its blocks of code.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of the links in a line, those in code left out.
pub(super) fn links(line: &str) -> Vec<String> {
    let (mut text, mut rest) = (String::new(), line);
    while let Some(at) = rest.find('`') {
        let (before, code) = rest.split_at(at);
        let behind = code.trim_start_matches('`');
        let fence = &code[..code.len() - behind.len()];
        text.push_str(before);
        rest = behind
            .split_once(fence)
            .map_or(behind, |(_, behind)| behind);
    }
    text.push_str(rest);
    let starts = text.split("](").skip(1);
    let targets = starts.filter_map(|start| start.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The path that is meant by the target of a link in `file`; the file itself if it is empty.
pub(super) fn joined(file: &str, target: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    if !target.is_empty() {
        parts.pop();
    }
    for part in target.split('/').filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

//! Lines of coloured text with a known width. Colours are always written: the stream strips them where they are not wanted.

use owo_colors::OwoColorize as _;

/// What a piece of text means, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Nothing special.
    Plain,
    /// A name that something begins with.
    Title,
    /// Room.
    Free,
    /// No room.
    Held,
    /// Something to look at.
    Warning,
    /// Of less interest.
    Aside,
}

/// A line of pieces. Its width is the number of characters: names of Kubernetes have no wide ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Tone, String)>);

/// Stands for what was cut.
const CUT: &str = "…";

impl Line {
    /// Creates a line of one piece.
    pub(super) fn of(tone: Tone, text: impl Into<String>) -> Self {
        Self::default().and(tone, text)
    }

    /// Adds a piece.
    #[must_use]
    pub(super) fn and(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }

    /// Adds the pieces of another line, which begin in this column. A longer line stays as long as it is.
    #[must_use]
    pub(super) fn then_at(mut self, column: usize, other: Self) -> Self {
        let gap = column.saturating_sub(self.width());
        if gap > 0 && !other.0.is_empty() {
            self.0.push((Tone::Plain, " ".repeat(gap)));
        }
        self.0.extend(other.0);
        self
    }

    /// Returns the number of columns.
    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Returns the line with its colours and its end.
    pub(super) fn render(&self) -> String {
        let pieces = self.0.iter().map(|(tone, text)| match tone {
            Tone::Plain => text.clone(),
            Tone::Title => text.bold().to_string(),
            Tone::Free => text.green().to_string(),
            Tone::Held => text.red().to_string(),
            Tone::Warning => text.yellow().to_string(),
            Tone::Aside => text.dimmed().to_string(),
        });
        pieces.collect::<String>() + "\n"
    }
}

/// Cuts the start of a text that is wider: what is special of a name is at its end.
pub(super) fn keep_end(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = text.chars().skip(count + 1 - width.max(1));
    CUT.chars().chain(kept).collect()
}

/// Breaks a text at blanks into lines of at most this width. The first begins with `first`, the others with `indent` blanks. A word that is
/// wider than a line has one for itself, cut at its start.
pub(super) fn wrap(first: Line, indent: usize, tone: Tone, text: &str, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = first;
    let mut is_begun = false;
    for word in text.split_whitespace() {
        let blank = usize::from(is_begun || line.width() > 0);
        let is_full = line.width() + blank + word.chars().count() > width;
        if is_full && (is_begun || line.width() > indent) {
            lines.push(std::mem::take(&mut line));
            line = Line::of(Tone::Plain, " ".repeat(indent));
            line = line.and(tone, keep_end(word, width.saturating_sub(indent)));
            is_begun = true;
            continue;
        }
        let room = width.saturating_sub(line.width() + blank);
        let separator = if blank == 1 { " " } else { "" };
        line = line.and(tone, format!("{separator}{}", keep_end(word, room.max(1))));
        is_begun = true;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &Line) -> String {
        anstream::adapter::strip_str(&line.render()).to_string()
    }

    #[test]
    fn text_is_broken_at_blanks_and_never_wider() {
        let lines = wrap(
            Line::of(Tone::Title, "node:"),
            4,
            Tone::Plain,
            "zone 0 has too little of averyveryverylongresourcename there",
            20,
        );
        let lines: Vec<String> = lines.iter().map(plain).collect();
        assert_eq!(
            lines,
            [
                "node: zone 0 has too\n",
                "    little of\n",
                "    …ongresourcename\n",
                "    there\n"
            ]
        );
    }

    #[test]
    fn the_end_of_a_name_is_kept() {
        assert_eq!(keep_end("example.com/deviceA", 8), "…deviceA");
        assert_eq!(keep_end("cpu", 3), "cpu");
    }

    #[test]
    fn a_line_that_is_too_long_moves_what_follows() {
        let line = Line::of(Tone::Held, "12345").then_at(3, Line::of(Tone::Free, "x"));
        assert_eq!(plain(&line), "12345x\n");
        let line = Line::of(Tone::Held, "1").then_at(3, Line::of(Tone::Free, "x"));
        assert_eq!(plain(&line), "1  x\n");
    }
}

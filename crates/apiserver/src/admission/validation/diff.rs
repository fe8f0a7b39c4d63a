//! Differences of texts by lines, in the unified format with three lines of context. The longest common blocks are found first. In a long
//! text, very common lines do not start a block.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

/// Number of context lines around a difference.
const AROUND: usize = 3;
/// Number of lines from which on a text counts as long: lines that occur in more than about 1% of its places do not start a block.
const LONG: usize = 200;

/// Consecutive lines that are equal in both texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    left: usize,
    right: usize,
    length: usize,
}

/// A part of the left text and the lines of the right text that replace it.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    same: bool,
    left: Range<usize>,
    right: Range<usize>,
}

struct Matcher<'t> {
    left: &'t [String],
    right: &'t [String],
    places: HashMap<&'t str, Vec<usize>>,
}

impl<'t> Matcher<'t> {
    fn new(left: &'t [String], right: &'t [String]) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in right.iter().enumerate() {
            places.entry(line).or_default().push(index);
        }
        if right.len() >= LONG {
            let most = right.len() / 100 + 1;
            places.retain(|_, indices| indices.len() <= most);
        }
        Self {
            left,
            right,
            places,
        }
    }

    /// Returns the longest block of two parts; of several, the first one.
    fn longest(&self, left: &Range<usize>, right: &Range<usize>) -> Block {
        let mut best = Block {
            left: left.start,
            right: right.start,
            length: 0,
        };
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for index in left.clone() {
            let mut next = HashMap::new();
            let places = self.places.get(self.left[index].as_str());
            for &place in places
                .into_iter()
                .flatten()
                .filter(|place| right.contains(place))
            {
                let before = place.checked_sub(1).and_then(|place| lengths.get(&place));
                let length = before.copied().unwrap_or_default() + 1;
                next.insert(place, length);
                if length > best.length {
                    best = Block {
                        left: index + 1 - length,
                        right: place + 1 - length,
                        length,
                    };
                }
            }
            lengths = next;
        }
        // lines that may not start a block may still extend one
        while best.left > left.start
            && best.right > right.start
            && self.left[best.left - 1] == self.right[best.right - 1]
        {
            best.left -= 1;
            best.right -= 1;
            best.length += 1;
        }
        while best.left + best.length < left.end
            && best.right + best.length < right.end
            && self.left[best.left + best.length] == self.right[best.right + best.length]
        {
            best.length += 1;
        }
        best
    }

    fn blocks(&self) -> Vec<Block> {
        let mut found = Vec::new();
        let mut open = vec![(0..self.left.len(), 0..self.right.len())];
        while let Some((left, right)) = open.pop() {
            let block = self.longest(&left, &right);
            if block.length > 0 {
                open.push((left.start..block.left, right.start..block.right));
                open.push((
                    block.left + block.length..left.end,
                    block.right + block.length..right.end,
                ));
                found.push(block);
            }
        }
        found.sort_unstable();
        found
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let (mut left, mut right) = (0, 0);
        let end = Block {
            left: self.left.len(),
            right: self.right.len(),
            length: 0,
        };
        for block in self.blocks().into_iter().chain([end]) {
            if left < block.left || right < block.right {
                steps.push(Step {
                    same: false,
                    left: left..block.left,
                    right: right..block.right,
                });
            }
            (left, right) = (block.left + block.length, block.right + block.length);
            match steps.last_mut() {
                Some(last)
                    if last.same
                        && last.left.end == block.left
                        && last.right.end == block.right =>
                {
                    (last.left.end, last.right.end) = (left, right);
                }
                _ if block.length > 0 => steps.push(Step {
                    same: true,
                    left: block.left..left,
                    right: block.right..right,
                }),
                _ => {}
            }
        }
        steps
    }
}

/// Groups steps, with at most a few equal lines around and between differences.
fn groups(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let mut groups: Vec<Vec<Step>> = Vec::new();
    let mut group: Vec<Step> = Vec::new();
    let count = steps.len();
    for (index, mut step) in steps.into_iter().enumerate() {
        if step.same {
            let length = step.left.len();
            let cut_head = |step: &mut Step| {
                step.left.start = step.left.end - length.min(AROUND);
                step.right.start = step.right.end - length.min(AROUND);
            };
            let cut_tail = |step: &mut Step| {
                step.left.end = step.left.start + length.min(AROUND);
                step.right.end = step.right.start + length.min(AROUND);
            };
            if index == 0 {
                cut_head(&mut step);
            } else if index + 1 == count {
                cut_tail(&mut step);
            } else if length > 2 * AROUND {
                let mut tail = step.clone();
                cut_tail(&mut tail);
                group.push(tail);
                groups.push(std::mem::take(&mut group));
                cut_head(&mut step);
            }
        }
        group.push(step);
    }
    groups.push(group);
    groups.retain(|group| group.iter().any(|step| !step.same));
    groups
}

fn place(range: &Range<usize>) -> String {
    match range.len() {
        1 => format!("{}", range.start + 1),
        0 => format!("{},0", range.start),
        length => format!("{},{length}", range.start + 1),
    }
}

/// Returns the difference of two texts; empty when they are equal.
pub(super) fn unified(left: &[String], right: &[String]) -> String {
    let mut text = String::new();
    for group in groups(Matcher::new(left, right).steps()) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        // writing to a `String` cannot fail
        let _ = writeln!(
            text,
            "@@ -{} +{} @@",
            place(&(first.left.start..last.left.end)),
            place(&(first.right.start..last.right.end))
        );
        for step in &group {
            let mut write_lines = |mark: char, lines: &[String]| {
                for line in lines {
                    text.push(mark);
                    text.push_str(line);
                }
            };
            if step.same {
                write_lines(' ', &left[step.left.clone()]);
            } else {
                write_lines('-', &left[step.left.clone()]);
                write_lines('+', &right[step.right.clone()]);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.chars().map(|letter| format!("{letter}\n")).collect()
    }

    #[test]
    fn equal_texts_do_not_differ() {
        assert_eq!(unified(&lines("abc"), &lines("abc")), "");
    }

    #[test]
    fn a_changed_line_has_three_lines_around() {
        assert_eq!(
            unified(&lines("abcdefghi"), &lines("abcdXfghi")),
            "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+X\n f\n g\n h\n"
        );
    }

    #[test]
    fn changes_far_from_each_other_are_apart() {
        assert_eq!(
            unified(&lines("abcdefghijkl"), &lines("Xbcdefghijk")),
            "@@ -1,4 +1,4 @@\n-a\n+X\n b\n c\n d\n@@ -9,4 +9,3 @@\n i\n j\n k\n-l\n"
        );
    }
}

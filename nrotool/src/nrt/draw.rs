//! The picture as text.

use topology::resource::ResourceName;
use topology::zone::Amounts;

use super::amount::{list, rounded};
use super::fits::{Fit, Pending};
use super::holders::Holder;
use super::picture::{Fingerprint, NodePicture, Picture, ResourcePicture, ZonePicture};
use super::text::{Line, Tone, keep_end, wrap};

/// The narrowest column of a zone; zones are beside each other where there is room.
const MIN_COLUMN: usize = 38;
/// The widest column of a zone: longer bars show no more.
const MAX_COLUMN: usize = 76;
/// Blanks between two zones.
const GAP: usize = 2;
/// The shortest bar that shows anything.
const MIN_BAR: usize = 5;
/// The shortest bar that names of resources are not cut for.
const GOOD_BAR: usize = 8;

const HELD: &str = "█";
const FREE: &str = "░";
const RESERVED: &str = "▒";

/// Draws the whole picture, at most `width` columns wide.
pub(super) fn draw(picture: &Picture, width: usize) -> String {
    let mut lines = Vec::new();
    if !picture.nodes.is_empty() {
        let bars = Line::of(Tone::Held, HELD)
            .and(Tone::Aside, " held  ")
            .and(Tone::Free, FREE)
            .and(Tone::Aside, format!(" free  {RESERVED} reserved  "));
        lines.extend(wrap(bars, 0, Tone::Aside, "free/allocatable", width));
    }
    for node in &picture.nodes {
        lines.push(Line::default());
        lines.extend(draw_node(node, width));
    }
    if picture.nodes.is_empty() {
        lines.push(Line::of(
            Tone::Warning,
            "No node has a NodeResourceTopology.",
        ));
    }
    if !picture.without_topology.is_empty() {
        lines.push(Line::default());
        let names = picture.without_topology.join(", ");
        let title = Line::of(Tone::Aside, "Without NodeResourceTopology:");
        lines.extend(wrap(title, 2, Tone::Aside, &names, width));
    }
    if !picture.pending.is_empty() {
        lines.push(Line::default());
        lines.extend(draw_pending(&picture.pending, width));
    }
    lines.iter().map(Line::render).collect()
}

fn draw_node(node: &NodePicture, width: usize) -> Vec<Line> {
    let title = Line::of(Tone::Title, &node.name);
    let settings = format!("policy {}, scope {}", node.policy, node.scope);
    let mut lines = wrap(title, 2, Tone::Aside, &settings, width);
    let fingerprint = match node.fingerprint {
        Fingerprint::Matches => None,
        Fingerprint::Differs => {
            Some("pods came or went since these amounts were published".to_owned())
        }
        Fingerprint::Missing => {
            Some("publishes no fingerprint: nobody can tell which pods are counted".to_owned())
        }
    };
    for note in fingerprint.iter().chain(&node.notes) {
        let mark = Line::of(Tone::Warning, "!");
        lines.extend(wrap(mark, 2, Tone::Warning, note, width));
    }
    let per_row = zones_beside_each_other(node.zones.len(), width);
    let column = ((width - GAP * (per_row - 1)) / per_row).min(MAX_COLUMN);
    let widths = Widths::new(node, column);
    for row in node.zones.chunks(per_row) {
        lines.extend(beside(
            row.iter().map(|zone| draw_zone(zone, &widths)).collect(),
            column,
        ));
    }
    if !node.elsewhere.is_empty() {
        lines.push(Line::of(Tone::Warning, "zone not known"));
        for holder in &node.elsewhere {
            lines.extend(draw_holder(holder, width));
        }
    }
    lines
}

/// Returns how many zones are drawn beside each other, so that all rows but the last are full and no row could be saved.
fn zones_beside_each_other(zones: usize, width: usize) -> usize {
    let most = ((width + GAP) / (MIN_COLUMN + GAP)).max(1);
    let rows = zones.div_ceil(most).max(1);
    zones.div_ceil(rows).max(1)
}

/// Puts blocks beside each other, each in a column of this width.
fn beside(blocks: Vec<Vec<Line>>, column: usize) -> Vec<Line> {
    let height = blocks.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines = vec![Line::default(); height];
    for (index, block) in blocks.into_iter().enumerate() {
        for (line, piece) in lines.iter_mut().zip(block) {
            *line = std::mem::take(line).then_at(index * (column + GAP), piece);
        }
    }
    lines
}

/// The columns of the resources of a node, the same for all of its zones.
struct Widths {
    column: usize,
    label: usize,
    amounts: usize,
    /// 0 if there is no room for bars.
    bar: usize,
}

impl Widths {
    fn new(node: &NodePicture, column: usize) -> Self {
        let all = || node.zones.iter().flat_map(shown);
        let label = all().map(|it| it.name.as_str().chars().count()).max();
        let amounts = all().map(|it| free_of(&it.name, &it.amounts).len()).max();
        let amounts = amounts.unwrap_or(0);
        // names before long bars
        let room = column.saturating_sub(1 + 1 + GOOD_BAR + 1 + amounts);
        let label = label.unwrap_or(0).min(room.max(column / 3));
        let bar = column.saturating_sub(1 + label + 1 + 1 + amounts);
        Self {
            column,
            label,
            amounts,
            bar: if bar < MIN_BAR { 0 } else { bar },
        }
    }
}

/// Returns the resources that a zone has any of.
fn shown(zone: &ZonePicture) -> impl Iterator<Item = &ResourcePicture> {
    zone.resources.iter().filter(|it| it.amounts.capacity > 0)
}

fn free_of(name: &ResourceName, amounts: &Amounts) -> String {
    let (free, all) = (amounts.available, amounts.allocatable);
    format!("{}/{}", rounded(name, free), rounded(name, all))
}

fn draw_zone(zone: &ZonePicture, widths: &Widths) -> Vec<Line> {
    let mut lines = vec![Line::of(Tone::Plain, format!("zone {}", zone.id))];
    for ResourcePicture { name, amounts } in shown(zone) {
        let label = keep_end(name.as_str(), widths.label);
        let free = free_of(name, amounts);
        let tone = if amounts.available > 0 {
            Tone::Free
        } else {
            Tone::Held
        };
        let label = Line::of(Tone::Plain, format!(" {label}"));
        let bar = label.then_at(widths.label + 2, bar(amounts, widths.bar));
        let free = Line::of(tone, format!("{free:>0$}", widths.amounts));
        let at = widths.column.saturating_sub(widths.amounts);
        let at = if widths.bar == 0 {
            widths.label + 2
        } else {
            at
        };
        lines.push(bar.then_at(at, free));
    }
    for holder in &zone.holders {
        lines.extend(draw_holder(holder, widths.column));
    }
    lines
}

/// Draws what is held, free and reserved. Whatever there is any of has at least one cell.
fn bar(amounts: &Amounts, cells: usize) -> Line {
    if cells == 0 {
        return Line::default();
    }
    let capacity = amounts.capacity.max(1);
    let share = |amount: i64| {
        let amount = i128::from(amount.clamp(0, capacity));
        let exact = (amount * cells as i128 + i128::from(capacity) / 2) / i128::from(capacity);
        usize::try_from(exact)
            .unwrap_or(0)
            .max(usize::from(amount > 0))
    };
    let mut held = share(amounts.allocatable.saturating_sub(amounts.available));
    let mut reserved = share(amounts.capacity.saturating_sub(amounts.allocatable));
    let wanted = share(amounts.available).min(1);
    while held + reserved + wanted > cells {
        let larger = if held > reserved {
            &mut held
        } else {
            &mut reserved
        };
        *larger = larger.saturating_sub(1);
    }
    let free = if wanted == 0 {
        held = cells - reserved;
        0
    } else {
        cells - held - reserved
    };
    Line::of(Tone::Held, HELD.repeat(held))
        .and(Tone::Free, FREE.repeat(free))
        .and(Tone::Aside, RESERVED.repeat(reserved))
}

/// Draws a container with what it holds: in one line if there is room, or else in two or more.
fn draw_holder(holder: &Holder, width: usize) -> Vec<Line> {
    let Holder {
        namespace,
        pod,
        container,
        holds,
    } = holder;
    let name = format!("{namespace}/{pod}/{container}");
    let holds = list(holds);
    if 2 + name.chars().count() + 2 + holds.chars().count() <= width {
        return vec![Line::of(Tone::Plain, format!("  {name}  ")).and(Tone::Aside, holds)];
    }
    let name = keep_end(&name, width.saturating_sub(2));
    let mut lines = vec![Line::of(Tone::Plain, format!("  {name}"))];
    let indent = Line::of(Tone::Plain, "   ");
    lines.extend(wrap(indent, 4, Tone::Aside, &holds, width));
    lines
}

fn draw_pending(pending: &[Pending], width: usize) -> Vec<Line> {
    let title = Line::of(Tone::Title, "Pending pods");
    let origin =
        "as computed from the zones above; taints, affinity and the like are not looked at";
    let mut lines = wrap(title, 2, Tone::Aside, origin, width);
    for pod in pending {
        let name = Line::of(Tone::Plain, format!("{}/{}", pod.namespace, pod.name));
        let request: Vec<String> = pod
            .request
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        let about = format!("{}, {} {}", pod.qos, pod.scheduler_name, request.join(" "));
        lines.extend(wrap(name, 2, Tone::Aside, &about, width));
        if !pod.gates.is_empty() {
            let text = format!("waits for its scheduling gates: {}", pod.gates.join(", "));
            lines.extend(wrap(
                Line::of(Tone::Plain, " "),
                4,
                Tone::Warning,
                &text,
                width,
            ));
        }
        if let Some(message) = &pod.message {
            let text = format!("its scheduler: {message}");
            lines.extend(wrap(
                Line::of(Tone::Plain, " "),
                4,
                Tone::Aside,
                &text,
                width,
            ));
        }
        for (names, fit) in alike(&pod.nodes) {
            lines.extend(draw_fit(&names, fit, width));
        }
    }
    lines
}

/// Returns nodes of one verdict together, in the order of the first of them.
fn alike(fits: &[Fit]) -> Vec<(Vec<&str>, &Fit)> {
    let mut groups: Vec<(Vec<&str>, &Fit)> = Vec::new();
    for fit in fits {
        let same = |other: &Fit| {
            (other.fits, &other.zones, &other.reasons) == (fit.fits, &fit.zones, &fit.reasons)
        };
        match groups.iter_mut().find(|(_, other)| same(other)) {
            Some((names, _)) => names.push(&fit.node),
            None => groups.push((vec![&fit.node], fit)),
        }
    }
    groups
}

fn draw_fit(names: &[&str], fit: &Fit, width: usize) -> Vec<Line> {
    let names = names.join(", ");
    let (tone, verdict) = match (fit.fits, fit.zones.as_slice()) {
        (false, _) => (Tone::Held, format!("no: {}", fit.reasons.join("; "))),
        (true, []) => (Tone::Free, format!("fits: {}", fit.reasons.join("; "))),
        (true, [zone]) => (Tone::Free, format!("fits in zone {zone}")),
        (true, zones) => {
            let zones: Vec<String> = zones.iter().map(ToString::to_string).collect();
            let text = format!("fits, its containers in zones {}", zones.join(", "));
            (Tone::Free, text)
        }
    };
    let mut lines = wrap(
        Line::of(Tone::Plain, " "),
        4,
        Tone::Plain,
        &format!("{names}:"),
        width,
    );
    let last = lines.pop().unwrap_or_default();
    lines.extend(wrap(last, 4, tone, &verdict, width));
    lines
}

#[cfg(test)]
mod tests;

//! Units one after another: what happens on several clusters at once, in an order that people can read.

use std::collections::VecDeque;

use crate::event::{Event, Record, Unit};
use crate::stream::Reader;

/// Hands records on unit by unit. The records of one unit pass at once; those of the others are kept until it is over, then the unit that
/// began next takes its place. With one cluster at most one unit is open, and everything passes at once.
#[derive(Debug)]
pub struct Grouped<R> {
    reader: R,
    /// The units that are open or kept, in the order in which they began. Records of the first have passed.
    units: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    unit: Unit,
    kept: Vec<Record>,
    is_over: bool,
}

impl<R: Reader> Grouped<R> {
    /// Groups what the reader gets.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            units: VecDeque::new(),
        }
    }

    /// Hands on what is left when no more records follow.
    pub fn finish(&mut self) {
        while !self.units.is_empty() {
            self.next();
        }
    }

    /// Ends the first unit and hands on what was kept of those behind it, up to one that is not over.
    fn next(&mut self) {
        self.units.pop_front();
        while let Some(first) = self.units.front_mut() {
            for record in first.kept.drain(..) {
                self.reader.read(&record);
            }
            if !first.is_over {
                return;
            }
            self.units.pop_front();
        }
    }
}

impl<R: Reader> Reader for Grouped<R> {
    fn read(&mut self, record: &Record) {
        let Some((unit, is_over)) = unit_of(&record.event) else {
            if matches!(record.event, Event::RunFinished { .. }) {
                self.finish();
            }
            self.reader.read(record);
            return;
        };
        let at = self.units.iter().position(|open| open.unit == unit);
        let at = at.unwrap_or_else(|| {
            self.units.push_back(Open {
                unit: unit.to_owned(),
                kept: Vec::new(),
                is_over: false,
            });
            self.units.len() - 1
        });
        if at > 0 {
            self.units[at].kept.push(record.clone());
            self.units[at].is_over |= is_over;
        } else {
            self.reader.read(record);
            if is_over {
                self.next();
            }
        }
    }
}

/// The unit of an event, and whether the event is its last one. None for those of the whole run.
fn unit_of(event: &Event) -> Option<(&str, bool)> {
    Some(match event {
        Event::RunStarted { .. } | Event::RunFinished { .. } => return None,
        Event::FactsFound { unit, .. } | Event::PhaseFailed { unit, .. } => (unit, true),
        Event::ScenarioStarted { scenario } => (&scenario.id, false),
        Event::ScenarioFinished { scenario, .. } => (&scenario.id, true),
        Event::StepStarted { unit, .. }
        | Event::Noted { unit, .. }
        | Event::Waiting { unit, .. }
        | Event::StepFinished { unit, .. }
        | Event::ClusterClaimed { unit, .. }
        | Event::ChangePlanned { unit, .. }
        | Event::ChangesKept { unit }
        | Event::ClusterFreed { unit }
        | Event::ChangeUndone { unit, .. }
        | Event::ArtifactWritten { unit, .. } => (unit, false),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::event::{ScenarioInfo, Verdict};

    /// Keeps the order of what it reads.
    struct Order<'a>(&'a mut Vec<String>);

    impl Reader for Order<'_> {
        fn read(&mut self, record: &Record) {
            self.0.push(match &record.event {
                Event::ScenarioStarted { scenario } => format!("+{}", scenario.id),
                Event::ScenarioFinished { scenario, .. } => format!("-{}", scenario.id),
                Event::Noted { unit, text } => format!("{unit}: {text}"),
                Event::RunFinished { .. } => "end".to_owned(),
                other => format!("{other:?}"),
            });
        }
    }

    fn scenario(id: &str) -> ScenarioInfo {
        ScenarioInfo {
            id: id.to_owned(),
            ..ScenarioInfo::default()
        }
    }

    fn begins(id: &str) -> Event {
        Event::ScenarioStarted {
            scenario: scenario(id),
        }
    }

    fn ends(id: &str) -> Event {
        Event::ScenarioFinished {
            scenario: scenario(id),
            verdict: Verdict::Passed,
            duration_ms: 0,
        }
    }

    fn notes(unit: &str, text: &str) -> Event {
        Event::Noted {
            unit: unit.to_owned(),
            text: text.to_owned(),
        }
    }

    fn end() -> Event {
        Event::RunFinished {
            interrupted: true,
            duration_ms: 0,
            exit_code: 130,
        }
    }

    fn grouped(events: Vec<Event>) -> Vec<String> {
        let mut order = Vec::new();
        let mut reader = Grouped::new(Order(&mut order));
        for (seq, event) in (0..).zip(events) {
            reader.read(&Record {
                seq,
                at: Timestamp::UNIX_EPOCH,
                event,
            });
        }
        order
    }

    #[test]
    fn units_that_overlap_are_read_in_the_order_of_their_beginning() {
        let order = grouped(vec![
            begins("a"),
            begins("b"),
            notes("b", "1"),
            notes("a", "1"),
            ends("b"),
            begins("c"),
            notes("c", "1"),
            ends("a"),
            notes("c", "2"),
            ends("c"),
            end(),
        ]);
        let expected = "+a,a: 1,-a,+b,b: 1,-b,+c,c: 1,c: 2,-c,end";
        assert_eq!(order.join(","), expected);
    }

    #[test]
    fn what_is_not_over_at_the_end_of_the_run_is_read_before_it() {
        let order = grouped(vec![
            begins("a"),
            begins("b"),
            notes("b", "1"),
            begins("c"),
            ends("c"),
            end(),
        ]);
        assert_eq!(order.join(","), "+a,+b,b: 1,+c,-c,end");
    }
}

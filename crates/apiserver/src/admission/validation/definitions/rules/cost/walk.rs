//! The highest cost of evaluating an expression: the walk of cel-go's `checker/cost.go`.

use super::bounds::Bounds;
use super::calls;
use super::kind::{Declared, Kind};
use super::path::Path;
use super::sizes::{Entry, Known, LIST_COST, ONE};
use super::typed::{Call, Form, Loop, Node};

/// Cost of making a map.
const MAP_COST: Bounds = Bounds::exactly(30);

/// The state of a walk through an expression.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    known: Known<'a>,
}

impl<'a> Walk<'a> {
    /// Starts a walk.
    pub(super) fn new(about: &'a Declared) -> Self {
        Self {
            known: Known::new(about),
        }
    }

    /// Returns the cost of a part of the expression.
    pub(super) fn cost(&mut self, node: &Node) -> Bounds {
        match &node.form {
            Form::Constant(..) => Bounds::default(),
            Form::Variable(name) => {
                let path = self.known.local(name).map(|local| local.path.clone());
                self.known
                    .paths
                    .insert(node.id, path.unwrap_or_else(|| Path::of(name)));
                ONE
            }
            Form::Select(operand, field, is_test) => self.select(node, operand, field, *is_test),
            Form::Call(call) => self.call(node, call),
            Form::List(items) => {
                let mut sum = LIST_COST;
                let mut size = empty_union(items.is_empty());
                for item in items {
                    sum = sum.plus(self.cost(item));
                    size = size.or(self.known.size_or_any(item));
                }
                let entry = Entry {
                    is_list: true,
                    key: ONE,
                    value: size,
                };
                self.known.entries.insert(node.id, entry);
                sum
            }
            Form::Map(entries) => {
                let mut sum = MAP_COST;
                let mut entry = Entry {
                    is_list: false,
                    key: empty_union(entries.is_empty()),
                    value: empty_union(entries.is_empty()),
                };
                for (key, value) in entries {
                    sum = sum.plus(self.cost(key)).plus(self.cost(value));
                    entry.key = entry.key.or(self.known.size_or_any(key));
                    entry.value = entry.value.or(self.known.size_or_any(value));
                }
                self.known.entries.insert(node.id, entry);
                sum
            }
            Form::Loop(inner) if is_binding(inner) => self.binding_cost(node, inner),
            Form::Loop(inner) => self.loop_cost(node, inner),
        }
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, is_test: bool) -> Bounds {
        let cost = self.cost(operand);
        if is_test {
            // testing for presence is free in Kubernetes
            return cost;
        }
        let path = self.known.path(operand).join(field);
        self.known.paths.insert(node.id, path);
        match &operand.kind {
            Kind::Map(..) | Kind::Object(_) => cost.plus(ONE),
            _ => cost,
        }
    }

    fn call(&mut self, node: &Node, call: &Call) -> Bounds {
        if let ("dyn", [argument]) = (call.name.as_str(), call.arguments.as_slice()) {
            let cost = self.cost(argument).plus(ONE);
            self.known.copy(node, argument);
            return cost;
        }
        let mut costs = Vec::new();
        let mut arguments = Vec::new();
        for argument in &call.arguments {
            costs.push(self.cost(argument));
            arguments.push(self.known.operand(argument));
        }
        let mut sum = Bounds::default();
        let mut target = None;
        if let Some(written) = call.target.as_deref() {
            sum = self.cost(written);
            target = Some(self.known.operand(written));
        }
        let mut cost = Bounds::EMPTY;
        let mut size: Option<Bounds> = None;
        for overload in &call.overloads {
            let called = calls::ResolvedCall {
                node,
                name: &call.name,
                overload: overload.id,
                target: target.as_ref(),
                arguments: &arguments,
                costs: &costs,
            };
            let estimate = calls::estimate(&mut self.known, &called);
            cost = cost.or(estimate.cost);
            if let Some(gives) = estimate.size {
                size = Some(size.map_or(gives, |size| size.or(gives)));
            }
            let step = match overload.id {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(indexed)) = (step, call.arguments.first()) {
                size = self.known.entry(indexed).map(|entry| entry.value);
                let path = self.known.path(indexed).join(step);
                self.known.paths.insert(node.id, path);
            }
            if size.is_none() {
                size = self.known.size(node);
            }
        }
        if let Some(size) = size {
            self.known.bounds.insert(node.id, size);
        }
        sum.plus(cost)
    }

    fn loop_cost(&mut self, node: &Node, inner: &Loop) -> Bounds {
        let mut sum = self.cost(&inner.range).plus(self.cost(&inner.start));
        self.known.push_bound(&inner.accumulator, &inner.start);
        let depth = self.known.locals.len();
        self.known.push_iterated(inner);
        let turn = self.cost(&inner.condition).plus(self.cost(&inner.step));
        self.known.locals.truncate(depth);
        sum = sum.plus(self.cost(&inner.result));
        self.known.locals.truncate(depth - 1);
        let turns = self.known.size_or_any(&inner.range);
        match &inner.start.form {
            Form::Constant(..) => {
                if let Some(size) = self.known.size(&inner.start) {
                    self.known.bounds.insert(node.id, size);
                }
            }
            Form::List(_) | Form::Map(_) => {
                self.known.bounds.insert(node.id, turns);
                if let Some(entry) = self.known.entry(&inner.step) {
                    self.known.entries.insert(node.id, entry);
                }
            }
            _ => {}
        }
        sum.plus(turns.times(turn))
    }

    /// Returns the cost of a loop without turns, which only binds a name.
    fn binding_cost(&mut self, node: &Node, inner: &Loop) -> Bounds {
        let cost = self.cost(&inner.range).plus(self.cost(&inner.start));
        let depth = self.known.locals.len();
        self.known.push_bound(&inner.accumulator, &inner.start);
        let cost = cost.plus(self.cost(&inner.result));
        self.known.locals.truncate(depth);
        self.known.copy(node, &inner.result);
        cost
    }
}

/// Returns the range with which a union starts; without members it is zero.
fn empty_union(is_empty: bool) -> Bounds {
    if is_empty {
        Bounds::default()
    } else {
        Bounds::EMPTY
    }
}

fn is_binding(inner: &Loop) -> bool {
    let has_no_turn = matches!(&inner.range.form, Form::List(items) if items.is_empty());
    has_no_turn && !inner.accumulator.starts_with('@') && inner.variable == "#unused"
}

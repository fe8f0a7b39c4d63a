//! The highest cost of evaluating an expression: the walk of cel-go's `checker/cost.go`.
//!
//! Sizes are looked up at the same moments as in cel-go and kept from then on, because paths to parts may change later (see [`Path`]).

use std::collections::HashMap;

use super::bounds::Bounds;
use super::calls;
use super::declared::Declared;
use super::kind::Kind;
use super::path::Path;
use super::typed::{Call, Form, Loop, Node};

/// Cost of a name or a field.
const ONE: Bounds = Bounds::exactly(1);
/// Cost of making a list.
pub(super) const LIST_COST: Bounds = Bounds::exactly(10);
/// Cost of making a map.
const MAP_COST: Bounds = Bounds::exactly(30);

/// Sizes of the keys and the values of a list or a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    is_list: bool,
    key: Bounds,
    value: Bounds,
}

impl Entry {
    /// Returns the ranges that include both.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.or(other.key),
            value: self.value.or(other.value),
        }
    }
}

/// A variable of a loop.
#[derive(Debug)]
struct Local {
    name: String,
    path: Path,
    size: Option<Bounds>,
    entry: Option<Entry>,
}

/// The target or an argument of a call.
#[derive(Debug)]
pub(super) struct Operand<'a> {
    /// The part of the expression.
    pub(super) node: &'a Node,
    /// Its path in the value; empty if it is no part of a value.
    pub(super) path: Path,
    /// Its size, if known.
    pub(super) size: Option<Bounds>,
}

impl Operand<'_> {
    /// Returns the size, or the unknown range.
    pub(super) fn size(&self) -> Bounds {
        self.size.unwrap_or(Bounds::UNKNOWN)
    }
}

/// The state of a walk through an expression.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    about: &'a Declared,
    locals: Vec<Local>,
    paths: HashMap<usize, Path>,
    sizes: HashMap<usize, Bounds>,
    entries: HashMap<usize, Entry>,
}

impl<'a> Walk<'a> {
    /// Starts a walk.
    pub(super) fn new(about: &'a Declared) -> Self {
        Self {
            about,
            locals: Vec::new(),
            paths: HashMap::new(),
            sizes: HashMap::new(),
            entries: HashMap::new(),
        }
    }

    /// Returns the cost of a part of the expression.
    pub(super) fn cost(&mut self, node: &Node) -> Bounds {
        match &node.form {
            Form::Constant(..) => Bounds::default(),
            Form::Variable(name) => {
                let path = self.local(name).map(|local| local.path.clone());
                self.paths
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
                    size = size.or(self.size_or_any(item));
                }
                let entry = Entry {
                    is_list: true,
                    key: ONE,
                    value: size,
                };
                self.entries.insert(node.id, entry);
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
                    entry.key = entry.key.or(self.size_or_any(key));
                    entry.value = entry.value.or(self.size_or_any(value));
                }
                self.entries.insert(node.id, entry);
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
        let path = self.path(operand).join(field);
        self.paths.insert(node.id, path);
        match &operand.kind {
            Kind::Map(..) | Kind::Object(_) => cost.plus(ONE),
            _ => cost,
        }
    }

    fn call(&mut self, node: &Node, call: &Call) -> Bounds {
        if let ("dyn", [argument]) = (call.name.as_str(), call.arguments.as_slice()) {
            let cost = self.cost(argument).plus(ONE);
            self.copy(node, argument);
            return cost;
        }
        let mut costs = Vec::new();
        let mut arguments = Vec::new();
        for argument in &call.arguments {
            costs.push(self.cost(argument));
            arguments.push(self.operand(argument));
        }
        let mut sum = Bounds::default();
        let mut target = None;
        if let Some(written) = call.target.as_deref() {
            sum = self.cost(written);
            target = Some(self.operand(written));
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
            let estimate = calls::estimate(self, &called);
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
                size = self.entry(indexed).map(|entry| entry.value);
                let path = self.path(indexed).join(step);
                self.paths.insert(node.id, path);
            }
            if size.is_none() {
                size = self.size(node);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(node.id, size);
        }
        sum.plus(cost)
    }

    fn loop_cost(&mut self, node: &Node, inner: &Loop) -> Bounds {
        let mut sum = self.cost(&inner.range).plus(self.cost(&inner.start));
        self.push_bound(&inner.accumulator, &inner.start);
        let depth = self.locals.len();
        self.push_iterated(inner);
        let turn = self.cost(&inner.condition).plus(self.cost(&inner.step));
        self.locals.truncate(depth);
        sum = sum.plus(self.cost(&inner.result));
        self.locals.truncate(depth - 1);
        let turns = self.size_or_any(&inner.range);
        match &inner.start.form {
            Form::Constant(..) => {
                if let Some(size) = self.size(&inner.start) {
                    self.sizes.insert(node.id, size);
                }
            }
            Form::List(_) | Form::Map(_) => {
                self.sizes.insert(node.id, turns);
                if let Some(entry) = self.entry(&inner.step) {
                    self.entries.insert(node.id, entry);
                }
            }
            _ => {}
        }
        sum.plus(turns.times(turn))
    }

    /// Returns the cost of a loop without turns, which only binds a name.
    fn binding_cost(&mut self, node: &Node, inner: &Loop) -> Bounds {
        let cost = self.cost(&inner.range).plus(self.cost(&inner.start));
        let depth = self.locals.len();
        self.push_bound(&inner.accumulator, &inner.start);
        let cost = cost.plus(self.cost(&inner.result));
        self.locals.truncate(depth);
        self.copy(node, &inner.result);
        cost
    }

    fn push_bound(&mut self, name: &str, value: &Node) {
        let local = Local {
            name: name.to_owned(),
            path: self.path(value),
            entry: self.entry(value),
            size: self.size(value),
        };
        self.locals.push(local);
    }

    fn push_iterated(&mut self, inner: &Loop) {
        let entry = self.entry(&inner.range);
        let is_list = match &entry {
            Some(entry) => entry.is_list,
            None => matches!(inner.range.kind, Kind::List(_)),
        };
        let (key, value) = if is_list {
            ("@indices", "@items")
        } else {
            ("@keys", "@values")
        };
        let (key_size, value_size) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        let mut push = |name: &str, step: &str, size: Option<Bounds>| {
            let path = self.path(&inner.range).join(step);
            self.locals.push(Local {
                name: name.to_owned(),
                path,
                size,
                entry: None,
            });
        };
        match &inner.second {
            Some(second) => {
                push(&inner.variable, key, key_size);
                push(second, value, value_size);
            }
            None if is_list => push(&inner.variable, value, value_size),
            None => push(&inner.variable, key, key_size),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    /// Returns the path of a part of the expression in the value.
    fn path(&self, node: &Node) -> Path {
        if let Form::Variable(name) = &node.form
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&node.id).cloned().unwrap_or_default()
    }

    fn operand<'n>(&mut self, node: &'n Node) -> Operand<'n> {
        Operand {
            node,
            path: self.path(node),
            size: self.size(node),
        }
    }

    /// Returns the largest size that the schema allows at the end of a path.
    pub(super) fn declared(&self, path: &Path) -> Option<Bounds> {
        let steps = path.steps();
        // all variables of the expression have the same type
        let (_, rest) = steps.split_first()?;
        Some(Bounds::new(0, self.about.max_size_at(rest)?))
    }

    /// Returns the size of a part of the expression, if known.
    fn size(&mut self, node: &Node) -> Option<Bounds> {
        if let Some(known) = self.sizes.get(&node.id) {
            return Some(*known);
        }
        match &node.form {
            Form::Constant(size, _) => return Some(Bounds::exactly(*size)),
            Form::List(items) => return Some(Bounds::exactly(items.len() as u64)),
            Form::Map(entries) => return Some(Bounds::exactly(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = self.declared(&self.path(node)) {
            self.sizes.insert(node.id, size);
            return Some(size);
        }
        if node.kind.is_scalar() {
            return Some(ONE);
        }
        match &node.form {
            Form::Variable(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn size_or_any(&mut self, node: &Node) -> Bounds {
        self.size(node).unwrap_or(Bounds::UNKNOWN)
    }

    /// Returns the sizes of the entries of a list or a map, if known.
    pub(super) fn entry(&self, node: &Node) -> Option<Entry> {
        let own = self.entries.get(&node.id).copied();
        own.or_else(|| match &node.form {
            Form::Variable(name) => self.local(name)?.entry,
            _ => None,
        })
    }

    /// Stores the sizes of the entries of a list or a map.
    pub(super) fn keep_entry(&mut self, node: &Node, entry: Entry) {
        self.entries.insert(node.id, entry);
    }

    fn copy(&mut self, to: &Node, from: &Node) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entry) = self.entry(from) {
            self.entries.insert(to.id, entry);
        }
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

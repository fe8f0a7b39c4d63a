//! What a walk knows about the parts of an expression: their paths in the value, their sizes, and the variables of loops.
//!
//! Sizes are looked up at the same moments as in cel-go and kept from then on, because paths to parts may change later (see [`Path`]).

use std::collections::HashMap;

use super::bounds::Bounds;
use super::kind::{Declared, Kind};
use super::path::Path;
use super::typed::{Form, Loop, Node};

/// Cost of a name or a field.
pub(super) const ONE: Bounds = Bounds::exactly(1);

/// Cost of making a list.
pub(super) const LIST_COST: Bounds = Bounds::exactly(10);

/// Sizes of the keys and the values of a list or a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) is_list: bool,
    pub(super) key: Bounds,
    pub(super) value: Bounds,
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
pub(super) struct Local {
    pub(super) name: String,
    pub(super) path: Path,
    pub(super) size: Option<Bounds>,
    pub(super) entry: Option<Entry>,
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

/// The paths and the sizes that are known during a walk.
#[derive(Debug)]
pub(super) struct Known<'a> {
    about: &'a Declared,
    pub(super) locals: Vec<Local>,
    pub(super) paths: HashMap<usize, Path>,
    pub(super) bounds: HashMap<usize, Bounds>,
    pub(super) entries: HashMap<usize, Entry>,
}

impl<'a> Known<'a> {
    /// Starts without any knowledge but what the schema declares.
    pub(super) fn new(about: &'a Declared) -> Self {
        Self {
            about,
            locals: Vec::new(),
            paths: HashMap::new(),
            bounds: HashMap::new(),
            entries: HashMap::new(),
        }
    }

    pub(super) fn push_bound(&mut self, name: &str, value: &Node) {
        let local = Local {
            name: name.to_owned(),
            path: self.path(value),
            entry: self.entry(value),
            size: self.size(value),
        };
        self.locals.push(local);
    }

    pub(super) fn push_iterated(&mut self, inner: &Loop) {
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

    pub(super) fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    /// Returns the path of a part of the expression in the value.
    pub(super) fn path(&self, node: &Node) -> Path {
        if let Form::Variable(name) = &node.form
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&node.id).cloned().unwrap_or_default()
    }

    pub(super) fn operand<'n>(&mut self, node: &'n Node) -> Operand<'n> {
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
    pub(super) fn size(&mut self, node: &Node) -> Option<Bounds> {
        if let Some(known) = self.bounds.get(&node.id) {
            return Some(*known);
        }
        match &node.form {
            Form::Constant(size, _) => return Some(Bounds::exactly(*size)),
            Form::List(items) => return Some(Bounds::exactly(items.len() as u64)),
            Form::Map(entries) => return Some(Bounds::exactly(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = self.declared(&self.path(node)) {
            self.bounds.insert(node.id, size);
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

    pub(super) fn size_or_any(&mut self, node: &Node) -> Bounds {
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

    pub(super) fn copy(&mut self, to: &Node, from: &Node) {
        if let Some(size) = self.size(from) {
            self.bounds.insert(to.id, size);
        }
        if let Some(entry) = self.entry(from) {
            self.entries.insert(to.id, entry);
        }
    }
}

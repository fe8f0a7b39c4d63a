//! What type inference finds out: the types that stand for type variables.

use std::collections::HashMap;
use std::sync::Arc;

use super::kind::Kind;

/// What type variables were resolved to.
#[derive(Clone, Debug, Default)]
pub(super) struct Substitution {
    bindings: HashMap<usize, Kind>,
    count: usize,
}

impl Substitution {
    /// Makes a new type variable.
    pub(super) fn new_variable(&mut self) -> Kind {
        self.count += 1;
        Kind::Variable(self.count)
    }

    /// Returns a type whose parameters are replaced by type variables.
    pub(super) fn instantiate(
        &mut self,
        kind: &Kind,
        variables: &mut HashMap<Arc<str>, Kind>,
    ) -> Kind {
        match kind {
            Kind::Parameter(name) => {
                let known = variables.get(name).cloned();
                known.unwrap_or_else(|| {
                    let variable = self.new_variable();
                    variables.insert(Arc::clone(name), variable.clone());
                    variable
                })
            }
            other => other.with_parts(&mut |inner| self.instantiate(inner, variables)),
        }
    }

    /// Returns a type with resolved variables. At the end, unresolved variables become `dyn`.
    pub(super) fn resolved(&self, kind: &Kind, at_the_end: bool) -> Kind {
        match kind {
            Kind::Variable(number) => match self.bindings.get(number) {
                Some(found) => self.resolved(found, at_the_end),
                None if at_the_end => Kind::Dyn,
                None => kind.clone(),
            },
            other => other.with_parts(&mut |inner| self.resolved(inner, at_the_end)),
        }
    }

    /// Returns whether values of the first types may be used as those of the second. What is learned about variables is kept only if so.
    pub(super) fn unify(&mut self, one: &[Kind], two: &[Kind]) -> bool {
        let before = self.bindings.clone();
        let unified = one.len() == two.len()
            && one
                .iter()
                .zip(two)
                .all(|(one, two)| self.unify_one(one, two));
        if !unified {
            self.bindings = before;
        }
        unified
    }

    fn unify_one(&mut self, one: &Kind, two: &Kind) -> bool {
        if let Kind::Variable(number) = two {
            let was_bound = self.bindings.contains_key(number);
            if self.unify_variable(one, *number) {
                return true;
            }
            if was_bound {
                return false;
            }
        }
        match (one, two) {
            (Kind::Variable(number), _) => self.unify_variable(two, *number),
            (Kind::Dyn, _) | (_, Kind::Dyn) => true,
            (Kind::Named(name), other) | (other, Kind::Named(name)) if &**name == "null_type" => {
                other.is_nullable()
            }
            (Kind::List(_), Kind::List(_))
            | (Kind::Map(..), Kind::Map(..))
            | (Kind::Optional(_), Kind::Optional(_)) => {
                let (one, two) = (one.parts(), two.parts());
                one.iter()
                    .zip(two)
                    .all(|(one, two)| self.unify_one(one, two))
            }
            (one, two) => one.is(two),
        }
    }

    /// Returns whether a type variable may stand for a type. If so, the variable is set to it.
    fn unify_variable(&mut self, kind: &Kind, number: usize) -> bool {
        let variable = Kind::Variable(number);
        if kind.is(&variable) {
            return true;
        }
        if let Some(known) = self.bindings.get(&number).cloned() {
            if kind.is(&known) {
                return true;
            }
            if !self.unify_one(kind, &known) {
                return false;
            }
            let wider = kind.most_general(&known);
            if !self.mentions(&wider, number) {
                self.bindings.insert(number, wider);
            }
            return true;
        }
        let is_free = !self.mentions(kind, number);
        if is_free {
            self.bindings.insert(number, kind.clone());
        }
        is_free
    }

    fn mentions(&self, kind: &Kind, number: usize) -> bool {
        match kind {
            Kind::Variable(other) => {
                *other == number
                    || self
                        .bindings
                        .get(other)
                        .is_some_and(|known| self.mentions(known, number))
            }
            other => other
                .parts()
                .iter()
                .any(|inner| self.mentions(inner, number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_types_are_found_by_what_is_given() {
        let mut substitution = Substitution::default();
        let mut variables = HashMap::new();
        let wanted = Kind::parse("list(<T>)").unwrap();
        let wanted = substitution.instantiate(&wanted, &mut variables);
        let texts = Kind::parse("list(string)").unwrap();
        let amounts = Kind::parse("list(int)").unwrap();
        let variable = Kind::List(Arc::new(substitution.new_variable()));
        assert!(substitution.unify(
            &[texts.clone(), variable.clone()],
            &[wanted.clone(), wanted.clone()]
        ));
        assert!(substitution.resolved(&variable, true).is(&texts));
        assert!(!substitution.unify(&[amounts], &[wanted]));
        let any = substitution.new_variable();
        assert!(matches!(substitution.resolved(&any, true), Kind::Dyn));
    }
}

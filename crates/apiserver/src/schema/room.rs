//! Room for expressions in CEL. Their parser and interpreter call themselves for each part of a part: an expression that is not small needs a
//! large stack, and one without end is refused. Some functions of the interpreter panic, which ends no request here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::source::{Position, Size, show};

/// Deepest nesting. The parser gives up at 96, and may panic then, because it counts below zero; that of Kubernetes gives up at 250.
const DEEPEST: usize = 90;
/// Largest number of tokens.
const MOST_TOKENS: usize = 2000;
/// What fits on the stack of every thread: a bracket needs up to 140 KiB without optimisation, a link of a chain 40 KiB.
const SMALL: Size = Size {
    depth: 4,
    tokens: 16,
};
/// Size of the stack on which the largest expressions fit, in bytes. What is not used costs nothing.
const STACK: usize = 128 << 20;

/// Returns why an expression is too large, if it is.
pub(crate) fn refusal(text: &str) -> Option<String> {
    let size = Size::of(text);
    let begin = Position { line: 1, column: 0 };
    if size.depth > DEEPEST {
        let what = format!("expression recursion limit exceeded: {DEEPEST}");
        return Some(show(text, begin, &what));
    }
    (size.tokens > MOST_TOKENS).then(|| {
        let what = format!(
            "expression has {} tokens, at most {MOST_TOKENS} are possible",
            size.tokens
        );
        show(text, begin, &what)
    })
}

/// Returns whether an expression fits on the stack of every thread.
pub(crate) fn is_small(text: &str) -> bool {
    let size = Size::of(text);
    size.depth <= SMALL.depth && size.tokens <= SMALL.tokens
}

/// What is said of an expression whose evaluation panicked.
pub(crate) const PANICKED: &str = "internal error";

/// Evaluates expressions. `None` if the interpreter panics: it compares and adds amounts such as `1e100` in numbers that cannot hold them.
pub(crate) fn evaluate<T>(work: impl FnOnce() -> T) -> Option<T> {
    // what an evaluation changes belongs to it alone
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Works on expressions, where there is room for those that are not small.
pub(crate) fn work_on<T: Send>(is_small: bool, work: impl FnOnce() -> T + Send) -> T {
    if is_small {
        return work();
    }
    thread::scope(|scope| {
        let started = thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, work);
        let worker = started.expect("the machine has a thread to spare");
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::schema::rules::Rules;

    #[rstest]
    #[case::brackets("(", "true", ")", DEEPEST)]
    #[case::lists("[", "1", "]", DEEPEST)]
    #[case::loops("[1].all(i,", "true", ")", DEEPEST / 2)]
    #[case::negations("!", "true", "", MOST_TOKENS / 2)]
    #[case::fields("", "self", ".a", MOST_TOKENS / 2 - 1)]
    #[case::calls("", "'a'", ".size()", MOST_TOKENS / 4 - 1)]
    #[case::sums("", "1", "+1", MOST_TOKENS / 2 - 1)]
    #[case::choices("true?true:", "true", "", DEEPEST)]
    fn the_largest_expressions_are_worked_on_and_larger_ones_refused(
        #[case] before: &str,
        #[case] inner: &str,
        #[case] after: &str,
        #[case] times: usize,
    ) {
        let mk = |times: usize| format!("{}{inner}{}", before.repeat(times), after.repeat(times));
        let largest = mk(times);
        assert_eq!(refusal(&largest), None);
        let rules = Rules::compile(&json!({
            "type": "object", "x-kubernetes-validations": [{"rule": largest}],
        }));
        drop(rules.validate(None, &json!({"a": 1})));
        let why = refusal(&mk(5 * times)).expect("it is refused");
        assert!(why.starts_with("ERROR: <input>:1:1: expression"), "{why}");
    }

    #[test]
    fn brackets_in_texts_are_no_nesting() {
        let text = format!("'{}' == ''", "(".repeat(2 * DEEPEST));
        assert_eq!(refusal(&text), None);
    }
}

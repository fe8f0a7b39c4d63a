//! Runs expressions in CEL.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, Value};
use parking_lot::Mutex;
use serde_json::Value as Json;

use super::{authorizer, meter};
use crate::access::identity::Identity;
use crate::schema::room;
use crate::schema::rules::go_error;
use crate::storage::State;

/// Number of expressions that are kept compiled.
const MAX_COMPILED: usize = 1024;

/// An expression that was parsed, with what it costs without its loops.
type Compiled = Arc<(Expression, u64)>;

/// Expressions by their text, for all threads: those that need room run on one of their own, which ends with the write.
static COMPILED: LazyLock<Mutex<HashMap<String, Compiled>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// All functions. Each thread has its own, because they cannot be shared.
    static FUNCTIONS: Context<'static> = {
        let mut context = Context::default().with_all();
        authorizer::register(&mut context);
        meter::register(&mut context);
        context
    };
}

/// Why an expression gives no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unevaluated {
    /// It could not be parsed, or it failed; a message for users.
    Failed(String),
    /// It failed while it ran.
    Error {
        /// The expression.
        expression: String,
        /// Why, in the words of Go's interpreter.
        why: String,
    },
    /// What it costs is more than what is left.
    OutOfBudget,
}

impl Unevaluated {
    /// Returns the message for users; `None` where nothing more is evaluated.
    pub(super) fn message(self) -> Option<String> {
        match self {
            Self::Failed(message) => Some(message),
            Self::Error { expression, why } => Some(format!(
                "expression '{expression}' resulted in error: {why}"
            )),
            Self::OutOfBudget => None,
        }
    }
}

/// Runs expressions for one write.
pub(super) struct Evaluator<'a> {
    state: &'a State,
    identity: &'a Identity,
    context: Context<'a>,
    /// What the expressions may still cost.
    budget: u64,
}

impl Evaluator<'_> {
    /// Calls a function with an evaluator that has no variables yet.
    pub(super) fn with<R>(
        state: &State,
        identity: &Identity,
        run: impl FnOnce(&mut Evaluator<'_>) -> R,
    ) -> R {
        authorizer::forget();
        FUNCTIONS.with(|functions| {
            run(&mut Evaluator {
                state,
                identity,
                context: functions.new_inner_scope(),
                budget: 0,
            })
        })
    }

    /// Sets what the following expressions may cost together.
    pub(super) fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.context.add_variable_from_value(name, value);
    }

    /// Runs an expression.
    pub(super) fn run(&mut self, text: &str) -> Result<Value, Unevaluated> {
        let compiled = compile(text).map_err(Unevaluated::Failed)?;
        let (expression, cost) = &*compiled;
        loop {
            meter::start(*cost);
            let result = room::evaluate(|| self.context.resolve(expression));
            if authorizer::answer(self.state, self.identity) {
                continue;
            }
            let spent = meter::read();
            self.budget = self
                .budget
                .checked_sub(spent.cost)
                .ok_or(Unevaluated::OutOfBudget)?;
            let failed = |why: String| Unevaluated::Error {
                expression: text.to_owned(),
                why,
            };
            if spent.is_exhausted {
                return Err(failed(
                    "operation cancelled: actual cost limit exceeded".into(),
                ));
            }
            let Some(result) = result else {
                return Err(failed(room::PANICKED.to_owned()));
            };
            return result.map_err(|error| failed(go_error(&error.to_string())));
        }
    }
}

fn compile(text: &str) -> Result<Compiled, String> {
    if let Some(compiled) = COMPILED.lock().get(text) {
        return Ok(Arc::clone(compiled));
    }
    let parsed = Parser::new().enable_optional_syntax(true).parse(text);
    let mut expression =
        parsed.map_err(|errors| format!("compilation error: compilation failed: {errors}"))?;
    let cost = meter::install(&mut expression);
    let compiled = Arc::new((expression, cost));
    let mut known = COMPILED.lock();
    if known.len() >= MAX_COMPILED {
        known.clear();
    }
    known.insert(text.to_owned(), Arc::clone(&compiled));
    Ok(compiled)
}

/// Converts JSON to a value of expressions.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(given) => Value::Bool(*given),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, Some(fraction)) => Value::Float(fraction),
            (None, None) => Value::Null,
        },
        Json::String(text) => Value::String(text.clone().into()),
        Json::Array(list) => Value::List(list.iter().map(value).collect::<Vec<_>>().into()),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, field)| (Key::from(name.as_str()), value(field)));
            Value::Map(Map {
                map: fields.collect::<HashMap<_, _>>().into(),
            })
        }
    }
}

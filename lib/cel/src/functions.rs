//! Bodies of the functions, apart from their cost.

mod authorizer;
mod convert;
mod formats;
mod kubernetes;
mod lists;
mod operators;
mod strings;
mod text_format;
mod times;
mod urls;

use super::{
    EvaluationError,
    cost::Meter,
    regex::Regex,
    value::{Shared, Value},
};

pub(super) use formats::name_of_1_34;

type Outcome<'a> = Result<Value<'a>, EvaluationError>;
type Body = for<'a> fn(&[Value<'a>], &mut Meter) -> Outcome<'a>;

/// A function, found by its name.
#[derive(Clone, Copy)]
pub(super) struct Function(&'static (&'static str, Body));

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        let libraries = [
            operators::ALL,
            convert::ALL,
            strings::ALL,
            lists::ALL,
            kubernetes::ALL,
            times::ALL,
            text_format::ALL,
            urls::ALL,
            formats::ALL,
            authorizer::ALL,
        ];
        libraries.into_iter().flatten().find(|(other, _)| *other == name).map(Self)
    }

    fn name(self) -> &'static str {
        self.0.0
    }

    /// True for conversions: Kubernetes converts constants while it compiles.
    pub(super) fn is_conversion(self) -> bool {
        convert::ALL.iter().any(|(name, _)| *name == self.name())
    }

    /// True for functions that read a text: the result for a constant is always the same.
    pub(super) fn is_reading(self) -> bool {
        matches!(self.name(), "quantity" | "semver" | "ip" | "cidr" | "url")
    }

    /// The result for these arguments.
    pub(super) fn call<'a>(self, arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
        let result = (self.0.1)(arguments, meter);
        meter.check_work()?;
        result.map_err(|error| match error {
            EvaluationError::NoOverload { found, .. } => {
                EvaluationError::NoOverload { function: self.name().to_owned(), found }
            }
            other => other,
        })
    }

    /// Returns the result with a pattern that was read before.
    pub(super) fn call_with<'a>(self, regex: &Regex, arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
        strings::with_regex(self.name(), regex, arguments, meter)
    }
}

/// Refuses arguments that no overload takes.
fn mismatch<'a>(arguments: &[Value<'_>]) -> Outcome<'a> {
    let found = arguments.iter().map(|argument| argument.type_of().to_string()).collect::<Vec<_>>().join(", ");
    Err(EvaluationError::NoOverload { function: String::new(), found })
}

fn failed<T>(message: impl Into<String>) -> Result<T, EvaluationError> {
    Err(EvaluationError::Failed(message.into()))
}

fn text<'a>(text: String, meter: &mut Meter) -> Outcome<'a> {
    meter.make(super::value::count(text.len()))?;
    Ok(Value::Text(Shared::Owned(text.into())))
}

fn int<'a>(number: u64) -> Value<'a> {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

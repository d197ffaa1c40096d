//! Selectors: expressions of the Common Expression Language (CEL) over a device, as Kubernetes evaluates them.
//!
//! A selector is compiled once and evaluated for many devices. Looking an attribute up is one search in the device's
//! own map; no maps are built. Which expressions compile, what they answer and what they cost is what kube-scheduler
//! says; what is not calculated here is refused by name, never guessed.

mod addresses;
mod ast;
mod clauses;
mod compile;
mod cost;
mod declarations;
mod device;
mod evaluate;
mod formats;
mod functions;
mod lexer;
mod macros;
mod parser;
mod plan;
mod quoting;
mod references;
mod regex;
mod semver;
mod time;
mod types;
mod url;
mod value;
mod words;
mod work;

pub use device::{DeviceFacts, Property};
use evaluate::Evaluation;
use plan::Node;
pub use references::References;
use value::Value;

use hostler_api::KubernetesVersion;

/// Parts of the language that a version of Kubernetes offers to selectors. Nothing else differs between the known
/// versions: selectors are compiled with everything that a version has, whatever its feature gates say.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct CelOptions {
    /// True if attributes can have several values.
    pub list_attributes: bool,
    /// True if there is the function `includes`.
    pub includes: bool,
    /// True if named formats complain in the words of 1.34 and earlier.
    pub old_words: bool,
}

impl CelOptions {
    /// Returns the options of a version, with the gate DRAListTypeAttributes on or off.
    pub fn of(version: KubernetesVersion, list_gate: bool) -> Self {
        let includes = version >= KubernetesVersion::V1_36;
        let is_always_list = version >= KubernetesVersion::V1_37;
        let old_words = version == KubernetesVersion::V1_34;
        Self { list_attributes: includes && (list_gate || is_always_list), includes, old_words }
    }
}

/// A compiled selector.
#[derive(Debug)]
pub struct Selector {
    plan: Node,
    slots: usize,
    options: CelOptions,
    refusal: Option<Box<str>>,
}

/// The reason why an expression is no selector.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CompileError {
    /// A text longer than the API server takes.
    #[error("it has {bytes} bytes, more than {longest}")]
    TooLong {
        /// Length of the text.
        bytes: usize,
        /// Greatest length of a text.
        longest: usize,
    },
    /// A text that is not written in the language.
    #[error("{0}")]
    Syntax(String),
    /// A name that means nothing.
    #[error("unknown name {0}; a selector sees only device")]
    UnknownName(String),
    /// A function that does not exist.
    #[error("unknown function {0}")]
    UnknownFunction(String),
    /// A field that does not exist.
    #[error("{of} has no field {field}")]
    NoFields {
        /// The value or type in which the field was looked up.
        of: String,
        /// The field.
        field: String,
    },
    /// A function that takes something else.
    #[error("{function} takes no ({given})")]
    NoOverload {
        /// The function or operator.
        function: String,
        /// Types of the arguments.
        given: String,
    },
    /// A part of another type than its place expects.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The type that the place expects.
        expected: String,
        /// The type that is there.
        found: String,
    },
    /// The whole is not a truth.
    #[error("it evaluates to {0}, not to bool")]
    NotBool(String),
    /// A constant that means nothing.
    #[error("{0}")]
    Constant(String),
    /// Kubernetes knows it, this library does not.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

/// The reason why a selector has no answer for a device. Kubernetes gives up scheduling the pod then.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EvaluationError {
    /// An attribute that the device does not have, without `has()` or `.?`.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// Behind the end of a list.
    #[error("index {index:?} is out of bounds of a list of {length}")]
    OutOfBounds {
        /// The index that was asked for.
        index: Option<i64>,
        /// Length of the list.
        length: u64,
    },
    /// A function that takes something else.
    #[error("{function} takes no ({found})")]
    NoOverload {
        /// The function or operator.
        function: String,
        /// Types of the arguments.
        found: String,
    },
    /// A function had no result.
    #[error("{0}")]
    Failed(String),
    /// The whole is not a truth.
    #[error("it evaluated to {0}, not to bool")]
    NotBool(String),
    /// An attribute of the device has a value that cannot be read; no selector can judge it.
    #[error("attribute {0} has no supported value")]
    Attribute(String),
    /// A value that Go cannot look up; it gives up where it should.
    #[error("{0} has no hash")]
    NoHash(String),
    /// A list that cannot be evaluated, where Go needs it to tell the cost; it gives up where it should.
    #[error("there is no list to compare: {0}")]
    NoList(String),
    /// Evaluation beyond the cost limit.
    #[error("it costs more than 1,000,000 units")]
    CostLimit,
    /// Kubernetes knows it, this library does not.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

impl EvaluationError {
    /// True if the error ends the evaluation; other errors do not matter where `||`, `&&` or a macro has an answer
    /// without.
    fn is_final(&self) -> bool {
        matches!(self, Self::CostLimit | Self::NoHash(_) | Self::NoList(_) | Self::Unsupported(_))
    }
}

impl Selector {
    /// Compiles a text.
    pub fn compile(text: &str, options: &CelOptions) -> Result<Self, CompileError> {
        let expression = parser::parse(text)?;
        let (plan, slots) = compile::compile(&expression, options)?;
        let refusal = words::refusal(&expression).map(Into::into);
        Ok(Self { plan, slots, options: *options, refusal })
    }

    /// Describes the devices that the selector refuses, in words that follow `with`. `None`: only the expression does.
    pub fn refusal_in_words(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns true if the selector selects the device.
    pub fn matches(&self, facts: &DeviceFacts<'_>) -> Result<bool, EvaluationError> {
        self.matches_at_cost(facts).0
    }

    /// Returns the answer of [`matches`](Self::matches), and its cost.
    pub fn matches_at_cost(&self, facts: &DeviceFacts<'_>) -> (Result<bool, EvaluationError>, u64) {
        match self.fault(facts) {
            Some(fault) => (Err(fault), 0),
            None => self.evaluated(facts),
        }
    }

    /// Returns the reason why no selector with the same options can judge the device, if there is one.
    pub fn fault(&self, facts: &DeviceFacts<'_>) -> Option<EvaluationError> {
        facts.fault(self.options.list_attributes)
    }

    /// Returns the answer of [`matches`](Self::matches) for a device in which [`fault`](Self::fault) has found none:
    /// many selectors judge a device, and its attributes need to be read through only once.
    pub fn matches_sound(&self, facts: &DeviceFacts<'_>) -> Result<bool, EvaluationError> {
        self.evaluated(facts).0
    }

    fn evaluated(&self, facts: &DeviceFacts<'_>) -> (Result<bool, EvaluationError>, u64) {
        let mut evaluation = Evaluation::new(facts, self.slots);
        let answer = evaluation.evaluate(&self.plan).and_then(|value| truth(&value));
        (answer, evaluation.meter.cost())
    }

    /// Properties of a device that the answer can depend on.
    pub fn references(&self) -> References {
        References::of(&self.plan)
    }
}

fn truth(value: &Value<'_>) -> Result<bool, EvaluationError> {
    match value {
        Value::Bool(value) => Ok(*value),
        Value::Optional(Some(value)) => truth(value),
        other => Err(EvaluationError::NotBool(other.type_of().to_string())),
    }
}

#[cfg(test)]
mod tests;

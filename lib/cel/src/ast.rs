//! Syntax tree of an expression, macros already expanded.

use super::{CompileError, value::Value};

/// Deeper trees are refused: no selector needs them, and walking them shall not exhaust a thread's stack.
pub(super) const DEEPEST: u16 = 120;

/// Bigger trees are refused: ten thousand characters cannot write one, but macros that repeat their target can.
const MOST_PARTS: u32 = 50_000;

/// The name that results of macros are collected under; no expression can write it.
pub(super) const RESULT: &str = "@result";

/// A part of an expression.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) kind: Kind,
    /// Depth of the tree below, this part included.
    depth: u16,
    /// Number of parts, this one included.
    parts: u32,
}

/// Kind of a part.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Literal(Value<'static>),
    Name(Box<str>),
    /// `operand.field`, or `has(operand.field)`.
    Select {
        operand: Box<Expression>,
        field: Box<str>,
        is_test: bool,
    },
    Call {
        function: Box<str>,
        target: Option<Box<Expression>>,
        arguments: Vec<Expression>,
    },
    /// Elements, each with a flag for optional ones.
    List(Vec<(Expression, bool)>),
    /// Keys and values, each with a flag for optional ones.
    Map(Vec<(Expression, Expression, bool)>),
    Fold(Box<Fold>),
}

/// Expansion of most macros: a walk over a range that collects a result.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) range: Expression,
    pub(super) names: [Option<Box<str>>; 2],
    pub(super) accumulator: Box<str>,
    pub(super) initial: Expression,
    pub(super) condition: Expression,
    pub(super) step: Expression,
    pub(super) result: Expression,
}

impl Expression {
    /// Returns a part, one level above its own parts.
    pub(super) fn new(kind: Kind) -> Result<Self, CompileError> {
        let (mut below, mut parts) = (0, 1_u32);
        kind.parts(&mut |part| (below, parts) = (below.max(part.depth), parts.saturating_add(part.parts)));
        if below >= DEEPEST {
            return Err(CompileError::Unsupported(format!("an expression nested deeper than {DEEPEST}")));
        }
        if parts > MOST_PARTS {
            return Err(CompileError::Unsupported(format!("an expression of more than {MOST_PARTS} parts")));
        }
        Ok(Self { kind, depth: below + 1, parts })
    }

    pub(super) fn literal(value: Value<'static>) -> Self {
        Self { kind: Kind::Literal(value), depth: 1, parts: 1 }
    }

    pub(super) fn name(name: &str) -> Self {
        Self { kind: Kind::Name(name.into()), depth: 1, parts: 1 }
    }

    pub(super) fn call(function: &str, arguments: Vec<Self>) -> Result<Self, CompileError> {
        Self::new(Kind::Call { function: function.into(), target: None, arguments })
    }

    pub(super) fn member_call(target: Self, function: &str, arguments: Vec<Self>) -> Result<Self, CompileError> {
        Self::new(Kind::Call { function: function.into(), target: Some(Box::new(target)), arguments })
    }

    pub(super) fn list(elements: impl IntoIterator<Item = Self>) -> Result<Self, CompileError> {
        Self::new(Kind::List(elements.into_iter().map(|element| (element, false)).collect()))
    }
}

impl Expression {
    /// Names joined by points, if the part is nothing else.
    pub(super) fn dotted(&self) -> Option<String> {
        match &self.kind {
            Kind::Name(name) => Some(name.to_string()),
            Kind::Select { operand, field, is_test: false } => Some(format!("{}.{field}", operand.dotted()?)),
            _ => None,
        }
    }
}

impl Kind {
    fn parts(&self, visit: &mut impl FnMut(&Expression)) {
        match self {
            Self::Literal(_) | Self::Name(_) => {}
            Self::Select { operand, .. } => visit(operand),
            Self::Call { target, arguments, .. } => target.as_deref().into_iter().chain(arguments).for_each(visit),
            Self::List(elements) => elements.iter().for_each(|(element, _)| visit(element)),
            Self::Map(entries) => entries.iter().for_each(|(key, value, _)| {
                visit(key);
                visit(value);
            }),
            Self::Fold(fold) => fold.parts().into_iter().for_each(visit),
        }
    }
}

impl Fold {
    fn parts(&self) -> [&Expression; 5] {
        [&self.range, &self.initial, &self.condition, &self.step, &self.result]
    }
}

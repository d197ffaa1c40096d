//! Texts that `format` fills in, checked at compile time: the number of values that they take, and the types.

use std::collections::HashMap;

use super::super::{
    CompileError,
    ast::{Expression, Kind},
    clauses::{Piece, Verb, count, pieces},
    types::{DURATION, Inference, TIMESTAMP, Type},
    value::Value,
};

/// Calls of `format`, kept until all types are known.
#[derive(Default)]
pub(super) struct Formatting {
    /// Number of calls that enclose the current part.
    depth: usize,
    /// Types of all parts of calls, by the address of the part.
    types: HashMap<*const Expression, Type>,
    calls: Vec<FormatCall>,
}

/// A call whose text and list of values are written out.
struct FormatCall {
    text: Box<str>,
    values: Vec<FormattedValue>,
}

/// A value with its type, and the parts that it is written out of.
struct FormattedValue {
    ty: Type,
    parts: Vec<FormattedValue>,
}

impl Formatting {
    /// True inside such calls, where lists and maps may mix types.
    pub(super) fn is_inside(&self) -> bool {
        self.depth > 0
    }

    pub(super) fn enter(&mut self) {
        self.depth += 1;
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Keeps the type of a part.
    pub(super) fn note(&mut self, expression: &Expression, ty: &Type) {
        if self.is_inside() {
            self.types.insert(std::ptr::from_ref(expression), ty.clone());
        }
    }

    /// Keeps a call whose parts have all been noted.
    pub(super) fn call(&mut self, target: &Expression, arguments: &[Expression]) {
        let (Kind::Literal(Value::Text(text)), [Expression { kind: Kind::List(elements), .. }]) =
            (&target.kind, arguments)
        else {
            return;
        };
        let values = elements.iter().map(|(element, _)| self.part(element)).collect();
        self.calls.push(FormatCall { text: (**text).into(), values });
    }

    fn part(&self, expression: &Expression) -> FormattedValue {
        let ty = self.types.get(&std::ptr::from_ref(expression)).cloned().unwrap_or(Type::Dyn);
        let parts = match &expression.kind {
            Kind::List(elements) => elements.iter().map(|(element, _)| self.part(element)).collect(),
            Kind::Map(entries) => {
                entries.iter().flat_map(|(key, value, _)| [self.part(key), self.part(value)]).collect()
            }
            _ => Vec::new(),
        };
        FormattedValue { ty, parts }
    }

    /// Checks that every call has the values that its text takes.
    pub(super) fn check(&self, inference: &Inference) -> Result<(), CompileError> {
        self.calls.iter().try_for_each(|call| call.check(inference))
    }
}

impl FormatCall {
    fn check(&self, inference: &Inference) -> Result<(), CompileError> {
        let pieces = pieces(&self.text).map_err(CompileError::Constant)?;
        let wanted = count(&pieces);
        if wanted != self.values.len() {
            let given = self.values.len();
            return Err(CompileError::Constant(format!("a text with {wanted} clauses and {given} values")));
        }
        let clauses = pieces.iter().filter_map(|piece| match piece {
            Piece::Clause(clause) => Some(clause.verb),
            Piece::Text(_) => None,
        });
        clauses.zip(&self.values).try_for_each(|(verb, value)| match value.fits(verb, inference) {
            true => Ok(()),
            false => Err(CompileError::NoOverload {
                function: format!("the clause {verb:?} of format()"),
                given: inference.settled(&value.ty).to_string(),
            }),
        })
    }
}

impl FormattedValue {
    fn fits(&self, verb: Verb, inference: &Inference) -> bool {
        let ty = inference.settled(&self.ty);
        let is_number = matches!(ty, Type::Int | Type::Uint);
        ty == Type::Dyn
            || match verb {
                Verb::Text => is_written(&ty) && self.parts.iter().all(|part| part.fits(verb, inference)),
                Verb::Decimal | Verb::Octal => is_number,
                Verb::Fixed | Verb::Scientific => matches!(ty, Type::Double | Type::Text),
                Verb::Binary => is_number || ty == Type::Bool,
                Verb::Hexadecimal | Verb::UpperHexadecimal => is_number || matches!(ty, Type::Text | Type::Bytes),
            }
    }
}

/// True if values of the type have a text.
fn is_written(ty: &Type) -> bool {
    match ty {
        Type::Struct(_) => *ty == TIMESTAMP || *ty == DURATION,
        Type::Opaque(..) | Type::Any | Type::Variable(_) => false,
        _ => true,
    }
}

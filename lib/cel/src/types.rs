//! Types of expressions, and the rules by which a value of one type stands for another.

use std::{fmt, sync::Arc};

/// A type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Type {
    /// A type known only at run time.
    Dyn,
    /// The same for attributes, in versions without lists of values.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// Types of libraries, with parameters.
    Opaque(&'static str, Option<Arc<Type>>),
    /// Types of Kubernetes, and the device.
    Struct(&'static str),
    /// Result of `type()`, with the type that it names.
    Meta(Option<Arc<Type>>),
    /// A variable: not determined yet.
    Variable(usize),
}

/// Type of moments.
pub(super) const TIMESTAMP: Type = Type::Struct("google.protobuf.Timestamp");

/// Type of the time between two moments.
pub(super) const DURATION: Type = Type::Struct("google.protobuf.Duration");

const OPTIONAL: &str = "optional_type";

impl Type {
    pub(super) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(super) fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL, Some(Arc::new(value)))
    }

    pub(super) fn opaque(name: &'static str) -> Self {
        Self::Opaque(name, None)
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    /// The type inside an optional one.
    pub(super) fn as_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(OPTIONAL, Some(inside)) => Some(inside),
            _ => None,
        }
    }

    /// Name that `type()` gives.
    pub(super) fn runtime_name(&self) -> &'static str {
        match self {
            Self::Dyn | Self::Variable(_) => "dyn",
            Self::Any => "any",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Opaque(name, _) | Self::Struct(name) => name,
            Self::Meta(_) => "type",
        }
    }

    /// Types that this one is made of.
    fn parameters(&self) -> [Option<&Self>; 2] {
        match self {
            Self::List(inside) | Self::Opaque(_, Some(inside)) | Self::Meta(Some(inside)) => [Some(inside), None],
            Self::Map(inside) => [Some(&inside.0), Some(&inside.1)],
            _ => [None, None],
        }
    }

    /// Returns the same type with other parameters.
    fn map_parameters(&self, change: &mut impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(inside) => Self::list(change(inside)),
            Self::Map(inside) => Self::map(change(&inside.0), change(&inside.1)),
            Self::Opaque(name, Some(inside)) => Self::Opaque(name, Some(Arc::new(change(inside)))),
            Self::Meta(Some(inside)) => Self::Meta(Some(Arc::new(change(inside)))),
            other => other.clone(),
        }
    }

    /// Number of types that this one is made of, counted no further than a limit.
    pub(super) fn weight(&self, limit: usize) -> usize {
        self.parameters().into_iter().flatten().fold(
            1,
            |sum, part| {
                if sum > limit { sum } else { sum + part.weight(limit - sum) }
            },
        )
    }

    /// Replaces each variable of a declaration by one of its own.
    pub(super) fn instantiated(&self, first: usize) -> Self {
        match self {
            Self::Variable(number) => Self::Variable(first + number),
            other => other.map_parameters(&mut |part| part.instantiated(first)),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.parameters(), self) {
            ([Some(one), Some(two)], _) => write!(f, "{}({one}, {two})", self.runtime_name()),
            ([Some(one), _], _) => write!(f, "{}({one})", self.runtime_name()),
            _ => f.write_str(self.runtime_name()),
        }
    }
}

/// Knowledge about the variables so far.
#[derive(Default)]
pub(super) struct Inference {
    known: Vec<Option<Type>>,
    /// Knowledge before each change, to take changes back.
    trail: Vec<(usize, Option<Type>)>,
}

impl Inference {
    /// The first of `count` new variables.
    pub(super) fn variables(&mut self, count: usize) -> usize {
        self.known.resize(self.known.len() + count, None);
        self.known.len() - count
    }

    pub(super) fn variable(&mut self) -> Type {
        Type::Variable(self.variables(1))
    }

    /// Fills in everything that is known; the rest stays.
    pub(super) fn resolved(&self, ty: &Type) -> Type {
        match self.lookup(ty) {
            Some(known) => self.resolved(known),
            None => ty.map_parameters(&mut |part| self.resolved(part)),
        }
    }

    /// Fills in everything that is known; the rest can be anything.
    pub(super) fn settled(&self, ty: &Type) -> Type {
        match (self.lookup(ty), ty) {
            (Some(known), _) => self.settled(known),
            (None, Type::Variable(_)) => Type::Dyn,
            (None, ty) => ty.map_parameters(&mut |part| self.settled(part)),
        }
    }

    /// True if all of `given` can stand for all of `wanted`; if not, nothing was learnt.
    pub(super) fn assign_all(&mut self, wanted: &[Type], given: &[Type]) -> bool {
        let before = self.trail.len();
        let fits =
            wanted.len() == given.len() && wanted.iter().zip(given).all(|(wanted, given)| self.unify(given, wanted));
        if !fits {
            while self.trail.len() > before {
                if let Some((variable, known)) = self.trail.pop() {
                    self.known[variable] = known;
                }
            }
        }
        fits
    }

    /// True if the two types agree.
    pub(super) fn assign(&mut self, wanted: &Type, given: &Type) -> bool {
        self.assign_all(std::slice::from_ref(given), std::slice::from_ref(wanted))
    }

    fn lookup(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Variable(variable) => self.known.get(*variable)?.as_ref(),
            _ => None,
        }
    }

    fn unify(&mut self, one: &Type, two: &Type) -> bool {
        match (one, two) {
            (_, Type::Variable(_)) => {
                let had_value = self.lookup(two).is_some();
                self.substitute(one, two) || !had_value && matches!(one, Type::Variable(_)) && self.substitute(two, one)
            }
            (Type::Variable(_), _) => self.substitute(two, one),
            _ if one.is_dyn() || two.is_dyn() => true,
            (Type::Null, other) | (other, Type::Null) => {
                matches!(other, Type::Null | Type::Opaque(..) | Type::Struct(_))
            }
            (Type::Meta(_), Type::Meta(_)) => true,
            _ => self.unify_parts(one, two),
        }
    }

    fn unify_parts(&mut self, one: &Type, two: &Type) -> bool {
        let is_alike =
            std::mem::discriminant(one) == std::mem::discriminant(two) && one.runtime_name() == two.runtime_name();
        is_alike
            && one.parameters().into_iter().zip(two.parameters()).all(|parts| match parts {
                (Some(one), Some(two)) => self.unify(one, two),
                (one, two) => one.is_none() && two.is_none(),
            })
    }

    /// Learns that a variable is of a type, or checks that against what it is already.
    fn substitute(&mut self, ty: &Type, variable: &Type) -> bool {
        let Type::Variable(number) = variable else { return false };
        if ty == variable {
            return true;
        }
        if let Some(known) = self.lookup(variable).cloned() {
            if *ty == known {
                return true;
            }
            if !self.unify(ty, &known) {
                return false;
            }
            let general = if is_equal_or_less_specific(ty, &known) { ty.clone() } else { known };
            if !self.mentions(variable, &general) {
                self.learn(*number, general);
            }
            return true;
        }
        let is_free = !self.mentions(variable, ty);
        if is_free {
            self.learn(*number, ty.clone());
        }
        is_free
    }

    fn learn(&mut self, variable: usize, ty: Type) {
        let before = self.known[variable].replace(ty);
        self.trail.push((variable, before));
    }

    fn mentions(&self, variable: &Type, within: &Type) -> bool {
        if within == variable {
            return true;
        }
        match self.lookup(within) {
            Some(known) => self.mentions(variable, known),
            None => within.parameters().into_iter().flatten().any(|part| self.mentions(variable, part)),
        }
    }
}

/// The more general of two types that agree.
pub(super) fn most_general(one: &Type, two: &Type) -> Type {
    if is_equal_or_less_specific(one, two) { one.clone() } else { two.clone() }
}

fn is_equal_or_less_specific(one: &Type, two: &Type) -> bool {
    match (one, two) {
        (Type::Dyn | Type::Any | Type::Variable(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Variable(_)) => false,
        (Type::Meta(_), Type::Meta(_)) => true,
        _ => {
            std::mem::discriminant(one) == std::mem::discriminant(two)
                && one.runtime_name() == two.runtime_name()
                && one.parameters().into_iter().zip(two.parameters()).all(|parts| match parts {
                    (Some(one), Some(two)) => is_equal_or_less_specific(one, two),
                    (one, two) => one.is_none() && two.is_none(),
                })
        }
    }
}

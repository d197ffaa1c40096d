//! Plan of a selector: a compact tree in which everything is decided that can be decided beforehand.

use super::{cost::Cost, device::Property, functions::Function, regex::Regex, types::Type, value::Value};

/// A part of a selector.
#[derive(Debug)]
pub(super) enum Node {
    Constant(Value<'static>),
    /// A call whose value is known beforehand; its cost is charged all the same.
    Known(Value<'static>, u64),
    Path(Box<Path>),
    Call {
        function: Function,
        arguments: Box<[Node]>,
        cost: Cost,
        /// True if an argument is evaluated only after those before it gave no error.
        is_in_turn: bool,
    },
    /// A call whose second argument is a regular expression that is known.
    Pattern {
        function: Function,
        regex: Box<Regex>,
        arguments: Box<[Node]>,
        cost: Cost,
    },
    /// An argument whose type was found by the overload that takes it.
    Expected(Box<Node>, Type),
    /// Node by which macros go on in spite of errors.
    NotStrictlyFalse(Box<Node>),
    /// The result of a macro, taken out of its place and extended.
    Collect {
        slot: usize,
        insertion: Insertion,
        arguments: Box<[Node]>,
    },
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Equal {
        sides: Box<[Node; 2]>,
        is_negated: bool,
    },
    /// A value that is one of some constants.
    OneOf(Box<Node>, Box<[Value<'static>]>),
    /// Elements, each with a flag for optional ones.
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    /// The first optional value, or else the second.
    Otherwise {
        sides: Box<[Node; 2]>,
        is_value: bool,
    },
    Fold(Box<FoldNode>),
}

/// Extension of a macro's result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Insertion {
    Append,
    Entry,
    Entries,
}

/// Source of a value, and the steps into it.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) base: Base,
    pub(super) steps: Vec<Step>,
    /// True if the path only tests that the last step leads anywhere.
    pub(super) is_test: bool,
    /// The common case, found without walking.
    pub(super) property: Option<PropertyPath>,
}

/// The beginning of a path.
#[derive(Debug)]
pub(super) enum Base {
    Device,
    Slot(usize),
    Value(Node),
    /// Condition, then, else.
    Choice(Box<[Node; 3]>),
}

/// A field or an index.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) key: StepKey,
    pub(super) is_optional: bool,
}

/// Key of a lookup.
#[derive(Debug)]
pub(super) enum StepKey {
    Constant(Value<'static>),
    Computed(Node),
}

/// `device.attributes["domain"].id` or the same of `capacity`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PropertyPath {
    pub(super) property: Property,
    pub(super) domain: Box<str>,
    pub(super) id: Box<str>,
    pub(super) is_optional: bool,
}

/// A macro's walk; names have become places.
#[derive(Debug)]
pub(super) struct FoldNode {
    pub(super) range: Node,
    pub(super) variables: [Option<usize>; 2],
    pub(super) accumulator: usize,
    pub(super) initial: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

impl Node {
    /// A path of no steps yet.
    pub(super) fn path(base: Base) -> Self {
        Self::Path(Box::new(Path { base, steps: Vec::new(), is_test: false, property: None }))
    }

    /// Value of the node, if it is known beforehand and costs nothing.
    pub(super) fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Adds a step behind the node.
    pub(super) fn stepped(self, key: Node, is_optional: bool, is_test: bool) -> Self {
        let mut path = match self {
            Self::Path(path) if !path.is_test => path,
            other => Box::new(Path { base: Base::Value(other), steps: Vec::new(), is_test, property: None }),
        };
        let key = match key {
            Self::Constant(value) => StepKey::Constant(value),
            other => StepKey::Computed(other),
        };
        path.steps.push(Step { key, is_optional });
        path.is_test = is_test;
        path.property = path.find_property();
        Self::Path(path)
    }

    /// Every part directly below.
    pub(super) fn parts(&self) -> Vec<&Node> {
        match self {
            Self::Constant(_) | Self::Known(..) => Vec::new(),
            Self::Path(path) => path.parts(),
            Self::Call { arguments, .. } | Self::Pattern { arguments, .. } | Self::Collect { arguments, .. } => {
                arguments.iter().collect()
            }
            Self::And(terms) | Self::Or(terms) => terms.iter().collect(),
            Self::Equal { sides, .. } | Self::Otherwise { sides, .. } => sides.iter().collect(),
            Self::OneOf(value, _) | Self::NotStrictlyFalse(value) | Self::Expected(value, _) => vec![value],
            Self::List(elements) => elements.iter().map(|(element, _)| element).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(key, value, _)| [key, value]).collect(),
            Self::Fold(fold) => vec![&fold.range, &fold.initial, &fold.condition, &fold.step, &fold.result],
        }
    }
}

impl Path {
    fn find_property(&self) -> Option<PropertyPath> {
        let ([first, second, third], Base::Device) = (self.steps.as_slice(), &self.base) else { return None };
        let property = [Property::Attribute, Property::Capacity]
            .into_iter()
            .find(|property| first.text() == Some(property.field()))?;
        let is_plain = !first.is_optional && !second.is_optional;
        let [domain, id] = [second.text()?.into(), third.text()?.into()];
        is_plain.then_some(PropertyPath { property, domain, id, is_optional: third.is_optional })
    }

    fn parts(&self) -> Vec<&Node> {
        let base: &[Node] = match &self.base {
            Base::Device | Base::Slot(_) => &[],
            Base::Value(node) => std::slice::from_ref(node),
            Base::Choice(nodes) => nodes.as_slice(),
        };
        let keys = self.steps.iter().filter_map(|step| match &step.key {
            StepKey::Computed(node) => Some(node),
            StepKey::Constant(_) => None,
        });
        base.iter().chain(keys).collect()
    }
}

impl Step {
    /// The field, if it is a certain one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.key {
            StepKey::Constant(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
}

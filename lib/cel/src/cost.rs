//! Cost of an evaluation, in the units of Kubernetes' own limit.

use std::{collections::HashMap, sync::Arc};

use hostler_api::ExactQuantity;

use super::{
    EvaluationError,
    value::{Shared, Value, count},
    work::Work,
};

/// Most that a selector may cost for one device.
pub(super) const LIMIT: u64 = 1_000_000;

/// All texts and lists that one evaluation makes, in bytes and elements. Costs alone do not bound memory: some
/// functions are cheaper than their results are big.
const MOST_MADE: u64 = 16 << 20;

pub(super) const NEW_LIST: u64 = 10;
pub(super) const NEW_MAP: u64 = 30;
const NEW_STRUCTURE: u64 = 40;

/// Dependence of a call's cost on its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cost {
    Nothing,
    One,
    /// A walk over the first argument.
    First,
    TwiceFirst,
    TwiceResult,
    /// A walk over the first two.
    Both,
    /// A walk over the smaller of the first two.
    Smaller,
    SizeOfSecond,
    /// Each part of the first with each of the second.
    Product,
    Regex,
    /// The same for the pattern that a named format would have.
    Validation,
    /// A question to the authorizer.
    Authorization,
    /// Reading a selector of labels or fields.
    Requirements,
    /// A walk over everything in the first.
    Traversal,
    NewList,
    Flatten,
    /// Every element with every other.
    SelfCompare,
    KeysCompare,
    Sets(u8),
    /// A check whether a network contains an address or a network; the latter may have to be read first.
    Within {
        is_network: bool,
        is_read: bool,
    },
}

impl Cost {
    /// Cost that Kubernetes counts by name, whichever overload it is.
    pub(super) fn by_function(name: &str) -> Option<Self> {
        Some(match name {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Traversal,
            "lowerAscii" | "upperAscii" | "substring" | "trim" => Self::First,
            "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => Self::First,
            "replace" | "split" | "ip.isCanonical" => Self::TwiceFirst,
            "join" => Self::TwiceResult,
            "find" | "findAll" => Self::Regex,
            "url" => Self::First,
            "check" => Self::Authorization,
            "fieldSelector" | "labelSelector" => Self::Requirements,
            _ => return None,
        })
    }

    /// Cost of a call whose overload only the arguments tell.
    pub(super) fn of_any_overload(name: &str) -> Self {
        match name {
            "containsIP" | "containsCIDR" => Self::Within { is_network: name == "containsCIDR", is_read: false },
            _ => Self::One,
        }
    }

    /// Argument that has to be a list: without it Go cannot tell the cost, and gives up.
    pub(super) fn compared_list(self) -> Option<usize> {
        match self {
            Self::SelfCompare => Some(0),
            Self::KeysCompare => Some(1),
            _ => None,
        }
    }

    /// Cost of one call.
    pub(super) fn of(self, arguments: &[Value<'_>], result: Option<&Value<'_>>, work: &mut Work) -> u64 {
        let size = |at: usize| arguments.get(at).map_or(1, Value::size);
        let result = || result.map_or(1, Value::size);
        match self {
            Self::Nothing => 0,
            Self::One => 1,
            Self::First => walk(size(0)),
            Self::TwiceFirst => walk(size(0) * 2),
            Self::TwiceResult => walk(result() * 2),
            Self::Both => walk(size(0).saturating_add(size(1))),
            Self::Smaller => walk(size(0).min(size(1))),
            Self::SizeOfSecond => size(1),
            Self::Product => walk(size(0)).saturating_mul(walk(size(1))),
            Self::Regex => walk(size(0) + 1).saturating_mul(scaled(size(1), 0.25)),
            Self::Validation => match arguments.first() {
                Some(Value::Format(format)) => walk(size(1) + 1).saturating_mul(scaled(format.pattern_size, 0.25)),
                _ => 1,
            },
            Self::Authorization => 350_000,
            // A list of requirements, each of a list and a structure, and two characters make one.
            Self::Requirements => NEW_LIST + walk(size(1)) + scaled(size(1), 0.5) * (NEW_LIST + NEW_STRUCTURE),
            Self::Traversal => arguments.first().map_or(0, |value| traversal(value, work)),
            Self::NewList => result() + 1 + NEW_LIST,
            Self::Flatten => flattening(size(0), arguments.get(1)),
            Self::SelfCompare => comparing(&arguments[0]),
            Self::KeysCompare => comparing(&arguments[1]),
            Self::Sets(factor) => 1 + size(0).saturating_mul(size(1)).saturating_mul(factor.into()),
            Self::Within { is_network, is_read } => {
                let parts = [walk(size(0) * 2), if is_network { walk(size(0)) + 1 } else { 0 }];
                parts.into_iter().sum::<u64>() + if is_read { walk(size(1)) } else { 0 }
            }
        }
    }

    /// True if the cost is known only after the call, from its result.
    pub(super) fn needs_result(self) -> bool {
        matches!(self, Self::TwiceResult | Self::NewList)
    }
}

/// A tenth for each character, rounded up.
fn walk(size: u64) -> u64 {
    scaled(size, 0.1)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Kubernetes counts in floating point, and so its roundings are those"
)]
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn traversal(value: &Value<'_>, work: &mut Work) -> u64 {
    if !work.step() {
        return LIMIT;
    }
    match value {
        Value::Text(text) => count(text.len()) / 10,
        Value::Bytes(bytes) => count(bytes.len()) / 10,
        Value::List(list) => list.iter().fold(0, |sum, element| sum.saturating_add(traversal(&element, work))),
        Value::Map(map) => map.entries().iter().fold(0, |sum, (key, value)| {
            sum.saturating_add(traversal(key, work)).saturating_add(traversal(value, work))
        }),
        _ => 1,
    }
}

fn flattening(size: u64, depth: Option<&Value<'_>>) -> u64 {
    let depth = depth.and_then(Value::as_index).map_or(1, |depth| u64::try_from(depth).unwrap_or_default());
    size.saturating_mul(depth) + 1 + NEW_LIST
}

fn comparing(value: &Value<'_>) -> u64 {
    let Value::List(list) = value else { return 1 };
    let pairs = list.len().saturating_mul(list.len());
    let has_texts = matches!(list.get(0), Some(Value::Text(_) | Value::Bytes(_)));
    // Twice for each pair, and a tenth more for texts.
    let compared = if has_texts { pairs.saturating_mul(21) / 10 } else { pairs.saturating_mul(2) };
    compared.saturating_add(1 + NEW_LIST)
}

/// Counters of an evaluation: its cost, and the size of everything that it makes.
#[derive(Debug, Default)]
pub(super) struct Meter {
    cost: u64,
    made: u64,
    work: Work,
    decimals: Decimals,
}

/// Quantities that were compared with one that Kubernetes holds in decimal: from then on, they are held so
/// themselves. Keyed by address; values whose address could be reused are kept.
type Decimals = HashMap<usize, Option<Arc<ExactQuantity>>>;

impl Meter {
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// Takes back the cost that was counted since.
    pub(super) fn return_to(&mut self, cost: u64) {
        self.cost = cost;
    }

    /// Adds to the cost.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > LIMIT { Err(EvaluationError::CostLimit) } else { Ok(()) }
    }

    /// Returns a quantity as it is held by now.
    pub(super) fn held(&self, quantity: &Shared<'_, ExactQuantity>) -> ExactQuantity {
        match self.decimals.contains_key(&quantity.address()) {
            true => quantity.in_decimal(),
            false => **quantity,
        }
    }

    /// Holds the quantity in decimal from now on.
    pub(super) fn hold_in_decimal(&mut self, quantity: &Shared<'_, ExactQuantity>) {
        let kept = match quantity {
            Shared::Owned(owned) => Some(Arc::clone(owned)),
            Shared::Borrowed(_) => None,
        };
        self.decimals.insert(quantity.address(), kept);
    }

    /// Forgets how a constant was held, since it is read once more.
    pub(super) fn renew(&mut self, value: &Value<'_>) {
        if let Value::Quantity(quantity) = value
            && !self.decimals.is_empty()
        {
            self.decimals.remove(&quantity.address());
        }
    }

    pub(super) fn work(&mut self) -> &mut Work {
        &mut self.work
    }

    /// Checks that comparisons did not have to give up.
    pub(super) fn check_work(&self) -> Result<(), EvaluationError> {
        match self.work.is_over() {
            true => Err(EvaluationError::Unsupported("comparing more than 20 million elements".to_owned())),
            false => Ok(()),
        }
    }

    /// Counts text or elements that are about to be made.
    pub(super) fn make(&mut self, size: u64) -> Result<(), EvaluationError> {
        self.made = self.made.saturating_add(size);
        match self.made > MOST_MADE {
            true => Err(EvaluationError::Unsupported("making more than 16 million characters or elements".to_owned())),
            false => Ok(()),
        }
    }
}

//! Paths into documents, as kubectl writes them: `.items[*].name`, `.items[?(@.state=="prepared")].uid`.
//!
//! Crates for JSON paths follow RFC 9535, where a name has no hyphen, no slash and no `\.` in it: `.hugepages-2Mi` and
//! `.attributes.hostler\.dev/model` would need a translation with places of mistakes of its own, which is as long as this.

use serde_json::Value;

use super::scanner::{ExpressionError, ExpressionScanner};

/// Characters that end a name.
const ENDS: &str = ".[](){}=!<>?,'\"@$*";

/// The forms of what stands in brackets, for messages.
const BRACKETS: &str = "*, a number, a range, a quoted name or ?(…)";

/// A path into a document.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DocumentPath {
    /// True if it begins at the whole document, also inside a range or a filter.
    is_absolute: bool,
    steps: Vec<PathStep>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum PathStep {
    /// The field of this name.
    Field(String),
    /// Every field or item.
    Every,
    /// The value itself, and all within it.
    Within,
    /// The item at a place; from the end where it is negative.
    Item(i64),
    /// Items from a place to one before another, every so many.
    Slice { from: Option<i64>, to: Option<i64>, step: usize },
    /// Values that each of these finds.
    Several(Vec<PathStep>),
    /// The items of which something is true.
    Filter(PathFilter),
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct PathFilter {
    left: FilterOperand,
    /// Without it: there is such a thing.
    comparison: Option<(FilterOperator, FilterOperand)>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum FilterOperand {
    Path(DocumentPath),
    Value(Value),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FilterOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer signs come first.
const OPERATORS: [(&str, FilterOperator); 6] = [
    ("==", FilterOperator::Equal),
    ("!=", FilterOperator::NotEqual),
    ("<=", FilterOperator::LessOrEqual),
    (">=", FilterOperator::GreaterOrEqual),
    ("<", FilterOperator::Less),
    (">", FilterOperator::Greater),
];

impl DocumentPath {
    /// Reads a path, up to the first character that is no part of one. The dot in front of the first name may be missing.
    pub(super) fn read(scanner: &mut ExpressionScanner) -> Result<Self, ExpressionError> {
        let begin = scanner.place();
        let is_absolute = scanner.eats("$");
        if !is_absolute {
            scanner.eats("@");
        }
        let mut steps = Vec::new();
        if scanner.place() == begin && scanner.peek().is_some_and(is_of_name) {
            steps.push(name(scanner)?);
        }
        loop {
            if scanner.eats("..") {
                steps.push(PathStep::Within);
                if scanner.peek() != Some('[') {
                    steps.push(name(scanner)?);
                }
            } else if scanner.eats(".") {
                // A dot alone is the whole, and one before a bracket says nothing.
                if scanner.peek().is_some_and(|next| is_of_name(next) || next == '*') {
                    steps.push(name(scanner)?);
                } else if scanner.peek() != Some('[') && (!steps.is_empty() || scanner.peek() == Some('.')) {
                    return Err(scanner.unexpected("a name"));
                }
            } else if scanner.eats("[") {
                steps.push(bracket(scanner)?);
            } else if scanner.place() == begin {
                return Err(scanner.unexpected("a path, such as .items[*].name"));
            } else {
                return Ok(Self { is_absolute, steps });
            }
        }
    }

    /// Everything that the path leads to from `current`, in the document `root`.
    pub(super) fn select<'v>(&self, root: &'v Value, current: &'v Value) -> Vec<&'v Value> {
        let mut values = vec![if self.is_absolute { root } else { current }];
        for step in &self.steps {
            let mut found = Vec::new();
            values.into_iter().for_each(|value| step.take(value, root, &mut found));
            values = found;
        }
        values
    }
}

impl PathStep {
    fn take<'v>(&self, value: &'v Value, root: &'v Value, found: &mut Vec<&'v Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
            (Self::Every, _) => found.extend(children(value)),
            (Self::Within, _) => within(value, found),
            (Self::Item(place), Value::Array(items)) => {
                let place = usize::try_from(from_start(*place, items.len())).ok();
                found.extend(place.and_then(|place| items.get(place)));
            }
            (Self::Slice { from, to, step }, Value::Array(items)) => {
                let bound = |place: i64| usize::try_from(from_start(place, items.len())).unwrap_or(0).min(items.len());
                let (from, to) = (from.map_or(0, bound), to.map_or(items.len(), bound));
                found.extend(items.get(from..to).into_iter().flatten().step_by(*step));
            }
            (Self::Several(steps), _) => steps.iter().for_each(|step| step.take(value, root, found)),
            (Self::Filter(filter), _) => found.extend(children(value).filter(|child| filter.is_true(root, child))),
            (Self::Field(_) | Self::Item(_) | Self::Slice { .. }, _) => {}
        }
    }
}

impl PathFilter {
    fn is_true(&self, root: &Value, item: &Value) -> bool {
        let left = self.left.value(root, item);
        match &self.comparison {
            None => left.is_some(),
            Some((operator, right)) => match (left, right.value(root, item)) {
                (Some(left), Some(right)) => operator.holds(left, right),
                _ => false,
            },
        }
    }
}

impl FilterOperand {
    fn value<'v>(&'v self, root: &'v Value, item: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Path(path) => path.select(root, item).first().copied(),
            Self::Value(value) => Some(value),
        }
    }
}

impl FilterOperator {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => {
                left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
            }
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => (left == right).then_some(std::cmp::Ordering::Equal),
        };
        match self {
            Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => order.is_none_or(std::cmp::Ordering::is_ne),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn within<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    found.push(value);
    children(value).for_each(|child| within(child, found));
}

/// A place, counted from the start; negative where the list is too short.
fn from_start(place: i64, length: usize) -> i64 {
    if place < 0 { place.saturating_add(i64::try_from(length).unwrap_or(i64::MAX)) } else { place }
}

fn is_of_name(next: char) -> bool {
    !next.is_whitespace() && !ENDS.contains(next)
}

/// Reads a name, in which a backslash takes the next character as it is, or `*`.
fn name(scanner: &mut ExpressionScanner) -> Result<PathStep, ExpressionError> {
    if scanner.eats("*") {
        return Ok(PathStep::Every);
    }
    let mut name = String::new();
    loop {
        name.push_str(&scanner.until(|next| next == '\\' || !is_of_name(next)));
        if !scanner.eats("\\") {
            break;
        }
        name.push(scanner.next().ok_or_else(|| scanner.unexpected("a character behind \\"))?);
    }
    if name.is_empty() { Err(scanner.unexpected("a name")) } else { Ok(PathStep::Field(name)) }
}

/// Reads what stands in brackets, and the bracket that closes them.
fn bracket(scanner: &mut ExpressionScanner) -> Result<PathStep, ExpressionError> {
    scanner.skip_blanks();
    let step = if scanner.eats("*") {
        PathStep::Every
    } else if scanner.eats("?") {
        PathStep::Filter(filter(scanner)?)
    } else {
        let mut several = vec![element(scanner)?];
        scanner.skip_blanks();
        while scanner.eats(",") {
            several.push(element(scanner)?);
            scanner.skip_blanks();
        }
        if several.len() == 1 { several.remove(0) } else { PathStep::Several(several) }
    };
    scanner.expect("]")?;
    Ok(step)
}

/// Reads a quoted name, a place or a range of places.
fn element(scanner: &mut ExpressionScanner) -> Result<PathStep, ExpressionError> {
    scanner.skip_blanks();
    if let Some(name) = scanner.quoted()? {
        return Ok(PathStep::Field(name));
    }
    let from = place(scanner)?;
    if !scanner.eats(":") {
        return from.map(PathStep::Item).ok_or_else(|| scanner.unexpected(BRACKETS));
    }
    let to = place(scanner)?;
    let at = scanner.place() + 1;
    let step = if scanner.eats(":") { place(scanner)?.unwrap_or(1) } else { 1 };
    let step = usize::try_from(step).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| ExpressionScanner::mistake(at, "the step of a range is 1 or more"))?;
    Ok(PathStep::Slice { from, to, step })
}

/// Reads a place, if one is there.
fn place(scanner: &mut ExpressionScanner) -> Result<Option<i64>, ExpressionError> {
    let at = scanner.place();
    let sign = if scanner.eats("-") { "-" } else { "" };
    let digits = scanner.until(|next| !next.is_ascii_digit());
    if digits.is_empty() && sign.is_empty() {
        return Ok(None);
    }
    let place = format!("{sign}{digits}").parse();
    place.map(Some).map_err(|_| ExpressionScanner::mistake(at, format!("{sign}{digits} is no place in a list")))
}

/// Reads `(LEFT)` or `(LEFT OPERATOR RIGHT)`.
fn filter(scanner: &mut ExpressionScanner) -> Result<PathFilter, ExpressionError> {
    scanner.expect("(")?;
    let left = operand(scanner)?;
    scanner.skip_blanks();
    let operator = OPERATORS.into_iter().find(|(sign, _)| scanner.eats(sign));
    let comparison = match operator {
        Some((_, operator)) => Some((operator, operand(scanner)?)),
        None if scanner.peek() == Some(')') => None,
        None => return Err(scanner.unexpected("one of == != < <= > >= )")),
    };
    scanner.expect(")")?;
    Ok(PathFilter { left, comparison })
}

fn operand(scanner: &mut ExpressionScanner) -> Result<FilterOperand, ExpressionError> {
    scanner.skip_blanks();
    if scanner.peek().is_some_and(|next| matches!(next, '@' | '$' | '.')) {
        return Ok(FilterOperand::Path(DocumentPath::read(scanner)?));
    }
    if let Some(text) = scanner.quoted()? {
        return Ok(FilterOperand::Value(Value::String(text)));
    }
    let at = scanner.place();
    let word = scanner.until(|next| next.is_whitespace() || "()=!<>&|]}".contains(next));
    let expected = "expected a path (@.name), a quoted text, a number, true, false or null";
    serde_json::from_str(&word).map(FilterOperand::Value).map_err(|_| ExpressionScanner::mistake(at, expected))
}

//! Evaluation of a selector for a device, with its cost.

mod fold;

use std::collections::BTreeMap;

use super::{
    EvaluationError,
    cost::{Cost, Meter, NEW_LIST, NEW_MAP},
    device::DeviceFacts,
    functions::Function,
    plan::{Base, Node, Path, PropertyPath, Step, StepKey},
    regex::Regex,
    value::{DeviceMap, Key, List, Map, Value},
};

type Evaluated<'a> = Result<Value<'a>, EvaluationError>;

/// One evaluation.
pub(super) struct Evaluation<'a> {
    facts: &'a DeviceFacts<'a>,
    slots: Vec<Slot<'a>>,
    pub(super) meter: Meter,
}

/// The value of a variable.
enum Slot<'a> {
    /// Evaluated when it is used for the first time.
    Later(&'a Node),
    Known(Evaluated<'a>),
}

/// Function of a call, and its cost.
#[derive(Clone, Copy)]
struct Call<'a> {
    function: Function,
    regex: Option<&'a Regex>,
    cost: Cost,
    is_in_turn: bool,
}

/// Value at the end of a path, with a flag for an optional one.
struct Reached<'a> {
    value: Value<'a>,
    is_optional: bool,
}

/// Outcome of a path.
enum End<'a> {
    Reached(Reached<'a>),
    /// The value of the path: nothing is there, or the test is answered.
    Known(Value<'a>),
}

/// Begins a path; steps go into optional values.
fn begin(value: Value<'_>) -> Result<End<'_>, EvaluationError> {
    Ok(match value.unless_lost()? {
        Value::Optional(None) => End::Known(Value::Optional(None)),
        Value::Optional(Some(value)) => End::Reached(Reached { value: value.reread(), is_optional: true }),
        value => End::Reached(Reached { value, is_optional: false }),
    })
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(facts: &'a DeviceFacts<'a>, slots: usize) -> Self {
        let slots = (0..slots).map(|_| Slot::Known(Ok(Value::Null))).collect();
        Self { facts, slots, meter: Meter::default() }
    }

    pub(super) fn evaluate(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Constant(value) => Ok(value.borrowed()),
            Node::Known(value, cost) => {
                self.meter.renew(value);
                self.meter.charge(*cost).map(|()| value.borrowed())
            }
            Node::Path(path) => self.whole_path(path),
            Node::Call { function, arguments, cost, is_in_turn } => {
                let call = Call { function: *function, regex: None, cost: *cost, is_in_turn: *is_in_turn };
                self.call(call, arguments)
            }
            Node::Pattern { function, regex, arguments, cost } => {
                let call = Call { function: *function, regex: Some(regex), cost: *cost, is_in_turn: true };
                self.call(call, arguments)
            }
            Node::Expected(node, ty) => match self.evaluate(node)? {
                value if value.type_of().runtime_name() == ty.runtime_name() => Ok(value),
                other => Err(no_overload("call", &other)),
            },
            Node::NotStrictlyFalse(node) => self.not_strictly_false(node),
            Node::Collect { slot, insertion, arguments } => self.collect(*slot, *insertion, arguments),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Equal { sides, is_negated } => self.equal(sides, *is_negated),
            Node::OneOf(value, constants) => {
                let value = self.evaluate(value)?;
                // Constants are looked up by their hash.
                check_hash(&value)?;
                let is_one = constants.iter().any(|constant| constant.equals(&value, self.meter.work()));
                Ok(Value::Bool(is_one))
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Otherwise { sides, is_value } => self.otherwise(sides, *is_value),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    /// Evaluates a path, and charges for the step of reading its beginning.
    fn whole_path(&mut self, path: &'a Path) -> Evaluated<'a> {
        let reached = unless_final(self.path(path))?;
        let is_free = path.is_test || matches!(path.base, Base::Choice(_));
        self.meter.charge(u64::from(!is_free))?;
        reached
    }

    /// Evaluates a node for which only the steps cost: a branch of a choice, or an index.
    fn bare(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Path(path) if !path.is_test => self.path(path),
            other => self.evaluate(other),
        }
    }

    fn path(&mut self, path: &'a Path) -> Evaluated<'a> {
        match self.reach(path)? {
            End::Reached(Reached { value, is_optional: true }) => Ok(Value::optional(value)),
            End::Reached(Reached { value, is_optional: false }) => value.unless_lost(),
            End::Known(value) => Ok(value),
        }
    }

    fn reach(&mut self, path: &'a Path) -> Result<End<'a>, EvaluationError> {
        if let Some(property) = &path.property {
            return self.property(property, path.is_test);
        }
        let base = match &path.base {
            Base::Device => begin(Value::device_map(DeviceMap::Device(self.facts)))?,
            Base::Slot(slot) => begin(self.variable(*slot)?)?,
            Base::Value(node) => begin(self.evaluate(node)?)?,
            // The steps of a branch and those behind the choice are one path.
            Base::Choice(nodes) => match self.chosen(nodes)? {
                Node::Path(branch) if !branch.is_test => self.reach(branch)?,
                other => begin(self.evaluate(other)?)?,
            },
        };
        match base {
            End::Reached(reached) => self.walk(reached, &path.steps, path.is_test),
            End::Known(_) if path.is_test => Ok(End::Known(Value::Bool(false))),
            nothing @ End::Known(_) => Ok(nothing),
        }
    }

    /// The common case: one look into the device.
    fn property(&mut self, path: &'a PropertyPath, is_test: bool) -> Result<End<'a>, EvaluationError> {
        let found = self.facts.property(path.property, &path.domain, &path.id);
        let is_free = path.is_optional && !is_test && found.is_none();
        self.meter.charge(if is_free { 2 } else { 3 })?;
        match found {
            found if is_test => Ok(End::Known(Value::Bool(found.is_some()))),
            Some(value) => Ok(End::Reached(Reached { value, is_optional: path.is_optional })),
            None if path.is_optional => Ok(End::Known(Value::Optional(None))),
            None => Err(EvaluationError::NoSuchKey(path.id.to_string())),
        }
    }

    fn variable(&mut self, slot: usize) -> Evaluated<'a> {
        if let Slot::Later(node) = self.slots[slot] {
            let value = self.evaluate(node);
            self.slots[slot] = Slot::Known(value);
        }
        match &self.slots[slot] {
            Slot::Known(value) => value.clone(),
            Slot::Later(_) => Err(EvaluationError::Failed("a variable has no value".to_owned())),
        }
    }

    fn chosen(&mut self, [condition, yes, no]: &'a [Node; 3]) -> Result<&'a Node, EvaluationError> {
        match self.evaluate(condition)? {
            Value::Bool(true) => Ok(yes),
            Value::Bool(false) => Ok(no),
            other => Err(no_overload("_?_:_", &other)),
        }
    }

    fn walk(&mut self, mut reached: Reached<'a>, steps: &'a [Step], is_test: bool) -> Result<End<'a>, EvaluationError> {
        for (at, step) in steps.iter().enumerate() {
            let is_asked = is_test && at + 1 == steps.len();
            reached.is_optional |= step.is_optional;
            match self.step(&reached, step, is_asked)? {
                Some(_) if is_asked => return Ok(End::Known(Value::Bool(true))),
                Some(value) => reached.value = value,
                None if is_test => return Ok(End::Known(Value::Bool(false))),
                None => return Ok(End::Known(Value::Optional(None))),
            }
        }
        Ok(End::Reached(reached))
    }

    /// Takes one step; `None` where nothing is there and that is no error. A step to nothing is free unless it is
    /// tested.
    fn step(
        &mut self,
        from: &Reached<'a>,
        step: &'a Step,
        is_asked: bool,
    ) -> Result<Option<Value<'a>>, EvaluationError> {
        let key = match &step.key {
            StepKey::Constant(key) => key.borrowed(),
            StepKey::Computed(node) => match self.bare(node) {
                // Looking something up costs even if it is not known what, unless it may be absent.
                Err(error) if !error.is_final() && !from.is_optional => {
                    self.meter.charge(1)?;
                    return Err(error);
                }
                key => key?,
            },
        };
        let may_be_absent = from.is_optional || is_asked;
        let found = look_up(&from.value, &key, may_be_absent);
        let is_free = !is_asked && matches!(found, Ok(None));
        self.meter.charge(u64::from(!is_free))?;
        found
    }

    fn call(&mut self, call: Call<'a>, nodes: &'a [Node]) -> Evaluated<'a> {
        match nodes {
            [one] => {
                let values = [self.argument(one)?];
                self.called(call, values)
            }
            [one, two] if !call.is_in_turn => {
                let values = [self.argument(one)?, self.argument(two)?];
                self.called(call, values)
            }
            nodes => self.call_in_turn(call, nodes),
        }
    }

    /// Evaluates arguments up to the first error. The call costs nothing then, unless it was the last argument that
    /// failed.
    fn call_in_turn(&mut self, call: Call<'a>, nodes: &'a [Node]) -> Evaluated<'a> {
        let Some((last, first)) = nodes.split_last() else { return self.apply(call, &[]) };
        let mut values = Vec::with_capacity(nodes.len());
        for node in first {
            values.push(self.evaluate(node)?);
        }
        let last = self.argument(last)?;
        match last {
            Ok(value) => values.push(value),
            Err(error) => {
                values.push(Value::Null);
                return self.failed_call(call, &values, error);
            }
        }
        self.apply(call, &values)
    }

    /// A value, or an error that may not matter.
    fn argument(&mut self, node: &'a Node) -> Result<Evaluated<'a>, EvaluationError> {
        unless_final(self.evaluate(node))
    }

    /// Calls a function, which sees no errors; a call with an error as argument still costs.
    fn called<const N: usize>(&mut self, call: Call<'a>, values: [Evaluated<'a>; N]) -> Evaluated<'a> {
        let mut first_error = None;
        let values = values.map(|value| {
            value.unwrap_or_else(|error| {
                first_error.get_or_insert(error);
                Value::Null
            })
        });
        match first_error {
            None => self.apply(call, &values),
            Some(error) => self.failed_call(call, &values, error),
        }
    }

    /// Charges for a call that cannot be made since an argument failed.
    fn failed_call(&mut self, call: Call<'a>, values: &[Value<'a>], error: EvaluationError) -> Evaluated<'a> {
        let compared = call.cost.compared_list().and_then(|at| values.get(at));
        if compared.is_some_and(|value| !matches!(value, Value::List(_))) {
            return Err(EvaluationError::NoList(error.to_string()));
        }
        let cost = call.cost.of(values, None, self.meter.work());
        self.meter.charge(cost)?;
        Err(error)
    }

    fn apply(&mut self, call: Call<'a>, values: &[Value<'a>]) -> Evaluated<'a> {
        let before = self.meter.cost();
        if !call.cost.needs_result() {
            let cost = call.cost.of(values, None, self.meter.work());
            self.meter.charge(cost)?;
        }
        let result = match call.regex {
            Some(regex) => call.function.call_with(regex, values, &mut self.meter),
            None => call.function.call(values, &mut self.meter),
        };
        if let Err(EvaluationError::NoHash(_)) = result {
            // Go gives up before it counts.
            self.meter.return_to(before);
        }
        let is_over = result.as_ref().is_err_and(EvaluationError::is_final);
        if call.cost.needs_result() && !is_over {
            let cost = call.cost.of(values, result.as_ref().ok(), self.meter.work());
            self.meter.charge(cost)?;
        }
        result
    }

    /// Returns false only for a value that is false; errors can still turn out not to matter.
    fn not_strictly_false(&mut self, node: &'a Node) -> Evaluated<'a> {
        let value = self.evaluate(node);
        self.meter.charge(1)?;
        match value {
            Err(error) if error.is_final() => Err(error),
            value => Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false))))),
        }
    }

    /// Evaluates up to the first term that decides; errors only count where no term does.
    fn logical(&mut self, terms: &'a [Node], deciding: bool) -> Evaluated<'a> {
        let mut first_error = None;
        for term in terms {
            let error = match self.evaluate(term) {
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => continue,
                Ok(other) => no_overload(if deciding { "_||_" } else { "_&&_" }, &other),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            first_error.get_or_insert(error);
        }
        first_error.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn equal(&mut self, [one, two]: &'a [Node; 2], is_negated: bool) -> Evaluated<'a> {
        let [one, two] = [self.argument(one)?, self.argument(two)?];
        let is_cheap = !is_negated && one.as_ref().is_ok_and(Value::is_of_kubernetes);
        let cost = if is_cheap { Cost::One } else { Cost::Smaller };
        let sides = match (one, two) {
            (Ok(one), Ok(two)) => [one, two],
            (Err(error), other) | (other, Err(error)) => {
                let other = other.unwrap_or(Value::Null);
                let cost = cost.of(&[Value::Null, other], None, self.meter.work());
                self.meter.charge(cost)?;
                return Err(error);
            }
        };
        let cost = cost.of(&sides, None, self.meter.work());
        self.meter.charge(cost)?;
        let is_equal = sides[0].equality(&sides[1], self.meter.work());
        self.meter.check_work()?;
        match is_equal {
            None if !is_negated => Err(no_overload("_==_", &sides[1])),
            is_equal => Ok(Value::Bool((is_equal == Some(true)) != is_negated)),
        }
    }

    /// Evaluates a list, which costs the same even if one of its elements is an error.
    fn list(&mut self, elements: &'a [(Node, bool)]) -> Evaluated<'a> {
        let values = unless_final(self.elements(elements))?;
        self.meter.charge(NEW_LIST)?;
        values.map(Value::list)
    }

    fn elements(&mut self, elements: &'a [(Node, bool)]) -> Result<Vec<Value<'a>>, EvaluationError> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, is_optional) in elements {
            match (self.evaluate(element)?, is_optional) {
                (Value::Optional(value), true) => values.extend(value.map(|value| (*value).clone())),
                (_, true) => return Err(EvaluationError::Failed("an optional element is not optional".to_owned())),
                (value, false) => values.push(value),
            }
        }
        Ok(values)
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Evaluated<'a> {
        let values = unless_final(self.entries(entries))?;
        self.meter.charge(NEW_MAP)?;
        values.map(|values| Value::Map(Map::new(values)))
    }

    fn entries(&mut self, entries: &'a [(Node, Node, bool)]) -> Result<BTreeMap<Key<'a>, Value<'a>>, EvaluationError> {
        let mut values = BTreeMap::new();
        for (key, value, is_optional) in entries {
            let (key, value) = (self.evaluate(key)?, self.evaluate(value)?);
            check_hash(&key)?;
            let unknown = || EvaluationError::Unsupported(format!("keys of type {}", key.type_of()));
            let key = Key::of(&key).ok_or_else(unknown)?;
            match (value, is_optional) {
                (Value::Optional(Some(value)), true) => drop(values.insert(key, (*value).clone())),
                (Value::Optional(None), true) => drop(values.remove(&key)),
                (_, true) => return Err(EvaluationError::Failed("an optional entry is not optional".to_owned())),
                (value, false) => drop(values.insert(key, value)),
            }
        }
        Ok(values)
    }

    fn otherwise(&mut self, [one, two]: &'a [Node; 2], is_value: bool) -> Evaluated<'a> {
        match self.evaluate(one)? {
            Value::Optional(None) => self.evaluate(two),
            Value::Optional(Some(value)) if is_value => (*value).clone().unless_lost(),
            other => Ok(other),
        }
    }
}

/// Splits off errors that end everything; others may not matter.
pub(super) fn unless_final<T>(
    result: Result<T, EvaluationError>,
) -> Result<Result<T, EvaluationError>, EvaluationError> {
    match result {
        Err(error) if error.is_final() => Err(error),
        result => Ok(result),
    }
}

/// Refuses values that cannot be looked up, nor be keys.
fn check_hash(value: &Value<'_>) -> Result<(), EvaluationError> {
    if value.has_hash() { Ok(()) } else { Err(EvaluationError::NoHash(value.type_of().to_string())) }
}

/// Value behind a key; `None` where nothing is there and that is allowed.
fn look_up<'a>(value: &Value<'a>, key: &Value<'a>, may_be_absent: bool) -> Result<Option<Value<'a>>, EvaluationError> {
    if !key.is_index() {
        return Err(EvaluationError::Failed(format!("nothing is found by a {}", key.type_of())));
    }
    let found = match value {
        Value::Map(map) => map.get(key),
        Value::List(list) => element(list, key)?,
        Value::Lost => Value::Lost.unless_lost().map(Some)?,
        _ => None,
    };
    match found {
        None if !may_be_absent => Err(match (value, key) {
            (Value::List(list), key) => EvaluationError::OutOfBounds { index: key.as_index(), length: list.len() },
            (_, Value::Text(key)) => EvaluationError::NoSuchKey(key.to_string()),
            (_, key) => EvaluationError::NoSuchKey(format!("{key:?}")),
        }),
        found => Ok(found),
    }
}

fn element<'a>(list: &List<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvaluationError> {
    let index = key
        .as_index()
        .ok_or_else(|| EvaluationError::Failed(format!("a list has no index of type {}", key.type_of())))?;
    Ok(u64::try_from(index).ok().and_then(|index| list.get(index)))
}

pub(super) fn no_overload(function: &str, value: &Value<'_>) -> EvaluationError {
    EvaluationError::NoOverload { function: function.to_owned(), found: value.type_of().to_string() }
}

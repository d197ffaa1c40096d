//! Macros' walks over lists and maps.

use super::{
    super::{
        EvaluationError,
        cost::NEW_LIST,
        plan::{FoldNode, Insertion, Node},
        value::{List, Map, Value},
    },
    Evaluated, Evaluation, Slot, no_overload, unless_final,
};

impl<'a> Evaluation<'a> {
    pub(super) fn fold(&mut self, fold: &'a FoldNode) -> Evaluated<'a> {
        let range = self.evaluate(&fold.range)?;
        self.slots[fold.accumulator] = Slot::Later(&fold.initial);
        match range {
            Value::List(list) => self.fold_list(fold, &list)?,
            Value::Map(map) => self.fold_map(fold, &map)?,
            other => return Err(no_overload("a macro", &other)),
        }
        self.evaluate(&fold.result)
    }

    fn fold_list(&mut self, fold: &'a FoldNode, list: &List<'a>) -> Result<(), EvaluationError> {
        for (index, element) in (0_i64..).zip(list.iter()) {
            let goes_on = match fold.variables {
                [Some(first), Some(second)] => self.turn(fold, [(first, Value::Int(index)), (second, element)])?,
                [Some(first), None] => self.turn(fold, [(first, element)])?,
                _ => false,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn fold_map(&mut self, fold: &'a FoldNode, map: &Map<'a>) -> Result<(), EvaluationError> {
        for (key, value) in map.entries() {
            let goes_on = match fold.variables {
                [Some(first), Some(second)] => self.turn(fold, [(first, key), (second, value)])?,
                [Some(first), None] => self.turn(fold, [(first, key)])?,
                _ => false,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// One turn of the walk; `false` where the condition ends it.
    fn turn<const N: usize>(
        &mut self,
        fold: &'a FoldNode,
        variables: [(usize, Value<'a>); N],
    ) -> Result<bool, EvaluationError> {
        for (slot, value) in variables {
            self.slots[slot] = Slot::Known(Ok(value));
        }
        if matches!(self.evaluate(&fold.condition)?, Value::Bool(false)) {
            return Ok(false);
        }
        let value = self.evaluate(&fold.step);
        match value {
            Err(error) if error.is_final() => Err(error),
            value => {
                self.slots[fold.accumulator] = Slot::Known(value);
                Ok(true)
            }
        }
    }

    /// Extends the result so far; the result is taken out of its place, so that nothing is copied.
    pub(super) fn collect(&mut self, slot: usize, insertion: Insertion, nodes: &'a [Node]) -> Evaluated<'a> {
        self.meter.charge(1)?;
        self.meter.make(1)?;
        let failed = self.variable(slot).err();
        if let (Some(error), Insertion::Entry) = (&failed, insertion) {
            return Err(error.clone());
        }
        let mut evaluated = 0;
        let nodes_in_turn = nodes.iter().inspect(|_| evaluated += 1);
        let values = unless_final(nodes_in_turn.map(|node| self.evaluate(node)).collect::<Result<Vec<_>, _>>())?;
        if !matches!(insertion, Insertion::Entry) || evaluated == nodes.len() {
            self.meter.charge(1)?;
        }
        let values = failed.map_or(values, Err)?;
        let so_far = std::mem::replace(&mut self.slots[slot], Slot::Known(Ok(Value::Null)));
        let Slot::Known(so_far) = so_far else { return Err(misplaced()) };
        match (so_far?, insertion, values.as_slice()) {
            (Value::List(list), Insertion::Append, [Value::List(more)]) => Ok(Value::List(list.extended(more.iter()))),
            (Value::Map(map), Insertion::Entry, [key, value]) => inserted(map, key, value),
            (Value::Map(map), Insertion::Entries, [Value::Map(more)]) => {
                self.meter.make(u64::try_from(more.len()).unwrap_or(NEW_LIST))?;
                let mut entries = more.entries().into_iter();
                entries.try_fold(Value::Map(map), |so_far, (key, value)| match so_far {
                    Value::Map(map) => inserted(map, &key, &value),
                    _ => Err(misplaced()),
                })
            }
            (other, ..) => Err(no_overload("a macro", &other)),
        }
    }
}

fn inserted<'a>(map: Map<'a>, key: &Value<'a>, value: &Value<'a>) -> Evaluated<'a> {
    let failed = || EvaluationError::Failed("the key is in the map already, or can be none".to_owned());
    map.inserted(key, value.clone()).map(Value::Map).ok_or_else(failed)
}

fn misplaced() -> EvaluationError {
    EvaluationError::Failed("a result is not where it should be".to_owned())
}

//! Works out why a constraint does not allow a device, where the reason is asked for.

use std::collections::{BTreeMap, BTreeSet};

use super::{Alternative, Place, Search};
use crate::structured::{
    claims::ConstraintKind,
    constraints::Value,
    reason::{Conflict, RequestValues},
};

/// Returns the values that devices for an alternative have.
fn request_values(alternative: &Alternative<'_>, values: &BTreeSet<Value<'_>>) -> RequestValues {
    RequestValues { request: alternative.name.to_string(), values: values.iter().map(Value::to_string).collect() }
}

impl<'a> Search<'_, 'a> {
    /// Returns the reason why the constraint does not allow the device.
    pub(super) fn conflict(&mut self, place: Place, constraint: usize, device: usize) -> Conflict {
        if self.constraints.values(constraint, device).is_empty() {
            return Conflict::Missing;
        }
        if let Some(known) = self.explaining.as_ref().and_then(|it| it.conflicts.get(&constraint)) {
            return known.clone();
        }
        let apart = self.apart(place, constraint).map(Conflict::Apart);
        let conflict = apart.unwrap_or_else(|| Conflict::Chosen(self.chosen_values(place.claim, constraint)));
        if let Some(explaining) = &mut self.explaining {
            explaining.conflicts.insert(constraint, conflict.clone());
        }
        conflict
    }

    /// Returns the values of the present request and of an earlier one, if they have none in common.
    fn apart(&mut self, place: Place, constraint: usize) -> Option<[RequestValues; 2]> {
        let compiled = self.compiled;
        if compiled.constraints[constraint].kind != ConstraintKind::Match {
            return None;
        }
        let own = self.possible_values(place.alternative, constraint);
        let others = self.alternatives_with(place.claim, constraint);
        let values = |at: usize, values: &BTreeSet<Value<'a>>| request_values(&compiled.alternatives[at], values);
        others.into_iter().filter(|other| *other != place.alternative).find_map(|other| {
            let theirs = self.possible_values(other, constraint);
            theirs.is_disjoint(&own).then(|| [values(other, &theirs), values(place.alternative, &own)])
        })
    }

    /// Returns the alternatives that the constraint is about and that have chosen devices.
    fn alternatives_with(&self, claim: usize, constraint: usize) -> BTreeSet<usize> {
        let of_claim = self.chosen.iter().filter(|chosen| chosen.claim == claim).map(|chosen| chosen.alternative);
        of_claim.filter(|at| self.compiled.alternatives[*at].constraints.contains(&constraint)).collect()
    }

    /// Returns the values of all devices that an alternative can have, independent of other choices.
    fn possible_values(&mut self, alternative: usize, constraint: usize) -> BTreeSet<Value<'a>> {
        let possible: Vec<usize> =
            (0..self.pools.devices.len()).filter(|device| self.is_possible(alternative, *device)).collect();
        possible.into_iter().flat_map(|device| self.constraints.values(constraint, device)).collect()
    }

    fn is_possible(&mut self, alternative: usize, device: usize) -> bool {
        let alternative = &self.compiled.alternatives[alternative];
        matches!(self.selection.judgement(alternative.selection, device), Ok(None))
            && (alternative.is_admin || !self.state.whole.has(device))
            && self.untolerated_taint(alternative, &self.pools.devices[device]).is_none()
            && self.is_offered(alternative, device)
    }

    fn chosen_values(&mut self, claim: usize, constraint: usize) -> Vec<RequestValues> {
        let mut values: BTreeMap<usize, BTreeSet<Value<'a>>> = BTreeMap::new();
        for at in self.alternatives_with(claim, constraint) {
            let devices = self.chosen.iter().filter(|chosen| (chosen.claim, chosen.alternative) == (claim, at));
            let devices: Vec<usize> = devices.map(|chosen| chosen.device).collect();
            let of_devices = devices.into_iter().flat_map(|device| self.constraints.values(constraint, device));
            values.insert(at, of_devices.collect());
        }
        values.iter().map(|(at, values)| request_values(&self.compiled.alternatives[*at], values)).collect()
    }
}

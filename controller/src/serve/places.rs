//! Places for visitors, so that none keeps others out: their number is limited, and so is each visitor's share of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::problem::ApiProblem;

/// Places of one kind. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct VisitorPlaces {
    all: usize,
    each: usize,
    taken: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A place; it is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct VisitorPlace {
    user: String,
    places: VisitorPlaces,
}

impl VisitorPlaces {
    /// `all` places, of which a visitor gets `each` at most.
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self { all, each, taken: Arc::default() }
    }

    /// Takes a place; a visitor that has its share already, or comes when none is left, gets the refusal at once.
    pub(crate) fn take(&self, user: &str) -> Result<VisitorPlace, ApiProblem> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(user).copied().unwrap_or_default();
        if own >= self.each {
            return Err(ApiProblem::TooMany(user.to_owned()));
        }
        if taken.values().sum::<usize>() >= self.all {
            return Err(ApiProblem::Busy("too many others are being answered; try again"));
        }
        taken.insert(user.to_owned(), own + 1);
        Ok(VisitorPlace { user: user.to_owned(), places: self.clone() })
    }
}

impl Drop for VisitorPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_with_too_many_places_keeps_out_himself_alone() {
        let places = VisitorPlaces::new(3, 2);
        let own: Vec<VisitorPlace> = (0..2).map(|_| places.take("a").unwrap()).collect();
        assert_eq!(places.take("a").unwrap_err(), ApiProblem::TooMany("a".to_owned()));
        let _other = places.take("b").unwrap();
        assert!(matches!(places.take("c").unwrap_err(), ApiProblem::Busy(_)));
        drop(own);
        let _third = places.take("c").unwrap();
        assert_eq!(places.taken.lock().unwrap().len(), 2, "who has left is forgotten");
    }
}

//! Placing a set whose pods must be near each other, and near no pod that stands: where the first pod comes to decides
//! for all.

use std::collections::BTreeMap;

use super::{Candidate, Placing, Wish};
use crate::plan::{nodes, snapshot::Usage};

/// Domains in which a set is begun, at most. Racks and zones are few; where each node is a domain, those without room
/// for more pods than an earlier one took are passed over.
const MOST_HOMES: usize = 64;

impl Placing<'_, '_> {
    /// Places the set in the first domain that takes all of it, or else in the one that takes the most.
    pub(super) fn place_together<'w>(&mut self, first: Candidate<'w>) -> Candidate<'w> {
        let (wish, cut_short, before) = (first.wish, first.plan.cut_short, self.usage.clone());
        let mut best: Option<(Candidate<'w>, Usage)> = None;
        let mut begun = 0;
        for (home, room) in self.homes(&first) {
            let most = best.as_ref().map_or(0, |(best, _)| best.plan.placed);
            if begun == MOST_HOMES {
                break;
            }
            if room <= i64::from(most) {
                continue;
            }
            begun += 1;
            self.restart(before.clone());
            let candidate = self.begun_in(home, wish, cut_short);
            let is_over = candidate.plan.placed == wish.count || !candidate.may_go_on();
            if candidate.plan.placed > most || is_over {
                best = Some((candidate, self.usage.clone()));
            }
            if is_over {
                break;
            }
        }
        match best {
            Some((best, usage)) => {
                self.restart(usage);
                best
            }
            None => {
                self.restart(before);
                first
            }
        }
    }

    fn begun_in<'w>(&mut self, home: u32, wish: &'w Wish, cut_short: Option<super::CutShort>) -> Candidate<'w> {
        let mut candidate = self.candidate(wish);
        candidate.plan.cut_short = cut_short;
        candidate.home = Some(home);
        self.fill_stages(&mut candidate);
        candidate
    }

    /// Returns the domains in which the set can begin, in the order of their first nodes, and the number of pods for
    /// which they have room, devices apart.
    fn homes(&self, candidate: &Candidate<'_>) -> Vec<(u32, i64)> {
        let mut homes: Vec<(u32, i64)> = Vec::new();
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for node in candidate.order.iter().filter(|node| candidate.never[**node].is_none()) {
            let Some(home) = candidate.groups.home(*node) else { continue };
            let place = &self.known.cluster.nodes[*node];
            let room = nodes::room(place, &candidate.taken(&self.usage, *node), candidate.wish);
            let at = *places.entry(home).or_insert(homes.len());
            match homes.get_mut(at) {
                Some((_, sum)) => *sum = sum.saturating_add(room),
                None => homes.push((home, room)),
            }
        }
        homes
    }

    fn restart(&mut self, usage: Usage) {
        self.known.occupancy.restart(self.known.cluster, &self.known.shapes, &usage);
        self.usage = usage;
    }
}

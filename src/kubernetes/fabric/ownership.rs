//! The owner of each card of this node: the node itself, or a fabric manager that attached the card. Pure.
//!
//! ```text
//!   new serial number ──► in doubt ── all FabricAttachments listed since, none names it ──► confirmed: its devices are published
//!                            └────── one names it, in a list or in the watch ─────────────► foreign, for as long as it is there
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_backend::Device;

use crate::inventory::{Inventory, Pool, UnknownPool};

/// Knowledge of the cards of this node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct CardOwnership {
    knowledge: FabricKnowledge,
    /// Every serial number in the inventory, with the number of the look that found it first.
    present: BTreeMap<u64, u64>,
    looks: u64,
    /// Serial numbers in FabricAttachments of this node.
    named: BTreeSet<u64>,
    /// Cards that a FabricAttachment named since they are there.
    foreign: BTreeSet<u64>,
    /// Cards that no FabricAttachment named when all were listed.
    confirmed: BTreeSet<u64>,
}

/// Knowledge of FabricAttachments.
#[derive(Clone, Debug, Eq, PartialEq)]
enum FabricKnowledge {
    /// Nothing since the start, for this reason: any card may be a fabric manager's.
    Unread(String),
    /// The API server has none, or keeps them from this daemon.
    NoFabric,
    /// All were listed, and are watched.
    Known,
}

impl Default for CardOwnership {
    fn default() -> Self {
        let unread = "the API server has not said yet which cards a fabric manager attached".to_owned();
        Self {
            knowledge: FabricKnowledge::Unread(unread),
            present: BTreeMap::new(),
            looks: 0,
            named: BTreeSet::new(),
            foreign: BTreeSet::new(),
            confirmed: BTreeSet::new(),
        }
    }
}

impl CardOwnership {
    /// Takes in the hardware, and the serial numbers that FabricAttachments of this node name.
    pub(super) fn see(&mut self, inventory: &Inventory, named: BTreeSet<u64>) {
        self.looks += 1;
        let now: BTreeSet<u64> = inventory.devices().flat_map(|(_, device)| device.cards.iter()).collect();
        // A card that was away is another one until all FabricAttachments were listed again.
        self.present.retain(|serial, _| now.contains(serial));
        for serial in &now {
            self.present.entry(*serial).or_insert(self.looks);
        }
        self.foreign.extend(&named);
        self.foreign.retain(|serial| now.contains(serial));
        self.confirmed.retain(|serial| now.contains(serial) && !named.contains(serial));
        self.named = named;
    }

    /// Returns the cards of which it is not known whose they are, each with the look that found it: all FabricAttachments
    /// are to be listed for these.
    pub(super) fn doubtful(&self) -> BTreeMap<u64, u64> {
        let is_known = |serial: &u64| self.foreign.contains(serial) || self.confirmed.contains(serial);
        self.present.iter().filter(|(serial, _)| !is_known(serial)).map(|(serial, look)| (*serial, *look)).collect()
    }

    /// True if a list of all FabricAttachments is to be made.
    pub(super) fn needs_list(&self) -> bool {
        self.knowledge != FabricKnowledge::Known || !self.doubtful().is_empty()
    }

    /// Takes in a list of all FabricAttachments that was begun when these cards were in doubt.
    pub(super) fn listed(&mut self, asked: &BTreeMap<u64, u64>, named: &BTreeSet<u64>) {
        for serial in asked.iter().filter(|(serial, look)| self.present.get(serial) == Some(look)).map(|(it, _)| it) {
            if named.contains(serial) {
                self.foreign.insert(*serial);
            } else if !self.foreign.contains(serial) {
                self.confirmed.insert(*serial);
            }
        }
        self.knowledge = FabricKnowledge::Known;
    }

    /// Notes that the API server has no FabricAttachments, or keeps them from this daemon for good. Cards that one
    /// named stay a fabric manager's.
    pub(super) fn no_fabric(&mut self) {
        self.knowledge = FabricKnowledge::NoFabric;
        self.confirmed.clear();
    }

    /// Notes why FabricAttachments cannot be read. What was known of them stays; true if nothing was known, and this
    /// reason is another one.
    pub(super) fn unread(&mut self, reason: String) -> bool {
        match &mut self.knowledge {
            FabricKnowledge::Unread(last) if *last != reason => {
                *last = reason;
                true
            }
            _ => false,
        }
    }

    /// True if nothing is known of FabricAttachments since the start.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.knowledge, FabricKnowledge::Unread(_))
    }

    /// Returns the hardware without the devices that are made of a fabric manager's cards, or of cards in doubt. As
    /// long as nothing is known, pools with cards count as unknown: what was published of them stays as it is. Pools
    /// that are as they were in `last` are shared with it.
    pub(super) fn own(&self, inventory: &Arc<Inventory>, last: &Inventory) -> Arc<Inventory> {
        if inventory.devices().all(|(_, device)| self.is_own(device)) {
            return inventory.clone();
        }
        let mut own = Inventory::clone(inventory);
        if let FabricKnowledge::Unread(reason) = &self.knowledge {
            let has_cards = |pool: &Pool| pool.devices.iter().any(|device| device.cards.iter().next().is_some());
            for (backend, pool) in inventory.pools.iter().filter(|(_, pool)| has_cards(pool)) {
                own.pools.remove(backend);
                own.unknown.insert(backend.clone(), UnknownPool { name: pool.name.clone(), reason: reason.clone() });
            }
            return own.into();
        }
        for (backend, pool) in &mut own.pools {
            if pool.devices.iter().all(|device| self.is_own(device)) {
                continue;
            }
            let filtered = self.own_part(pool);
            let same = last.pools.get(backend).filter(|last| ***last == filtered);
            *pool = same.cloned().unwrap_or_else(|| filtered.into());
        }
        own.into()
    }

    fn own_part(&self, pool: &Pool) -> Pool {
        let devices: Vec<Device> = pool.devices.iter().filter(|device| self.is_own(device)).cloned().collect();
        let used: BTreeSet<&str> =
            devices.iter().flat_map(|device| &device.consumes).map(|uses| uses.set.as_str()).collect();
        let sets = pool.counter_sets.iter().filter(|set| used.contains(set.name.as_str()));
        let counter_sets = sets.cloned().collect();
        Pool { devices, counter_sets, ..pool.clone() }
    }

    fn is_own(&self, device: &Device) -> bool {
        device.cards.iter().all(|serial| {
            let is_sure = match self.knowledge {
                FabricKnowledge::Unread(_) => false,
                FabricKnowledge::NoFabric => true,
                FabricKnowledge::Known => self.confirmed.contains(&serial),
            };
            is_sure && !self.foreign.contains(&serial) && !self.named.contains(&serial)
        })
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::{BackendName, DeviceName};
    use hostler_backend::CardSerials;

    use super::*;

    fn inventory(devices: &[(&str, CardSerials)]) -> Arc<Inventory> {
        let device = |(name, cards): &(&str, CardSerials)| Device {
            cards: cards.clone(),
            ..Device::new(DeviceName::new(*name).unwrap())
        };
        let pool = |name: &str, devices: Vec<Device>| {
            let pool = Pool { name: format!("n/{name}"), devices, ..Pool::default() };
            (BackendName::new(name).unwrap(), Arc::new(pool))
        };
        let other = vec![Device::new(DeviceName::new("numa-0").unwrap())];
        let pools = [pool("cxl", devices.iter().map(device).collect()), pool("cpu", other)].into();
        Arc::new(Inventory { pools, ..Inventory::default() })
    }

    fn two_cards() -> Arc<Inventory> {
        inventory(&[
            ("memory-a", CardSerials::Whole(0xa)),
            ("memory-b", CardSerials::Whole(0xb)),
            ("node1", CardSerials::Among([0xa, 0xb].into())),
        ])
    }

    fn names(inventory: &Inventory) -> Vec<String> {
        inventory.devices().map(|(pool, device)| format!("{pool}/{}", device.name)).collect()
    }

    fn own(ownership: &CardOwnership, inventory: &Arc<Inventory>) -> Vec<String> {
        names(&ownership.own(inventory, &Inventory::default()))
    }

    #[test]
    fn nothing_of_cards_is_known_before_all_attachments_were_listed() {
        let (mut ownership, inventory) = (CardOwnership::default(), two_cards());
        ownership.see(&inventory, BTreeSet::new());
        let before = ownership.own(&inventory, &Inventory::default());
        assert_eq!(names(&before), ["n/cpu/numa-0"]);
        assert_eq!(before.unknown.keys().map(BackendName::as_str).collect::<Vec<_>>(), ["cxl"]);
        assert!(ownership.unread("away".to_owned()) && !ownership.unread("away".to_owned()));
        let asked = ownership.doubtful();
        ownership.listed(&asked, &[0xb].into());
        assert_eq!(own(&ownership, &inventory), ["n/cpu/numa-0", "n/cxl/memory-a"], "the node is made of both cards");
        assert!(!ownership.unread("away".to_owned()) && !ownership.needs_list(), "what was known stays");
    }

    #[test]
    fn a_new_card_waits_for_a_list_that_began_after_it_was_seen() {
        let mut ownership = CardOwnership::default();
        let one = inventory(&[("memory-a", CardSerials::Whole(0xa))]);
        ownership.see(&one, BTreeSet::new());
        let early = ownership.doubtful();
        ownership.listed(&early, &BTreeSet::new());
        let both = two_cards();
        ownership.see(&both, BTreeSet::new());
        assert!(ownership.needs_list());
        ownership.listed(&early, &BTreeSet::new());
        assert_eq!(own(&ownership, &both), ["n/cpu/numa-0", "n/cxl/memory-a"]);
        // The card was away and is back: the list that was under way says nothing of it.
        let asked = ownership.doubtful();
        ownership.see(&one, BTreeSet::new());
        ownership.see(&both, BTreeSet::new());
        ownership.listed(&asked, &BTreeSet::new());
        assert_eq!(ownership.doubtful().into_keys().collect::<Vec<_>>(), [0xb]);
        ownership.listed(&ownership.doubtful(), &BTreeSet::new());
        assert_eq!(own(&ownership, &both).len(), 4);
    }

    #[test]
    fn a_card_that_was_named_stays_foreign_until_it_is_gone() {
        let (mut ownership, both) = (CardOwnership::default(), two_cards());
        ownership.no_fabric();
        ownership.see(&both, BTreeSet::new());
        assert_eq!(own(&ownership, &both).len(), 4, "without the kind all cards are the node's");
        ownership.listed(&ownership.doubtful(), &BTreeSet::new());
        ownership.see(&both, [0xa].into());
        assert_eq!(own(&ownership, &both), ["n/cpu/numa-0", "n/cxl/memory-b"]);
        ownership.see(&both, BTreeSet::new());
        assert_eq!(own(&ownership, &both), ["n/cpu/numa-0", "n/cxl/memory-b"], "the object is gone, the card is not");
        ownership.no_fabric();
        assert_eq!(own(&ownership, &both), ["n/cpu/numa-0", "n/cxl/memory-b"]);
        ownership.see(&inventory(&[]), BTreeSet::new());
        ownership.see(&both, BTreeSet::new());
        assert_eq!(own(&ownership, &both).len(), 4);
    }

    #[test]
    fn pools_that_stay_the_same_are_shared() {
        let (mut ownership, both) = (CardOwnership::default(), two_cards());
        ownership.see(&both, [0xa].into());
        ownership.listed(&ownership.doubtful(), &BTreeSet::new());
        let first = ownership.own(&both, &Inventory::default());
        assert!(ownership.own(&both, &first).is_same(&first));
        let none = inventory(&[]);
        ownership.see(&none, BTreeSet::new());
        assert!(Arc::ptr_eq(&ownership.own(&none, &first), &none));
    }
}

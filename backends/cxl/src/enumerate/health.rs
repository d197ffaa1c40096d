//! Health of cards, and of devices that are made of cards.

use hostler_backend::Health;

use super::{CxlScan, function};
use crate::{
    attributes::AttributeBuilder,
    health::CardHealth,
    objects::{Memdev, RegionMode},
};

/// The state of a card.
#[derive(Clone, Debug)]
pub(super) struct CardState {
    pub(super) health: Health,
    /// Health that the card itself reports, where it answers.
    pub(super) said: Option<CardHealth>,
}

impl CxlScan<'_> {
    /// Looks at a card: the kernel's objects, error counters, and the card's own report.
    pub(super) fn look_at(&self, memdev: &Memdev) -> CardState {
        let awake = memdev.folder.parent().is_none_or(|folder| function::is_awake(self.tree, folder));
        let said = if awake { self.watch.health(self.tree, &memdev.name) } else { None };
        // Both are asked at every look: counters have to be seen as they rise.
        let link = memdev.address.and_then(|address| self.watch.function_errors(self.tree, address));
        let events = self.watch.card_events(memdev);
        let problem = if memdev.driver.is_none() {
            Some("it is disabled: the driver cxl_mem is not bound".to_owned())
        } else if self.objects.endpoint_of(memdev).is_none() {
            Some("no endpoint leads to it from a host bridge".to_owned())
        } else {
            said.and_then(|said| said.problem(memdev.bytes(RegionMode::Pmem) > 0)).or(link).or(events)
        };
        let health = problem.map_or(Health::Healthy, |reason| Health::Unhealthy { reason });
        CardState { health, said }
    }

    pub(super) fn health_of(&self, memdev: &Memdev) -> Health {
        self.cards.get(&memdev.name).map_or(Health::Healthy, |state| state.health.clone())
    }

    /// Puts a card's own report into its attributes, as far as it is worth a look and no reason to withdraw the card.
    /// Figures that move all the time are left out: each change is written to the API server.
    pub(super) fn describe_health(&self, memdev: &Memdev, attributes: &mut AttributeBuilder) {
        let Some(said) = self.cards.get(&memdev.name).and_then(|state| state.said) else { return };
        attributes.flag("maintenanceNeeded", Some(said.maintenance));
        attributes.flag("performanceDegraded", Some(said.degraded));
        attributes.number("lifeUsed", said.life_used);
    }

    /// Health of a device that is made of several cards: that of the sickest, with the card's name.
    pub(super) fn health_of_all(&self, members: &[&Memdev]) -> Health {
        let mut worst = Health::Healthy;
        for memdev in members {
            let card = self.card_name(memdev).unwrap_or_default();
            let named = |reason: String| format!("memory-{card}: {reason}");
            match self.health_of(memdev) {
                Health::Unhealthy { reason } => return Health::Unhealthy { reason: named(reason) },
                Health::Unknown { reason } => worst = Health::Unknown { reason: named(reason) },
                Health::Healthy => {}
            }
        }
        worst
    }
}

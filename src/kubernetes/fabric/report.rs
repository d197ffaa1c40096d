//! The report of this node on a card that a fabric manager attaches, and what is to be done with the card next. Pure: from
//! the object, the hardware and the claims on record, so that a daemon that was killed goes on where its last run ended.
//!
//! ```text
//!   spec            Absent ── the card is seen ──► Found ── healthy, erased where asked for ──► Ready
//!   spec.release    Releasing ── no claim has it ──► detach, erased where claims used it ── the card is gone ──► Released
//! ```

use std::collections::BTreeSet;

use hostler_api::{
    BackendName, DeviceName,
    fabric::{
        AttachmentPhase, ErasureMethod, FabricAttachment, FabricNodeReport, MEMORY_CAPACITY, NodeDeviceState,
        of_fabric_pool,
    },
    few,
};
use hostler_backend::{Device, DeviceOperation, Erasure, Health};

use crate::{
    claims::{ClaimTable, store::RecordDevice},
    inventory::Inventory,
};

/// Facts of one card.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardContext<'a> {
    pub(super) attachment: &'a FabricAttachment,
    pub(super) inventory: &'a Inventory,
    pub(super) claims: &'a ClaimTable,
    pub(super) progress: &'a CardProgress,
}

/// Knowledge of this process on an attempt, beside the object: it may be lost.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct CardProgress {
    pub(super) order: CardOrderState,
    /// Method by which an order has erased the card.
    pub(super) erased: Option<ErasureMethod>,
    /// Reason why the card is let go of without being erased.
    pub(super) not_erased: Option<String>,
}

/// State of the last order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum CardOrderState {
    /// No order is under way.
    #[default]
    Idle,
    /// An order is under way, or waits for this.
    Running(Vec<String>),
    /// The last order failed, and the next one is not due yet.
    Failed(String),
}

/// An order for a card.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct CardAct {
    pub(super) backend: BackendName,
    pub(super) device: DeviceName,
    pub(super) operation: DeviceOperation,
    /// Reason why the card is not erased, though claims may have used it.
    pub(super) not_erased: Option<String>,
}

/// A report, and the order that follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CardDecision {
    /// Absent where nothing is to be said: the fabric manager was not asked, or has the card back.
    pub(super) report: Option<FabricNodeReport>,
    pub(super) act: Option<CardAct>,
}

/// Decides about one card.
pub(super) fn decide(context: &CardContext<'_>) -> CardDecision {
    match context.attachment.status.phase {
        // The object has no status yet, or none that a node has a part in.
        AttachmentPhase::Pending | AttachmentPhase::Detached => CardDecision::default(),
        _ if context.attachment.spec.release => context.release(),
        _ => context.take_in(),
    }
}

impl<'a> CardContext<'a> {
    fn cards(&self) -> Vec<(&'a BackendName, &'a Device)> {
        self.inventory.cards(self.attachment.spec.device.serial).collect()
    }

    /// The card is to be used.
    fn take_in(&self) -> CardDecision {
        let erased = self.erased(|_| true);
        let say = |state, message: String| self.say(state, erased, message);
        match self.cards()[..] {
            [] => match self.doubt() {
                Some(doubt) => say(NodeDeviceState::Absent, doubt),
                None => say(NodeDeviceState::Absent, String::new()),
            },
            // The order that erases an accelerator ends with a driver for it, and a crash before that leaves it without one.
            [(backend, card)] => match self.trouble(backend, card) {
                Some(trouble) if !self.is_unbound_by_order(backend, card, erased) => {
                    say(NodeDeviceState::Found, trouble)
                }
                _ if !self.attachment.spec.erase || erased.is_some() => say(NodeDeviceState::Ready, String::new()),
                _ => match self.attachment.status.phase {
                    AttachmentPhase::Attaching | AttachmentPhase::Attached => self.erase(backend, card),
                    // A claim may have been prepared: the controller has seen the erasure.
                    AttachmentPhase::Ready => say(NodeDeviceState::Ready, String::new()),
                    _ => say(NodeDeviceState::Found, "it is not erased".to_owned()),
                },
            },
            ref several => say(NodeDeviceState::Found, ambiguous(several)),
        }
        .naming(&self.cards())
    }

    /// True if an order for an erasure may have left this card without its driver.
    fn is_unbound_by_order(&self, backend: &BackendName, card: &Device, erased: Option<ErasureMethod>) -> bool {
        let is_read = self.inventory.pools.get(backend).is_some_and(|pool| pool.stale.is_none());
        let is_to_erase = self.attachment.spec.erase && erased.is_none() && is_read;
        let has_driver = card.attributes.get("driver").is_some();
        is_to_erase && card.erasure.method() == Some(ErasureMethod::Reset) && !has_driver
    }

    fn erase(&self, backend: &BackendName, card: &Device) -> CardDecision {
        let found = |message: String| self.say(NodeDeviceState::Found, None, message);
        let method = match card.erasure {
            Erasure::By(method) => method,
            Erasure::Impossible { reason } => {
                return found(format!("it is to be erased before it is used, and {reason}"));
            }
        };
        match &self.progress.order {
            CardOrderState::Running(waits) => found(waiting("it is being erased", waits)),
            CardOrderState::Failed(error) => found(format!("it is not erased, and that is tried again: {error}")),
            CardOrderState::Idle => {
                let operation = detach(Some(method), false);
                found("it is being erased".to_owned()).and(order(backend, card, operation, None))
            }
        }
    }

    /// The card is to be let go of.
    fn release(&self) -> CardDecision {
        // An erasure before the card was used is none of what claims wrote since.
        let is_of_release =
            |report: &FabricNodeReport| matches!(report.state, NodeDeviceState::Releasing | NodeDeviceState::Released);
        let erased = self.erased(is_of_release);
        let holds = |message: String| self.say(NodeDeviceState::Releasing, erased, message);
        let holders = self.holders();
        if !holders.is_empty() {
            return holds(format!(
                "claim {} has it: it is let go of when the kubelet takes the claim back",
                few(holders)
            ))
            .naming(&self.cards());
        }
        match self.cards()[..] {
            // Whether the order has erased the card is known when it has ended.
            [] if matches!(self.progress.order, CardOrderState::Running(_)) => holds("it is being detached".to_owned()),
            [] => match self.doubt() {
                Some(doubt) => holds(doubt),
                None => self.gone(erased),
            },
            [(backend, card)] => self.let_go(backend, card, erased),
            ref several => holds(ambiguous(several)),
        }
        .naming(&self.cards())
    }

    fn gone(&self, erased: Option<ErasureMethod>) -> CardDecision {
        let is_clean = erased.is_some() || !self.may_hold_data();
        let message = match &self.progress.not_erased {
            _ if is_clean => String::new(),
            Some(reason) => format!("it is gone, and was not erased: {reason}"),
            None => "it is gone, and whether it was erased is not known".to_owned(),
        };
        self.say(NodeDeviceState::Released, erased, message)
    }

    fn let_go(&self, backend: &BackendName, card: &Device, erased: Option<ErasureMethod>) -> CardDecision {
        let holds = |message: String| self.say(NodeDeviceState::Releasing, erased, message);
        match &self.progress.order {
            CardOrderState::Running(waits) => return holds(waiting("it is being detached", waits)),
            CardOrderState::Failed(error) => {
                return holds(format!("it is not detached, and that is tried again: {error}"));
            }
            CardOrderState::Idle => {}
        }
        let is_to_erase = self.may_hold_data() && erased.is_none();
        let method = card.erasure.method().filter(|_| is_to_erase);
        let not_erased = card.erasure.obstacle().filter(|_| is_to_erase).map(str::to_owned);
        let operation = detach(method, true);
        let message = match &not_erased {
            Some(reason) => format!("it is being detached, and is not erased: {reason}"),
            None => "it is being detached".to_owned(),
        };
        holds(message).and(order(backend, card, operation, not_erased))
    }

    /// True if a container may have written to the card since it was last erased.
    fn may_hold_data(&self) -> bool {
        self.attachment.status.used || self.attachment.spec.erase
    }

    /// The method by which the card was erased in this attempt, as far as reports like these, or this process, say.
    fn erased(&self, counts: impl Fn(&FabricNodeReport) -> bool) -> Option<ErasureMethod> {
        let reported = self.attachment.node_report().filter(|report| counts(report)).and_then(|report| report.erased);
        self.progress.erased.or(reported)
    }

    /// Why it is not known which cards there are.
    fn doubt(&self) -> Option<String> {
        let last = self.attachment.node_report().and_then(|report| report.device.split_once('/'));
        let doubt = self.inventory.cards_doubt(last.map(|(backend, _)| backend));
        doubt.map(|doubt| format!("whether it is here is not known: {doubt}"))
    }

    fn trouble(&self, backend: &BackendName, card: &Device) -> Option<String> {
        let pool = self.inventory.pools.get(backend);
        if let Some(reason) = pool.and_then(|pool| pool.stale.as_deref()) {
            // What was checked when the backend last answered stays so.
            let was_ready = self.attachment.node_report().is_some_and(|it| it.state == NodeDeviceState::Ready);
            return (!was_ready).then(|| format!("backend {backend} does not tell how it is: {reason}"));
        }
        match &card.health {
            Health::Healthy => self.shortage(card),
            Health::Unhealthy { reason } => Some(format!("it is not healthy: {reason}")),
            Health::Unknown { reason } => Some(format!("whether it is healthy is not known: {reason}")),
        }
    }

    /// Why a card is not the one that was asked for: memory was made for it, and it has less.
    fn shortage(&self, card: &Device) -> Option<String> {
        let is_new = matches!(self.attachment.status.phase, AttachmentPhase::Attaching | AttachmentPhase::Attached);
        let asked = self.attachment.spec.memory.filter(|_| is_new)?;
        let memory = card.capacity.get(MEMORY_CAPACITY).map(|it| it.value);
        let has = memory.map_or_else(|| "no known size".to_owned(), |has| format!("{} of memory", has.human()));
        memory.is_none_or(|has| has < asked).then(|| format!("it has {has}, and {} were asked for", asked.human()))
    }

    /// `namespace/name` of the claims that have the card, or anything that is made of it.
    fn holders(&self) -> BTreeSet<String> {
        let spec = &self.attachment.spec;
        let is_of_card = |held: &RecordDevice| {
            let pool = self.inventory.pools.get(&held.backend);
            let device = pool.and_then(|pool| pool.devices.iter().find(|device| device.name == *held.local_name()));
            let by_name =
                of_fabric_pool(&held.grant.pool).is_some() && held.grant.device.as_str() == spec.device.device_name();
            by_name || device.is_some_and(|device| device.cards.iter().any(|serial| serial == spec.device.serial))
        };
        let holds = self.claims.claims.iter().filter(|(_, view)| view.devices().iter().any(is_of_card));
        holds.map(|(uid, view)| view.claim().map_or_else(|| uid.to_string(), |claim| claim.full_name())).collect()
    }

    fn say(&self, state: NodeDeviceState, erased: Option<ErasureMethod>, message: String) -> CardDecision {
        let attempt = self.attachment.spec.attempt;
        let report = FabricNodeReport { attempt, state, erased, message, ..FabricNodeReport::default() };
        CardDecision { report: Some(report), act: None }
    }
}

impl CardDecision {
    fn and(self, act: CardAct) -> Self {
        Self { act: Some(act), ..self }
    }

    /// Names the card in the report, where there is one.
    fn naming(mut self, cards: &[(&BackendName, &Device)]) -> Self {
        if let (Some(report), [(backend, card)]) = (&mut self.report, cards) {
            report.device = format!("{backend}/{}", card.name);
        }
        self
    }
}

fn order(backend: &BackendName, card: &Device, operation: DeviceOperation, not_erased: Option<String>) -> CardAct {
    CardAct { backend: backend.clone(), device: card.name.clone(), operation, not_erased }
}

fn waiting(what: &str, waits: &[String]) -> String {
    if waits.is_empty() { what.to_owned() } else { format!("{what}; waits for {}", few(waits)) }
}

fn ambiguous(cards: &[(&BackendName, &Device)]) -> String {
    let names = cards.iter().map(|(backend, card)| format!("{backend}/{}", card.name));
    format!("{} have its serial number: take out the one that was not attached", few(names))
}

fn detach(method: Option<ErasureMethod>, remove: bool) -> DeviceOperation {
    let overwrite = method == Some(ErasureMethod::Overwrite);
    DeviceOperation::Detach { sanitize: method.is_some() && !overwrite, overwrite, remove }
}

#[cfg(test)]
mod tests;

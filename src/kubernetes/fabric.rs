//! The cards that a fabric manager attaches to this node: what the node says of each, what it does with each, and which
//! cards are the node's own.
//!
//! ```text
//!   FabricAttachments of this node ─┬► ownership (pure) ──► the node's own devices ──► publisher, hardware, topology
//!   inventory ──────────────────────┤
//!   claims ─────────────────────────┴► decide (pure) ─┬► status.node of the object
//!        ▲                                            └► order: erase, detach
//!        └────────────────────────────────────────────────┘
//! ```
//!
//! Nothing is kept on disk: object and hardware say again after a start what is to be done. Without the kind nothing is
//! different from a node without fabric managers.

mod calls;
mod cards;
mod ownership;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hostler_api::{
    Chain,
    fabric::{DeviceIdentity, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS},
    hardware::{GROUP, VERSION},
};
use hostler_cluster::{ApiFailure, Backoff, Collection, FollowEvent, FollowScope, ListFreshness, RawObject};
use hostler_reconcile::ObjectWatch;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tracing::{debug, info, warn};

use self::{
    calls::{FabricCall, FabricCalls},
    cards::{AttachedCard, NextCall},
    ownership::CardOwnership,
};
use super::{ClusterNode, wait_until};
use crate::{
    claims::{ClaimTable, ClaimsHandle},
    inventory::{Inventory, InventoryReader},
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// Pauses between lists for new cards that fail.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Sources of the cards' reports.
#[derive(Debug)]
pub struct FabricParts {
    /// The API server.
    pub cluster: ClusterNode,
    /// Claims that have cards, and the way in for orders.
    pub claims: ClaimsHandle,
    /// All hardware.
    pub inventory: InventoryReader,
    /// Counts repeats.
    pub metrics: Metrics,
}

/// Starts to look after cards of fabric managers. Returns the hardware that is the node's own.
pub fn start(parts: FabricParts, tasks: &Tasks) -> InventoryReader {
    let ownership = CardOwnership::default();
    let (own_tx, own_rx) = watch::channel(ownership.own(&parts.inventory.latest(), &Inventory::default()));
    let selector = format!("spec.nodeName={}", parts.cluster.node());
    let title = "the FabricAttachments of this node";
    let scope = FollowScope::selected(collection(), &selector, ListFreshness::Newest, title);
    let fabric = NodeFabric {
        watch: ObjectWatch::new(parts.cluster.client().clone(), scope),
        listing: None,
        is_listed: false,
        cards: BTreeMap::new(),
        ownership,
        own_tx,
        list_after: Some(Instant::now()),
        pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        calls: FabricCalls { cluster: parts.cluster.clone(), claims: parts.claims.clone(), running: JoinSet::new() },
        parts,
    };
    let stop = tasks.stop_token();
    tasks.service("fabric", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Dropped in the middle of a write or an order, it leaves what the next start finds and goes on with.
            outcome = fabric.run() => outcome,
        }
    });
    InventoryReader::new(own_rx)
}

struct NodeFabric {
    parts: FabricParts,
    watch: ObjectWatch,
    /// Objects of the list that is under way.
    listing: Option<Vec<RawObject>>,
    is_listed: bool,
    /// By name of the object.
    cards: BTreeMap<String, AttachedCard>,
    ownership: CardOwnership,
    own_tx: watch::Sender<Arc<Inventory>>,
    /// Time of the next list for cards in doubt; absent while one is under way.
    list_after: Option<Instant>,
    pauses: Backoff,
    calls: FabricCalls,
}

impl NodeFabric {
    async fn run(mut self) -> Outcome {
        let (mut inventory_rx, mut table_rx) = (self.parts.inventory.subscribe(), self.parts.claims.table());
        loop {
            let (inventory, claims) = (inventory_rx.borrow_and_update().clone(), table_rx.borrow_and_update().clone());
            self.tell_own(&inventory);
            self.list_for_doubtful();
            self.look_after_cards(&inventory, &claims);
            let due = self.due();
            // All arms are cancel safe: watches, channels and timers lose nothing, and a JoinSet keeps what has finished.
            tokio::select! {
                event = self.watch.next() => match event {
                    Ok(event) => self.observe(event),
                    Err(failure) => self.lost(&failure),
                },
                changed = inventory_rx.changed() => changed?,
                changed = table_rx.changed() => changed?,
                Some(done) = self.calls.running.join_next() => match done {
                    Ok(answer) => self.take(answer),
                    // A call that has ended in another way is made again.
                    Err(error) => debug!(error = %error, "a call about an attached card has ended"),
                },
                () = wait_until(due) => {}
            }
        }
    }

    fn tell_own(&mut self, inventory: &Arc<Inventory>) {
        let named = self.cards.values().filter_map(|card| card.serial).collect();
        self.ownership.see(inventory, named);
        self.own_tx.send_if_modified(|last| {
            let own = self.ownership.own(inventory, last);
            let modified = !last.is_same(&own);
            *last = own;
            modified
        });
    }

    /// Has all objects listed, of whichever node, while it is not known of a card whose it is.
    fn list_for_doubtful(&mut self) {
        if !self.is_listed || !self.ownership.needs_list() {
            return;
        }
        if self.list_after.take_if(|at| *at <= Instant::now()).is_some() {
            self.calls.list(self.ownership.doubtful());
        }
    }

    fn look_after_cards(&mut self, inventory: &Inventory, claims: &ClaimTable) {
        let now = Instant::now();
        for (name, card) in &mut self.cards {
            for call in card.next_calls(inventory, claims, now) {
                match call {
                    NextCall::Report(report) => self.calls.report(name, card, report),
                    NextCall::Order(act) => self.calls.order(name, card, act),
                }
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        let list = self.list_after.filter(|_| self.is_listed && self.ownership.needs_list());
        self.cards.values().filter_map(AttachedCard::due).chain(list).min()
    }

    fn observe(&mut self, event: FollowEvent) {
        match event {
            FollowEvent::ListStarted => self.listing = Some(Vec::new()),
            FollowEvent::Listed(object) => self.listing.get_or_insert_default().push(object),
            FollowEvent::ListEnded => {
                let mut known = std::mem::take(&mut self.cards);
                for object in self.listing.take().unwrap_or_default() {
                    let card = AttachedCard::read(&object, known.remove(object.name()));
                    self.cards.insert(object.name().to_owned(), card);
                }
                if !std::mem::replace(&mut self.is_listed, true) {
                    info!(attachments = self.cards.len(), "cards of fabric managers are looked after");
                }
            }
            FollowEvent::Applied(object) => {
                let card = AttachedCard::read(&object, self.cards.remove(object.name()));
                self.cards.insert(object.name().to_owned(), card);
            }
            FollowEvent::Deleted(object) => drop(self.cards.remove(object.name())),
            FollowEvent::UpToDate => {}
        }
    }

    /// Notes that the watch has ended. Without the kind, or the right to see it, there is no fabric manager; the watch
    /// looks again now and then.
    fn lost(&mut self, failure: &ApiFailure) {
        let is_kept_away = failure.code() == Some(403) && self.watch.pauses().is_refused_for_long();
        if failure.is_unknown_resource() || is_kept_away && self.ownership.is_unread() {
            debug!(error = %Chain(failure), "no cards of fabric managers are looked after");
            self.cards.clear();
            (self.listing, self.is_listed) = (None, false);
            return self.ownership.no_fabric();
        }
        debug!(error = %Chain(failure), "the watch of FabricAttachments has ended");
        self.parts.metrics.api_retried("fabric");
        let reason = format!("which cards a fabric manager attached is not known: {}", Chain(failure));
        if self.ownership.unread(reason) {
            warn!(error = %Chain(failure), "failed to read which cards a fabric manager attached");
        }
    }

    fn take(&mut self, answer: FabricCall) {
        match answer {
            FabricCall::Listed { asked, result } => {
                let pause = match result {
                    Ok(named) => {
                        self.ownership.listed(&asked, &named);
                        self.pauses.reset();
                        Duration::ZERO
                    }
                    Err(failure) => {
                        debug!(error = %Chain(&failure), "failed to list all FabricAttachments");
                        self.parts.metrics.api_retried("fabric");
                        self.pauses.next_pause()
                    }
                };
                self.list_after = Some(Instant::now() + pause);
            }
            FabricCall::Reported { name, report, result } => {
                if result.is_err() {
                    self.parts.metrics.api_retried("fabric");
                }
                if let Some(card) = self.cards.get_mut(&name) {
                    card.reported(report, result);
                }
            }
            FabricCall::Staged { name, attempt, stage_rx } => {
                if let Some(card) = self.cards.get_mut(&name)
                    && let Some(stage_rx) = card.staged(&attempt, stage_rx)
                {
                    self.calls.follow(name, attempt, stage_rx);
                }
            }
        }
    }
}

/// The serial number in the name of an object.
fn serial_of(name: &str) -> Option<u64> {
    DeviceIdentity::of_device_name(name).map(|identity| identity.serial)
}

/// The serial numbers in names of objects.
fn serials_of<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<u64> {
    names.into_iter().filter_map(serial_of).collect()
}

fn collection() -> Collection {
    Collection::custom(GROUP, VERSION, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS)
}

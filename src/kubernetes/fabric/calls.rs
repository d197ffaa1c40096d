//! The calls about attached cards: lists, reports, orders. They run side by side, and each ends in one answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    Chain,
    fabric::{FabricAttachment, FabricNodeReport},
};
use hostler_cluster::{ApiFailure, ApiObject};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};
use tracing::{debug, info};

use super::{
    cards::{AttachedCard, CardAttempt, OrderProgress},
    collection,
    report::CardAct,
    serials_of,
};
use crate::{
    claims::{ClaimsHandle, DeviceOrder, OrderStage},
    kubernetes::ClusterNode,
};

/// Time that an order waits for work on claims of its backend; it is given again after that.
const PATIENCE: Duration = Duration::from_secs(60);
/// As whom the report is owned. The same on all nodes: what another node said of the device must go with its report.
const MANAGER: &str = "hostler";

/// Makes the calls.
pub(super) struct FabricCalls {
    pub(super) cluster: ClusterNode,
    pub(super) claims: ClaimsHandle,
    pub(super) running: JoinSet<FabricCall>,
}

/// A call that has ended.
pub(super) enum FabricCall {
    /// All objects were listed for these cards.
    Listed { asked: BTreeMap<u64, u64>, result: Result<BTreeSet<u64>, ApiFailure> },
    /// A report was written, which made this version.
    Reported { name: String, report: FabricNodeReport, result: Result<String, ApiFailure> },
    /// An order has another stage.
    Staged { name: String, attempt: CardAttempt, stage_rx: OrderProgress },
}

#[derive(Deserialize)]
struct ListPage {
    #[serde(default)]
    items: Vec<ListItem>,
}

#[derive(Deserialize)]
struct ListItem {
    metadata: ListItemMetadata,
}

#[derive(Deserialize)]
struct ListItemMetadata {
    name: String,
}

impl FabricCalls {
    /// Lists all objects, for these cards.
    pub(super) fn list(&mut self, asked: BTreeMap<u64, u64>) {
        let client = self.cluster.client().clone();
        self.running.spawn(async move {
            let (mut named, mut fault) = (BTreeSet::new(), None);
            let mut each = |page: Vec<u8>| match serde_json::from_slice::<ListPage>(&page) {
                Ok(page) => named.extend(serials_of(page.items.iter().map(|item| &*item.metadata.name))),
                Err(error) => fault = Some(error),
            };
            let listed = client.list(&collection(), &mut each).await;
            let unusable = |error| Err(ApiFailure::unusable("list FabricAttachments", error));
            let result = listed.and_then(|()| fault.map_or(Ok(named), unusable));
            FabricCall::Listed { asked, result }
        });
    }

    /// Writes a report.
    pub(super) fn report(&mut self, name: &str, card: &AttachedCard, report: FabricNodeReport) {
        let (client, name, all) = (self.cluster.client().clone(), name.to_owned(), collection());
        debug!(device = name, state = ?report.state, reason = report.message, "reporting an attached card");
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {"name": name, "uid": card.attempt().uid}, "status": {"node": report},
        });
        self.running.spawn(async move {
            let written = client.apply_status::<ApiObject<IgnoredAny>>(&all, &name, MANAGER, &object).await;
            FabricCall::Reported { name, report, result: written.map(|object| object.version().resource_version) }
        });
    }

    /// Gives an order, if the server still has the object as it was decided on: the card may be another claim's by now.
    pub(super) fn order(&mut self, name: &str, card: &AttachedCard, act: CardAct) {
        let (client, claims) = (self.cluster.client().clone(), self.claims.clone());
        let (name, attempt) = (name.to_owned(), card.attempt().clone());
        let CardAct { backend, device, operation, not_erased: _ } = act;
        self.running.spawn(async move {
            let found = client.find::<FabricAttachment>(&collection(), &name).await;
            let refused = match found {
                Ok(Some(now)) if CardAttempt::of(&now) == attempt => None,
                Ok(_) => Some("the FabricAttachment is another one by now".to_owned()),
                Err(failure) => Some(Chain(&failure).to_string()),
            };
            let stage_rx = match refused {
                Some(reason) => OrderProgress::NotGiven(reason),
                None => {
                    info!(device = name, local = %device, operation = operation.word(), "ordering for an attached card");
                    OrderProgress::Given(claims.order(DeviceOrder { backend, device, operation, patience: PATIENCE }))
                }
            };
            FabricCall::Staged { name, attempt, stage_rx }
        });
    }

    /// Waits for the next stage of an order.
    pub(super) fn follow(&mut self, name: String, attempt: CardAttempt, mut stage_rx: watch::Receiver<OrderStage>) {
        self.running.spawn(async move {
            // An order whose sender is gone has ended without a word, with the daemon.
            let _ = stage_rx.changed().await;
            FabricCall::Staged { name, attempt, stage_rx: OrderProgress::Given(stage_rx) }
        });
    }
}

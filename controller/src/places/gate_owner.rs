//! The owner of the gate: a task that makes the writes which the gate is about, one after the other. Between what is
//! read for such a write and its answer nothing else of the kind happens.

use std::{collections::BTreeSet, time::Duration};

use hostler_cluster::{ApiClient, ApiFailure, ListSelector};
use hostler_process::Tasks;
use hostler_reconcile::Requeue;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{
    context::{PlacePod, PlacesWrite},
    gate::HandOverGate,
    handing_over::HandingOver,
    pods::{SOON, list_place_holders, place_holders},
};

/// Calls that wait for the owner.
const CALLS: usize = 16;

/// Result of a write: when to go on.
pub(super) type GatedResult = Result<Requeue, ApiFailure>;

/// A write for the places of a Reservation.
#[derive(Debug)]
pub(super) struct GatedWrite {
    /// Name of the Reservation.
    pub(super) reservation: String,
    pub(super) write: PlacesWrite,
    /// Time since the term began.
    pub(super) now: Duration,
}

enum GateCall {
    HandingOver(Duration, oneshot::Sender<HandingOver>),
    Waiting(String, BTreeSet<u32>),
    Write(Box<GatedWrite>, oneshot::Sender<GatedResult>),
}

/// Reaches the owner of the gate. The owner ends with the last of these.
#[derive(Clone, Debug)]
pub(super) struct GateHandle(mpsc::Sender<GateCall>);

struct GateOwner {
    gate: HandOverGate,
    client: ApiClient,
}

impl GateHandle {
    /// Starts the owner of a gate.
    pub(super) fn start(gate: HandOverGate, client: ApiClient, tasks: &Tasks) -> Self {
        let (calls_tx, mut calls_rx) = mpsc::channel(CALLS);
        tasks.job(async move {
            let mut owner = GateOwner { gate, client };
            while let Some(call) = calls_rx.recv().await {
                owner.answer(call).await;
            }
        });
        Self(calls_tx)
    }

    /// Returns what is being handed over.
    pub(super) async fn handing_over(&self, now: Duration) -> HandingOver {
        let (state_tx, state_rx) = oneshot::channel();
        let _ = self.0.send(GateCall::HandingOver(now, state_tx)).await;
        state_rx.await.unwrap_or_default()
    }

    /// Notes for which replicas of a Reservation pods are still waited for.
    pub(super) async fn keep(&self, reservation: &str, waiting: BTreeSet<u32>) {
        let _ = self.0.send(GateCall::Waiting(reservation.to_owned(), waiting)).await;
    }

    /// Makes a write. `None` where the owner has ended with the term.
    pub(super) async fn write(&self, write: GatedWrite) -> Option<GatedResult> {
        let (result_tx, result_rx) = oneshot::channel();
        let _ = self.0.send(GateCall::Write(Box::new(write), result_tx)).await;
        result_rx.await.ok()
    }
}

impl GateOwner {
    /// Answers a call. An asker that has gone meanwhile hears no answer.
    async fn answer(&mut self, call: GateCall) {
        match call {
            GateCall::HandingOver(now, state_tx) => drop(state_tx.send(self.gate.handing_over(now))),
            GateCall::Waiting(reservation, waiting) => self.gate.keep(&reservation, &waiting),
            GateCall::Write(write, result_tx) => drop(result_tx.send(self.write(*write).await)),
        }
    }

    async fn write(&mut self, GatedWrite { reservation, write, now }: GatedWrite) -> GatedResult {
        match write {
            PlacesWrite::Create { replica, name, left_out, pod } => {
                // A place that is for one node stays away while another one is handed over there.
                let unusable = |error| ApiFailure::unusable("make a place holder", error);
                let made = PlacePod::deserialize(&*pod).map_err(unusable)?;
                let busy = self.gate.nodes(Some(&(reservation, replica)), now);
                if busy.iter().any(|node| !left_out.contains(node) && made.may_come_to(node)) {
                    return Ok(Requeue::After(SOON));
                }
                self.client.create::<Value>(&place_holders(), &name, &*pod).await?;
            }
            PlacesWrite::HandOver { replica, node, holder, version, next } => {
                self.gate.begin((reservation, replica), &node, next, now);
                let waiting = list_place_holders(&self.client, ListSelector::Fields("spec.nodeName=")).await?;
                for pod in self.gate.in_the_way(waiting.iter(), &node) {
                    self.client.delete(&place_holders(), &pod.metadata.name, &pod.version()).await?;
                }
                self.client.delete(&place_holders(), &holder, &version).await?;
            }
            // Others are made without the gate.
            PlacesWrite::Delete(..) | PlacesWrite::Nominate(..) => {}
        }
        Ok(Requeue::Now)
    }
}

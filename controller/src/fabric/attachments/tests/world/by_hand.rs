//! Connections that no FabricAttachment knows: a person makes and ends them at the manager, or the object of one is lost, as
//! in a cluster that was restored from a backup; and an operator who has them taken over.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::fabric::{AttachmentPhase, FabricAttachmentSpec, FabricAttachmentStatus};
use hostler_fabric::{AttachKey, AttachRequest, FabricProvider, ObjectPath, fake::FakeFabric};

use super::{
    super::super::context::{BoardDevice, FABRIC_FINALIZER, OtherConnection},
    FabricWorld, ModelAttachment, ModelClaim, device_name, node_name,
};
use crate::testkit::Part;

/// What persons have done, and what was lost.
#[derive(Default)]
pub(super) struct HandWork {
    /// Keys of connections that a person has made, with their devices.
    made: BTreeMap<AttachKey, u32>,
    /// Those that were there at the last check.
    last: BTreeSet<AttachKey>,
    /// Paths of connections that were taken over by consent.
    consent: BTreeSet<String>,
    /// UIDs of claims that had a device whose object was lost.
    pub(super) orphans: BTreeSet<String>,
}

fn path_of(key: &AttachKey) -> String {
    format!("/fabric/connections/{key}")
}

impl HandWork {
    pub(super) fn has_made(&self, key: &AttachKey) -> bool {
        self.made.contains_key(key)
    }

    /// A status is written: it may take a connection over.
    pub(super) fn see(&mut self, status: &FabricAttachmentStatus) {
        self.consent.extend(status.connection.as_ref().map(|connection| connection.path.clone()));
    }

    /// Checks that nothing of persons was ended without their consent.
    pub(super) fn check(&mut self, now: &[(u32, u32, AttachKey)]) {
        let now: BTreeSet<AttachKey> =
            now.iter().map(|(_, _, key)| key.clone()).filter(|key| self.has_made(key)).collect();
        for key in self.last.iter().filter(|key| !now.contains(key)) {
            assert!(self.consent.contains(&path_of(key)), "{key} was ended without consent");
        }
        self.last = now;
    }
}

/// True if the command would have another attempt taken over.
fn is_open(known: &ModelAttachment, node_name: &str) -> bool {
    let is_waiting = known.status.phase == AttachmentPhase::Pending && known.spec.adopted;
    known.status.phase == AttachmentPhase::Detached || (is_waiting && known.spec.node_name != node_name)
}

impl FabricWorld {
    /// The device as the manager showed it when it was read last.
    pub(super) fn board(&self, device: u32) -> BoardDevice {
        let own = self.attachment(device).map(|it| format!("{}-", it.uid));
        let is_other = |key: &AttachKey| own.as_ref().is_none_or(|own| !key.as_str().starts_with(own));
        let others = self.shown.iter().filter(|(it, _, key)| *it == device && is_other(key));
        let other = |(_, host, key): &(u32, u32, AttachKey)| OtherConnection {
            path: ObjectPath::new(path_of(key)),
            host: FakeFabric::host(*host),
            node: self.machines[*host as usize].is_on.then(|| node_name(*host)),
        };
        BoardDevice { trouble: None, others: others.map(other).collect() }
    }

    /// True if the published slice shows the device as in use by others.
    pub(super) fn is_in_use(&self, device: u32) -> bool {
        !self.board(device).others.is_empty()
    }

    /// A person gives a device to a host. What is on it is theirs from then on.
    pub(in super::super) fn connect_by_hand(&mut self, device: u32, host: u32) {
        let key = AttachKey::new(format!("hand-{}", self.hands.made.len())).unwrap();
        let device = FakeFabric::device(device);
        let request = AttachRequest { key: key.clone(), host: FakeFabric::host(host).unwrap(), device, memory: None };
        let fabric = self.fabric.clone();
        let _ = self.runtime.block_on(fabric.attach(&request));
        fabric.finish(&key);
        let made = self.connections().into_iter().find(|(_, _, it)| *it == key).map(|(device, ..)| device);
        if let Some(device) = made {
            self.hands.made.insert(key, device);
            self.data.entry(device).or_insert_with(|| "a person".to_owned());
            self.seen.by_hand += 1;
        }
        self.check();
    }

    /// A person ends a connection that a person has made. What is on the device is theirs to remove.
    pub(in super::super) fn disconnect_by_hand(&mut self, device: u32) {
        let all = self.connections().into_iter();
        let Some((_, host, key)) = all.clone().find(|(it, _, key)| *it == device && self.hands.has_made(key)) else {
            return;
        };
        self.fabric.change(|parts| parts.connections.retain(|it| it.key.as_ref() != Some(&key)));
        self.hands.last.remove(&key);
        self.last.remove(&(device, host));
        self.data.remove(&device);
        self.check();
    }

    /// The object of a device that is attached is lost. One that was lost while its device was free and held data could
    /// not be told from one that never was: that is a limit of restoring a cluster, and left out. So is a call of a dead
    /// controller for it that is still on its way.
    pub(in super::super) fn lose_attachment(&mut self, device: u32) {
        let Some(uid) = self.attachment(device).map(|it| it.uid.clone()) else { return };
        let is_of =
            |(it, _, key): &(u32, u32, AttachKey)| *it == device && key.as_str().starts_with(&format!("{uid}-"));
        if !self.connections().iter().any(is_of) || self.late_calls.iter().any(|late| late.device == device) {
            return;
        }
        self.server.remove::<ModelAttachment>(&device_name(device));
        let of_device = |it: &&ModelClaim| it.given.as_ref().is_some_and(|given| given.device == device);
        self.hands.orphans.extend(self.server.claims.values().filter(of_device).map(|it| it.uid.clone()));
        self.seen.lost += 1;
    }

    /// An operator has the connection of a device taken over, by what the published slice shows.
    pub(in super::super) fn adopt(&mut self, device: u32) {
        let Some(node_name) = self.board(device).others.first().and_then(|other| other.node.clone()) else { return };
        let known = self.attachment(device).cloned();
        let mut in_use = self.server.claims.values().filter_map(ModelClaim::seen);
        let claim = in_use.find(|it| {
            it.device == device_name(device) && it.is_told_attached() && it.node.as_ref() == Some(&node_name)
        });
        let spec = FabricAttachmentSpec {
            manager: "m".to_owned(),
            domain: "d".to_owned(),
            device: FakeFabric::device(device),
            node_name,
            claim: claim.map(|claim| claim.named()),
            attempt: known.as_ref().map_or(0, |known| known.spec.attempt + 1),
            adopted: true,
            ..FabricAttachmentSpec::default()
        };
        match known {
            Some(known) if !is_open(&known, &spec.node_name) => {}
            Some(known) => {
                self.server.update(&known.name, None, Part::Spec, |it: &mut ModelAttachment| it.spec = spec).unwrap();
            }
            None => {
                let (name, finalizers) = (device_name(device), vec![FABRIC_FINALIZER.to_owned()]);
                let made = ModelAttachment { name, finalizers, spec, ..ModelAttachment::default() };
                let made = self.server.create(made).unwrap();
                self.uids.insert(made.uid, device);
            }
        }
        self.check();
    }

    /// Ends the work under way that persons have begun.
    pub(super) fn finish_by_hand(&mut self) {
        for at in 0..200 {
            self.fabric.finish(&AttachKey::new(format!("hand-{at}")).unwrap());
        }
    }
}

//! Who attaches devices in the model: takes every token once, attaches no device twice, and leaves to claims what they were given.
//! What it attaches is published later.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use hostler_allocator::plan::PodSet;
use hostler_api::resource::ResourceSlice;
use serde_json::json;

use super::world::{ModelServer, read};
use crate::{
    hold::DeviceKey,
    provision::{
        adapter::attach::carry_out,
        attach::{
            Attach, AttachCall, AttachFailure, AttachOffer, AttachOrder, AttachStep, AttachToken, AttachedDevice,
        },
        event::ProvisionEvent,
    },
    testkit::{Fate, Fated},
};

#[derive(Debug, Default)]
struct FabricState {
    /// Devices with the nodes that they can be attached to.
    devices: BTreeMap<String, String>,
    attached: BTreeMap<AttachToken, AttachStep>,
    /// All tokens that were ever used for a step.
    tokens: BTreeMap<AttachToken, AttachStep>,
    /// Devices that claims were given, or that are kept.
    used: BTreeSet<String>,
    /// Devices that cannot be attached.
    broken: BTreeSet<String>,
    /// What was carried out.
    done: Vec<String>,
    is_away: bool,
    /// Nothing of what is attached is published.
    is_hidden: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Fabric(Mutex<FabricState>);

impl Fabric {
    pub(super) fn new(devices: usize, nodes: usize) -> Self {
        let devices = (0..devices).map(|at| (format!("fab-{at}"), format!("n{}", at % nodes))).collect();
        Self(Mutex::new(FabricState { devices, ..FabricState::default() }))
    }

    fn with<T>(&self, change: impl FnOnce(&mut FabricState) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    /// From now on the device cannot be attached.
    pub(super) fn breaks(&self, device: &str) {
        self.with(|it| it.broken.insert(device.to_owned()));
    }

    /// From now on nobody answers, or somebody does.
    pub(super) fn is_away(&self, is_away: bool) {
        self.with(|it| it.is_away = is_away);
    }

    /// What is attached is not published.
    pub(super) fn hides(&self) {
        self.with(|it| it.is_hidden = true);
    }

    /// Devices that are attached.
    pub(super) fn attached(&self) -> Vec<String> {
        self.with(|it| it.attached.values().map(|step| step.device.clone()).collect())
    }

    /// What was carried out since that was asked last.
    pub(super) fn done(&self) -> Vec<String> {
        self.with(|it| std::mem::take(&mut it.done))
    }

    fn published(&self) -> Vec<AttachStep> {
        self.with(|it| if it.is_hidden { Vec::new() } else { it.attached.values().cloned().collect() })
    }
}

fn slice(step: &AttachStep) -> ResourceSlice {
    read(json!({
        "metadata": {"name": format!("{}-gpu", step.device)},
        "spec": {
            "driver": "gpu.example", "nodeName": step.node, "devices": [{"name": "gpu-0"}],
            "pool": {"name": step.device, "generation": 1, "resourceSliceCount": 1},
        },
    }))
}

impl Attach for Fabric {
    fn offers(&self, lacking: &[PodSet]) -> Vec<AttachOffer> {
        assert!(lacking.iter().all(|set| set.count > 0), "nothing is attached for who has room");
        self.with(|state| {
            let taken: BTreeSet<&String> = state.attached.values().map(|step| &step.device).collect();
            let free = state.devices.iter().filter(|(device, _)| !taken.contains(device));
            let steps = free.map(|(device, node)| AttachStep { node: node.clone(), device: device.clone() });
            steps.map(|step| AttachOffer { slice: slice(&step), step }).collect()
        })
    }

    fn attach(&self, order: &AttachOrder) -> Result<(), AttachFailure> {
        self.with(|state| {
            let AttachOrder { token, step } = order;
            if state.is_away || state.broken.contains(&step.device) {
                return Err(AttachFailure("the link does not come up".to_owned()));
            }
            let before = state.tokens.entry(token.clone()).or_insert_with(|| step.clone());
            if before != step || state.attached.iter().any(|(other, it)| other != token && it.device == step.device) {
                return Err(AttachFailure(format!("token {token} or the device is of another step")));
            }
            if state.attached.insert(token.clone(), step.clone()).is_none() {
                state.done.push(format!("+{}", step.device));
            }
            Ok(())
        })
    }

    fn detach(&self, token: &AttachToken) -> Result<(), AttachFailure> {
        self.with(|state| {
            if state.is_away {
                return Err(AttachFailure("nobody answers".to_owned()));
            }
            let Some(step) = state.attached.get(token) else { return Ok(()) };
            if state.used.contains(&step.device) {
                return Err(AttachFailure(format!("{} is used", step.device)));
            }
            state.done.push(format!("-{}", step.device));
            state.attached.remove(token);
            Ok(())
        })
    }

    fn list(&self) -> Result<Vec<AttachedDevice>, AttachFailure> {
        self.with(|state| {
            if state.is_away {
                return Err(AttachFailure("nobody answers".to_owned()));
            }
            let listed = state.attached.iter().map(|(token, step)| AttachedDevice {
                token: token.clone(),
                step: step.clone(),
                devices: vec![DeviceKey::new("gpu.example", &step.device, "gpu-0")],
            });
            Ok(listed.collect())
        })
    }
}

impl ModelServer {
    /// The node that sees a pool.
    pub(super) fn node_of<'a>(&'a self, pool: &'a str) -> &'a str {
        self.attached.get(pool).map_or(pool, |node| node)
    }

    /// Carries out a call. One that is lost does nothing, and one that is not heard is carried out all the same.
    pub(super) fn call(&mut self, call: AttachCall, fate: Option<Fate>) -> ProvisionEvent {
        let fabric = self.fabric.clone().unwrap();
        let used = self.held().into_keys().chain(self.given.keys().cloned()).map(|(pool, _)| pool).collect();
        fabric.with(|state| state.used = used);
        let failed = Err(AttachFailure("no answer".to_owned()));
        let unheard = match &call {
            AttachCall::List => ProvisionEvent::Listed(Err(AttachFailure("no answer".to_owned()))),
            AttachCall::Attach(order) => ProvisionEvent::Called(order.token.clone(), failed),
            AttachCall::Detach(token) => ProvisionEvent::Called(token.clone(), failed),
        };
        match Fate::carry_out(fate, &mut (), |()| {}, |()| carry_out(&*fabric, call)) {
            Fated::Answered(event) => event,
            _ => unheard,
        }
    }

    /// What is attached becomes visible, and what is not goes. Says whether anything changed.
    pub(super) fn publish(&mut self) -> bool {
        let Some(fabric) = self.fabric.clone() else { return false };
        let steps = fabric.published();
        let gone: Vec<String> =
            self.attached.keys().filter(|pool| !steps.iter().any(|it| it.device == **pool)).cloned().collect();
        for pool in &gone {
            self.facts.remove_slice(&format!("{pool}-gpu"));
            self.devices.remove(pool);
            self.attached.remove(pool);
        }
        let mut is_other = !gone.is_empty();
        for step in steps {
            if self.attached.insert(step.device.clone(), step.node.clone()).is_none() {
                self.facts.add_slice(slice(&step));
                self.devices.insert(step.device, 1);
                is_other = true;
            }
        }
        is_other
    }
}

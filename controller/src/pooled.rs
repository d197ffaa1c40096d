//! Devices behind switches, and the nodes that have them: the answer of `hostler-controller fabric`. A pure function of
//! FabricAttachments and ResourceSlices.

mod command;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::fabric::{AttachmentPhase, DeviceIdentity, FabricAttachment, fabric_pool, of_fabric_pool};
use hostler_cli::output::API_VERSION;
use serde::{Deserialize, Serialize};

pub(crate) use self::command::{FabricArgs, INSTALL_ATTACHMENTS, run};
use crate::observed::{PooledSlice, SlicedDevice};

/// All devices behind switches.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FabricAnswer {
    /// `output.hostler.dev/v1`.
    api_version: &'static str,
    /// `Fabric`.
    kind: &'static str,
    /// The switch domains by manager and name.
    pub(crate) domains: Vec<PooledDomain>,
}

/// A switch domain.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PooledDomain {
    /// Fabric manager, by its name in the controller's configuration.
    pub(crate) manager: String,
    /// Name of the domain.
    pub(crate) domain: String,
    /// Nodes that can use its devices, by the slices.
    pub(crate) nodes: Vec<String>,
    /// Number of devices by state.
    pub(crate) counts: BTreeMap<String, usize>,
    /// Devices by name.
    pub(crate) devices: Vec<PooledDevice>,
}

/// A device behind a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PooledDevice {
    /// Name of the device.
    pub(crate) name: String,
    /// Enclosure of the device, by the name that its manager gives it.
    pub(crate) enclosure: Option<String>,
    /// Serial number and logical device (GCXLID).
    pub(crate) identity: String,
    /// `memory`, `accelerator`, or empty where it is not known.
    pub(crate) device_kind: String,
    /// Capacities, as the slice has them.
    pub(crate) capacity: BTreeMap<String, String>,
    /// `Free`, `Hidden` where it is not offered, or the phase of its attachment.
    pub(crate) state: String,
    /// True if the device is offered to new claims.
    pub(crate) offered: bool,
    /// The node that has the device, gets it or gives it back.
    pub(crate) node_name: Option<String>,
    /// `namespace/name` of the claim.
    pub(crate) claim: Option<String>,
    /// Time since which the device is in this state, RFC 3339.
    pub(crate) since: Option<String>,
    /// Time until which it must have got further, RFC 3339.
    pub(crate) deadline: Option<String>,
    /// True if a container may have used the device since it was last erased.
    pub(crate) used: bool,
    /// The reason of the state, and what the node says.
    pub(crate) message: String,
}

impl FabricAnswer {
    /// Makes the answer of all FabricAttachments and ResourceSlices.
    pub(crate) fn of<'a>(
        attachments: impl IntoIterator<Item = &'a FabricAttachment>,
        slices: impl IntoIterator<Item = &'a PooledSlice>,
    ) -> Self {
        let mut domains: BTreeMap<(String, String), DomainParts> = BTreeMap::new();
        for slice in newest(slices) {
            let Some((manager, domain)) = of_fabric_pool(&slice.pool) else { continue };
            let parts = domains.entry((manager.to_owned(), domain.to_owned())).or_default();
            parts.nodes.extend(slice.nodes.iter().map(|node| node.to_string()));
            parts.devices.extend(slice.devices().into_iter().map(|it| (it.name.clone(), PooledDevice::offered(it))));
        }
        for attachment in attachments {
            let spec = &attachment.spec;
            let parts = domains.entry((spec.manager.clone(), spec.domain.clone())).or_default();
            let name = attachment.metadata.name.clone();
            let device = parts.devices.entry(name.clone()).or_insert_with(|| PooledDevice::unlisted(&name));
            device.attach(attachment);
        }
        let domains = domains.into_iter().map(|((manager, domain), parts)| parts.shown(manager, domain));
        Self { api_version: API_VERSION, kind: "Fabric", domains: domains.collect() }
    }

    /// Leaves out other pools, and of the devices those that were not asked for. The counts stay.
    pub(crate) fn narrowed(mut self, pool: Option<&str>, devices: ShownDevices) -> Self {
        self.domains.retain(|it| pool.is_none_or(|pool| pool == fabric_pool(&it.manager, &it.domain)));
        for domain in &mut self.domains {
            match devices {
                ShownDevices::All => {}
                ShownDevices::Busy => domain.devices.retain(|device| device.state != FREE),
                ShownDevices::None => domain.devices.clear(),
            }
        }
        self
    }
}

/// The state of devices that are offered, and on no node.
const FREE: &str = "Free";

/// The devices of an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ShownDevices {
    /// Each.
    #[default]
    All,
    /// Devices that are not free.
    Busy,
    /// No device: the counts alone.
    None,
}

#[derive(Default)]
struct DomainParts {
    nodes: BTreeSet<String>,
    devices: BTreeMap<String, PooledDevice>,
}

impl DomainParts {
    fn shown(self, manager: String, domain: String) -> PooledDomain {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        self.devices.values().for_each(|device| *counts.entry(device.state.clone()).or_default() += 1);
        let devices = self.devices.into_values().collect();
        PooledDomain { manager, domain, nodes: self.nodes.into_iter().collect(), counts, devices }
    }
}

/// Slices of the newest generation of each pool: older ones do not count any more.
fn newest<'a>(slices: impl IntoIterator<Item = &'a PooledSlice>) -> Vec<&'a PooledSlice> {
    let all: Vec<&PooledSlice> = slices.into_iter().collect();
    let mut newest: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for slice in &all {
        let generation = newest.entry((&slice.driver, &slice.pool)).or_default();
        *generation = (*generation).max(slice.generation);
    }
    all.into_iter().filter(|it| newest.get(&(&*it.driver, &*it.pool)) == Some(&it.generation)).collect()
}

impl PooledDevice {
    fn offered(device: SlicedDevice) -> Self {
        let SlicedDevice { name, device_kind, enclosure, capacity, is_hidden } = device;
        Self {
            device_kind: device_kind.unwrap_or_default(),
            enclosure,
            capacity,
            state: if is_hidden { "Hidden" } else { FREE }.to_owned(),
            offered: !is_hidden,
            ..Self::unlisted(&name)
        }
    }

    /// A device that no slice has.
    fn unlisted(name: &str) -> Self {
        let identity = DeviceIdentity::of_device_name(name).map(|it| it.to_string()).unwrap_or_default();
        Self { name: name.to_owned(), identity, state: "Hidden".to_owned(), ..Self::default() }
    }

    fn attach(&mut self, attachment: &FabricAttachment) {
        let FabricAttachment { spec, status, .. } = attachment;
        let is_there = status.phase.is_under_way();
        if is_there || !self.offered {
            self.state = status.phase.as_str().to_owned();
        }
        self.node_name = is_there.then(|| spec.node_name.clone());
        self.claim = spec.claim.as_ref().filter(|_| is_there).map(|it| format!("{}/{}", it.namespace, it.name));
        self.since.clone_from(&status.since);
        self.deadline = status.deadline.clone().filter(|_| status.phase < AttachmentPhase::Ready && is_there);
        self.used = status.used;
        let of_node = attachment.node_report().filter(|report| is_there && !report.message.is_empty());
        let of_node = of_node.map(|report| format!("node {}: {}", spec.node_name, report.message));
        let kept = spec.kept_for.as_ref().filter(|_| is_there).map(|it| format!("kept for Reservation {}", it.name));
        let said = [kept, Some(status.message.clone()), of_node].into_iter().flatten().filter(|it| !it.is_empty());
        self.message = said.collect::<Vec<_>>().join("; ");
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::{fabric::AttachmentKeeper, resource::ResourceSlice};
    use hostler_cli::output::TableWidth;
    use serde_json::{Value, json};

    use super::*;

    fn slice(generation: i64, devices: &Value) -> PooledSlice {
        let term = json!({"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]},
        ]});
        let slice: ResourceSlice = serde_json::from_value(json!({
            "metadata": {"name": format!("s{generation}")},
            "spec": {
                "driver": "hostler.dev", "devices": devices,
                "pool": {"name": "fabric/row1/cxl", "generation": generation, "resourceSliceCount": 1},
                "nodeSelector": {"nodeSelectorTerms": [term]},
            },
        }))
        .unwrap();
        PooledSlice::of(&slice).unwrap()
    }

    fn device(name: &str, taints: &Value) -> Value {
        json!({
            "name": name, "attributes": {"kind": {"string": "memory"}, "enclosure": {"string": "box-1"}}, "capacity": {"memory": {"value": "64Gi"}},
            "taints": taints,
        })
    }

    fn attachment(name: &str, status: &Value) -> FabricAttachment {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "manager": "row1", "domain": "cxl", "device": "00-00-00-00-00-00-10-01:0001", "nodeName": "n2",
                "claim": {"namespace": "ml", "name": "train", "uid": "u"}, "attempt": 3,
            },
            "status": status,
        }))
        .unwrap()
    }

    const FREE_DEVICE: &str = "0000000000001001-0001";
    const TAKEN: &str = "0000000000001002-0001";
    const UNCLEAN: &str = "0000000000001003-0001";

    fn answer() -> FabricAnswer {
        let tainted = json!([{"key": "hostler.dev/fabric", "value": "attaching", "effect": "NoSchedule"}]);
        let old = slice(1, &json!([device("0000000000001009-0001", &json!([]))]));
        let new = slice(2, &json!([device(FREE_DEVICE, &json!([])), device(TAKEN, &tainted)]));
        let taken = attachment(
            TAKEN,
            &json!({
                "phase": "Attached", "message": "the node looks for the device", "since": "2026-11-28T10:00:00Z",
                "deadline": "2026-11-28T10:08:00Z",
                "node": {"attempt": 3, "state": "Found", "message": "it is being erased"},
            }),
        );
        let unclean = attachment(
            UNCLEAN,
            &json!({"phase": "Detached", "used": true, "message": "it was isolated", "since": "2026-11-28T09:00:00Z"}),
        );
        FabricAnswer::of([&taken, &unclean], [&old, &new])
    }

    #[test]
    fn a_row_says_where_a_device_is_and_what_it_waits_for() {
        let answer = answer();
        let [domain] = answer.domains.as_slice() else { panic!("{answer:?}") };
        assert_eq!((domain.manager.as_str(), domain.domain.as_str()), ("row1", "cxl"));
        assert_eq!(domain.nodes, ["n1", "n2"]);
        let states: Vec<_> =
            domain.devices.iter().map(|it| (it.name.as_str(), it.state.as_str(), it.offered)).collect();
        assert_eq!(states, [(FREE_DEVICE, "Free", true), (TAKEN, "Attached", false), (UNCLEAN, "Detached", false)]);
        let [_, taken, unclean] = domain.devices.as_slice() else { panic!("{domain:?}") };
        assert_eq!((taken.node_name.as_deref(), taken.claim.as_deref()), (Some("n2"), Some("ml/train")));
        assert_eq!(taken.deadline.as_deref(), Some("2026-11-28T10:08:00Z"));
        assert_eq!(taken.message, "the node looks for the device; node n2: it is being erased");
        assert_eq!((unclean.node_name.as_deref(), unclean.used), (None, true));
        assert_eq!(unclean.identity, "00-00-00-00-00-00-10-03:0001");
        assert_eq!((taken.enclosure.as_deref(), unclean.enclosure.as_deref()), (Some("box-1"), None));
    }

    #[test]
    fn devices_that_were_not_asked_for_are_counted_all_the_same() {
        let devices = |shown| {
            let answer = answer().narrowed(None, shown);
            let [domain] = answer.domains.as_slice() else { panic!("{answer:?}") };
            assert_eq!(
                domain.counts,
                [("Attached", 1), ("Detached", 1), ("Free", 1)].map(|(s, n)| (s.to_owned(), n)).into()
            );
            domain.devices.iter().map(|it| it.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(devices(ShownDevices::All), [FREE_DEVICE, TAKEN, UNCLEAN]);
        assert_eq!(devices(ShownDevices::Busy), [TAKEN, UNCLEAN]);
        assert_eq!(devices(ShownDevices::None), Vec::<String>::new());
        assert_eq!(answer().narrowed(Some("fabric/row1/other"), ShownDevices::All).domains, []);
        assert_eq!(answer().narrowed(Some("fabric/row1/cxl"), ShownDevices::All), answer());
    }

    #[test]
    fn a_device_says_for_which_reservation_it_is_kept() {
        let mut kept = attachment(TAKEN, &json!({"phase": "Ready", "message": "the node has the device"}));
        kept.spec.claim = None;
        kept.spec.kept_for = Some(AttachmentKeeper { name: "night".to_owned(), uid: "r".to_owned() });
        let answer = FabricAnswer::of([&kept], []);
        let [domain] = answer.domains.as_slice() else { panic!("{answer:?}") };
        assert_eq!(domain.devices[0].message, "kept for Reservation night; the node has the device");
    }

    #[test]
    fn the_table_has_a_row_for_each_device_and_names_what_stands_still() {
        assert_eq!(
            table::text(&answer(), TableWidth::Narrow),
            "POOL             DEVICE                 KIND    STATE     NODE  CLAIM     SINCE\n\
             fabric/row1/cxl  0000000000001001-0001  memory  Free      -     -         -\n\
             fabric/row1/cxl  0000000000001002-0001  memory  Attached  n2    ml/train  2026-11-28T10:00:00Z\n\
             fabric/row1/cxl  0000000000001003-0001  -       Detached  -     -         2026-11-28T09:00:00Z\n\
             0000000000001002-0001: the node looks for the device; node n2: it is being erased; until 2026-11-28T10:08:00Z\n\
             0000000000001003-0001: it was isolated; it may hold data of an earlier claim, and is erased before the next one\n"
        );
        let wide = table::text(&answer(), TableWidth::Wide);
        assert!(wide.contains("memory=64Gi") && wide.contains("n1, n2"), "{wide}");
    }
}

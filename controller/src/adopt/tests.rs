//! What is said and written for each device that others hold.

use hostler_api::fabric::FabricAttachmentStatus;
use hostler_cli::output::TableWidth;
use serde_json::json;

use super::*;

const HELD: &str = "0000000000001001-0001";
const FREE: &str = "0000000000001002-0001";
const HOST: &str = "918eda4d-2b69-432f-b0d3-dc2a8d80a351";

fn slice(generation: i64, taint: &str) -> ResourceSlice {
    let device = |name: &str, taint: &str| {
        json!({
            "name": name, "capacity": {"memory": {"value": "64Gi"}},
            "taints": [{"key": "hostler.dev/fabric", "value": taint, "effect": "NoSchedule"}],
        })
    };
    serde_json::from_value(json!({
        "metadata": {"name": format!("s{generation}")},
        "spec": {
            "driver": "hostler.dev", "devices": [device(HELD, taint), device(FREE, "attached")],
            "pool": {"name": "fabric/row1/cxl", "generation": generation, "resourceSliceCount": 1},
        },
    }))
    .unwrap()
}

/// Others gave a device to node n1.
fn scene() -> AdoptionScene {
    let mut scene = AdoptionScene::default();
    scene.see_slice(&slice(2, &format!("in-use.{HOST}")));
    scene.see_slice(&slice(1, "attached"));
    scene.nodes.insert(HOST.parse().unwrap(), ["n1".to_owned()].into());
    scene
}

fn claim(node: &str, is_in_use: bool) -> HolderClaim {
    HolderClaim {
        named: AttachedClaim { namespace: "ml".to_owned(), name: "train".to_owned(), uid: "u".to_owned() },
        pool: "fabric/row1/cxl".to_owned(),
        node: Some(node.to_owned()),
        is_in_use,
    }
}

fn only(scene: &AdoptionScene) -> PlannedAdoption {
    let mut planned = scene.planned(&AdoptionChoice::default());
    assert_eq!(planned.len(), 1, "{planned:?}");
    planned.remove(0)
}

fn refusal(scene: &AdoptionScene) -> String {
    let PlannedAdoption { row, spec } = only(scene);
    assert_eq!((row.state, spec), (AdoptionState::Refused, None), "{}", row.message);
    row.message
}

#[test]
fn a_connection_of_others_is_taken_over_by_the_first_attempt_of_an_object() {
    let PlannedAdoption { row, spec } = only(&scene());
    let spec = spec.unwrap();
    assert_eq!((&*spec.manager, &*spec.domain, &*spec.node_name), ("row1", "cxl", "n1"));
    assert_eq!((spec.device.device_name(), spec.attempt, spec.adopted, spec.claim), (HELD.to_owned(), 0, true, None));
    assert_eq!(
        (row.state, row.host.as_deref(), row.node_name.as_deref()),
        (AdoptionState::Adoptable, Some(HOST), Some("n1"))
    );
    assert!(row.message.starts_with("node n1 lets go of it and erases it"), "{}", row.message);
}

#[test]
fn a_claim_keeps_the_device_where_it_was_told_that_it_has_it() {
    let mut scene = scene();
    scene.claims.insert(HELD.to_owned(), vec![claim("n2", true), claim("n1", false), claim("n1", true)]);
    let PlannedAdoption { row, spec } = only(&scene);
    assert_eq!(spec.unwrap().claim.unwrap().name, "train");
    assert!(row.message.starts_with("claim ml/train uses it and keeps it; afterwards node n1"), "{}", row.message);
    scene.claims.insert(HELD.to_owned(), vec![claim("n1", false)]);
    let PlannedAdoption { row, spec } = only(&scene);
    assert_eq!((spec.unwrap().claim, row.claim.as_deref()), (None, Some("ml/train")));
    assert!(row.message.starts_with("claim ml/train waits for it, and was never given it: node n1"), "{}", row.message);
}

#[test]
fn an_object_that_is_there_is_used_again_when_it_is_detached_and_only_then() {
    let mut scene = scene();
    let known = |phase| FabricAttachment {
        spec: FabricAttachmentSpec { attempt: 4, node_name: "n2".to_owned(), ..FabricAttachmentSpec::default() },
        status: FabricAttachmentStatus { phase, ..FabricAttachmentStatus::default() },
        ..FabricAttachment::default()
    };
    scene.attachments.insert(HELD.to_owned(), known(AttachmentPhase::Detached));
    assert_eq!(only(&scene).spec.unwrap().attempt, 5);
    scene.attachments.insert(HELD.to_owned(), known(AttachmentPhase::Pending));
    assert!(refusal(&scene).contains("its FabricAttachment is Pending on node n2"), "a claim waits for it");
    let waiting = |node: &str| {
        let mut known = known(AttachmentPhase::Pending);
        (known.spec.adopted, known.spec.node_name) = (true, node.to_owned());
        known
    };
    scene.attachments.insert(HELD.to_owned(), waiting("n1"));
    assert!(refusal(&scene).contains("its FabricAttachment is Pending on node n1"), "adopted twice");
    scene.attachments.insert(HELD.to_owned(), waiting("n2"));
    assert_eq!(only(&scene).spec.unwrap().node_name, "n1", "the connection leads elsewhere by now");
    // Its slice may show the attempt already, and no connection of others.
    scene.attachments.insert(FREE.to_owned(), waiting("n1"));
    let devices = vec![DeviceIdentity::of_device_name(FREE).unwrap()];
    let planned = scene.planned(&AdoptionChoice { devices, manager: None });
    let why = &planned[0].row.message;
    assert!(why.starts_with("its FabricAttachment is Pending on node n1"), "adopted twice: {why}");
}

#[test]
fn a_host_that_is_no_node_or_two_is_refused_with_the_fix() {
    let mut scene = scene();
    scene.nodes.clear();
    let why = refusal(&scene);
    assert!(why.contains(HOST) && why.contains("remove the connection at the manager"), "{why}");
    scene.nodes.insert(HOST.parse().unwrap(), ["n1".to_owned(), "n2".to_owned()].into());
    assert!(refusal(&scene).starts_with("the nodes n1, n2 all have"), "{}", refusal(&scene));
}

#[test]
fn a_device_that_is_named_is_always_answered() {
    let scene = scene();
    let named = |names: &[&str], manager: Option<&str>| {
        let devices = names.iter().map(|name| DeviceIdentity::of_device_name(name).unwrap()).collect();
        let choice = AdoptionChoice { devices, manager: manager.map(str::to_owned) };
        scene
            .planned(&choice)
            .into_iter()
            .map(|it| (it.row.name, it.row.message, it.spec.is_some()))
            .collect::<Vec<_>>()
    };
    let [(_, _, true), (free, why, false), (_, unknown, false)] =
        &named(&[HELD, FREE, "0000000000009999-0001"], None)[..]
    else {
        panic!("one of three can be taken over")
    };
    assert_eq!(free, FREE);
    assert!(why.starts_with("no connection of others has it"), "{why}");
    assert!(unknown.starts_with("no slice shows it"), "{unknown}");
    assert!(!named(&[HELD], Some("row2"))[0].2, "it is another manager's");
    let other = AdoptionChoice { manager: Some("row2".to_owned()), ..AdoptionChoice::default() };
    assert!(scene.planned(&other).is_empty());
}

#[test]
fn the_table_has_a_row_for_each_device_and_says_what_happens_next() {
    let rows = scene().planned(&AdoptionChoice::default()).into_iter().map(|it| it.row).collect();
    let answer = AdoptionAnswer::new(true, rows);
    assert_eq!(
        table::text(&answer, TableWidth::Narrow),
        "POOL             DEVICE                 NODE  CLAIM  RESULT\n\
         fabric/row1/cxl  0000000000001001-0001  n1    -      Adoptable\n\
         0000000000001001-0001: node n1 lets go of it and erases it, the connection is ended, and the device is offered\n\
         nothing was written (--dry-run)\n"
    );
    assert!(table::text(&answer, TableWidth::Wide).contains("memory=64Gi"));
    assert_eq!(
        table::text(&AdoptionAnswer::new(false, Vec::new()), TableWidth::Narrow),
        "no connection is left to be taken over\n"
    );
}

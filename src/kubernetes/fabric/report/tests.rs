//! What a node says of cards that are attached, in use, let go of and gone.

use std::sync::Arc;

use hostler_api::{ClaimRef, ClaimUid, QualifiedName, Quantity, fabric::DeviceIdentity};
use hostler_backend::{Capacities, Capacity, CardSerials};
use serde_json::json;

use super::*;
use crate::{
    claims::{
        ClaimView,
        store::{ClaimRecord, RecordState},
    },
    inventory::Pool,
};

const SERIAL: u64 = 0x1001;
const SANITIZE: Option<ErasureMethod> = Some(ErasureMethod::Sanitize);
const STAYS: Erasure = Erasure::Impossible { reason: "nothing erases it" };

fn name(text: &str) -> DeviceName {
    DeviceName::new(text).unwrap()
}

fn qualified(text: &str) -> QualifiedName {
    QualifiedName::new(text).unwrap()
}

fn card(text: &str) -> Device {
    let mut card = Device {
        cards: CardSerials::Whole(SERIAL),
        erasure: Erasure::By(ErasureMethod::Sanitize),
        ..Device::new(name(text))
    };
    card.capacity.insert(qualified("memory"), Capacity { value: Quantity::whole(1 << 30), policy: None });
    card
}

fn inventory(devices: Vec<Device>) -> Inventory {
    let pool = Pool { name: "n/cxl".to_owned(), devices, ..Pool::default() };
    Inventory { pools: [(BackendName::new("cxl").unwrap(), Arc::new(pool))].into(), ..Inventory::default() }
}

/// A claim that was given this device of this pool.
fn claims(pool: &str, device: &str, local: Option<&str>) -> ClaimTable {
    let uid = ClaimUid::new("u1").unwrap();
    let device = json!({
        "backend": "cxl", "plan": {}, "local": local,
        "grant": {"request": "r", "pool": pool, "device": device, "access": "Use", "consumed": {}, "config": []},
    });
    let record = ClaimRecord {
        claim: ClaimRef { namespace: "ml".to_owned(), name: "train".to_owned(), uid: uid.clone() },
        state: RecordState::Prepared,
        boot_id: "b".to_owned(),
        devices: vec![serde_json::from_value(device).unwrap()],
        metadata: None,
        since: None,
        reserved_for: Vec::new(),
    };
    [(uid, ClaimView::Recorded { record: Arc::new(record), problem: None, busy: None })].into_iter().collect()
}

fn attachment(phase: AttachmentPhase) -> FabricAttachment {
    let mut attachment = FabricAttachment::default();
    attachment.spec.device = DeviceIdentity { serial: SERIAL, logical_device: 1 };
    attachment.spec.attempt = 2;
    attachment.status.phase = phase;
    attachment
}

fn released(used: bool) -> FabricAttachment {
    let mut attachment = attachment(AttachmentPhase::Releasing);
    attachment.spec.release = true;
    attachment.status.used = used;
    attachment
}

fn reported(mut attachment: FabricAttachment, state: NodeDeviceState, erased: bool) -> FabricAttachment {
    let erased = if erased { SANITIZE } else { None };
    let report = FabricNodeReport { attempt: attachment.spec.attempt, state, erased, ..FabricNodeReport::default() };
    attachment.status.node = Some(report);
    attachment
}

fn decided(
    attachment: &FabricAttachment,
    devices: Vec<Device>,
    claims: &ClaimTable,
    progress: &CardProgress,
) -> CardDecision {
    decide(&CardContext { attachment, inventory: &inventory(devices), claims, progress })
}

/// The decision without claims and without an order.
fn plain(attachment: &FabricAttachment, devices: Vec<Device>) -> CardDecision {
    decided(attachment, devices, &ClaimTable::default(), &CardProgress::default())
}

fn state(decision: &CardDecision) -> NodeDeviceState {
    decision.report.as_ref().unwrap().state
}

fn message(decision: &CardDecision) -> &str {
    &decision.report.as_ref().unwrap().message
}

fn erased(decision: &CardDecision) -> Option<ErasureMethod> {
    decision.report.as_ref().unwrap().erased
}

fn operation(decision: &CardDecision) -> Option<DeviceOperation> {
    decision.act.as_ref().map(|act| act.operation)
}

#[test]
fn nothing_is_said_where_the_manager_was_not_asked_or_has_the_card_back() {
    for phase in [AttachmentPhase::Pending, AttachmentPhase::Detached] {
        let mut attachment = attachment(phase);
        assert_eq!(plain(&attachment, vec![card("memory-1001")]), CardDecision::default());
        attachment.spec.release = true;
        assert_eq!(plain(&attachment, vec![card("memory-1001")]), CardDecision::default());
    }
}

#[test]
fn a_card_is_ready_when_it_alone_has_the_number_and_is_healthy() {
    let attachment = attachment(AttachmentPhase::Attaching);
    let absent = plain(&attachment, Vec::new());
    assert_eq!((state(&absent), message(&absent)), (NodeDeviceState::Absent, ""));
    let ready = plain(&attachment, vec![card("memory-1001")]);
    let report = ready.report.as_ref().unwrap();
    assert_eq!((report.state, &*report.device, report.attempt), (NodeDeviceState::Ready, "cxl/memory-1001", 2));
    assert_eq!(ready.act, None);
    let ill = Device { health: Health::Unhealthy { reason: "hot".to_owned() }, ..card("memory-1001") };
    let found = plain(&attachment, vec![ill]);
    assert_eq!((state(&found), message(&found)), (NodeDeviceState::Found, "it is not healthy: hot"));
    let two = plain(&attachment, vec![card("memory-a"), card("memory-b")]);
    assert_eq!(state(&two), NodeDeviceState::Found);
    assert!(message(&two).starts_with("cxl/memory-a, cxl/memory-b have its serial number"), "{}", message(&two));
}

#[test]
fn a_card_with_less_memory_than_was_asked_for_is_not_ready() {
    let mut asked = attachment(AttachmentPhase::Attached);
    asked.spec.memory = Some(Quantity::whole(1 << 30));
    assert_eq!(state(&plain(&asked, vec![card("memory-1001")])), NodeDeviceState::Ready);
    asked.spec.memory = Some(Quantity::whole((1 << 30) + 1));
    let found = plain(&asked, vec![card("memory-1001")]);
    assert_eq!(state(&found), NodeDeviceState::Found);
    assert!(message(&found).starts_with("it has 1Gi of memory, and "), "{}", message(&found));
    let untold = Device { capacity: Capacities::default(), ..card("memory-1001") };
    assert!(message(&plain(&asked, vec![untold])).starts_with("it has no known size"));
    // A claim may have a part of it by then.
    asked.status.phase = AttachmentPhase::Ready;
    assert_eq!(state(&plain(&asked, vec![card("memory-1001")])), NodeDeviceState::Ready);
}

#[test]
fn a_card_is_erased_before_use_once_for_each_attempt() {
    let mut attachment = attachment(AttachmentPhase::Attached);
    attachment.spec.erase = true;
    let devices = || vec![card("memory-1001")];
    let begun = plain(&attachment, devices());
    assert_eq!(state(&begun), NodeDeviceState::Found);
    assert_eq!(operation(&begun), Some(DeviceOperation::Detach { sanitize: true, overwrite: false, remove: false }));
    let running =
        CardProgress { order: CardOrderState::Running(vec!["claim ml/eval".to_owned()]), ..CardProgress::default() };
    let waits = decided(&attachment, devices(), &ClaimTable::default(), &running);
    assert_eq!((message(&waits), operation(&waits)), ("it is being erased; waits for claim ml/eval", None));
    let done = CardProgress { erased: SANITIZE, ..CardProgress::default() };
    let ready = decided(&attachment, devices(), &ClaimTable::default(), &done);
    assert_eq!((state(&ready), erased(&ready)), (NodeDeviceState::Ready, SANITIZE));
    // A daemon that has started since goes by the report of this attempt, and by no other.
    let mut after = reported(attachment, NodeDeviceState::Ready, true);
    assert_eq!(state(&plain(&after, devices())), NodeDeviceState::Ready);
    after.spec.attempt += 1;
    assert_eq!(state(&plain(&after, devices())), NodeDeviceState::Found);
}

#[test]
fn a_card_that_cannot_be_erased_is_not_ready_where_it_has_to_be() {
    let mut attachment = attachment(AttachmentPhase::Attached);
    attachment.spec.erase = true;
    let lasting = Device { erasure: STAYS, ..card("memory-1001") };
    let cannot = plain(&attachment, vec![lasting.clone()]);
    assert_eq!((state(&cannot), operation(&cannot)), (NodeDeviceState::Found, None));
    assert_eq!(message(&cannot), "it is to be erased before it is used, and nothing erases it");
    let decision = plain(&attachment, vec![Device { erasure: Erasure::By(ErasureMethod::Overwrite), ..lasting }]);
    let order = DeviceOperation::Detach { sanitize: false, overwrite: true, remove: false };
    assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Found, Some(order)));
}

#[test]
fn a_card_in_use_is_kept_until_the_claim_is_taken_back() {
    let both =
        [claims("fabric/m/d", "0000000000001001-0001", Some("memory-1001")), claims("n/cxl", "memory-1001", None)];
    for claims in both {
        let decision = decided(&released(true), vec![card("memory-1001")], &claims, &CardProgress::default());
        assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Releasing, None));
        assert!(message(&decision).starts_with("claim ml/train has it"), "{}", message(&decision));
    }
    let node = Device { cards: CardSerials::Among([SERIAL].into()), ..Device::new(name("node5")) };
    let part = decided(
        &released(true),
        vec![card("memory-1001"), node],
        &claims("n/cxl", "node5", None),
        &CardProgress::default(),
    );
    assert!(message(&part).starts_with("claim ml/train has it"), "a part of its memory is used");
    let yanked = claims("fabric/m/d", "0000000000001001-0001", Some("memory-1001"));
    let gone = decided(&released(true), Vec::new(), &yanked, &CardProgress::default());
    assert_eq!(state(&gone), NodeDeviceState::Releasing, "the claim is on record though its card is gone");
    let other = decided(
        &released(true),
        vec![card("memory-1001")],
        &claims("n/cxl", "memory-2", None),
        &CardProgress::default(),
    );
    assert_eq!(operation(&other), Some(DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true }));
}

#[test]
fn a_card_that_claims_used_is_erased_when_it_is_let_go_of() {
    let devices = || vec![card("memory-1001")];
    let unused = plain(&released(false), devices());
    assert_eq!(operation(&unused), Some(DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true }));
    // It was erased before the claim wrote to it: that says nothing of now.
    let used = reported(released(true), NodeDeviceState::Ready, true);
    let decision = plain(&used, devices());
    assert_eq!(
        (erased(&decision), operation(&decision)),
        (None, Some(DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true }))
    );
    // Removing failed after it was erased.
    let halfway = reported(released(true), NodeDeviceState::Releasing, true);
    assert_eq!(
        operation(&plain(&halfway, devices())),
        Some(DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true })
    );
    let running = CardProgress { order: CardOrderState::Running(Vec::new()), ..CardProgress::default() };
    let ending = decided(&released(true), Vec::new(), &ClaimTable::default(), &running);
    assert_eq!(state(&ending), NodeDeviceState::Releasing, "the order has not said yet whether it has erased the card");
    let done = CardProgress { erased: SANITIZE, ..CardProgress::default() };
    let gone = decided(&released(true), Vec::new(), &ClaimTable::default(), &done);
    assert_eq!((state(&gone), erased(&gone), message(&gone)), (NodeDeviceState::Released, SANITIZE, ""));
}

#[test]
fn a_card_that_is_gone_is_released_and_erased_only_if_that_is_known() {
    let unknown = plain(&released(true), Vec::new());
    assert_eq!((state(&unknown), erased(&unknown)), (NodeDeviceState::Released, None));
    assert_eq!(message(&unknown), "it is gone, and whether it was erased is not known");
    assert_eq!(message(&plain(&released(false), Vec::new())), "");
    let said = plain(&reported(released(true), NodeDeviceState::Releasing, true), Vec::new());
    assert_eq!((state(&said), erased(&said)), (NodeDeviceState::Released, SANITIZE));
    let lasting = Device { erasure: STAYS, ..card("memory-1001") };
    let act = plain(&released(true), vec![lasting]).act.unwrap();
    assert_eq!(act.operation, DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true });
    let progress = CardProgress { not_erased: act.not_erased, ..CardProgress::default() };
    let gone = decided(&released(true), Vec::new(), &ClaimTable::default(), &progress);
    assert_eq!(erased(&gone), None);
    assert!(message(&gone).starts_with("it is gone, and was not erased: nothing erases it"), "{}", message(&gone));
}

#[test]
fn what_is_not_known_is_not_called_gone() {
    let attachment = released(false);
    let (claims, progress) = (ClaimTable::default(), CardProgress::default());
    let look = |inventory: &Inventory| {
        let decision =
            decide(&CardContext { attachment: &attachment, inventory, claims: &claims, progress: &progress });
        (state(&decision), message(&decision).to_owned())
    };
    let mut stale = inventory(Vec::new());
    for pool in stale.pools.values_mut() {
        Arc::make_mut(pool).stale = Some("EIO".to_owned());
    }
    let sleeping = Device { cards: CardSerials::Hidden, ..Device::new(name("memory-0000-41-00-0")) };
    for (inventory, reason) in [
        (stale, "backend cxl could not be scanned: EIO"),
        (inventory(vec![sleeping]), "the serial number of cxl/memory-0000-41-00-0 cannot be read"),
        (Inventory::default(), "backend cxl is not enabled: nothing looks for cards"),
    ] {
        let told = (NodeDeviceState::Releasing, format!("whether it is here is not known: {reason}"));
        assert_eq!(look(&inventory), told);
    }
}

#[test]
fn an_fpga_is_scrubbed_and_not_called_gone_while_its_backend_does_not_look() {
    let fpga = Device { erasure: Erasure::By(ErasureMethod::Scrub), ..card("card-0000-b1-00-0") };
    let with = |pool: Option<Pool>| {
        let mut inventory = inventory(Vec::new());
        inventory.pools.extend(pool.map(|pool| (BackendName::new("fpga").unwrap(), Arc::new(pool))));
        inventory
    };
    let pool = || Pool { name: "n/fpga".to_owned(), devices: vec![fpga.clone()], ..Pool::default() };
    let decide = |attachment: &FabricAttachment, inventory: &Inventory| {
        let (claims, progress) = (ClaimTable::default(), CardProgress::default());
        decide(&CardContext { attachment, inventory, claims: &claims, progress: &progress })
    };
    let decision = decide(&released(true), &with(Some(pool())));
    let order = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true };
    assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Releasing, Some(order)));
    let mut last = reported(released(true), NodeDeviceState::Releasing, false);
    last.status.node.as_mut().unwrap().device = "fpga/card-0000-b1-00-0".to_owned();
    let stale = Pool { stale: Some("EIO".to_owned()), devices: Vec::new(), ..pool() };
    for (pool, reason) in
        [(Some(stale), "could not be scanned: EIO"), (None, "is not enabled: nothing looks for cards")]
    {
        let decision = decide(&last, &with(pool));
        let told = format!("whether it is here is not known: backend fpga {reason}");
        assert_eq!((state(&decision), message(&decision)), (NodeDeviceState::Releasing, told.as_str()));
    }
    // A host without FPGAs does without their backend.
    assert_eq!(state(&decide(&released(false), &with(None))), NodeDeviceState::Released);
}

#[test]
fn an_order_that_failed_is_told_and_tried_again_later() {
    let failed = CardProgress { order: CardOrderState::Failed("memory in use".to_owned()), ..CardProgress::default() };
    let decision = decided(&released(true), vec![card("memory-1001")], &ClaimTable::default(), &failed);
    assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Releasing, None));
    assert_eq!(message(&decision), "it is not detached, and that is tried again: memory in use");
}

fn accelerator() -> Device {
    let mut function = Device { erasure: Erasure::By(ErasureMethod::Reset), ..card("accelerator-0000-17-00-0") };
    let texts = [("kind", "accelerator"), ("driver", "shiny")];
    function.attributes = texts.map(|(name, text)| (qualified(name), text.into())).into_iter().collect();
    function
}

#[test]
fn accelerators_are_erased_by_a_reset_where_it_is_known_to_erase() {
    let decision = plain(&released(true), vec![accelerator()]);
    let order = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true };
    assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Releasing, Some(order)));
    let decision = plain(&released(true), vec![Device { erasure: STAYS, ..accelerator() }]);
    let order = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: true };
    assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Releasing, Some(order)));
    assert!(message(&decision).contains("is not erased: nothing erases it"), "{}", message(&decision));
}

#[test]
fn an_accelerator_that_shows_no_memory_may_hold_data_all_the_same() {
    let function = Device { erasure: STAYS, capacity: Default::default(), ..accelerator() };
    let decision = plain(&released(true), vec![function.clone()]);
    assert_eq!(erased(&decision), None);
    assert!(message(&decision).contains("and is not erased"), "{}", message(&decision));
    let mut attachment = attachment(AttachmentPhase::Attached);
    attachment.spec.erase = true;
    assert_eq!(state(&plain(&attachment, vec![function])), NodeDeviceState::Found);
}

#[test]
fn an_erasure_that_a_crash_ended_before_the_driver_was_back_is_made_again() {
    let mut attachment = attachment(AttachmentPhase::Attached);
    attachment.spec.erase = true;
    let health = Health::Unhealthy { reason: "no driver is bound to it".to_owned() };
    let mut function = Device { health, ..accelerator() };
    let broken = plain(&attachment, vec![function.clone()]);
    assert_eq!((state(&broken), operation(&broken)), (NodeDeviceState::Found, None));
    function.attributes.remove("driver");
    let decision = plain(&attachment, vec![function.clone()]);
    let order = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: false };
    assert_eq!((state(&decision), operation(&decision)), (NodeDeviceState::Found, Some(order)));
    let mut unread = inventory(vec![function]);
    let pool = unread.pools.get_mut(&BackendName::new("cxl").unwrap()).unwrap();
    Arc::make_mut(pool).stale = Some("it hangs".to_owned());
    let (claims, progress) = (ClaimTable::default(), CardProgress::default());
    let context = CardContext { attachment: &attachment, inventory: &unread, claims: &claims, progress: &progress };
    assert_eq!(operation(&decide(&context)), None, "nothing is ordered of a backend that does not answer");
}

//! Rules on one claim's life: plan, prepare, verify, unprepare, and every repetition of them.

use std::collections::BTreeMap;

use hostler_api::{Access, Chain, ClaimUid, DeviceName, Grant, QualifiedName, Quantity, ShareId};
use serde_json::Value;

use super::{Effect, Run, describe::check_edits, forgeries};
use crate::{
    BackendError, Capacity, ContainerEdits, Device, DevicePlan, Health, HeldDevice, PlanWork, PrepareWork, Sharing,
    UnprepareWork, VerifyWork,
};

/// A made-up claim with one grant.
pub(super) struct Claim {
    pub(super) uid: ClaimUid,
    pub(super) name: String,
    pub(super) grant: Grant,
    pub(super) plan: DevicePlan,
}

impl Claim {
    pub(super) fn held(&self) -> HeldDevice<'_> {
        HeldDevice { claim: &self.uid, claim_name: &self.name, grant: &self.grant, plan: &self.plan }
    }

    pub(super) fn prepare<'a>(&'a self, device: &'a Device) -> PrepareWork<'a> {
        PrepareWork { claim: &self.uid, grant: &self.grant, device, plan: &self.plan }
    }

    pub(super) fn verify(&self) -> VerifyWork<'_> {
        VerifyWork { claim: &self.uid, grant: &self.grant, plan: &self.plan }
    }

    pub(super) fn unprepare(&self) -> UnprepareWork<'_> {
        UnprepareWork { claim: &self.uid, grant: &self.grant, plan: &self.plan }
    }
}

/// How much a made-up claim asks of a device that can be split.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Amount {
    Default,
    Least,
    Whole,
}

impl Amount {
    fn of(self, capacity: &Capacity) -> Quantity {
        match (self, capacity.policy) {
            (Self::Whole, _) | (_, None) => capacity.value,
            (Self::Default, Some(policy)) => policy.default,
            (Self::Least, Some(policy)) => policy.min,
        }
    }
}

/// Runs every kind of claim through its whole life on `device`.
pub(super) fn check(run: &Run<'_>, device: &Device) {
    for config in &run.samples.configs {
        for amount in [Amount::Default, Amount::Least, Amount::Whole] {
            let grant = grant(device, 0, amount, config);
            // Nothing is held, so a device that calls itself healthy meets the request that names no amount.
            let must = amount == Amount::Default && device.health == Health::Healthy;
            match plan(run, device, 0, grant, &[]) {
                Ok(claim) if device.health == Health::Healthy => life(run, device, &claim),
                Ok(claim) => never_prepared(run, device, &claim),
                Err(error) if must => {
                    run.broken("a healthy, free device meets the default request", Some(&device.name), error);
                }
                Err(_) => {}
            }
        }
    }
}

/// A claim's records outlive its device: undoing must not need it.
pub(super) fn check_gone(run: &Run<'_>, devices: &[Device]) {
    let rule = "unprepare succeeds when the device is gone";
    let Some(gone) = (0..).find_map(|number| {
        let name = DeviceName::new(format!("gone-{number}")).ok()?;
        devices.iter().all(|device| device.name != name).then_some(name)
    }) else {
        return;
    };
    for device in devices.iter().filter(|device| device.health == Health::Healthy) {
        let config = run.samples.configs.first().map_or(&[][..], |config| config);
        let Ok(mut claim) = plan(run, device, 0, grant(device, 0, Amount::Default, config), &[]) else { continue };
        claim.grant.device = gone.clone();
        run.must(rule, device, run.backend.unprepare(&claim.unprepare()));
    }
}

/// What the scheduler would write for claim `number`. Only shares of a shared device have an id and amounts.
pub(super) fn grant(device: &Device, number: usize, amount: Amount, config: &[Value]) -> Grant {
    let shared = device.sharing == Sharing::Shared;
    let consumed: BTreeMap<QualifiedName, Quantity> =
        device.capacity.keys().cloned().zip(device.capacity.values().map(|it| amount.of(it))).collect();
    Grant {
        request: "conformance".to_owned(),
        pool: "conformance/testkit".to_owned(),
        device: device.name.clone(),
        share_id: shared.then(|| ShareId(format!("00000000-0000-4000-8000-{number:012}"))),
        access: Access::Use,
        consumed: if shared { consumed } else { BTreeMap::new() },
        config: config.to_vec(),
    }
}

/// Plans a claim, and checks that planning is pure, repeatable and survives being recorded.
///
/// # Errors
/// What the backend says when it refuses.
pub(super) fn plan(
    run: &Run<'_>,
    device: &Device,
    number: usize,
    grant: Grant,
    held: &[HeldDevice<'_>],
) -> Result<Claim, String> {
    let name = Some(&device.name);
    let uid = match ClaimUid::new(format!("conformance-{number}")) {
        Ok(uid) => uid,
        Err(error) => run.broken("the testkit's claims are valid", name, error),
    };
    let claim_name = format!("conformance/claim-{number}");
    let before = run.observe();
    let work = PlanWork { claim: &uid, claim_name: &claim_name, grant: &grant, device, held, within: None };
    let (first, second) = (run.backend.plan(&work), run.backend.plan(&work));
    run.same_state("plan has no side effects", name, &before);
    let plan = match (first, second) {
        (Ok(first), Ok(second)) if first == second => first,
        (Err(first), Err(second)) if first.to_string() == second.to_string() => {
            return Err(refusal(run, device, &first));
        }
        (first, second) => {
            run.broken("plan gives the same answer to the same work", name, format!("{first:?}, then {second:?}"));
        }
    };
    let recorded = serde_json::to_string(&plan).and_then(|text| serde_json::from_str::<DevicePlan>(&text));
    if !recorded.as_ref().is_ok_and(|recorded| *recorded == plan) {
        run.broken("a plan survives being recorded as JSON", name, format!("{plan:?} became {recorded:?}"));
    }
    Ok(Claim { uid, name: claim_name, grant, plan })
}

/// A refusal is for people who cannot see the code: it must be one, and say something.
fn refusal(run: &Run<'_>, device: &Device, error: &BackendError) -> String {
    let text = Chain(error).to_string();
    if !matches!(error, BackendError::Refused { .. } | BackendError::Config { .. }) {
        run.broken("plan refuses with `Refused` or `Config`", Some(&device.name), &text);
    }
    if text.trim().is_empty() || text.ends_with('.') {
        run.broken("errors have a text without a full stop", Some(&device.name), format!("{text:?}"));
    }
    text
}

fn life(run: &Run<'_>, device: &Device, claim: &Claim) {
    let before = run.observe();
    never_prepared(run, device, claim);
    let edits = prepare_twice(run, device, claim);
    let restarted = run.restarted();
    run.must("verify succeeds after prepare", device, restarted.verify(&claim.verify()));
    forgeries::check(run, device, claim, &edits);
    run.must("unprepare succeeds", device, restarted.unprepare(&claim.unprepare()));
    run.same_state("unprepare leaves the hardware as it was", Some(&device.name), &before);
    not_usable(run, device, claim, "verify fails after unprepare");
    run.must("unprepare succeeds when repeated", device, run.backend.unprepare(&claim.unprepare()));
    run.same_state("a repeated unprepare changes nothing", Some(&device.name), &before);
    if json(&prepare_twice(run, device, claim)) != json(&edits) {
        let seen = "the edits differ from those of before";
        run.broken("prepare after unprepare gives the same edits", Some(&device.name), seen);
    }
    run.must("unprepare succeeds", device, run.backend.unprepare(&claim.unprepare()));
}

fn never_prepared(run: &Run<'_>, device: &Device, claim: &Claim) {
    let before = run.observe();
    let rule = "unprepare of what was never prepared succeeds";
    run.must(rule, device, run.backend.unprepare(&claim.unprepare()));
    run.same_state("unprepare of what was never prepared changes nothing", Some(&device.name), &before);
    not_usable(run, device, claim, "verify fails before prepare");
}

/// Prepares as a daemon does that was killed before it could write down the answer. Returns the edits.
fn prepare_twice(run: &Run<'_>, device: &Device, claim: &Claim) -> ContainerEdits {
    let first = run.must("prepare succeeds", device, run.backend.prepare(&claim.prepare(device)));
    let state = run.observe();
    let rule = "prepare succeeds when repeated";
    let second = run.must(rule, device, run.restarted().prepare(&claim.prepare(device)));
    run.same_state("a repeated prepare changes nothing", Some(&device.name), &state);
    check_edits(run, device, &first.edits);
    let (once, again) = (json(&first.edits), json(&second.edits));
    if once != again {
        let seen = format!("{once}, then {again}");
        run.broken("a repeated prepare gives the same edits to the byte", Some(&device.name), seen);
    }
    first.edits
}

fn json(edits: &ContainerEdits) -> String {
    serde_json::to_string(edits).unwrap_or_default()
}

fn not_usable(run: &Run<'_>, device: &Device, claim: &Claim, rule: &str) {
    if run.samples.effect == Effect::Visible && run.restarted().verify(&claim.verify()).is_ok() {
        run.broken(rule, Some(&device.name), "verify says that the device is usable");
    }
}

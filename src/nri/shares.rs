//! Claims that a container was made with, and its shares of them: its specification, held to the records. Pure.
//!
//! The runtime tells the hooks that came with the claims' CDI devices, and newer ones the devices themselves. Both
//! are the runtime's word, which no image and no pod can forge; variables are not looked at. The container is odd
//! unless they agree with the claim's record.

use std::collections::BTreeSet;

use hostler_api::ClaimUid;
use hostler_proto::nri::Container;

use crate::{
    claims::{ClaimTable, ClaimView, spec::device_pins},
    pinning::{self, HookArgumentError, HookPins, Pins},
};

/// Claims and bindings in a container's specification.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ContainerShares {
    /// The claims, each once.
    pub(super) claims: Vec<ClaimUid>,
    /// Bindings of the container, hook by hook.
    shares: Vec<(ClaimUid, Pins)>,
    /// Names of our CDI devices, where the runtime tells them.
    devices: Vec<String>,
}

/// Reason why nothing is done to a container.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum OddContainer {
    /// The container's id is not usable in names.
    #[error("its id is not usable")]
    Id,
    /// A hook is not as we write it.
    #[error("a hook of it is not one that hostler writes: {0}")]
    Hook(HookArgumentError),
    /// A name in the specification is no UID of a claim.
    #[error("{0:?} in its specification is no UID of a claim")]
    Uid(String),
    /// The runtime has given the container a device, and not the edits that come with it.
    #[error("it was made with device {0}, and without the hook of its claim")]
    Device(String),
    /// There is no such claim.
    #[error("it was made with claim {0}, which is not prepared on this node")]
    Unprepared(ClaimUid),
    /// The holdings of the claim are not known.
    #[error("it was made with claim {0}, which is quarantined")]
    Quarantined(ClaimUid),
    /// The container was made with something else than the claim has.
    #[error("it was made with {pins} of claim {claim}, whose record gives no device with them")]
    OtherPins {
        /// The claim.
        claim: ClaimUid,
        /// Binding of the container, in words.
        pins: String,
    },
}

impl ContainerShares {
    /// Reads the specification; `kind` is the qualified class of our CDI devices.
    pub(super) fn of(container: &Container, kind: &str) -> Result<Self, OddContainer> {
        let hooks = container.hooks.as_ref().map_or(&[][..], |hooks| hooks.create_runtime.as_slice());
        let arguments = || hooks.iter().map(|hook| hook.args.as_slice());
        let bound = pinning::pins_of_hooks(arguments()).map_err(OddContainer::Hook)?;
        let noted = arguments().filter_map(|args| pinning::arguments_of("record", args)).filter_map(claim_argument);
        let named = bound.iter().map(|hook| hook.claim.as_str()).chain(noted);
        let claims: BTreeSet<ClaimUid> = named.map(claim_uid).collect::<Result<_, _>>()?;
        let share = |hook: HookPins| Ok((claim_uid(&hook.claim)?, hook.pins));
        let shares = bound.into_iter().map(share).collect::<Result<_, _>>()?;
        let names = container.cdi_devices.iter().map(|device| device.name.as_str());
        let devices = names.filter_map(|name| name.strip_prefix(kind)?.strip_prefix('=')).map(str::to_owned).collect();
        Self { claims: claims.into_iter().collect(), shares, devices }.agreeing()
    }

    /// Checks that every device has a hook: each claim brings one, so a device without one did not come from its CDI
    /// file.
    fn agreeing(self) -> Result<Self, OddContainer> {
        let is_of =
            |device: &str, uid: &ClaimUid| device.strip_prefix(uid.as_str()).is_some_and(|rest| rest.starts_with('-'));
        match self.devices.iter().find(|device| !self.claims.iter().any(|uid| is_of(device, uid))) {
            Some(device) => Err(OddContainer::Device(device.clone())),
            None => Ok(self),
        }
    }

    /// Returns the binding of the container, as far as records know its claims.
    pub(super) fn pins(&self, table: &ClaimTable) -> Result<Pins, OddContainer> {
        for uid in &self.claims {
            match table.claims.get(uid) {
                Some(ClaimView::Recorded { .. }) => {}
                Some(ClaimView::Quarantined(_)) => return Err(OddContainer::Quarantined(uid.clone())),
                None => return Err(OddContainer::Unprepared(uid.clone())),
            }
        }
        if let Some((uid, pins)) = self.shares.iter().find(|(uid, pins)| !gives(table, uid, pins)) {
            return Err(OddContainer::OtherPins { claim: uid.clone(), pins: pins.in_words() });
        }
        Ok(pinning::union(self.shares.iter().map(|(_, pins)| pins)))
    }
}

fn claim_uid(text: &str) -> Result<ClaimUid, OddContainer> {
    ClaimUid::new(text).map_err(|_| OddContainer::Uid(text.to_owned()))
}

fn claim_argument(args: &[String]) -> Option<&str> {
    args.chunks(2).find_map(|pair| match pair {
        [name, value] if name == "--claim" => Some(value.as_str()),
        _ => None,
    })
}

/// True if a device of the claim binds containers to exactly these.
fn gives(table: &ClaimTable, uid: &ClaimUid, pins: &Pins) -> bool {
    let Some(ClaimView::Recorded { record, .. }) = table.claims.get(uid) else { return false };
    record.devices.iter().any(|device| device_pins(record, device) == *pins)
}

#[cfg(test)]
mod tests {
    use hostler_proto::nri::CdiDevice;

    use super::*;
    use crate::nri::testing::{KIND, UID_A, UID_B, container, hook, table};

    fn pins(shares: &ContainerShares) -> Result<Pins, OddContainer> {
        shares.pins(&table(&[(UID_A, &["0-1", "2-3"]), (UID_B, &["8"])]))
    }

    fn of(hooks: &[String]) -> Result<ContainerShares, OddContainer> {
        ContainerShares::of(&container("c", hooks), KIND)
    }

    #[test]
    fn a_container_has_the_union_of_what_its_hooks_say() {
        let hooks = [hook(UID_A, "--cpus 0-1"), hook(UID_B, "--cpus 8"), hook(UID_A, "--cpus 0-1")];
        let shares = of(&hooks).unwrap();
        assert_eq!(shares.claims, [ClaimUid::new(UID_A).unwrap(), ClaimUid::new(UID_B).unwrap()]);
        assert_eq!(
            pins(&shares).unwrap().cpus.to_string(),
            "0-1,8",
            "not the request of the claim that it did not get"
        );
    }

    fn noted(uid: &str) -> String {
        format!("hostler hook record --claim {uid} --containers /c")
    }

    fn with_devices(hooks: &[String], names: &[String]) -> Result<ContainerShares, OddContainer> {
        let mut container = container("c", hooks);
        container.cdi_devices = names.iter().map(|name| CdiDevice { name: name.clone() }).collect();
        ContainerShares::of(&container, KIND)
    }

    #[test]
    fn a_claim_without_cpus_is_seen_by_its_note() {
        let shares = of(&[noted(UID_A)]).unwrap();
        assert_eq!(shares.claims, [ClaimUid::new(UID_A).unwrap()]);
        assert_eq!(pins(&shares), Ok(Pins::default()));
    }

    #[test]
    fn a_device_comes_with_the_hook_of_its_claim() {
        let own = format!("{KIND}={UID_A}-0-numa0");
        let names = [own.clone(), "vendor.com/gpu=all".to_owned()];
        assert_eq!(with_devices(&[noted(UID_A)], &names).unwrap().claims.len(), 1);
        for hooks in [vec![], vec![noted(UID_B)]] {
            assert!(matches!(with_devices(&hooks, &names), Err(OddContainer::Device(_))), "{hooks:?}");
        }
        assert!(with_devices(&[noted("short")], &[format!("{KIND}=short-0-numa0")]).is_ok(), "a manifest's own UID");
        assert!(with_devices(&[noted("short")], &[format!("{KIND}=shorter-0-numa0")]).is_err());
    }

    #[test]
    fn variables_say_nothing() {
        let mut forged = container("c", &[]);
        forged.env = vec![format!("DRA_CPUSET_{UID_A}=0-1"), "HOSTLER_CPUS=0-1".to_owned()];
        assert_eq!(ContainerShares::of(&forged, KIND), Ok(ContainerShares::default()));
    }

    #[test]
    fn what_no_record_gives_is_odd() {
        let other = of(&[hook(UID_A, "--cpus 0-2")]).unwrap();
        let error = pins(&other).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("it was made with CPUs 0-2 of claim {UID_A}, whose record gives no device with them")
        );
        let unknown = of(&[hook("00000000-0000-0000-0000-00000000000c", "--cpus 0-1")]).unwrap();
        assert!(matches!(pins(&unknown), Err(OddContainer::Unprepared(_))));
        assert!(matches!(of(&[hook("../x", "--cpus 0")]), Err(OddContainer::Uid(_))));
        assert!(matches!(of(&[hook(UID_A, "--cpus x")]), Err(OddContainer::Hook(_))));
    }
}

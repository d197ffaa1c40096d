//! Differences of upstream's allocators from each other, and from their intention: as data.
//!
//! An allocator without any quirk does what 1.37 is intended to do.

use hostler_api::KubernetesVersion;

use super::version::Variant;

/// A peculiarity of some of upstream's allocators.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Quirk {
    /// The slices of a pool come in the order in which they are listed, not by name. Upstream's pools then have no
    /// order; here they are sorted all the same.
    SlicesAsListed,
    /// Pools with binding conditions do not come last.
    BindingPoolsAnywhere,
    /// In a pool, slices with binding conditions come last.
    BindingSlicesLast,
    /// A pool is complete if the slices for the node are as many as the pool has.
    CompleteOnNode,
    /// Devices of incomplete pools are used.
    IncompletePoolsUsed,
    /// The search fails for good when it comes to an invalid pool.
    InvalidPoolsFatal,
    /// Counters belong to the slice of the devices, not to the pool.
    CountersPerSlice,
    /// A slice with counters counts as one for every node.
    CounterSlicesEverywhere,
    /// Pools of several drivers with the same name share the knowledge of their counters.
    CountersByPoolName,
    /// The next device of a request may come before the last one.
    PermutationsWithinRequest,
    /// After its first device, a later alternative that takes all devices goes on with those of the first.
    AllLosesAlternative,
    /// The second alternative that takes all devices takes those that match the first.
    SecondInheritsMatches,
    /// More devices than a claim can hold are simply no fit, and the search goes on.
    LimitIsNoFit,
    /// A device that is refused because of taints or constraints keeps its counters.
    RefusedKeepsCounters,
    /// A device with several holders keeps its counters when it is given back.
    SharedKeepsCounters,
    /// A device with several holders takes its counters once for each.
    SharedRecounts,
    /// The use of a device by the search is judged by the amounts: a device without capacities stays in use for ever,
    /// and a device of which the parts are zero never is.
    UseSeenByAmounts,
    /// Devices of which only shares are held take no counters.
    SharesTakeNoCounters,
    /// A device that is refused at the last check because of its capacity stays held, and constraints keep it.
    LateRefusalKeeps,
    /// The last check looks at the capacity of another device.
    LateCheckOfAnother,
    /// A distinct attribute is compared with that of the last device of each request only.
    DistinctForgets,
    /// A distinct attribute is the same only on the same device.
    DistinctByIdentity,
    /// Common values of devices do not grow again when one of the devices is given back.
    CommonValuesStayNarrow,
    /// Every taint matters, whatever its effect.
    AnyTaintEffect,
    /// Distinct attributes are not known.
    NoDistinctAttribute,
    /// Parts of capacities are not known.
    NoConsumableCapacity,
    /// Devices that bind to a node are not known.
    NoBindsToNode,
    /// Results are written without tolerations.
    NoTolerationsInResults,
    /// Configuration of the claim is written once for each request, and names requests even where it is for all.
    ConfigPerRequest,
    /// Selectors see one value of each attribute, and do not know `includes`.
    OneValueEach,
    /// Selectors see several values only where the gate for them is on.
    SeveralValuesGated,
    /// Some named formats complain in other words, which selectors can see.
    FormatsInOldWords,
}

/// Tells if an allocator has a quirk.
type HasQuirk = fn(KubernetesVersion, Variant) -> bool;

const EVERY: HasQuirk = |_, _| true;
const ONLY_1_34: HasQuirk = |version, _| version == KubernetesVersion::V1_34;
const UNTIL_1_35: HasQuirk = |version, _| version <= KubernetesVersion::V1_35;
const UNTIL_1_36: HasQuirk = |version, _| version <= KubernetesVersion::V1_36;
const UNTIL_1_35_AND_STABLE: HasQuirk = |version, variant| UNTIL_1_35(version, variant) || variant == Variant::Stable;
const STABLE_UNTIL_1_35: HasQuirk = |version, variant| UNTIL_1_35(version, variant) && variant == Variant::Stable;
const ONLY_1_34_AND_STABLE_1_35: HasQuirk =
    |version, variant| ONLY_1_34(version, variant) || STABLE_UNTIL_1_35(version, variant);
/// Allocators without the additions that came with consumable capacity.
const OLD: HasQuirk = |version, variant| match variant {
    Variant::Stable => true,
    Variant::Incubating => UNTIL_1_35(version, variant),
    Variant::Experimental => false,
};

impl Quirk {
    /// All quirks, with the allocators that have them.
    const TABLE: [(Self, HasQuirk); 32] = [
        (Self::SlicesAsListed, UNTIL_1_35_AND_STABLE),
        (Self::BindingPoolsAnywhere, OLD),
        (Self::BindingSlicesLast, |version, variant| UNTIL_1_35(version, variant) && variant == Variant::Experimental),
        (Self::CompleteOnNode, ONLY_1_34),
        (Self::IncompletePoolsUsed, ONLY_1_34),
        (Self::InvalidPoolsFatal, ONLY_1_34),
        (Self::CountersPerSlice, ONLY_1_34_AND_STABLE_1_35),
        (Self::CounterSlicesEverywhere, |version, variant| {
            !ONLY_1_34_AND_STABLE_1_35(version, variant)
                && (version <= KubernetesVersion::V1_36 || variant == Variant::Stable)
        }),
        (Self::CountersByPoolName, EVERY),
        (Self::PermutationsWithinRequest, UNTIL_1_35_AND_STABLE),
        (Self::AllLosesAlternative, UNTIL_1_35),
        (Self::SecondInheritsMatches, UNTIL_1_35),
        (Self::LimitIsNoFit, STABLE_UNTIL_1_35),
        (Self::RefusedKeepsCounters, EVERY),
        (Self::SharedKeepsCounters, EVERY),
        (Self::SharedRecounts, ONLY_1_34),
        (Self::UseSeenByAmounts, EVERY),
        (Self::SharesTakeNoCounters, UNTIL_1_35_AND_STABLE),
        (Self::LateRefusalKeeps, EVERY),
        (Self::LateCheckOfAnother, ONLY_1_34),
        (Self::DistinctForgets, EVERY),
        (Self::DistinctByIdentity, ONLY_1_34),
        (Self::CommonValuesStayNarrow, EVERY),
        (Self::AnyTaintEffect, ONLY_1_34_AND_STABLE_1_35),
        (Self::NoDistinctAttribute, OLD),
        (Self::NoConsumableCapacity, OLD),
        (Self::NoBindsToNode, OLD),
        (Self::NoTolerationsInResults, ONLY_1_34_AND_STABLE_1_35),
        (Self::ConfigPerRequest, UNTIL_1_36),
        (Self::OneValueEach, UNTIL_1_35),
        (Self::SeveralValuesGated, UNTIL_1_36),
        (Self::FormatsInOldWords, ONLY_1_34),
    ];

    /// All quirks.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.iter().map(|(quirk, _)| *quirk)
    }
}

/// The quirks that an allocator has.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Quirks(u32);

impl Quirks {
    /// No quirks: the intended behaviour of 1.37.
    pub fn none() -> Self {
        Self::default()
    }

    /// The quirks of one of upstream's allocators.
    pub fn of(version: KubernetesVersion, variant: Variant) -> Self {
        let has = Quirk::TABLE.iter().filter(|(_, has)| has(version, variant));
        has.fold(Self::none(), |quirks, (quirk, _)| quirks.with(*quirk))
    }

    /// Returns true if this quirk is among them.
    pub fn has(self, quirk: Quirk) -> bool {
        self.0 & (1 << quirk as u32) != 0
    }

    /// Returns the quirks with one more.
    #[must_use]
    pub fn with(self, quirk: Quirk) -> Self {
        Self(self.0 | 1 << quirk as u32)
    }

    /// Returns the quirks with one less.
    #[must_use]
    pub fn without(self, quirk: Quirk) -> Self {
        Self(self.0 & !(1 << quirk as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quirk_is_in_the_table_once() {
        let all: Vec<u32> = Quirk::all().map(|quirk| quirk as u32).collect();
        assert_eq!(all, (0..32).collect::<Vec<u32>>());
    }

    #[test]
    fn versions_and_variants_have_their_own() {
        let has = |version, variant, quirk| Quirks::of(version, variant).has(quirk);
        assert!(has(KubernetesVersion::V1_36, Variant::Stable, Quirk::SlicesAsListed));
        assert!(!has(KubernetesVersion::V1_36, Variant::Incubating, Quirk::SlicesAsListed));
        assert!(has(KubernetesVersion::V1_36, Variant::Incubating, Quirk::CounterSlicesEverywhere));
        assert!(!has(KubernetesVersion::V1_37, Variant::Incubating, Quirk::CounterSlicesEverywhere));
        assert!(has(KubernetesVersion::V1_37, Variant::Stable, Quirk::CounterSlicesEverywhere));
        assert!(!has(KubernetesVersion::V1_35, Variant::Stable, Quirk::CounterSlicesEverywhere));
        assert!(has(KubernetesVersion::V1_35, Variant::Stable, Quirk::LimitIsNoFit));
        assert!(!has(KubernetesVersion::V1_36, Variant::Stable, Quirk::LimitIsNoFit));
        assert!(has(KubernetesVersion::V1_35, Variant::Incubating, Quirk::NoDistinctAttribute));
        assert!(!has(KubernetesVersion::V1_36, Variant::Incubating, Quirk::NoDistinctAttribute));
    }

    #[test]
    fn one_can_be_added_and_taken_away() {
        let quirks = Quirks::none().with(Quirk::DistinctForgets);
        assert!(quirks.has(Quirk::DistinctForgets));
        assert_eq!(quirks.without(Quirk::DistinctForgets), Quirks::none());
    }
}

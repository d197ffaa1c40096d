//! Facts that decide on the CPUs of containers, at one moment: records, the machine, and how much of the pool is
//! asked for.

use std::sync::Arc;

use hostler_linux::{IdSet, ReadFailure, SysRoot, cgroup::KernelMemory};

use crate::{
    claims::{ClaimTable, ClaimView},
    config::SharedPoolMode,
    pinning::{self, Pins},
};

/// Machine as containers can use it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct UsableMachine {
    /// CPUs that run.
    pub(super) online: IdSet,
    /// Nodes on which the kernel can allocate.
    pub(super) kernel_memory: KernelMemory,
}

impl UsableMachine {
    /// Reads the machine. Blocking.
    pub(super) fn read(root: &SysRoot) -> Result<Self, ReadFailure> {
        let online = root.required_attribute("sys/devices/system/cpu/online")?;
        // A list that cannot be parsed leaves no CPU to share, and no container is bound to it.
        Ok(Self { online: online.parse().unwrap_or_default(), kernel_memory: KernelMemory::read(root)? })
    }
}

/// Rules by which the shared pool is made.
#[derive(Clone, Debug)]
pub(super) struct PoolRules {
    pub(super) mode: SharedPoolMode,
    /// CPUs that stay with the system.
    pub(super) reserved: IdSet,
}

/// Everything that [`intended`](PinningFacts::intended) needs.
#[derive(Clone, Debug)]
pub(super) struct PinningFacts {
    pub(super) table: Arc<ClaimTable>,
    machine: Arc<UsableMachine>,
    /// `None` where containers without a claim are left alone.
    pub(super) pool: Option<IdSet>,
}

impl PinningFacts {
    pub(super) fn new(table: Arc<ClaimTable>, machine: Arc<UsableMachine>, rules: &PoolRules) -> Self {
        let pool = (rules.mode == SharedPoolMode::ExcludeExclusive).then(|| {
            let plans = table.claims.values().flat_map(ClaimView::devices).map(|device| &device.plan);
            pinning::shared_pool(&machine.online, &rules.reserved, &pinning::exclusive_cpus(plans))
        });
        Self { table, machine, pool }
    }

    /// Returns the binding of a container that has `own` of its claims. An empty set leaves the resource alone.
    pub(super) fn intended(&self, own: &Pins) -> Pins {
        let cpus = if own.cpus.is_empty() { self.pool.clone().unwrap_or_default() } else { own.cpus.clone() };
        Pins { cpus, mems: self.machine.kernel_memory.complete(&own.mems) }
    }

    /// True if a container that has `own` of its claims would run on a pool in which nothing is left.
    pub(super) fn lacks_cpus(&self, own: &Pins) -> bool {
        own.cpus.is_empty() && self.pool.as_ref().is_some_and(IdSet::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nri::testing::{UID_A, facts};

    fn own(cpus: &str) -> Pins {
        Pins { cpus: cpus.parse().unwrap(), ..Pins::default() }
    }

    #[test]
    fn who_has_no_cpus_of_a_claim_gets_what_claims_leave() {
        let facts = facts("0-7", &[(UID_A, &["2-3"])]);
        assert_eq!(facts.intended(&own("")).cpus.to_string(), "1,4-7", "CPU 0 stays with the system");
        assert_eq!(facts.intended(&own("2-3")).cpus.to_string(), "2-3");
        assert!(!facts.lacks_cpus(&own("")));
    }

    #[test]
    fn an_empty_pool_binds_nobody_and_says_so() {
        let facts = facts("0-3", &[(UID_A, &["1-3"])]);
        assert_eq!(facts.intended(&own("")), Pins::default());
        assert!(facts.lacks_cpus(&own("")));
        assert!(!facts.lacks_cpus(&own("1-3")));
    }

    #[test]
    fn where_no_pool_is_asked_for_others_are_left_alone() {
        let rules = PoolRules { mode: SharedPoolMode::Off, reserved: IdSet::new() };
        let facts = PinningFacts::new(Arc::default(), Arc::default(), &rules);
        assert_eq!(facts.intended(&own("")), Pins::default());
        assert!(!facts.lacks_cpus(&own("")));
    }
}

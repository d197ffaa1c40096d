//! RefusalPause of candidates.

use std::collections::BTreeSet;

use hostler_allocator::plan::{CUT_SHORT, CutShort, SetPlan};
use hostler_api::{few, reservation::ReservationConditionReason as Reason};

use super::reservation::Problem;

/// The reason why there are no devices.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct NoDevices {
    pub(super) problem: Problem,
    /// The point at which planning was cut short, if it was.
    pub(super) cut_short: Option<CutShort>,
    /// True if no other devices would help.
    pub(super) is_hopeless: bool,
}

impl NoDevices {
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Self { problem: Problem { reason, message }, cut_short: None, is_hopeless: false }
    }

    pub(super) fn unschedulable(message: String) -> Self {
        Self::new(Reason::Unschedulable, message)
    }

    pub(super) fn hopeless(reason: Reason, message: String) -> Self {
        Self { is_hopeless: true, ..Self::new(reason, message) }
    }

    pub(super) fn of_plan(plan: &SetPlan) -> Self {
        Self { problem: problem_of(plan), cut_short: plan.cut_short, is_hopeless: false }
    }
}

/// The problem of a plan, without numbers of nodes: they change all the time, and so would be written all the time.
fn problem_of(plan: &SetPlan) -> Problem {
    if let Some(problem) = &plan.problem {
        return Problem { reason: Reason::Incomplete, message: problem.clone() };
    }
    // The point that planning came to is another one each time.
    if plan.cut_short.is_some() {
        return Problem { reason: Reason::CutShort, message: CUT_SHORT.to_owned() };
    }
    let reasons: BTreeSet<&str> = plan.refusals.iter().map(|refusal| &*refusal.reason).collect();
    let reasons: Vec<&str> = reasons.into_iter().collect();
    let message = if reasons.is_empty() { "no node would take all of it".to_owned() } else { few(reasons) };
    Problem { reason: Reason::Unschedulable, message }
}

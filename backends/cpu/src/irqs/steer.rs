//! Where every interrupt line belongs. Pure.

use hostler_linux::{IdSet, irq::IrqLine};

use super::ledger::IrqLedger;

/// A line as it is.
#[derive(Clone, Debug)]
pub(super) struct LineLook {
    pub(super) line: IrqLine,
    pub(super) now: IdSet,
}

/// Where a line is, was and belongs.
#[derive(Clone, Debug)]
pub(super) struct LineTarget {
    pub(super) line: IrqLine,
    pub(super) now: IdSet,
    /// Where it was before anybody kept interrupts off CPUs.
    pub(super) before: IdSet,
    /// Where it belongs; `None` where no running CPU is left for it.
    pub(super) wanted: Option<IdSet>,
}

/// Where every line belongs. `near` gives the CPUs near the device of a line that can take it no more where it was.
pub(super) fn targets(
    ledger: &IrqLedger,
    looks: &[LineLook],
    online: &IdSet,
    near: impl Fn(IrqLine) -> IdSet,
) -> Vec<LineTarget> {
    let kept = ledger.kept.values().fold(IdSet::new(), |all, cpus| all.union(cpus));
    let target = |look: &LineLook| {
        let mut before = before(ledger, look);
        // Nobody can be sent to CPUs that all went offline: it is where the kernel has put it.
        if before.is_disjoint(&kept) && before.is_disjoint(online) {
            before = look.now.clone();
        }
        let wanted = wanted(&before, &kept, online, || near(look.line));
        LineTarget { line: look.line, now: look.now.clone(), before, wanted }
    };
    looks.iter().map(target).collect()
}

/// Where a line was: as the ledger says, unless somebody else has moved it since.
fn before(ledger: &IrqLedger, look: &LineLook) -> IdSet {
    let begun = ledger.lines.get(&IrqLine::Default.into());
    let entry = match ledger.lines.get(&look.line.into()) {
        Some(entry) => Some(entry),
        // It has come since, and began where we had new lines begin.
        None => begun.filter(|_| !ledger.untouched.contains(&look.line.into())),
    };
    let entry = entry.filter(|entry| entry.before == look.now || entry.ours.contains(&look.now));
    entry.map_or_else(|| look.now.clone(), |entry| entry.before.clone())
}

/// Where it was, without the CPUs that are kept free; else near its device; else anywhere.
fn wanted(before: &IdSet, kept: &IdSet, online: &IdSet, near: impl FnOnce() -> IdSet) -> Option<IdSet> {
    let rest = before.difference(kept);
    if rest == *before || !rest.is_disjoint(online) {
        return Some(rest);
    }
    let free = online.difference(kept);
    let near = near().intersection(&free);
    [near, free].into_iter().find(|cpus| !cpus.is_empty())
}

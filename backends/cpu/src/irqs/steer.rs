//! Finds where every interrupt line belongs. Pure.

use hostler_linux::{IdSet, irq::IrqLine};

use super::ledger::IrqLedger;

/// A line as it is.
#[derive(Clone, Debug)]
pub(super) struct LineLook {
    pub(super) line: IrqLine,
    pub(super) now: IdSet,
}

/// Present, former and right place of a line.
#[derive(Clone, Debug)]
pub(super) struct LineTarget {
    pub(super) line: IrqLine,
    pub(super) now: IdSet,
    /// CPUs that the line was on before any claim kept interrupts off CPUs.
    pub(super) before: IdSet,
    /// CPUs that the line belongs on; `None` where no running CPU is left for it.
    pub(super) wanted: Option<IdSet>,
}

/// Finds where every line belongs. `near` gives the CPUs near the device of a line that cannot stay where it was.
pub(super) fn targets(
    ledger: &IrqLedger,
    looks: &[LineLook],
    online: &IdSet,
    near: impl Fn(IrqLine) -> IdSet,
) -> Vec<LineTarget> {
    let kept = ledger.kept.values().fold(IdSet::new(), |all, cpus| all.union(cpus));
    let target = |look: &LineLook| {
        let mut before = before(ledger, look);
        // A line cannot be sent to CPUs that all went offline: it is where the kernel has put it.
        if before.is_disjoint(&kept) && before.is_disjoint(online) {
            before = look.now.clone();
        }
        let wanted = wanted(&before, &kept, online, || near(look.line));
        LineTarget { line: look.line, now: look.now.clone(), before, wanted }
    };
    looks.iter().map(target).collect()
}

/// Finds where a line was: as the ledger says, unless another program has moved it since.
fn before(ledger: &IrqLedger, look: &LineLook) -> IdSet {
    let begun = ledger.lines.get(&IrqLine::Default.into());
    let entry = match ledger.lines.get(&look.line.into()) {
        Some(entry) => Some(entry),
        // The line has come since, and began where we had new lines begin.
        None => begun.filter(|_| !ledger.untouched.contains(&look.line.into())),
    };
    let entry = entry.filter(|entry| entry.before == look.now || entry.ours.contains(&look.now));
    entry.map_or_else(|| look.now.clone(), |entry| entry.before.clone())
}

/// Chooses the line's former CPUs without those that are kept free; else CPUs near its device; else any.
fn wanted(before: &IdSet, kept: &IdSet, online: &IdSet, near: impl FnOnce() -> IdSet) -> Option<IdSet> {
    let rest = before.difference(kept);
    if rest == *before || !rest.is_disjoint(online) {
        return Some(rest);
    }
    let free = online.difference(kept);
    let near = near().intersection(&free);
    [near, free].into_iter().find(|cpus| !cpus.is_empty())
}

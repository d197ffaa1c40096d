//! Tells in words which interrupts stay on CPUs that were to be free of them. Pure but for names.

use std::collections::BTreeMap;

use hostler_api::few;
use hostler_linux::{IdSet, SysRoot, irq::IrqLine};

/// A line that may still interrupt CPUs that were to be free of it.
#[derive(Clone, Debug)]
pub(super) struct StayingLine {
    pub(super) line: IrqLine,
    pub(super) user: Option<String>,
    /// CPUs that were to be free and may be interrupted.
    pub(super) hit: IdSet,
    pub(super) reason: String,
}

/// Writes one sentence for each reason: a disk alone may have a line for each CPU.
pub(super) fn sentences(lines: &[StayingLine]) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<&StayingLine>> = BTreeMap::new();
    for line in lines {
        reasons.entry(&line.reason).or_default().push(line);
    }
    reasons.into_iter().map(|(reason, lines)| sentence(reason, &lines)).collect()
}

fn sentence(reason: &str, lines: &[&StayingLine]) -> String {
    let hit = lines.iter().fold(IdSet::new(), |all, line| all.union(&line.hit));
    let names = few(lines.iter().map(|line| name(line.line, line.user.as_deref())));
    format!("interrupts stay on CPUs {hit} ({names}): {reason}")
}

fn name(line: IrqLine, user: Option<&str>) -> String {
    match (line, user) {
        (IrqLine::Default, _) => "those of new devices".to_owned(),
        (IrqLine::Number(number), None) => number.to_string(),
        (IrqLine::Number(number), Some(user)) => format!("{number} {user}"),
    }
}

/// Names a line in a message about it alone.
pub(super) fn called(root: &SysRoot, line: IrqLine) -> String {
    match line {
        IrqLine::Default => "what new interrupts begin with".to_owned(),
        line => format!("interrupt {}", name(line, line.user(root).as_deref())),
    }
}

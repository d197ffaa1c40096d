//! Interrupts that stay away from the CPUs of claims that ask for it (`irqs: avoid`).
//!
//! ```text
//!   lines are read ──► the ledger says where each was and where it goes
//!       ──► lines are sent, and read again ──► the ledger says where each has come to be
//! ```
//!
//! Claims come and go in any order, and every line is where all of them together want it: at its former place, without
//! the CPUs of all of them. So nothing of this is in a claim's record; one [`ledger`] holds the CPUs of all claims,
//! and where lines were before a claim moved them. The ledger is written before the kernel is, and says of a line that
//! is under way both where it is and where it goes: a daemon that is killed in between, however often, leaves what the
//! next one understands. A ledger is of one boot, since lines begin anew with each.
//!
//! A line that another program has moved meanwhile counts as having been at the new place from then on. A line that
//! has come since a ledger was begun has the affinity that new lines begin with, as we had changed that, and is given
//! the one that they really begin with.

mod ledger;
mod steer;
mod told;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use hostler_backend::BackendError;
use hostler_linux::{
    IdSet, ReadFailure, SysRoot, boot,
    irq::{IrqLine, IrqRefusal},
};

use self::{
    ledger::{IrqLedger, LedgerFile, LineEntry},
    steer::{LineLook, LineTarget},
    told::StayingLine,
};

/// Keeps interrupts off CPUs. Cheap to clone; all clones take turns.
#[derive(Clone, Debug)]
pub(crate) struct IrqSteering {
    root: SysRoot,
    file: Option<LedgerFile>,
    /// Lock for taking turns: claims are prepared side by side, and the ledger is about all of them.
    turn: Arc<Mutex<()>>,
}

/// A line after it was sent.
struct SentLine {
    target: LineTarget,
    /// CPUs that the line has come to.
    now: IdSet,
    refusal: Option<IrqRefusal>,
}

impl IrqSteering {
    /// Steers the interrupts of the machine under `root`. Without a folder to remember in, nothing is moved.
    pub(crate) fn new(root: SysRoot, folder: Option<PathBuf>) -> Self {
        Self { root, file: folder.map(|folder| LedgerFile::new(&folder)), turn: Arc::default() }
    }

    /// Keeps interrupts off `cpus` until `holder` lets them on again. Returns sentences on those that stay
    /// all the same, with the reasons.
    ///
    /// # Errors
    /// When lines cannot be read, or cannot be remembered: then none is moved.
    pub(crate) fn keep_off(&self, holder: &str, cpus: &IdSet) -> Result<Vec<String>, BackendError> {
        let sent = self.steer(|kept| {
            kept.insert(holder.to_owned(), cpus.clone());
        })?;
        let stays = |sent: SentLine| self.staying(sent, cpus).transpose();
        let staying: Vec<StayingLine> = sent.into_iter().filter_map(stays).collect::<Result<_, _>>().map_err(unread)?;
        Ok(told::sentences(&staying))
    }

    /// Lets interrupts onto the CPUs of `holder` again. Repeating that, or doing it for a holder that never kept them
    /// off, changes nothing.
    ///
    /// # Errors
    /// When a line that could be moved away cannot be moved back now; it is tried again with the next call.
    pub(crate) fn let_on(&self, holder: &str) -> Result<(), BackendError> {
        if self.file.as_ref().is_none_or(|file| !file.is_there()) {
            return Ok(());
        }
        let sent = self.steer(|kept| {
            kept.remove(holder);
        })?;
        let stuck = |sent: &SentLine| sent.refusal.as_ref().is_some_and(|refusal| !is_lasting(refusal));
        match sent.into_iter().find(stuck) {
            Some(SentLine { target, refusal: Some(refusal), .. }) => {
                Err(BackendError::step(format!("put {} back", told::called(&self.root, target.line)), refusal))
            }
            _ => Ok(()),
        }
    }

    /// Changes the set of CPUs to keep free, and sends every line to where it then belongs. Returns all lines.
    fn steer(&self, change: impl FnOnce(&mut BTreeMap<String, IdSet>)) -> Result<Vec<SentLine>, BackendError> {
        let file = self.file.as_ref().ok_or_else(|| {
            BackendError::refused("there is no folder to remember where interrupts were, so none is moved")
        })?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let boot_id = boot::boot_id(&self.root).map_err(BackendError::unread)?;
        let mut ledger = file.load(&boot_id)?;
        change(&mut ledger.kept);
        let looks = self.looks().map_err(unread)?;
        let online = online(&self.root).map_err(unread)?;
        let near = |line: IrqLine| self.node_cpus(line);
        let targets = steer::targets(&ledger, &looks, &online, near);
        ledger.expect(&targets);
        file.write(&ledger)?;
        let sent: Vec<SentLine> = targets.into_iter().map(|target| self.send(target)).collect();
        ledger.conclude(&sent);
        file.write(&ledger)?;
        Ok(sent)
    }

    fn looks(&self) -> Result<Vec<LineLook>, ReadFailure> {
        let look = |line: IrqLine| Ok(line.affinity(&self.root)?.map(|now| LineLook { line, now }));
        IrqLine::all(&self.root)?.into_iter().filter_map(|line| look(line).transpose()).collect()
    }

    fn send(&self, target: LineTarget) -> SentLine {
        let Some(wanted) = target.wanted.as_ref().filter(|wanted| **wanted != target.now) else {
            return SentLine { now: target.now.clone(), refusal: None, target };
        };
        let refusal = target.line.send_to(&self.root, wanted).err();
        let now = match &refusal {
            None => wanted.clone(),
            Some(IrqRefusal::Ignored(seen)) => seen.clone(),
            Some(_) => target.now.clone(),
        };
        SentLine { now, refusal, target }
    }

    /// Returns the line, if it may still interrupt one of `cpus`.
    fn staying(&self, sent: SentLine, cpus: &IdSet) -> Result<Option<StayingLine>, ReadFailure> {
        let SentLine { target, now, refusal } = sent;
        let reason = match (refusal, &target.wanted) {
            (Some(refusal), _) => refusal.to_string(),
            (None, None) => "no running CPU is left for it: claims keep interrupts off all others".to_owned(),
            (None, Some(_)) => return Ok(None),
        };
        let takes = if target.line == IrqLine::Default { Some(now) } else { target.line.in_effect(&self.root)? };
        let hit = takes.map(|takes| takes.intersection(cpus)).filter(|hit| !hit.is_empty());
        Ok(hit.map(|hit| StayingLine { line: target.line, user: target.line.user(&self.root), hit, reason }))
    }

    /// The CPUs of the node that the device of a line is on.
    fn node_cpus(&self, line: IrqLine) -> IdSet {
        let list = line.node(&self.root).map(|node| format!("sys/devices/system/node/node{node}/cpulist"));
        let text = list.and_then(|list| self.root.attribute(list).ok().flatten());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

fn online(root: &SysRoot) -> Result<IdSet, ReadFailure> {
    const ONLINE: &str = "sys/devices/system/cpu/online";
    let unread = |error| ReadFailure::new(ONLINE, std::io::Error::new(std::io::ErrorKind::InvalidData, error));
    root.required_attribute(ONLINE)?.parse().map_err(unread)
}

/// True if trying again would not help: then the line is where it is by the kernel's will.
fn is_lasting(refusal: &IrqRefusal) -> bool {
    matches!(refusal, IrqRefusal::Kept | IrqRefusal::Ignored(_))
}

fn unread(failure: ReadFailure) -> BackendError {
    BackendError::step("look where interrupts go", failure)
}

impl IrqLedger {
    /// Records where each line that is sent is and where it goes.
    fn expect(&mut self, targets: &[LineTarget]) {
        self.replace(targets.iter().map(|target| {
            let ours = std::iter::once(target.now.clone()).chain(target.wanted.clone()).collect();
            (target.line, LineEntry { before: target.before.clone(), ours })
        }));
    }

    /// Records where each line has come to. A place that was not the line's before, and at which the kernel
    /// keeps it for good, becomes its own.
    fn conclude(&mut self, sent: &[SentLine]) {
        self.replace(sent.iter().map(|SentLine { target, now, refusal }| {
            let lost = refusal.as_ref().is_some_and(is_lasting) && target.wanted.as_ref() == Some(&target.before);
            let before = if lost { now } else { &target.before };
            (target.line, LineEntry { before: before.clone(), ours: [now.clone()].into() })
        }));
    }
}

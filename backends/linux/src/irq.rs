//! Reads and sets which CPUs take the interrupts of devices: `/proc/irq`.
//!
//! The kernel takes any set with a running CPU for most lines. It keeps some where they are (those that it manages for
//! their driver, those that belong to one CPU), and says so with an error; where the interrupt controller cannot
//! choose, the kernel accepts a set and ignores it. So every write is read again.

use std::{io, path::PathBuf};

use nix::errno::Errno;

use crate::{IdSet, ReadFailure, SysRoot};

const FOLDER: &str = "proc/irq";
const DEFAULT: &str = "proc/irq/default_smp_affinity";

/// One interrupt line, or all that are yet to come.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum IrqLine {
    /// Affinity that a new line begins with.
    Default,
    /// A line by the kernel's number.
    Number(u32),
}

/// Why a line is not where it was sent.
#[derive(Debug, thiserror::Error)]
pub enum IrqRefusal {
    /// The line cannot be moved at all.
    #[error("the kernel lets nobody move it: it manages it for its driver, or it belongs to one CPU")]
    Kept,
    /// The line cannot be moved, and the kernel does not say so.
    #[error("the interrupt controller leaves it on CPUs {0}")]
    Ignored(IdSet),
    /// The daemon may not move any line.
    #[error(
        "this daemon may not write to /proc/irq ({0}); hostler-hardware.conf, or in a pod the component hardware, lets it"
    )]
    Forbidden(io::Error),
    /// The line cannot be moved now.
    #[error("the kernel refuses: {0}")]
    Refused(io::Error),
    /// The result cannot be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
}

impl IrqLine {
    /// All lines, and first the one for those to come; none where the kernel offers no choice.
    ///
    /// # Errors
    /// When it cannot be told which lines there are.
    pub fn all(root: &SysRoot) -> Result<Vec<Self>, ReadFailure> {
        let names = root.names(FOLDER)?;
        let mut lines: Vec<Self> = names.iter().filter_map(|name| name.parse().ok().map(Self::Number)).collect();
        if root.exists(DEFAULT)? {
            lines.push(Self::Default);
        }
        lines.sort_unstable();
        Ok(lines)
    }

    /// Returns the CPUs that may take the line; `None` when it is gone.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn affinity(self, root: &SysRoot) -> Result<Option<IdSet>, ReadFailure> {
        let path = self.path();
        let Some(text) = root.text(&path)? else { return Ok(None) };
        let parsed = if self == Self::Default { IdSet::from_mask(&text) } else { text.parse() };
        let unread = |error| ReadFailure::new(path, io::Error::new(io::ErrorKind::InvalidData, error));
        parsed.map(Some).map_err(unread)
    }

    /// Returns the CPUs that take the line now, of those that may: an interrupt controller mostly chooses one.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn in_effect(self, root: &SysRoot) -> Result<Option<IdSet>, ReadFailure> {
        let Self::Number(number) = self else { return Ok(None) };
        let effective = root.text(format!("{FOLDER}/{number}/effective_affinity_list"))?;
        match effective.and_then(|text| text.parse::<IdSet>().ok()).filter(|cpus| !cpus.is_empty()) {
            Some(cpus) => Ok(Some(cpus)),
            None => self.affinity(root),
        }
    }

    /// Name of the line's user (`nvme0q1`), where the kernel tells.
    pub fn user(self, root: &SysRoot) -> Option<String> {
        let Self::Number(number) = self else { return None };
        let folder = format!("{FOLDER}/{number}");
        let names = root.names(&folder).ok()?;
        names.into_iter().find(|name| {
            root.metadata(format!("{folder}/{name}")).is_ok_and(|found| found.is_some_and(|found| found.is_dir()))
        })
    }

    /// NUMA node of the line's device, where the kernel tells.
    pub fn node(self, root: &SysRoot) -> Option<u32> {
        let Self::Number(number) = self else { return None };
        // -1 is no node.
        root.text(format!("{FOLDER}/{number}/node")).ok()??.parse().ok()
    }

    /// Lets these CPUs take the line and no others. The caller has to know that one of them runs.
    ///
    /// # Errors
    /// When the line is not on them afterwards. A line that is gone is nowhere, which is no error.
    pub fn send_to(self, root: &SysRoot, cpus: &IdSet) -> Result<(), IrqRefusal> {
        let text = if self == Self::Default { cpus.to_mask() } else { cpus.to_string() };
        match root.write(self.path(), &text) {
            Ok(()) => {}
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOENT | Errno::ENODEV) => return Ok(()),
                Some(Errno::EIO) => return Err(IrqRefusal::Kept),
                Some(Errno::EACCES | Errno::EPERM | Errno::EROFS) => return Err(IrqRefusal::Forbidden(error)),
                _ => return Err(IrqRefusal::Refused(error)),
            },
        }
        match self.affinity(root)? {
            Some(seen) if seen != *cpus => Err(IrqRefusal::Ignored(seen)),
            _ => Ok(()),
        }
    }

    fn path(self) -> PathBuf {
        match self {
            Self::Default => DEFAULT.into(),
            Self::Number(number) => format!("{FOLDER}/{number}/smp_affinity_list").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testkit::{IrqKernel, MachineTree};

    fn machine() -> (MachineTree, Arc<IrqKernel>, SysRoot) {
        let tree = MachineTree::new();
        let kernel = Arc::new(IrqKernel::new(&tree, 8));
        let root = tree.root().tapped(kernel.clone());
        (tree, kernel, root)
    }

    fn set(list: &str) -> IdSet {
        list.parse().unwrap()
    }

    #[test]
    fn lines_are_sent_where_they_are_wanted_and_new_ones_follow_the_default() {
        let (_tree, kernel, root) = machine();
        kernel.plug(24, "eth0-rx0");
        assert_eq!(IrqLine::all(&root).unwrap(), [IrqLine::Default, IrqLine::Number(24)]);
        assert_eq!(IrqLine::Number(24).affinity(&root).unwrap(), Some(set("0-7")));
        assert_eq!(IrqLine::Number(24).user(&root).as_deref(), Some("eth0-rx0"));
        IrqLine::Number(24).send_to(&root, &set("0,4-5")).unwrap();
        IrqLine::Default.send_to(&root, &set("2-7")).unwrap();
        kernel.plug(25, "eth0-rx1");
        let now = |line: IrqLine| line.affinity(&root).unwrap().unwrap().to_string();
        assert_eq!([IrqLine::Default, IrqLine::Number(24), IrqLine::Number(25)].map(now), ["2-7", "0,4-5", "2-7"]);
    }

    #[test]
    fn a_line_that_the_kernel_keeps_is_refused_and_one_that_it_does_not_move_is_noticed() {
        let (_tree, kernel, root) = machine();
        for irq in [24, 25, 26, 27] {
            kernel.plug(irq, "x");
        }
        kernel.keep(24);
        kernel.ignore(25);
        kernel.refuse(26, Errno::ENOSPC);
        let refusal = |number| IrqLine::Number(number).send_to(&root, &set("0")).unwrap_err();
        assert!(matches!(refusal(24), IrqRefusal::Kept));
        assert!(matches!(refusal(25), IrqRefusal::Ignored(seen) if seen == set("0-7")));
        assert!(matches!(refusal(26), IrqRefusal::Refused(_)));
        kernel.unplug(27);
        IrqLine::Number(27).send_to(&root, &set("0")).unwrap();
    }

    #[test]
    fn without_a_folder_of_lines_there_is_none() {
        assert_eq!(IrqLine::all(&MachineTree::new().root()).unwrap(), []);
    }
}

//! Memory of a backend from one look at the hardware to the next, and the mailbox that it asks. No device is made of
//! it: a look that begins with nothing finds the same devices, and learns of trouble as it comes.

use std::{sync::Arc, time::Instant};

use hostler_linux::{
    ReadFailure, SysRoot, TreeReading,
    ioctl::cxl::{KernelMailbox, Mailbox},
    pci::PciAddress,
};

use crate::{events::TraceEvents, health::CardHealth, known::KnownFunctions, objects::Memdev, trend::ErrorTrends};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct HealthWatch {
    pub(crate) known: Arc<KnownFunctions>,
    trends: Arc<ErrorTrends>,
    events: Arc<TraceEvents>,
    mailbox: Arc<dyn Mailbox>,
}

impl HealthWatch {
    /// A watch that remembers nothing, and asks the machine under `root`.
    pub(crate) fn new(root: &SysRoot) -> Self {
        Self::asking(Arc::new(KernelMailbox::new(root.clone())))
    }

    /// A watch that remembers nothing, and asks `mailbox`.
    pub(crate) fn asking(mailbox: Arc<dyn Mailbox>) -> Self {
        Self { known: Arc::default(), trends: Arc::default(), events: Arc::default(), mailbox }
    }

    /// Health that a card reports. Many report none: not to the unprivileged, not in a captured tree, and not where
    /// the card does not know how. That is no trouble. A shortage in this process is.
    pub(crate) fn health(&self, tree: &TreeReading<'_>, memdev: &str) -> Option<CardHealth> {
        let answer = self.mailbox.health(memdev).map_err(|error| ReadFailure::new(format!("dev/cxl/{memdev}"), error));
        match answer {
            Ok(answer) => return Some(CardHealth::decode(&answer)),
            Err(failure) if failure.is_shortage() => tree.fail(failure),
            Err(_) => {}
        }
        None
    }

    /// Reads the events that were traced since the last look.
    pub(crate) fn read_events(&self, tree: &TreeReading<'_>) {
        self.events.read(tree);
    }

    /// Media errors, poison and fatal errors that a card has reported, if there were new ones lately.
    pub(crate) fn card_events(&self, memdev: &Memdev) -> Option<String> {
        let serial = memdev.serial?;
        let told = self.events.harms(&memdev.name, serial);
        let new = self.trends.observe(&format!("events of {serial:#x} {}", memdev.name), told, Instant::now())?;
        Some(format!("{new} new events of lost or poisoned memory, or of fatal errors"))
    }

    /// Errors of a function's link or inside of it that the kernel could not correct, if there were new ones lately.
    pub(crate) fn function_errors(&self, tree: &TreeReading<'_>, address: PciAddress) -> Option<String> {
        let folder = format!("sys/bus/pci/devices/{address}");
        [("aer_dev_fatal", "fatal"), ("aer_dev_nonfatal", "non-fatal")].into_iter().find_map(|(file, word)| {
            let path = format!("{folder}/{file}");
            let total = aer_total(&tree.attribute(&path)?)?;
            let new = self.trends.observe(&path, total, Instant::now())?;
            Some(format!("{new} new uncorrected PCIe errors ({word}), {total} since it was plugged in"))
        })
    }

    /// Failures of a node's memory that the kernel could not recover from, if there were new ones lately.
    pub(crate) fn node_errors(&self, tree: &TreeReading<'_>, node: u32) -> Option<String> {
        let folder = format!("sys/devices/system/node/node{node}/memory_failure");
        let number = |name: &str| tree.attribute(format!("{folder}/{name}"))?.parse::<u64>().ok();
        let (total, recovered) = (number("total")?, number("recovered").unwrap_or(0));
        let lost = total.saturating_sub(recovered);
        let new = self.trends.observe(&folder, lost, Instant::now())?;
        Some(format!("{new} new failures of its memory that the kernel could not recover from, {lost} since boot"))
    }
}

/// The last line of an AER counter file counts all of them: `TOTAL_ERR_FATAL 0`.
fn aer_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_ERR_"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_an_aer_file_is_read() {
        assert_eq!(aer_total("DLP 1\nTLP 2\nTOTAL_ERR_FATAL 3"), Some(3));
        for text in ["", "TOTAL_ERR_FATAL", "TOTAL_ERR_FATAL x", "DLP 1"] {
            assert_eq!(aer_total(text), None, "{text:?}");
        }
    }
}

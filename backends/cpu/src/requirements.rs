//! Requirements of a claim on the CPUs of a device, and the CPUs that can fulfil them at all, held or not.

use std::collections::BTreeSet;

use hostler_api::opaque::{CoreKind, CpuConfig, CpuIsolation, CpuSpread, IrqMode, SmtMode};
use hostler_backend::{AttributeValue, BackendError, Device};

use crate::pick::{NO_CACHE, OfferedCore, OfferedCpus, domain};

/// Requirements of one grant, with every default filled in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuRequirements {
    pub(crate) spread: CpuSpread,
    pub(crate) isolated: bool,
    pub(crate) l3_exclusive: bool,
    /// Hardware that is shared with no other namespace.
    pub(crate) isolation: CpuIsolation,
    /// True if interrupts stay away.
    pub(crate) avoids_irqs: bool,
    full_cores: bool,
    core_type: Option<CoreKind>,
    within: Option<u32>,
}

impl CpuRequirements {
    pub(crate) fn new(config: &CpuConfig, within: Option<u32>) -> Self {
        let isolated = config.smt == Some(SmtMode::Isolated);
        let spread = match config.spread.unwrap_or_default() {
            // Isolation uses one thread of each core already, as the spread asks.
            CpuSpread::Cores if isolated => CpuSpread::Packed,
            spread => spread,
        };
        Self {
            spread,
            isolated,
            l3_exclusive: config.l3_exclusive == Some(true),
            isolation: config.isolation.unwrap_or_default(),
            avoids_irqs: config.irqs == Some(IrqMode::Avoid),
            full_cores: config.full_cores == Some(true),
            core_type: config.core_type,
            within,
        }
    }

    /// The part of `offer` that fulfils the requirements.
    ///
    /// # Errors
    /// When no part of the device ever does.
    pub(crate) fn narrow(&self, device: &Device, mut offer: OfferedCpus) -> Result<OfferedCpus, BackendError> {
        self.check_core_type(device)?;
        self.keep_node(device, &mut offer)?;
        self.keep_whole_cores(device, &mut offer)?;
        self.keep_known_caches(device, &mut offer)?;
        self.check_spread(device, &offer)?;
        Ok(offer)
    }

    /// Names the CPUs that the requirements leave, for messages.
    pub(crate) fn noun(&self, offer: &OfferedCpus) -> String {
        let cores = if offer.whole_cores { " in whole cores" } else { "" };
        let caches = if self.l3_exclusive { " behind L3 caches that no other claim uses" } else { "" };
        let apart = match self.isolation {
            CpuIsolation::None => "",
            CpuIsolation::Smt => " of cores that no other namespace uses",
            CpuIsolation::L3 => " behind L3 caches that no other namespace uses",
        };
        let node = self.within.map(|node| format!(" on NUMA node {node}")).unwrap_or_default();
        format!("CPUs{cores}{caches}{apart}{node}")
    }

    fn check_core_type(&self, device: &Device) -> Result<(), BackendError> {
        let Some(wanted) = self.core_type else { return Ok(()) };
        let found =
            if let Some(AttributeValue::String(found)) = device.attributes.get("coreType") { found } else { "uniform" };
        let fits = match wanted {
            CoreKind::Performance => ["performance", "uniform"].contains(&found),
            CoreKind::Efficient => found == "efficiency",
        };
        if fits {
            return Ok(());
        }
        let device = &device.name;
        refuse(format!(
            "the cores of {device} are {found}, not {wanted} as coreType asks; let a selector on the attribute coreType \
             choose the device"
        ))
    }

    fn keep_node(&self, device: &Device, offer: &mut OfferedCpus) -> Result<(), BackendError> {
        let Some(node) = self.within else { return Ok(()) };
        offer.cores.retain(|core| core.1[1] == node);
        if offer.cores.is_empty() {
            return refuse(format!("{} has no CPU on NUMA node {node}", device.name));
        }
        Ok(())
    }

    fn keep_whole_cores(&self, device: &Device, offer: &mut OfferedCpus) -> Result<(), BackendError> {
        if self.full_cores || self.isolated {
            let is_whole = |core: &OfferedCore| !core.0.iter().any(|cpu| offer.partial.contains(*cpu));
            offer.cores.retain(is_whole);
            // A request for a number of CPUs names no core in particular, so cores with a thread offline cannot be
            // asked for.
            let threads = offer.cores.iter().map(|core| core.0.len()).max().unwrap_or(0);
            offer.cores.retain(|core| core.0.len() == threads);
            offer.whole_cores = true;
        }
        if offer.cores.is_empty() {
            let wish = if self.isolated { "smt: isolated" } else { "fullCores" };
            let device = &device.name;
            return refuse(format!("{device} has no core with all of its threads to give, as {wish} asks"));
        }
        Ok(())
    }

    fn keep_known_caches(&self, device: &Device, offer: &mut OfferedCpus) -> Result<(), BackendError> {
        let wish = if self.l3_exclusive { "l3Exclusive" } else { "isolation: l3" };
        if self.l3_exclusive || self.isolation == CpuIsolation::L3 {
            offer.cores.retain(|core| offer.caches.contains_key(&core.1[2]));
        }
        if offer.cores.is_empty() {
            return refuse(format!("the L3 caches of {} are not known, and {wish} asks for one", device.name));
        }
        Ok(())
    }

    fn check_spread(&self, device: &Device, offer: &OfferedCpus) -> Result<(), BackendError> {
        let device = &device.name;
        let domains = || offer.cores.iter().map(|core| domain(&core.1, self.spread)).collect::<BTreeSet<u32>>();
        match self.spread {
            CpuSpread::Packed => Ok(()),
            CpuSpread::Cores if offer.whole_cores && offer.step() > 1 => refuse(format!(
                "spread: cores asks for one CPU of each core, and {device} gives whole cores of {} CPUs; ask for smt: \
                 isolated to use one CPU of each",
                offer.step()
            )),
            CpuSpread::Cores => Ok(()),
            CpuSpread::Numa if self.within.is_some() => {
                refuse("spread: numa asks for several NUMA nodes, and sameNumaNode for one".to_owned())
            }
            CpuSpread::L3 if domains() == [NO_CACHE].into() => {
                refuse(format!("the L3 caches of {device} are not known, and spread: l3 asks for several"))
            }
            CpuSpread::L3 | CpuSpread::Numa if domains().len() < 2 => {
                let (place, word) =
                    if self.spread == CpuSpread::L3 { ("L3 cache", "l3") } else { ("NUMA node", "numa") };
                refuse(format!("all CPUs of {device} are in one {place}, and spread: {word} asks for several"))
            }
            CpuSpread::L3 | CpuSpread::Numa => Ok(()),
        }
    }
}

fn refuse<T>(reason: String) -> Result<T, BackendError> {
    Err(BackendError::refused(reason))
}

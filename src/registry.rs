//! The backends of this daemon, by name.

use std::{collections::BTreeMap, fmt, sync::Arc};

use hostler_api::BackendName;
use hostler_backend::Backend;
use hostler_linux::SysRoot;

use crate::config::DaemonConfig;

/// The configured backends. Cheap to clone.
#[derive(Clone, Default)]
pub struct BackendRegistry(Arc<BTreeMap<BackendName, Arc<dyn Backend>>>);

impl BackendRegistry {
    /// Takes the backends; of two with one name the later stays.
    pub fn new(backends: impl IntoIterator<Item = Arc<dyn Backend>>) -> Self {
        Self(Arc::new(backends.into_iter().map(|backend| (backend.name(), backend)).collect()))
    }

    /// The backend called `name`.
    pub fn get(&self, name: &BackendName) -> Option<&Arc<dyn Backend>> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&BackendName, &Arc<dyn Backend>)> {
        self.0.iter()
    }
}

/// The enabled backends, over the machine under `root`. A new backend gets its line here.
pub fn from_config(config: &DaemonConfig, root: &SysRoot) -> BackendRegistry {
    let backends = &config.backends;
    let mut enabled: Vec<Arc<dyn Backend>> = Vec::new();
    if backends.cpu.enabled {
        let cpu = hostler_cpu::CpuBackend::new(root.clone(), backends.cpu.config.clone());
        enabled.push(Arc::new(cpu.remembering(&config.paths.state)));
    }
    if backends.memory.enabled {
        let memory = hostler_memory::MemoryBackend::new(root.clone(), backends.memory.config.clone());
        enabled.push(Arc::new(if backends.cxl.enabled { memory.without_cxl_nodes() } else { memory }));
    }
    if backends.fpga.enabled {
        enabled.push(Arc::new(hostler_fpga::FpgaBackend::new(root.clone(), backends.fpga.config.clone())));
    }
    if backends.cxl.enabled {
        enabled.push(Arc::new(hostler_cxl::CxlBackend::new(root.clone(), backends.cxl.config.clone())));
    }
    if backends.fake.enabled {
        enabled.push(Arc::new(hostler_fake::FakeBackend::new(backends.fake.config.clone())));
    }
    BackendRegistry::new(enabled)
}

impl fmt::Debug for BackendRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

//! Where the kubelet's sockets are: computed here alone, for those who check them, bind them and look at them.

use std::path::{Path, PathBuf};

/// Behind the instance, in the folder that has the driver's name already: twice in one path, a name of 37 characters would
/// be too long for the kernel.
pub(crate) const SERVICE_SUFFIX: &str = "@service.sock";

/// Where the sockets are that the kubelet calls.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KubeletSocketPaths {
    /// Name of the driver, a DNS subdomain.
    pub driver: String,
    /// Folder that the kubelet watches for drivers: `<kubelet root>/plugins_registry`.
    pub registry_dir: PathBuf,
    /// Folder of this driver: `<kubelet root>/plugins/<driver>`.
    pub plugin_dir: PathBuf,
    /// Tells apart two daemons of one driver that run at once, while one hands over to the other without a gap: a DNS
    /// label. The configuration names none, so that one daemon alone has no instance.
    pub instance: Option<String>,
}

impl KubeletSocketPaths {
    /// The usual folders below the kubelet's root folder (`--root-dir`).
    pub fn new(driver: &str, kubelet_root: &Path) -> Self {
        Self {
            driver: driver.to_owned(),
            registry_dir: kubelet_root.join("plugins_registry"),
            plugin_dir: kubelet_root.join("plugins").join(driver),
            instance: None,
        }
    }

    /// The socket that the kubelet finds by itself.
    pub fn registration_socket(&self) -> PathBuf {
        self.registry_dir.join(format!("{}{}", self.prefix(), self.registration_suffix()))
    }

    /// The socket that registration names.
    pub fn service_socket(&self) -> PathBuf {
        self.plugin_dir.join(format!("{}{SERVICE_SUFFIX}", self.prefix()))
    }

    /// The instance stands before the `@`, so that the driver's name ends where the suffix begins, whatever it is.
    fn prefix(&self) -> String {
        self.instance.as_ref().map_or_else(|| "dra".to_owned(), |instance| format!("dra-{instance}"))
    }

    pub(crate) fn registration_suffix(&self) -> String {
        format!("@{}-reg.sock", self.driver)
    }
}

/// Whether a file name is one of ours, of any instance, given what follows the instance in it.
pub(crate) fn is_ours(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|prefix| prefix == "dra" || prefix.starts_with("dra-"))
}

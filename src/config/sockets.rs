//! Paths of the kubelet's sockets: computed here alone, for the code that checks them, binds them and lists them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use uuid::Uuid;

/// Suffix of the service's socket, behind the instance. Its folder has the driver's name already: twice in one path, a
/// name of 37 characters would be too long for the kernel.
pub(crate) const SERVICE_SUFFIX: &str = "@service.sock";
/// Suffix of the socket of a daemon that stands by.
pub(crate) const SUCCESSOR_SUFFIX: &str = "@next.sock";

/// Paths of the sockets that the kubelet calls.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KubeletSocketPaths {
    /// Name of the driver, a DNS subdomain.
    pub driver: String,
    /// Folder that the kubelet watches for drivers: `<kubelet root>/plugins_registry`.
    pub registry_dir: PathBuf,
    /// Folder of this driver: `<kubelet root>/plugins/<driver>`.
    pub plugin_dir: PathBuf,
    /// Tells apart the daemons of one driver: those that run at once, while one hands over to the other, and successive
    /// ones. Three lower-case letters or digits.
    pub instance: String,
}

/// Instance of a path that belongs to no daemon in particular. A check of its length holds for all, since all have the
/// same length.
const ANY_INSTANCE: &str = "dra";

impl KubeletSocketPaths {
    /// The usual folders below the kubelet's root folder (`--root-dir`).
    pub fn new(driver: &str, kubelet_root: &Path) -> Self {
        Self {
            driver: driver.to_owned(),
            registry_dir: kubelet_root.join("plugins_registry"),
            plugin_dir: kubelet_root.join("plugins").join(driver),
            instance: ANY_INSTANCE.to_owned(),
        }
    }

    /// The same folders, for a random new instance. A kubelet that sees a socket go and one of the same name come
    /// deregisters the plugin at its next look at the folder, and registers it at the one after that, a second later.
    #[must_use]
    pub fn of_new_instance(self) -> Self {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let random = Uuid::new_v4();
        let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
        Self { instance: random.as_bytes().iter().take(ANY_INSTANCE.len()).map(letter).collect(), ..self }
    }

    /// The socket that the kubelet finds by itself.
    pub fn registration_socket(&self) -> PathBuf {
        self.registry_dir.join(format!("{}{}", self.instance, self.registration_suffix()))
    }

    /// The socket that registration names.
    pub fn service_socket(&self) -> PathBuf {
        self.plugin_dir.join(format!("{}{SERVICE_SUFFIX}", self.instance))
    }

    /// The socket on which a daemon that stands by is told that the one that works is about to go.
    pub(crate) fn successor_socket(&self) -> PathBuf {
        self.plugin_dir.join(format!("{}{SUCCESSOR_SUFFIX}", self.instance))
    }

    pub(crate) fn registration_suffix(&self) -> String {
        format!("@{}-reg.sock", self.driver)
    }

    /// True if a file name is one of hostler's, of any instance. `suffix` follows the instance in the name. The
    /// instance stands before the `@`, so that the driver's name ends where the suffix begins, whatever it is.
    pub(crate) fn is_ours(name: &str, suffix: &str) -> bool {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        name.strip_suffix(suffix)
            .is_some_and(|instance| instance.len() == ANY_INSTANCE.len() && instance.bytes().all(is_part))
    }

    /// The registration sockets of all instances that exist now.
    pub(crate) fn registration_sockets(&self) -> Vec<PathBuf> {
        sockets_in(&self.registry_dir, &self.registration_suffix())
    }

    /// The sockets of daemons of this driver that stand by: on them a daemon is told to take over.
    pub(crate) fn successor_sockets(&self) -> Vec<PathBuf> {
        sockets_in(&self.plugin_dir, SUCCESSOR_SUFFIX)
    }
}

/// Lists hostler's sockets in `folder`. A folder that cannot be listed has no usable socket.
fn sockets_in(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| KubeletSocketPaths::is_ours(name, suffix)));
    ours.map(|entry| entry.path()).collect()
}

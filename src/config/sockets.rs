//! Where the kubelet's sockets are: computed here alone, for those who check them, bind them and look at them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use uuid::Uuid;

/// Behind the instance, in the folder that has the driver's name already: twice in one path, a name of 37 characters would
/// be too long for the kernel.
pub(crate) const SERVICE_SUFFIX: &str = "@service.sock";
/// Of a daemon that stands by.
pub(crate) const SUCCESSOR_SUFFIX: &str = "@next.sock";

/// Where the sockets are that the kubelet calls.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KubeletSocketPaths {
    /// Name of the driver, a DNS subdomain.
    pub driver: String,
    /// Folder that the kubelet watches for drivers: `<kubelet root>/plugins_registry`.
    pub registry_dir: PathBuf,
    /// Folder of this driver: `<kubelet root>/plugins/<driver>`.
    pub plugin_dir: PathBuf,
    /// Tells apart the daemons of one driver that run at once, while one hands over to the other, and one from the one
    /// before it: three lower-case letters or digits.
    pub instance: String,
}

/// Of a path without an instance of its own: what is said about one is said about all, since no name is longer.
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

    /// The same folders, for an instance that nobody has had lately. A kubelet that sees a socket go and one of the same name
    /// come deregisters at its next look, and registers at the one after that, a second later.
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

    /// Whether a file name is one of ours, of any instance, given what follows the instance in it. The instance stands
    /// before the `@`, so that the driver's name ends where the suffix begins, whatever it is.
    pub(crate) fn is_ours(name: &str, suffix: &str) -> bool {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        name.strip_suffix(suffix)
            .is_some_and(|instance| instance.len() == ANY_INSTANCE.len() && instance.bytes().all(is_part))
    }

    /// The registration sockets of all instances that are there now.
    pub(crate) fn registration_sockets(&self) -> Vec<PathBuf> {
        sockets_in(&self.registry_dir, &self.registration_suffix())
    }

    /// Those on which daemons of this driver that stand by are told to follow.
    pub(crate) fn successor_sockets(&self) -> Vec<PathBuf> {
        sockets_in(&self.plugin_dir, SUCCESSOR_SUFFIX)
    }
}

/// What cannot be listed has nothing in it that could be used.
fn sockets_in(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| KubeletSocketPaths::is_ours(name, suffix)));
    ours.map(|entry| entry.path()).collect()
}

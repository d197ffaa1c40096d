//! `[nri]`: plugging into the container runtime.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Unexpected, Visitor},
};

use super::{ConfigMistake, DaemonConfig};

/// Path of the socket on which containerd and CRI-O listen for plugins.
const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

/// Largest index: the runtime takes two digits.
const LARGEST_INDEX: u8 = 99;

/// `[nri]`: plugging into the container runtime.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NriConfig {
    /// Connection to the container runtime: where one listens, always, or never.
    pub enabled: NriMode,
    /// Path of the socket on which the runtime listens for plugins. Default: `/var/run/nri/nri.sock`; none where
    /// `paths.root` is not `/`, since that is the runtime of this machine and not of a captured one.
    pub socket: Option<PathBuf>,
    /// The plugin's place among others, 0 to 99: the runtime calls them in ascending order. Default: 90, after plugins
    /// that give containers devices. Two plugins that both bind a container to CPUs make its creation fail, in any
    /// order.
    pub index: u8,
    /// CPUs on which containers without a claim for CPUs run.
    pub shared_pool: SharedPoolMode,
}

/// Connection to the container runtime: `"auto"`, `true` or `false`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NriMode {
    /// The daemon connects if a runtime listens.
    #[default]
    Auto,
    /// Always: the daemon is not ready without a runtime.
    On,
    /// Never.
    Off,
}

impl Serialize for NriMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::On => serializer.serialize_bool(true),
            Self::Off => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for NriMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NriModeVisitor)
    }
}

struct NriModeVisitor;

impl Visitor<'_> for NriModeVisitor {
    type Value = NriMode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"auto\", true or false")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<NriMode, E> {
        Ok(if value { NriMode::On } else { NriMode::Off })
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<NriMode, E> {
        if value == "auto" { Ok(NriMode::Auto) } else { Err(E::invalid_value(Unexpected::Str(value), &self)) }
    }
}

/// CPUs on which containers without a claim for CPUs run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedPoolMode {
    /// The CPUs that the runtime gives them: hostler leaves them alone.
    #[default]
    Off,
    /// The CPUs that neither stay with the system (`backends.cpu.reserved`) nor belong to a claim alone.
    ExcludeExclusive,
}

impl Default for NriConfig {
    fn default() -> Self {
        Self { enabled: NriMode::default(), socket: None, index: 90, shared_pool: SharedPoolMode::default() }
    }
}

impl DaemonConfig {
    /// Path of the socket on which the runtime listens for plugins, if it is known.
    pub fn nri_socket(&self) -> Option<PathBuf> {
        let is_this_machine = self.paths.root == Path::new("/");
        self.nri.socket.clone().or_else(|| is_this_machine.then(|| DEFAULT_SOCKET.into()))
    }
}

/// Every broken rule except those of paths.
pub(super) fn problems(config: &DaemonConfig) -> Vec<ConfigMistake> {
    let nri = &config.nri;
    let mut problems = Vec::new();
    if nri.index > LARGEST_INDEX {
        problems.push(ConfigMistake::new("nri.index", "has more than two digits", "write a number from 0 to 99"));
    }
    if nri.shared_pool != SharedPoolMode::Off && nri.enabled == NriMode::Off {
        let what = "needs the container runtime, and nri.enabled is false";
        problems.push(ConfigMistake::new("nri.shared_pool", what, "write nri.enabled = true"));
    }
    let is_required = nri.shared_pool != SharedPoolMode::Off || nri.enabled == NriMode::On;
    if is_required && config.nri_socket().is_none() {
        let what = "is not known where paths.root is not /";
        problems.push(ConfigMistake::new("nri.socket", what, "write the path of the runtime's socket"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(text: &str) -> Vec<String> {
        let problems = DaemonConfig::parse(text).err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn it_is_used_where_there_is_one_unless_somebody_says_more() {
        let of = |text: &str| DaemonConfig::parse(text).unwrap().nri;
        assert_eq!(of(""), NriConfig::default());
        assert_eq!(of("[nri]\nenabled = \"auto\"").enabled, NriMode::Auto);
        assert_eq!(of("[nri]\nenabled = true").enabled, NriMode::On);
        assert_eq!(of("[nri]\nenabled = false").enabled, NriMode::Off);
        assert_eq!(of("[nri]\nshared_pool = \"exclude-exclusive\"").shared_pool, SharedPoolMode::ExcludeExclusive);
        for enabled in [NriMode::Auto, NriMode::On, NriMode::Off] {
            let config = NriConfig { enabled, ..NriConfig::default() };
            assert_eq!(toml::from_str::<NriConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
    }

    #[test]
    fn the_socket_of_this_machine_is_not_that_of_a_captured_one() {
        let of = |text: &str| DaemonConfig::parse(text).unwrap().nri_socket();
        assert_eq!(of(""), Some(DEFAULT_SOCKET.into()));
        assert_eq!(of("[paths]\nroot = \"/captured\""), None);
        assert_eq!(of("[paths]\nroot = \"/captured\"\n[nri]\nsocket = \"/n.sock\""), Some("/n.sock".into()));
    }

    #[test]
    fn wishes_that_cannot_come_true_are_mistakes() {
        for (text, expected) in [
            ("[nri]\nindex = 100", "nri.index"),
            ("[nri]\nenabled = \"perhaps\"", "\"auto\", true or false"),
            ("[nri]\nenabled = false\nshared_pool = \"exclude-exclusive\"", "nri.shared_pool"),
            ("[nri]\nenabled = true\n[paths]\nroot = \"/captured\"", "nri.socket"),
            ("[nri]\nsocket = \"nri.sock\"", "is not absolute"),
        ] {
            let problems = problems_of(text);
            assert!(problems.len() == 1 && problems[0].contains(expected), "{text}: {problems:?}");
        }
    }
}

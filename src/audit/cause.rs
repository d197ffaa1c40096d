//! The likely cause of a container that is bound to something else, from what can be seen. No write into a cgroup is
//! signed, so this is never certain.

use std::{collections::BTreeMap, path::Path};

use hostler_files::read_text;
use hostler_linux::{
    IdSet, SysRoot,
    cgroup::{CpusetStanding, SetStanding},
};
use serde::Deserialize;

use crate::pinning::Pins;

/// Size limit of the kubelet's state, which has a line for each container with CPUs of its own.
const MOST_STATE_BYTES: u64 = 1 << 20;

/// Facts about the moment that tell causes apart.
#[derive(Clone, Debug, Default)]
pub(super) struct CauseEvidence {
    /// CPUs that run.
    pub(super) online: IdSet,
    /// CPUs that the kubelet binds containers to, if it does.
    pub(super) kubelet: Option<KubeletCpus>,
}

impl CauseEvidence {
    /// Reads the facts that can be read; `kubelet` is the kubelet's folder.
    pub(super) fn read(root: &SysRoot, kubelet: &Path) -> Self {
        let online = root.attribute("sys/devices/system/cpu/online").ok().flatten();
        let state = read_text(&kubelet.join("cpu_manager_state"), MOST_STATE_BYTES).ok();
        Self {
            online: online.and_then(|text| text.parse::<IdSet>().ok()).unwrap_or_default(),
            kubelet: state.and_then(|text| serde_json::from_str::<KubeletCpus>(&text).ok()),
        }
    }
}

/// `cpu_manager_state` of the kubelet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeletCpus {
    policy_name: String,
    #[serde(default)]
    default_cpu_set: String,
    /// Lists of CPUs by pod and container.
    #[serde(default)]
    entries: BTreeMap<String, BTreeMap<String, String>>,
}

/// Likely author of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LikelyCause {
    CpuOffline,
    ParentShrank,
    KubeletCpuManager,
    Systemd,
    Runtime,
}

impl LikelyCause {
    /// Name of the cause as a label of metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::CpuOffline => "cpu_offline",
            Self::ParentShrank => "parent",
            Self::KubeletCpuManager => "kubelet",
            Self::Systemd => "systemd",
            Self::Runtime => "runtime",
        }
    }

    /// Sentence for people, with what to do.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::CpuOffline => "a CPU of it went offline",
            Self::ParentShrank => {
                "the cgroup above it has less now; look for AllowedCPUs= and AllowedMemoryNodes= of its slice"
            }
            Self::KubeletCpuManager => {
                "likely by the kubelet's CPU manager, whose policy is static: set cpuManagerPolicy to none"
            }
            Self::Systemd => {
                "likely by systemd, which has set the scope anew: a daemon-reload, or a property of the scope"
            }
            Self::Runtime => {
                "likely by an update of the container (runc update, an in-place resize) or another program"
            }
        }
    }
}

/// Returns the likely author of a change to a container that is to have `wanted`.
pub(super) fn likely(standing: &CpusetStanding, wanted: &Pins, cgroup: &Path, evidence: &CauseEvidence) -> LikelyCause {
    let (seen, wanted) =
        if standing.cpus.is(&wanted.cpus) { (&standing.mems, &wanted.mems) } else { (&standing.cpus, &wanted.cpus) };
    let of_cpus = std::ptr::eq(seen, &standing.cpus);
    if of_cpus && !wanted.is_subset(&evidence.online) {
        return LikelyCause::CpuOffline;
    }
    if is_cut_by_parent(seen, wanted) {
        return LikelyCause::ParentShrank;
    }
    if of_cpus && evidence.kubelet.as_ref().is_some_and(|kubelet| kubelet.binds_to(&seen.requested)) {
        return LikelyCause::KubeletCpuManager;
    }
    let in_scope = cgroup.extension().is_some_and(|extension| extension == "scope");
    // systemd leaves nothing behind where it was told of no set; a v1 cgroup cannot be without one.
    if in_scope && (seen.requested.is_empty() || seen.requested == seen.above) {
        return LikelyCause::Systemd;
    }
    LikelyCause::Runtime
}

/// True if the cgroup above has less than is wanted.
fn is_cut_by_parent(seen: &SetStanding, wanted: &IdSet) -> bool {
    !seen.above.is_empty() && !wanted.is_subset(&seen.above)
}

impl KubeletCpus {
    /// True if the kubelet would bind some container to these CPUs.
    fn binds_to(&self, cpus: &IdSet) -> bool {
        let is = |text: &String| text.parse::<IdSet>().is_ok_and(|own| own == *cpus);
        self.policy_name == "static"
            && (is(&self.default_cpu_set) || self.entries.values().flat_map(BTreeMap::values).any(is))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> IdSet {
        list.parse().unwrap()
    }

    fn cause(requested: &str, effective: &str, above: &str, cgroup: &str, kubelet: Option<&str>) -> LikelyCause {
        let cpus = SetStanding { requested: set(requested), effective: set(effective), above: set(above) };
        let standing = CpusetStanding { cpus, ..CpusetStanding::default() };
        let evidence =
            CauseEvidence { online: set("0-6"), kubelet: kubelet.map(|text| serde_json::from_str(text).unwrap()) };
        let cpus = set(if requested == "7" { "7" } else { "2-3" });
        likely(&standing, &Pins { cpus, mems: IdSet::new() }, Path::new(cgroup), &evidence)
    }

    #[test]
    fn what_can_be_seen_tells_who_it_was() {
        let kubelet =
            r#"{"policyName": "static", "defaultCpuSet": "0,4-7", "entries": {"u": {"c": "1"}}, "checksum": 7}"#;
        let none = r#"{"policyName": "none", "defaultCpuSet": "", "checksum": 7}"#;
        for (requested, effective, above, cgroup, kubelet, expected) in [
            ("7", "6", "0-7", "/k/c", None, LikelyCause::CpuOffline),
            ("2-3", "2", "0-2", "/k/c", None, LikelyCause::ParentShrank),
            ("0,4-7", "0,4-7", "0-7", "/k/c", Some(kubelet), LikelyCause::KubeletCpuManager),
            ("1", "1", "0-7", "/k/c", Some(kubelet), LikelyCause::KubeletCpuManager),
            ("1", "1", "0-7", "/k/c", Some(none), LikelyCause::Runtime),
            ("", "0-7", "0-7", "/k/cri-1.scope", Some(kubelet), LikelyCause::Systemd),
            ("0-7", "0-7", "0-7", "/k/cri-1.scope", None, LikelyCause::Systemd),
            ("", "0-7", "0-7", "/k/c", None, LikelyCause::Runtime),
            ("4", "4", "0-7", "/k/cri-1.scope", None, LikelyCause::Runtime),
        ] {
            assert_eq!(cause(requested, effective, above, cgroup, kubelet), expected, "{requested} {cgroup}");
        }
    }

    #[test]
    fn memory_nodes_are_told_of_when_the_cpus_are_right() {
        let right = SetStanding { requested: set("2-3"), effective: set("2-3"), above: set("0-6") };
        let mems = SetStanding { requested: set("1"), effective: set("0"), above: set("0") };
        let wanted = Pins { cpus: set("2-3"), mems: set("1") };
        let evidence = CauseEvidence { online: set("0-6"), kubelet: None };
        let standing = CpusetStanding { cpus: right, mems };
        assert_eq!(likely(&standing, &wanted, Path::new("/k/c"), &evidence), LikelyCause::ParentShrank);
    }
}

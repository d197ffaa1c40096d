//! Ways to tell a runtime of changes that no event asks for, by its version. Pure.
//!
//! Up to NRI 0.12.0 a runtime takes two locks for an event and takes them the other way round for an update that a
//! plugin asks for: an event at that moment locks it up for good, and with it every container on the node. Whatever
//! the plugin does, it cannot prevent that, because it does not see the events that are about to come. Older runtimes
//! are therefore never asked. They are given updates in answers, and the updates that no answer has carried in the
//! answer to a new Synchronize, for which the plugin connects anew. Before containerd 1.7.16 that could lock up in
//! the same way: those are given answers alone.

use hostler_proto::nri::ConfigureRequest;

/// Way to tell a runtime of changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UpdateRoute {
    /// The runtime can be asked at any time.
    Asked,
    /// The runtime hears of changes in answers, and when the plugin connects anew.
    Synchronized,
    /// The runtime hears of changes in answers only.
    Answered,
}

/// The first version of NRI that can be asked.
const ASKED_SINCE: [u64; 3] = [0, 12, 1];
/// The first version of containerd to which a plugin can connect at any time.
const SYNCHRONIZED_SINCE: [u64; 3] = [1, 7, 16];

impl UpdateRoute {
    /// Returns the way for this runtime. A runtime that does not tell its version counts as old.
    pub(super) fn of(request: &ConfigureRequest) -> Self {
        if version(&request.nri_version).is_some_and(|version| version >= ASKED_SINCE) {
            return Self::Asked;
        }
        let is_first = |version| version < SYNCHRONIZED_SINCE;
        if request.runtime_name == "containerd" && version(&request.runtime_version).is_some_and(is_first) {
            return Self::Answered;
        }
        Self::Synchronized
    }
}

/// Parses `v0.12.1` and the like. A version with something behind it came before the version.
fn version(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.trim().trim_start_matches('v').split('.').map(|number| number.parse().ok());
    let version = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runtimes_that_cannot_lock_up_are_asked() {
        for (runtime, runtime_version, nri, expected) in [
            ("containerd", "v2.4.0", "v0.12.1", UpdateRoute::Asked),
            ("containerd", "v2.4.0", "1.0.0", UpdateRoute::Asked),
            ("containerd", "v2.3.4", "v0.12.0", UpdateRoute::Synchronized),
            ("containerd", "v2.3.4", "v0.12.1-rc.1", UpdateRoute::Synchronized),
            ("containerd", "v1.7.30", "", UpdateRoute::Synchronized),
            ("containerd", "v1.7.13", "", UpdateRoute::Answered),
            ("cri-o", "1.30.0", "", UpdateRoute::Synchronized),
            ("", "", "unknown", UpdateRoute::Synchronized),
        ] {
            let request = ConfigureRequest {
                runtime_name: runtime.to_owned(),
                runtime_version: runtime_version.to_owned(),
                nri_version: nri.to_owned(),
                ..ConfigureRequest::default()
            };
            assert_eq!(UpdateRoute::of(&request), expected, "{runtime} {runtime_version} {nri}");
        }
    }
}

//! Names with one meaning for all readers of an object: API groups, annotations, standard attributes and taints.

/// The API version of hostler's own kinds: opaque configuration, today.
pub const HOSTLER_API_VERSION: &str = "hostler.dev/v1alpha1";

/// Field manager under which the controller writes, as the API server remembers it.
pub const CONTROLLER_FIELD_MANAGER: &str = "hostler-controller";

/// The key of the taint with which a device is kept for a holder, whichever driver's device it is. Its value names
/// the holder.
pub const HELD_TAINT: &str = "hostler.dev/held";

/// The attribute with the same meaning where the API server stores no taints: true while the device is kept for a
/// holder.
pub const HELD_ATTRIBUTE: &str = "hostler.dev/held";

/// The attribute that names the holder, with the same value as the taint: selectors see no taints, and this attribute
/// leads an owner that may take only its kept devices to them.
pub const HELD_FOR_ATTRIBUTE: &str = "hostler.dev/heldFor";

/// The annotation of a claim that was made from a template: the claim's name in its pod.
pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// The domain of the attributes that mean the same with every driver.
pub const STANDARD_ATTRIBUTES: &str = "resource.kubernetes.io/";

/// Reason for a device's taint: the word behind the driver's name in the taint's key.
///
/// Neither key nor value has numbers in it: a value that changed all the time would be written all the time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaintReason {
    /// The device was checked and does not work.
    Unhealthy,
    /// The health of the device could not be checked.
    Unknown,
    /// The last scan of its backend failed.
    Stale,
    /// An operator has taken the device out of service.
    Drained,
}

impl TaintReason {
    const ALL: [Self; 4] = [Self::Unhealthy, Self::Unknown, Self::Stale, Self::Drained];

    /// The key of the taint of a device of `driver`.
    pub fn key(self, driver: &str) -> String {
        format!("{driver}/{}", self.word())
    }

    /// Reason that `driver` states with a taint of this key; absent for keys that are not its own.
    pub fn of_key(key: &str, driver: &str) -> Option<Self> {
        let word = key.strip_prefix(driver)?.strip_prefix('/')?;
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Unknown => "unknown",
            Self::Stale => "stale",
            Self::Drained => "drained",
        }
    }

    /// The value of the taint.
    pub fn value(self) -> &'static str {
        match self {
            Self::Unhealthy => "failed",
            Self::Unknown => "unchecked",
            Self::Stale => "scan-failed",
            Self::Drained => "operator",
        }
    }
}

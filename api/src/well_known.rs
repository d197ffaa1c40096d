//! Names that mean the same to everybody who reads an object: of API groups, annotations, standard attributes and taints.

/// The API version of hostler's own kinds: opaque configuration, today.
pub const HOSTLER_API_VERSION: &str = "hostler.dev/v1alpha1";

/// As whom the controller writes, as the API server remembers it.
pub const CONTROLLER_FIELD_MANAGER: &str = "hostler-controller";

/// The key of the taint with which a device is kept for somebody, whichever driver's device it is. Its value says for whom.
pub const HELD_TAINT: &str = "hostler.dev/held";

/// The attribute that says the same where the API server stores no taints: true while the device is kept for somebody.
pub const HELD_ATTRIBUTE: &str = "hostler.dev/held";

/// The attribute that says for whom, as the value of the taint does: selectors see no taints, and who may take only what is kept
/// for him is led to it by this.
pub const HELD_FOR_ATTRIBUTE: &str = "hostler.dev/heldFor";

/// The annotation with which a claim that was made from a template says what its pod calls it.
pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// The domain of the attributes that mean the same with every driver.
pub const STANDARD_ATTRIBUTES: &str = "resource.kubernetes.io/";

/// Why a device has a taint: the word behind the driver's name in the taint's key.
///
/// Neither key nor value has numbers in it: a value that changed all the time would be written all the time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaintReason {
    /// The device was checked and does not work.
    Unhealthy,
    /// Whether the device works could not be checked.
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

    /// What `driver` says with a taint of this key; absent for keys that are not its own.
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

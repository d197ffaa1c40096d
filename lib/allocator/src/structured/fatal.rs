//! Errors that end the attempt to schedule a pod: no other node would make a difference.

/// An error for which claims cannot be satisfied on any node, as the claims, their classes or the slices are.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fatal {
    /// A request needs a feature that is off.
    #[error("claim {claim}, request {request}: it {what}, and feature {feature} is off")]
    FeatureOff {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// The use of the feature, in words.
        what: &'static str,
        /// The feature gate.
        feature: &'static str,
    },
    /// A selector of a request is of an unknown kind.
    #[error("claim {claim}, request {request}, selector #{at}: there is no CEL expression in it")]
    EmptySelector {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// Index of the selector.
        at: usize,
    },
    /// A selector of a class is of an unknown kind.
    #[error("class {class}: a selector has no CEL expression in it")]
    EmptyClassSelector {
        /// Name of the class.
        class: String,
    },
    /// A request asks for nothing that is known.
    #[error("claim {claim}, request {request}: it says neither exactly nor firstAvailable")]
    EmptyRequest {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
    },
    /// A request names no class.
    #[error("claim {claim}, request {request}: it names no device class")]
    NoClass {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
    },
    /// There is no such class.
    #[error("claim {claim}, request {request}: there is no device class {class}")]
    UnknownClass {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// Name of the class.
        class: String,
    },
    /// An allocation mode is not known.
    #[error("claim {claim}, request {request}: allocationMode {mode:?} is not known")]
    UnknownMode {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// The mode.
        mode: String,
    },
    /// A constraint is of an unknown kind.
    #[error("claim {claim}, constraint #{at}: it names no attribute that this version knows")]
    EmptyConstraint {
        /// `namespace/name`.
        claim: String,
        /// Index of the constraint.
        at: usize,
    },
    /// A claim asks for more devices than it can hold.
    #[error("claim {claim}: it asks for {devices} devices, and a claim can hold {limit}")]
    TooManyDevices {
        /// `namespace/name`.
        claim: String,
        /// Least number of devices that it asks for.
        devices: i64,
        /// Number of devices that a claim can hold.
        limit: i64,
    },
    /// With every choice of devices, a claim gets more than it can hold.
    #[error("a claim would hold more than {limit} devices, whatever is chosen")]
    LimitExceeded {
        /// Number of devices that a claim can hold.
        limit: i64,
    },
    /// A request asks for all devices, and a pool is incomplete or invalid: all devices are not known.
    #[error("claim {claim}, request {request}: it asks for all devices, but pool {pool} is {problem}")]
    AllOfBadPool {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// `driver/name`.
        pool: String,
        /// The defect of the pool.
        problem: String,
    },
    /// A request asks for all devices, and a constraint forbids it.
    #[error("claim {claim}, request {request}: it asks for all devices, and {constraint} does not allow {device}")]
    AllAgainstConstraint {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// The constraint.
        constraint: String,
        /// `driver/pool/name`.
        device: String,
    },
    /// The search came to an invalid pool.
    #[error("pool {pool} is invalid: {problem}")]
    InvalidPool {
        /// `driver/name`.
        pool: String,
        /// The defect of the pool.
        problem: String,
    },
    /// A selector does not compile.
    #[error("{owner}: failed to compile {selector:?}: {reason}")]
    Compile {
        /// The class or claim of the selector, and the index there.
        owner: String,
        /// Text of the selector.
        selector: String,
        /// The reason.
        reason: String,
    },
    /// A selector failed on a device.
    #[error("{owner}: failed to evaluate {selector:?} on device {device}: {reason}")]
    Evaluate {
        /// The class or claim of the selector, and the index there.
        owner: String,
        /// Text of the selector.
        selector: String,
        /// `driver/pool/name`.
        device: String,
        /// The reason.
        reason: String,
    },
    /// A device's selector of nodes is invalid.
    #[error("device {device}: its nodeSelector cannot be understood: {reason}")]
    NodeSelector {
        /// `driver/pool/name`.
        device: String,
        /// The reason.
        reason: String,
    },
    /// The slice's selector has several terms.
    #[error("device {device}: a nodeSelector with {terms} terms cannot become part of an allocation")]
    SelectorTerms {
        /// `driver/pool/name`.
        device: String,
        /// Number of terms.
        terms: usize,
    },
    /// Upstream would look beyond the end of a slice, and crash.
    #[error("device {device}: its slice has no device #{at}, whose capacity upstream would look at")]
    NoSuchDevice {
        /// `driver/pool/name`.
        device: String,
        /// Index of the device.
        at: usize,
    },
}

impl Fatal {
    pub(super) fn empty_request(claim: String, request: &str) -> Self {
        Self::EmptyRequest { claim, request: request.to_owned() }
    }

    pub(super) fn no_class(claim: String, request: &str) -> Self {
        Self::NoClass { claim, request: request.to_owned() }
    }

    pub(super) fn unknown_class(claim: String, request: &str, class: &str) -> Self {
        Self::UnknownClass { claim, request: request.to_owned(), class: class.to_owned() }
    }

    pub(super) fn unknown_mode(claim: String, request: &str, mode: &str) -> Self {
        Self::UnknownMode { claim, request: request.to_owned(), mode: mode.to_owned() }
    }

    pub(super) fn empty_selector(claim: String, request: &str, at: usize) -> Self {
        Self::EmptySelector { claim, request: request.to_owned(), at }
    }
}

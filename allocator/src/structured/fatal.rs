//! What ends the attempt to schedule a pod: no other node would make a difference.

/// Why claims cannot be satisfied on any node as they, their classes or the slices are.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fatal {
    /// A request needs a feature that is off.
    #[error("claim {claim}, request {request}: it {what}, and feature {feature} is off")]
    FeatureOff {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// What the request does.
        what: &'static str,
        /// The feature gate.
        feature: &'static str,
    },
    /// A selector of a request is of a kind that is not known.
    #[error("claim {claim}, request {request}, selector #{at}: there is no CEL expression in it")]
    EmptySelector {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// Index of the selector.
        at: usize,
    },
    /// A selector of a class is of a kind that is not known.
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
    /// A constraint is of a kind that is not known.
    #[error("claim {claim}, constraint #{at}: it names no attribute that this version knows")]
    EmptyConstraint {
        /// `namespace/name`.
        claim: String,
        /// Index of the constraint.
        at: usize,
    },
    /// A claim wants more devices than it can hold.
    #[error("claim {claim}: it asks for {devices} devices, and a claim can hold {limit}")]
    TooManyDevices {
        /// `namespace/name`.
        claim: String,
        /// How many at least.
        devices: i64,
        /// How many a claim can hold.
        limit: i64,
    },
    /// Whatever is chosen, a claim gets more devices than it can hold.
    #[error("a claim would hold more than {limit} devices, whatever is chosen")]
    LimitExceeded {
        /// How many a claim can hold.
        limit: i64,
    },
    /// All devices are wanted while nobody knows which these are.
    #[error("claim {claim}, request {request}: it asks for all devices, but pool {pool} is {problem}")]
    AllOfBadPool {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// `driver/name`.
        pool: String,
        /// What is wrong with it.
        problem: String,
    },
    /// All devices are wanted, and a constraint forbids it.
    #[error("claim {claim}, request {request}: it asks for all devices, and {constraint} does not allow {device}")]
    AllAgainstConstraint {
        /// `namespace/name`.
        claim: String,
        /// Name of the request.
        request: String,
        /// What the constraint says.
        constraint: String,
        /// `driver/pool/name`.
        device: String,
    },
    /// The search came to an invalid pool.
    #[error("pool {pool} is invalid: {problem}")]
    InvalidPool {
        /// `driver/name`.
        pool: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A selector is no CEL.
    #[error("{owner}: failed to compile {selector:?}: {reason}")]
    Compile {
        /// Who has it.
        owner: String,
        /// Its text.
        selector: String,
        /// Why.
        reason: String,
    },
    /// A selector failed on a device.
    #[error("{owner}: failed to evaluate {selector:?} on device {device}: {reason}")]
    Evaluate {
        /// Who has it.
        owner: String,
        /// Its text.
        selector: String,
        /// `driver/pool/name`.
        device: String,
        /// Why.
        reason: String,
    },
    /// A device's selector of nodes means nothing.
    #[error("device {device}: its nodeSelector cannot be understood: {reason}")]
    NodeSelector {
        /// `driver/pool/name`.
        device: String,
        /// Why.
        reason: String,
    },
    /// The slice's selector has several terms.
    #[error("device {device}: a nodeSelector with {terms} terms cannot become part of an allocation")]
    SelectorTerms {
        /// `driver/pool/name`.
        device: String,
        /// How many.
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

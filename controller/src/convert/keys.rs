//! Koordinator's labels and annotations.

/// Label of Reservations: which of several is taken first.
pub(super) const ORDER: &str = "scheduling.koordinator.sh/reservation-order";
/// Label of Reservations that wait for pods though something is free.
pub(super) const PRE_ALLOCATION_REQUIRED: &str = "scheduling.koordinator.sh/pre-allocation-required";
/// Annotation of Reservations, as JSON: resources that Restricted is about.
pub(super) const RESTRICTED_OPTIONS: &str = "scheduling.koordinator.sh/reservation-restricted-options";
/// Annotation of Reservations, as JSON: other amounts than those of the template.
pub(super) const RESIZE_ALLOCATABLE: &str = "scheduling.koordinator.sh/reservation-resize-allocatable";
/// Label of pods that use no Reservation.
pub(super) const IGNORED: &str = "scheduling.koordinator.sh/reservation-ignored";
/// Annotation of pods, as JSON: Reservations that the pod wants.
pub(super) const AFFINITY: &str = "scheduling.koordinator.sh/reservation-affinity";
/// Annotation of pods, as JSON: resources of which a Reservation has exactly what the pod asks for.
pub(super) const EXACT_MATCH: &str = "scheduling.koordinator.sh/exact-match-reservation";
/// Annotation that Koordinator's scheduler writes into pods.
pub(super) const ALLOCATED: &str = "scheduling.koordinator.sh/reservation-allocated";
/// Label of pods whose devices may be kept for others.
pub(super) const PRE_ALLOCATABLE: &str = "pod.koordinator.sh/is-pre-allocatable";
/// Annotation of such pods: the number by which they are chosen.
pub(super) const PRE_ALLOCATABLE_PRIORITY: &str = "pod.koordinator.sh/pre-allocatable-priority";
/// Label of pods that stand for a Reservation.
pub(super) const OPERATING_MODE: &str = "scheduling.koordinator.sh/operating-mode";
/// Annotation of such pods, as JSON: their owners.
pub(super) const RESERVATION_OWNERS: &str = "scheduling.koordinator.sh/reservation-owners";

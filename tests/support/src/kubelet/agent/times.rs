//! Pauses and deadlines of the kubelet. The real values are the default; a test that cannot wait so long scales them.

use std::time::Duration;

use crate::kubelet;

/// Waits and deadlines of a kubelet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KubeletTimes {
    /// Pause between two reads of the sockets that should be registered.
    pub registration_period: Duration,
    /// After the first failed registration of a socket; doubles with each.
    pub backoff_first: Duration,
    /// The longest pause between two attempts to register a socket.
    pub backoff_last: Duration,
    /// After the first failed dial of a service; grows by the half and a tenth with each.
    pub redial_first: Duration,
    /// The longest pause between two dials.
    pub redial_last: Duration,
    /// Time from the loss of a driver's last connection to the deletion of its slices.
    pub wipe: Duration,
    /// After the first failed deletion of slices; doubles with each.
    pub wipe_retry_first: Duration,
    /// The longest pause between two attempts to delete slices.
    pub wipe_retry_last: Duration,
    /// Pause until a pod that could not be started or ended is tried again.
    pub pod_retry: Duration,
    /// Pause between two searches for claims whose pods are gone.
    pub claim_period: Duration,
    /// After the end of a health stream.
    pub health_retry: Duration,
    /// Time for which a health report is valid that does not name one.
    pub health_believed: Duration,
    /// Deadline of GetInfo.
    pub get_info: Duration,
    /// Deadline of NotifyRegistrationStatus.
    pub notify: Duration,
    /// Deadline of prepare and unprepare.
    pub call: Duration,
}

impl Default for KubeletTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            registration_period: seconds(1),
            backoff_first: Duration::from_millis(500),
            backoff_last: seconds(122),
            redial_first: seconds(1),
            redial_last: seconds(120),
            wipe: seconds(30),
            wipe_retry_first: seconds(1),
            wipe_retry_last: seconds(300),
            pod_retry: seconds(90),
            claim_period: seconds(60),
            health_retry: seconds(5),
            health_believed: seconds(30),
            get_info: kubelet::GET_INFO,
            notify: kubelet::NOTIFY,
            call: kubelet::CALL,
        }
    }
}

impl KubeletTimes {
    /// Everything that passes between two deeds of the kubelet, times `factor`. Deadlines and what the driver is told
    /// in seconds stay: how fast a driver answers does not change with the test's haste.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |time: Duration| time.mul_f64(factor);
        Self {
            registration_period: scale(self.registration_period),
            backoff_first: scale(self.backoff_first),
            backoff_last: scale(self.backoff_last),
            redial_first: scale(self.redial_first),
            redial_last: scale(self.redial_last),
            wipe: scale(self.wipe),
            wipe_retry_first: scale(self.wipe_retry_first),
            wipe_retry_last: scale(self.wipe_retry_last),
            pod_retry: scale(self.pod_retry),
            claim_period: scale(self.claim_period),
            health_retry: scale(self.health_retry),
            ..self
        }
    }
}

/// Pauses that grow with every failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    factor: f64,
    last: Duration,
}

impl Backoff {
    /// Doubles from `first` to `last`.
    pub(crate) fn doubling(first: Duration, last: Duration) -> Self {
        Self { next: first, factor: 2.0, last }
    }

    /// Returns the pauses of gRPC's dials: each is 1.6 times the one before.
    pub(crate) fn dialling(first: Duration, last: Duration) -> Self {
        Self { next: first, factor: 1.6, last }
    }

    /// The pause after another failure.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = now.mul_f64(self.factor).min(self.last);
        now
    }
}

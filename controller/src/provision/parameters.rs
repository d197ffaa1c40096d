//! Parameters of a request, and mistakes that are found before the planner is asked.

use std::time::Duration;

use hostler_api::{
    did_you_mean,
    provisioning::{MAX_POD_SETS, MAX_PODS_OF_A_SET, ProvisioningRequestSpec},
};

use crate::requests::PROCESSOR_INSTANCE;

const NO_RETRY: &str = "noRetry";
const VALID_UNTIL: &str = "ValidUntilSeconds";
const BOOKING: &str = "bookingSeconds";
const KNOWN: [&str; 4] = [BOOKING, NO_RETRY, PROCESSOR_INSTANCE, VALID_UNTIL];

/// Time for which a request waits for room, as in Cluster Autoscaler.
const USUAL_VALIDITY: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time of a booking, as in Cluster Autoscaler.
const USUAL_BOOKING: Duration = Duration::from_secs(600);
/// Limit of a booking, equal to the time for which a request can wait: a booking without pods keeps other requests
/// waiting.
const LONGEST_BOOKING: Duration = USUAL_VALIDITY;

/// Parameters of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RequestParameters {
    /// True if the first no is final.
    pub(crate) is_final: bool,
    /// Time after its creation for which the request is of use.
    pub(crate) validity: Duration,
    /// Time for which the found room is booked.
    pub(crate) booking: Duration,
    /// Sentences about parameters that have no effect.
    pub(crate) remarks: Vec<String>,
}

impl RequestParameters {
    /// Reads the parameters.
    ///
    /// # Errors
    ///
    /// Fails with the mistake that makes the whole request useless.
    pub(crate) fn read(spec: &ProvisioningRequestSpec) -> Result<Self, String> {
        let (is_final, remark) = no_retry(spec);
        let validity = seconds(spec, VALID_UNTIL, USUAL_VALIDITY)?;
        let booking = seconds(spec, BOOKING, USUAL_BOOKING)?;
        if booking > LONGEST_BOOKING {
            let longest = LONGEST_BOOKING.as_secs();
            return Err(format!("spec.parameters.{BOOKING} is {}; write at most {longest}", booking.as_secs()));
        }
        Ok(Self { is_final, validity, booking, remarks: remark.into_iter().chain(unknown(spec)).collect() })
    }
}

/// Reads `noRetry`. As in Cluster Autoscaler, a request without a clear value is tried again.
fn no_retry(spec: &ProvisioningRequestSpec) -> (bool, Option<String>) {
    match spec.parameters.get(NO_RETRY).map(String::as_str) {
        None | Some("false") => (false, None),
        Some("true") => (true, None),
        Some(other) => {
            let remark =
                format!("spec.parameters.{NO_RETRY} is {other:?}, which is taken for false; write true or false");
            (false, Some(remark))
        }
    }
}

fn unknown(spec: &ProvisioningRequestSpec) -> Option<String> {
    let unknown: Vec<String> = spec
        .parameters
        .keys()
        .filter(|key| !KNOWN.contains(&&***key))
        .map(|key| format!("{key}{}", did_you_mean(key, KNOWN.map(str::to_owned))))
        .collect();
    (!unknown.is_empty()).then(|| format!("nothing here knows spec.parameters {}", unknown.join(", ")))
}

/// Reads a time. A value that cannot be understood fails the request: as no deadline at all it would surprise.
fn seconds(spec: &ProvisioningRequestSpec, key: &str, usual: Duration) -> Result<Duration, String> {
    let Some(text) = spec.parameters.get(key) else { return Ok(usual) };
    let wrong = || format!("spec.parameters.{key} is {text:?}; write a number of seconds above 0, such as 3600");
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse::<u64>().ok().filter(|seconds| is_number && *seconds > 0).ok_or_else(wrong)?;
    // The steady clock counts from its start and would overflow with more.
    Ok(Duration::from_secs(u32::try_from(seconds).unwrap_or(u32::MAX).into()))
}

/// Returns the reason why pods of the request cannot be made, however much room there is.
pub(crate) fn unusable(spec: &ProvisioningRequestSpec) -> Option<String> {
    let sets = spec.pod_sets.len();
    if !(1..=MAX_POD_SETS).contains(&sets) {
        return Some(format!("spec.podSets has {sets} sets; write 1 to {MAX_POD_SETS}"));
    }
    let out_of_range = |set: &i64| !(1..=MAX_PODS_OF_A_SET).contains(set);
    let (at, count) = spec.pod_sets.iter().map(|set| set.count).enumerate().find(|(_, count)| out_of_range(count))?;
    Some(format!("spec.podSets[{at}].count is {count}; write 1 to {MAX_PODS_OF_A_SET}, and more sets for more pods"))
}

#[cfg(test)]
mod tests {
    use hostler_api::provisioning::ProvisioningPodSet;

    use super::*;

    fn read(parameters: &[(&str, &str)]) -> Result<RequestParameters, String> {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        RequestParameters::read(&ProvisioningRequestSpec { parameters, ..ProvisioningRequestSpec::default() })
    }

    #[test]
    fn who_says_nothing_waits_a_week_and_books_for_ten_minutes() {
        let usual = read(&[(PROCESSOR_INSTANCE, "hostler")]).unwrap();
        assert_eq!((usual.validity, usual.booking), (USUAL_VALIDITY, USUAL_BOOKING));
        assert_eq!((usual.is_final, usual.remarks), (false, Vec::new()));
    }

    #[test]
    fn a_time_that_is_none_is_told_with_the_fix() {
        for text in ["", "0", "-1", "1h", "+5", "1.5", "99999999999999999999999"] {
            let error = read(&[(VALID_UNTIL, text)]).unwrap_err();
            assert!(error.contains(text) && error.contains("such as 3600"), "{error}");
        }
        assert_eq!(read(&[(VALID_UNTIL, "3600")]).unwrap().validity, Duration::from_secs(3600));
        assert_eq!(read(&[(BOOKING, "30")]).unwrap().booking, Duration::from_secs(30));
        assert!(read(&[(BOOKING, "604801")]).unwrap_err().contains("at most 604800"));
    }

    #[test]
    fn what_nobody_knows_is_named_and_a_bad_no_retry_is_tried_again() {
        let read = read(&[("noRetries", "true"), (NO_RETRY, "True")]).unwrap();
        assert!(!read.is_final);
        assert_eq!(
            read.remarks,
            [
                "spec.parameters.noRetry is \"True\", which is taken for false; write true or false",
                "nothing here knows spec.parameters noRetries; did you mean noRetry?",
            ]
        );
    }

    /// 34, the limits.
    #[test]
    fn limits_are_named_with_the_field_that_breaks_them() {
        let with = |counts: &[i64]| {
            let set = |count: &i64| ProvisioningPodSet { count: *count, ..ProvisioningPodSet::default() };
            let pod_sets = counts.iter().map(set).collect();
            unusable(&ProvisioningRequestSpec { pod_sets, ..ProvisioningRequestSpec::default() })
        };
        assert_eq!(with(&[16_384; 32]), None);
        assert_eq!(with(&[1; 33]).unwrap(), "spec.podSets has 33 sets; write 1 to 32");
        assert_eq!(with(&[]).unwrap(), "spec.podSets has 0 sets; write 1 to 32");
        let words = with(&[1, 16_385]).unwrap();
        assert_eq!(words, "spec.podSets[1].count is 16385; write 1 to 16384, and more sets for more pods");
    }
}

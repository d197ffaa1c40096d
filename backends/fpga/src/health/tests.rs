//! How health changes over several looks.

use std::time::{Duration, Instant};

use hostler_api::DeviceName;
use hostler_backend::Health;
use proptest::prelude::*;

use super::*;

const POLL: Duration = Duration::from_secs(5);

/// Judges looks that come every [`POLL`], and says which were unhealthy.
fn judged(looks: &[Vec<HealthFinding>]) -> Vec<bool> {
    let (mut steady, start) = (SteadyHealth::new(POLL), Instant::now());
    let name = DeviceName::new("card").unwrap();
    let times = (0_u32..).map(|index| start + POLL * index);
    looks.iter().zip(times).map(|(look, now)| steady.judge(&name, look, now) != Health::Healthy).collect()
}

fn hot() -> Vec<HealthFinding> {
    vec![HealthFinding::passing("temp1_input", "99000")]
}

fn fatal() -> Vec<HealthFinding> {
    vec![HealthFinding::grave("errors/catfatal_errors", "0x4")]
}

#[test]
fn grave_trouble_counts_at_once_and_is_over_after_three_good_looks() {
    let looks = [vec![], fatal(), vec![], vec![], vec![], vec![]];
    assert_eq!(judged(&looks), [false, true, true, true, false, false]);
}

#[test]
fn passing_trouble_counts_when_a_second_look_shows_it() {
    assert_eq!(judged(&[vec![], hot(), vec![], hot(), hot(), hot()]), [false, false, false, false, true, true]);
}

#[test]
fn trouble_in_between_begins_the_wait_anew() {
    let looks = [fatal(), vec![], vec![], hot(), vec![], vec![], vec![]];
    assert_eq!(judged(&looks), [true, true, true, true, true, true, false]);
}

#[test]
fn the_first_look_is_believed_and_a_fact_holds_as_long_as_it_is_seen() {
    let fact = || vec![HealthFinding::fact("no driver is bound")];
    assert_eq!(judged(&[hot(), hot()]), [true, true]);
    assert_eq!(judged(&[fact(), vec![], fact(), vec![]]), [true, false, true, false]);
}

#[test]
fn looks_in_a_burst_are_one_look() {
    let (mut steady, start) = (SteadyHealth::new(POLL), Instant::now());
    let name = DeviceName::new("card").unwrap();
    let mut judge =
        |findings: &[HealthFinding], millis| steady.judge(&name, findings, start + Duration::from_millis(millis));
    assert_eq!(judge(&[], 0), Health::Healthy);
    for millis in [10, 20, 500, 2_000] {
        assert_eq!(judge(&hot(), millis), Health::Healthy, "{millis}");
    }
    assert_ne!(judge(&hot(), 5_000), Health::Healthy);
}

#[test]
fn a_reason_stays_as_it_is_while_only_numbers_change() {
    let (mut steady, now) = (SteadyHealth::new(POLL), Instant::now());
    let name = DeviceName::new("card").unwrap();
    let at = |value: &str| vec![HealthFinding::passing("temp1_input", value)];
    let told = |health: Health| health.reason().unwrap().to_owned();
    assert_eq!(told(steady.judge(&name, &at("99000"), now)), "temp1_input is 99000");
    assert_eq!(told(steady.judge(&name, &at("99500"), now + POLL)), "temp1_input is 99000");
    let both = [at("99500"), fatal()].concat();
    let reason = "temp1_input is 99500; errors/catfatal_errors is 0x4";
    assert_eq!(told(steady.judge(&name, &both, now + POLL)), reason);
}

#[test]
fn garbage_in_a_file_stays_one_short_line_of_the_reason() {
    let finding = HealthFinding::grave("dev_state", format!("\u{1b}[2J\nx{}", "y".repeat(5000)));
    let reason = finding.to_string();
    assert!(reason.starts_with("dev_state is  [2J xyyy") && reason.len() < 150, "{reason:?}");
}

#[test]
fn a_device_that_went_is_new_when_it_comes_back() {
    let (mut steady, now) = (SteadyHealth::new(POLL), Instant::now());
    let name = DeviceName::new("card").unwrap();
    assert_ne!(steady.judge(&name, &fatal(), now), Health::Healthy);
    steady.retain(&BTreeSet::new());
    assert_eq!(steady.judge(&name, &[], now), Health::Healthy);
}

proptest! {
    /// Health never changes more often than what is seen, and what lasts is told in the end.
    #[test]
    fn health_does_not_flap(looks in prop::collection::vec(0_u8..3, 1..40)) {
        let seen = |kind: &u8| match kind { 0 => vec![], 1 => hot(), _ => fatal() };
        let looks: Vec<Vec<HealthFinding>> = looks.iter().map(seen).collect();
        let told = judged(&looks);
        let changes = |values: &[bool]| values.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let bad: Vec<bool> = looks.iter().map(|look| !look.is_empty()).collect();
        prop_assert!(changes(&told) <= changes(&bad));
        let last = looks.last().unwrap().clone();
        let settled = judged(&[looks, vec![last.clone(); 3]].concat());
        prop_assert_eq!(*settled.last().unwrap(), !last.is_empty());
    }
}

//! What holds for every case, whatever upstream says.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    prelude::{ProptestConfig, any, proptest},
    test_runner::TestCaseResult,
};
use serde_json::{Value, json};

use crate::{
    case::{Case, DeviceReference, Outcome},
    generate,
    hostler::meant,
    verify::verify,
};

proptest! {
    // A seed is not made smaller; the case that it gives stands in the message.
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_fits_keeps_what_was_asked_for(seed in any::<u64>()) {
        let case = generate::case(seed);
        if let Outcome::Fit(fit) = meant(&case) {
            verify(&case, &fit);
        }
    }

    #[test]
    fn the_order_of_slices_changes_nothing(seed in any::<u64>()) {
        let case = generate::case(seed);
        let mut other = case.clone();
        fastrand::Rng::with_seed(seed).shuffle(&mut other.slices);
        // Where slices disagree on their number, the first one is believed.
        if slices_agree(&case) {
            same(&case, &meant(&case), &meant(&other))?;
        }
    }

    #[test]
    fn more_tolerations_lose_no_fit(seed in any::<u64>()) {
        let case = generate::case(seed);
        if is_exact(&case) && matches!(meant(&case), Outcome::Fit(_)) {
            let outcome = meant(&tolerant(&case));
            // More devices are looked at, and a selector may fail on one of them.
            let failing = ["cel-runtime", "cel-compile", "node-selector", "panic"];
            let failed = matches!(&outcome, Outcome::Fatal(why) if failing.contains(&&**why));
            assert!(failed || matches!(outcome, Outcome::Fit(_)), "{}: {outcome:?}", json!(case));
        }
    }

    #[test]
    fn a_free_device_behind_the_chosen_ones_is_not_missed(seed in any::<u64>()) {
        let case = generate::case(seed);
        let outcome = meant(&case);
        if let (true, false, Some(less)) = (is_exact(&case), has_counters(&case), without_last(&case, &outcome)) {
            same(&less, &outcome, &meant(&less))?;
        }
    }

    #[test]
    fn other_names_in_the_same_order_give_the_same_devices(seed in any::<u64>()) {
        let case = generate::case(seed);
        let other = serde_json::from_str(&renamed(&json!(case).to_string())).unwrap();
        let ours: Outcome = serde_json::from_str(&renamed(&json!(meant(&case)).to_string())).unwrap();
        same(&case, &ours, &meant(&other))?;
    }
}

fn same<T: std::fmt::Debug + PartialEq>(case: &Case, left: &T, right: &T) -> TestCaseResult {
    assert!(left == right, "{}\n  {left:?}\n  {right:?}", json!(case));
    Ok(())
}

fn slices_agree(case: &Case) -> bool {
    let mut counts = BTreeMap::new();
    case.slices.iter().map(|slice| &slice["spec"]).all(|spec| {
        let pool = &spec["pool"];
        let key = json!([spec["driver"], pool["name"], pool["generation"]]).to_string();
        *counts.entry(key).or_insert(&pool["resourceSliceCount"]) == &pool["resourceSliceCount"]
    })
}

fn is_exact(case: &Case) -> bool {
    !json!(case.claims).to_string().contains("\"All\"")
}

fn has_counters(case: &Case) -> bool {
    json!(case.slices).to_string().contains("sharedCounters")
}

/// Every request tolerates everything.
fn tolerant(case: &Case) -> Case {
    let mut case = case.clone();
    for claim in &mut case.claims {
        for request in claim["spec"]["devices"]["requests"].as_array_mut().into_iter().flatten() {
            let everything = json!([{"operator": "Exists"}]);
            match request.get_mut("exactly") {
                Some(exactly) => exactly["tolerations"] = everything,
                None => {
                    let subs = request["firstAvailable"].as_array_mut().into_iter().flatten();
                    subs.for_each(|sub| sub["tolerations"] = everything.clone());
                }
            }
        }
    }
    case
}

/// Names of drivers, pools and devices by others that sort the same.
fn renamed(text: &str) -> String {
    let text = text.replace("a.example.com", "k.example.com").replace("b.example.com", "l.example.com");
    let text = text.replace("\"Pool-2\"", "\"Pool-3\"").replace("\"rack/10\"", "\"rack/11\"");
    (0..100).fold(text, |text, number| text.replace(&format!("\"d{number}\""), &format!("\"device-{number}\"")))
}

/// Without one free device that sorts behind all chosen ones, in a pool that stays as it is otherwise.
fn without_last(case: &Case, outcome: &Outcome) -> Option<Case> {
    let Outcome::Fit(fit) = outcome else { return None };
    let chosen: BTreeSet<DeviceReference> = fit
        .iter()
        .flat_map(|result| result["devices"]["results"].as_array().into_iter().flatten())
        .map(|result| serde_json::from_value(result.clone()).unwrap())
        .collect();
    let last = chosen.last().map(|device| (device.driver.clone(), device.pool.clone()));
    let binding = json!(case.slices).to_string().contains("bindingConditions");
    for (number, slice) in case.slices.iter().enumerate() {
        let pool = (slice["spec"]["driver"].as_str()?.to_owned(), slice["spec"]["pool"]["name"].as_str()?.to_owned());
        let devices = slice["spec"]["devices"].as_array().map_or(0, Vec::len);
        if devices > 0 && Some(pool) > last && !binding && !has_doubles(case) {
            let mut less = case.clone();
            less.slices[number]["spec"]["devices"].as_array_mut()?.pop();
            return Some(less);
        }
    }
    None
}

/// A pool with two devices of one name is not valid, and would be without one of them.
fn has_doubles(case: &Case) -> bool {
    case.slices.iter().any(|slice| {
        let names: Vec<&Value> =
            slice["spec"]["devices"].as_array().into_iter().flatten().map(|device| &device["name"]).collect();
        let unique: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        unique.len() < names.len()
    })
}

//! Result of a scan as a pool. Pure.
//!
//! One device or counter set that no API server accepts would cost all others of its slice: it is left out, with a
//! warning.

use std::{collections::BTreeSet, sync::Arc};

use hostler_api::{Chain, DeviceName};
use hostler_backend::{BackendError, BackendWarning, CounterSet, Device, DeviceProblem, Enumeration};

use super::{Pool, UnknownPool};

/// Returns the pool after a scan: what was found, or what was known before and why it is not known better.
///
/// # Errors
/// When the scan failed and nothing was known before: a failure is no answer, and does not say that there is nothing.
pub(super) fn merge(
    name: String,
    before: Option<&Arc<Pool>>,
    result: Result<Enumeration, BackendError>,
) -> Result<Arc<Pool>, UnknownPool> {
    match result {
        Ok(found) => Ok(Arc::new(acceptable(name, found))),
        Err(error) => outdated(name, before, Chain(&error).to_string()),
    }
}

/// Returns the old pool of a backend about which no more is known than before, for this reason.
///
/// # Errors
/// When nothing was known before.
pub(super) fn outdated(name: String, before: Option<&Arc<Pool>>, reason: String) -> Result<Arc<Pool>, UnknownPool> {
    match before {
        Some(before) if before.stale.as_ref() == Some(&reason) => Ok(before.clone()),
        Some(before) => Ok(Arc::new(Pool { stale: Some(reason), ..Pool::clone(before) })),
        None => Err(UnknownPool { name, reason }),
    }
}

fn acceptable(name: String, found: Enumeration) -> Pool {
    let mut pool = Pool { name, warnings: found.warnings, ..Pool::default() };
    for set in found.counter_sets {
        match set_fault(&set, &pool) {
            Some(reason) => pool.warnings.push(warning(&pool, &set.name, reason)),
            None => pool.counter_sets.push(set),
        }
    }
    let mut names = BTreeSet::new();
    let devices = found.devices.iter();
    let faults: Vec<Option<String>> =
        devices.map(|device| device_fault(device, names.insert(&device.name), &pool)).collect();
    let mut faults = faults.into_iter();
    // In place: a thousand devices are half a megabyte, and each scan finds them all.
    pool.devices = found.devices;
    let mut left_out = Vec::new();
    pool.devices.retain(|device| match faults.next().flatten() {
        Some(reason) => {
            left_out.push((device.name.clone(), reason));
            false
        }
        None => true,
    });
    pool.devices.shrink_to_fit();
    for (name, reason) in left_out {
        let warning = warning(&pool, &name, reason);
        pool.warnings.push(warning);
    }
    pool
}

fn warning(pool: &Pool, name: &DeviceName, reason: String) -> BackendWarning {
    BackendWarning { path: format!("{}/{name}", pool.name), reason }
}

fn set_fault(set: &CounterSet, pool: &Pool) -> Option<String> {
    if pool.counter_sets.iter().any(|other| other.name == set.name) {
        return Some("the counter set is there twice; the second is left out".to_owned());
    }
    left_out("the counter set", &set.problems())
}

fn device_fault(device: &Device, is_first: bool, pool: &Pool) -> Option<String> {
    if !is_first {
        return Some("it is there twice; the second is left out".to_owned());
    }
    let mut problems = device.problems();
    problems.extend(device.counter_problems(&pool.counter_sets));
    left_out("it", &problems)
}

fn left_out(what: &str, problems: &[DeviceProblem]) -> Option<String> {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| format!("{what} is left out: {}", problems.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hostler_api::Quantity;
    use hostler_backend::CounterUse;

    use super::*;

    fn name(text: &str) -> DeviceName {
        DeviceName::new(text).unwrap()
    }

    fn slots(amount: &str) -> BTreeMap<DeviceName, Quantity> {
        [(name("slots"), amount.parse().unwrap())].into()
    }

    #[test]
    fn what_breaks_a_limit_is_left_out_with_all_that_hangs_on_it() {
        let set = |text, amount| CounterSet { name: name(text), counters: slots(amount) };
        let device = |text, set| Device {
            consumes: vec![CounterUse { set: name(set), counters: slots("2") }],
            ..Device::new(name(text))
        };
        let found = Enumeration {
            devices: vec![device("on-a", "a"), device("on-b", "b"), device("on-c", "c"), device("on-a", "a")],
            counter_sets: vec![set("a", "4"), CounterSet { counters: BTreeMap::new(), ..set("b", "4") }, set("a", "8")],
            warnings: Vec::new(),
        };
        let pool = merge("n/x".to_owned(), None, Ok(found)).unwrap();
        assert_eq!(pool.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["on-a"]);
        assert_eq!(pool.counter_sets, [set("a", "4")]);
        let warnings: Vec<String> =
            pool.warnings.iter().map(|warning| format!("{}: {}", warning.path, warning.reason)).collect();
        assert_eq!(
            warnings,
            [
                "n/x/b: the counter set is left out: counters: none; name at least one",
                "n/x/a: the counter set is there twice; the second is left out",
                "n/x/on-b: it is left out: consumes[0].set: there is no counter set b; there are a",
                "n/x/on-c: it is left out: consumes[0].set: there is no counter set c; there are a",
                "n/x/on-a: it is there twice; the second is left out",
            ]
        );
    }
}

//! Kubernetes quantities from claims and configuration.
#![no_main]

use hostler_api::Quantity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|texts: (&str, &str, &str)| {
    let (Ok(amount), Ok(base), Ok(step)) =
        (texts.0.parse::<Quantity>(), texts.1.parse::<Quantity>(), texts.2.parse::<Quantity>())
    else {
        return;
    };
    assert_eq!(amount.to_string().parse(), Ok(amount), "an amount survives being written");
    if amount.as_whole().is_some() {
        assert_eq!(amount.human().parse(), Ok(amount), "an amount survives being written for people");
    }
    let rounded = amount.round_up(base, step);
    assert!(rounded >= amount.max(base), "rounding up never gives less");
    let _ = (amount.plus(step), amount.minus(step));
});

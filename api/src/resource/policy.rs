//! How much of a capacity or a counter a request takes, and whether that is left: the arithmetic of kube-scheduler, which
//! the daemon follows where it checks or makes allocations itself.

use crate::{
    Quantity,
    resource::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, SliceQuantity},
};

/// The least amount of `min`, `min + step`, … that is not below `asked`; without steps, what was asked for but at least
/// `min`. Steps are counted in whole units, of which a fraction counts as one.
pub fn round_up(asked: Quantity, min: Quantity, step: Option<Quantity>) -> Quantity {
    match step {
        _ if asked < min => min,
        Some(step) => in_whole_units(asked).round_up(in_whole_units(min), in_whole_units(step)),
        None => asked,
    }
}

/// Whether `wanted` is left of `total`, next to what is `held` already.
pub fn fits(wanted: Quantity, held: Quantity, total: Quantity) -> bool {
    held.plus(wanted) <= total
}

/// What a request takes of a capacity of which it asks for `asked`, or for nothing in particular. `None`: the capacity
/// gives no such amount.
pub fn taken(asked: Option<Quantity>, capacity: &DeviceCapacity) -> Option<Quantity> {
    let Some(policy) = capacity.request_policy.as_deref() else { return asked.or(capacity.value.get()) };
    let default = policy.default.and_then(SliceQuantity::get);
    let rounded = match asked {
        Some(asked) => rounded(asked, policy)?,
        None => default.or(capacity.value.get())?,
    };
    (default == Some(rounded) || is_given(rounded, policy)?).then_some(rounded)
}

fn rounded(asked: Quantity, policy: &CapacityRequestPolicy) -> Option<Quantity> {
    if let Some(CapacityRequestPolicyRange { min, step, .. }) = &policy.valid_range {
        return Some(round_up(asked, min.get()?, some_or_unreadable(*step)?));
    }
    let mut given = policy.valid_values.iter().filter_map(|value| value.get());
    Some(given.find(|value| asked <= *value).unwrap_or(asked))
}

/// Whether the policy gives this amount. `None`: the policy cannot be understood.
fn is_given(amount: Quantity, policy: &CapacityRequestPolicy) -> Option<bool> {
    let Some(CapacityRequestPolicyRange { min, max, step }) = &policy.valid_range else {
        let values = &policy.valid_values;
        return Some(values.is_empty() || values.iter().any(|value| value.get() == Some(amount)));
    };
    let (min, max, step) = (min.get()?, some_or_unreadable(*max)?, some_or_unreadable(*step)?);
    let amount_in_units = in_whole_units(amount);
    let is_a_step = |step| amount_in_units == round_up(amount_in_units, in_whole_units(min), Some(step));
    Some(max.is_none_or(|max| amount <= max) && step.is_none_or(is_a_step))
}

/// `None` only for a quantity that is there and means nothing.
fn some_or_unreadable(quantity: Option<SliceQuantity>) -> Option<Option<Quantity>> {
    match quantity {
        Some(quantity) => quantity.get().map(Some),
        None => Some(None),
    }
}

fn in_whole_units(amount: Quantity) -> Quantity {
    amount.round_up(Quantity::default(), Quantity::whole(1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is taken of a capacity of 64, as text.
    fn taken_of_64(asked: Option<&str>, policy: &Value) -> Option<String> {
        let capacity = json!({"value": "64", "requestPolicy": policy});
        let capacity: DeviceCapacity = serde_json::from_value(capacity).unwrap();
        let asked = asked.map(|asked| asked.parse().unwrap());
        taken(asked, &capacity).map(|taken| taken.to_string())
    }

    #[test]
    fn without_a_policy_any_amount_is_given_and_none_means_all() {
        assert_eq!(taken_of_64(Some("2.5"), &json!(null)).unwrap(), "2500m");
        assert_eq!(taken_of_64(Some("65"), &json!(null)).unwrap(), "65");
        assert_eq!(taken_of_64(None, &json!(null)).unwrap(), "64");
    }

    #[test]
    fn a_request_without_an_amount_gets_the_default() {
        assert_eq!(taken_of_64(None, &json!({"default": "4", "validRange": {"min": "4"}})).unwrap(), "4");
        assert_eq!(taken_of_64(None, &json!({"validRange": {"min": "4"}})).unwrap(), "64");
    }

    #[test]
    fn a_range_gives_its_minimum_plus_steps_up_to_its_maximum() {
        let policy = json!({"default": "4", "validRange": {"min": "4", "max": "16", "step": "6"}});
        for (asked, expected) in [
            ("1", Some("4")),
            ("4", Some("4")),
            ("4.5", Some("10")),
            ("10", Some("10")),
            ("11", Some("16")),
            ("17", None),
        ] {
            assert_eq!(taken_of_64(Some(asked), &policy).as_deref(), expected, "{asked}");
        }
        let without_step = json!({"validRange": {"min": "4", "max": "16"}});
        assert_eq!(taken_of_64(Some("4.5"), &without_step).unwrap(), "4500m");
        assert_eq!(taken_of_64(Some("16.5"), &without_step), None);
    }

    #[test]
    fn of_values_the_next_higher_one_is_given() {
        let policy = json!({"default": "8", "validValues": ["2", "8", "16"]});
        for (asked, expected) in
            [("1", Some("2")), ("2", Some("2")), ("3", Some("8")), ("16", Some("16")), ("17", None)]
        {
            assert_eq!(taken_of_64(Some(asked), &policy).as_deref(), expected, "{asked}");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_understood_gives_nothing() {
        assert_eq!(taken_of_64(Some("1"), &json!({"validRange": {"min": "much"}})), None);
        assert_eq!(taken_of_64(Some("1"), &json!({"validRange": {"min": "1", "step": "some"}})), None);
        assert_eq!(taken_of_64(Some("1"), &json!({"validValues": ["much"]})), None);
    }

    #[test]
    fn what_is_held_and_what_is_wanted_must_fit_together() {
        let [two, three, five] = [2, 3, 5].map(Quantity::whole);
        assert!(fits(two, three, five));
        assert!(!fits(three, three, five));
    }
}

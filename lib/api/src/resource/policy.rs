//! Arithmetic of kube-scheduler for capacities and counters: the amount that a request takes, and whether that is left.
//! The daemon follows it where it checks or makes allocations itself.

use crate::{
    ExactQuantity, Quantity,
    resource::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity, SliceQuantity},
};

/// An amount for sums and comparisons: in billionths of a unit. The rest is less than nothing where others hold more
/// than there is.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Amount(i128);

impl Amount {
    /// True if the amount is nothing.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum. No number of amounts that can be written reaches the end of the range.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// True if so much is left of `total`, next to the amount that is `held` already.
    pub fn fits(self, held: Self, total: Self) -> bool {
        held.plus(self) <= total
    }
}

impl From<ExactQuantity> for Amount {
    fn from(quantity: ExactQuantity) -> Self {
        Self(quantity.billionths())
    }
}

impl From<Quantity> for Amount {
    fn from(quantity: Quantity) -> Self {
        ExactQuantity::from(quantity).into()
    }
}

impl From<&SliceQuantity> for Amount {
    /// Converts a quantity; one without a meaning is nothing.
    fn from(quantity: &SliceQuantity) -> Self {
        quantity.get().map(Into::into).unwrap_or_default()
    }
}

/// The least amount of `min`, `min + step`, … that is not below `asked`; without steps, `asked` but at least `min`.
/// Steps are counted in whole units, of which a fraction counts as one.
pub fn round_up(asked: ExactQuantity, min: ExactQuantity, step: Option<ExactQuantity>) -> ExactQuantity {
    match step {
        Some(step) => asked.round_up(min, step),
        None => {
            if asked < min {
                min
            } else {
                asked
            }
        }
    }
}

/// Amount that a request takes of a capacity of which it asks for `asked`, or for nothing in particular. `None`: the
/// capacity gives no such amount.
pub fn taken(asked: Option<ExactQuantity>, capacity: &DeviceCapacity) -> Option<ExactQuantity> {
    let Some(policy) = capacity.request_policy.as_deref() else { return asked.or(capacity.value.get()) };
    let default = policy.default.as_ref().and_then(SliceQuantity::get);
    let rounded = match asked {
        Some(asked) => rounded(asked, policy)?,
        None => default.or(capacity.value.get())?,
    };
    let is_default = default.is_some_and(|default| default.is_identical(rounded));
    (is_default || is_given(rounded, policy)?).then_some(rounded)
}

fn rounded(asked: ExactQuantity, policy: &CapacityRequestPolicy) -> Option<ExactQuantity> {
    if let Some(CapacityRequestPolicyRange { min, step, .. }) = &policy.valid_range {
        return Some(round_up(asked, min.get()?, if_readable(step.as_ref())?));
    }
    let mut given = policy.valid_values.iter().filter_map(SliceQuantity::get);
    Some(given.find(|value| asked <= *value).unwrap_or(asked))
}

/// True if the policy gives this amount. `None`: the policy cannot be understood.
fn is_given(amount: ExactQuantity, policy: &CapacityRequestPolicy) -> Option<bool> {
    let Some(CapacityRequestPolicyRange { min, max, step }) = &policy.valid_range else {
        let values = &policy.valid_values;
        return Some(values.is_empty() || values.iter().any(|value| value.get() == Some(amount)));
    };
    let (min, max, step) = (min.get()?, if_readable(max.as_ref())?, if_readable(step.as_ref())?);
    let is_a_step = |step: ExactQuantity| {
        let (units, step) = (i128::from(amount.rounded()) - i128::from(min.rounded()), i128::from(step.rounded()));
        units.checked_rem(step) == Some(0)
    };
    Some(max.is_none_or(|max| amount <= max) && step.is_none_or(is_a_step))
}

/// The amount of a quantity, if there is one. `None` only for a quantity that is there and means nothing.
fn if_readable(quantity: Option<&SliceQuantity>) -> Option<Option<ExactQuantity>> {
    match quantity {
        Some(quantity) => quantity.get().map(Some),
        None => Some(None),
    }
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
        let [two, three, five] = [2, 3, 5].map(|units| Amount::from(Quantity::whole(units)));
        assert!(two.fits(three, five));
        assert!(!three.fits(three, five));
        assert!(!Amount::default().fits(three, two));
        assert_eq!(two.minus(three).plus(three), two);
    }
}

//! Selectors of devices, as claims and classes have them.
#![no_main]

use std::sync::LazyLock;

use hostler_cel::{CelOptions, DeviceFacts, EvaluationError, Selector};
use hostler_api::{ExactQuantity, resource::SliceDevice};
use libfuzzer_sys::fuzz_target;

static DEVICE: LazyLock<SliceDevice> = LazyLock::new(|| {
    let device = serde_json::json!({
        "name": "gpu-0",
        "attributes": {
            "a": {"string": "aaa"},
            "b": {"int": 3},
            "c": {"bool": true},
            "d/v": {"version": "1.2.3-rc.1"},
            "d/l": {"ints": [1, 2, 3]},
        },
        "capacity": {"m": {"value": "80Gi"}, "d/n": {"value": "1500m"}},
    });
    serde_json::from_value(device).expect("a device")
});

fuzz_target!(|text: &str| {
    if let Ok(quantity) = text.parse::<ExactQuantity>() {
        assert_eq!(quantity.to_string().parse(), Ok(quantity), "a quantity survives being written");
    }
    let options = CelOptions { list_attributes: true, includes: true, old_words: false };
    let selector = match Selector::compile(text, &options) {
        Ok(selector) => selector,
        Err(error) => return assert!(!error.to_string().is_empty(), "a refusal has a text"),
    };
    let facts = DeviceFacts {
        driver: "gpu.example.com",
        attributes: &DEVICE.attributes,
        capacity: &DEVICE.capacity,
        allow_multiple_allocations: true,
    };
    let (answer, cost) = selector.matches_at_cost(&facts);
    assert!(cost <= 1_000_000 || answer == Err(EvaluationError::CostLimit), "the limit is kept");
    let _ = selector.references();
});

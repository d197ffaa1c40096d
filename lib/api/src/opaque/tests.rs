//! What is accepted, what is refused and in which words.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const PARAMETERS: &str = "parameters";

fn of_kind(kind: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = HOSTLER_API_VERSION.into();
    fields["kind"] = kind.into();
    fields
}

fn problems(parameters: &Value) -> Vec<String> {
    let found = OpaqueConfig::parse(parameters, PARAMETERS).unwrap_err();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn every_field_is_read() {
    let config = of_kind(
        "CpuConfig",
        json!({"fullCores": true, "spread": "l3", "l3Exclusive": false, "coreType": "efficient",
            "smt": "isolated", "isolation": "l3", "irqs": "avoid"}),
    );
    assert_eq!(
        OpaqueConfig::parse(&config, PARAMETERS),
        Ok(OpaqueConfig::Cpu(CpuConfig {
            full_cores: Some(true),
            spread: Some(CpuSpread::L3),
            l3_exclusive: Some(false),
            core_type: Some(CoreKind::Efficient),
            smt: Some(SmtMode::Isolated),
            isolation: Some(CpuIsolation::L3),
            irqs: Some(IrqMode::Avoid),
        }))
    );
    let config = of_kind("MemoryConfig", json!({"policy": "interleave"}));
    let expected = MemoryConfig { policy: Some(MemoryMode::Interleave) };
    assert_eq!(OpaqueConfig::parse(&config, PARAMETERS), Ok(OpaqueConfig::Memory(expected)));
    let config = of_kind("PlacementConfig", json!({"sameNumaNode": "preferred"}));
    let expected = PlacementConfig { same_numa_node: Some(SameNumaNode::Preferred) };
    assert_eq!(OpaqueConfig::parse(&config, PARAMETERS), Ok(OpaqueConfig::Placement(expected)));
}

#[test]
fn every_word_of_the_schema_is_read_as_itself() {
    for kind in schema() {
        for field in kind.fields.unwrap_or_default() {
            let values = match field.values {
                FieldValues::Truth => vec![json!(true)],
                FieldValues::Text => vec![json!("text")],
                FieldValues::Words(words) => words.iter().map(|word| json!(word)).collect(),
            };
            for value in values {
                let config = of_kind(kind.name, json!({field.name: value}));
                assert!(OpaqueConfig::parse(&config, PARAMETERS).is_ok(), "{config}");
            }
        }
    }
}

#[test]
fn all_mistakes_are_named_at_once_with_their_paths() {
    let config = json!({
        "apiVersion": "hostler.dev/v1", "kind": "CpuConfig",
        "fullCore": true, "spread": "wide", "l3Exclusive": "yes", "smt": null, "colour": 3,
    });
    assert_eq!(
        problems(&config),
        [
            "parameters.apiVersion: \"hostler.dev/v1\" is not known; write hostler.dev/v1alpha1",
            "parameters.spread: \"wide\" is not one of packed, cores, l3, numa",
            "parameters.l3Exclusive: \"yes\" is neither true nor false",
            "parameters.smt: null is not one of shared, isolated",
            "parameters.colour: there is no such field; known are fullCores, spread, l3Exclusive, coreType, smt, \
             isolation, irqs",
            "parameters.fullCore: there is no such field; did you mean fullCores?",
        ]
    );
}

#[test]
fn kinds_and_shapes_that_are_not_known_are_refused() {
    for (config, expected) in [
        (json!(3), "parameters: 3 is not an object; write an object with apiVersion hostler.dev/v1alpha1 and a kind"),
        (
            json!({"apiVersion": HOSTLER_API_VERSION, "kind": "CPUConfig"}),
            "parameters.kind: \"CPUConfig\" is not one of CpuConfig, MemoryConfig, FpgaConfig, CxlConfig, PlacementConfig, FakeConfig; \
             did you mean CpuConfig?",
        ),
        (
            json!({"apiVersion": HOSTLER_API_VERSION, "kind": 7}),
            "parameters.kind: 7 is not one of CpuConfig, MemoryConfig, FpgaConfig, CxlConfig, PlacementConfig, FakeConfig",
        ),
        (
            json!({"apiVersion": HOSTLER_API_VERSION}),
            "parameters.kind: it is missing; write one of CpuConfig, MemoryConfig, FpgaConfig, CxlConfig, PlacementConfig, FakeConfig",
        ),
        (json!({"kind": "MemoryConfig"}), "parameters.apiVersion: it is missing; write hostler.dev/v1alpha1"),
    ] {
        assert_eq!(problems(&config), [expected]);
    }
    let large = of_kind("FakeConfig", json!({"text": "x".repeat(MAX_PARAMETERS_BYTES)}));
    assert!(problems(&large)[0].ends_with("bytes; 10240 are the most"));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9./]{0,12}".prop_map(Value::from),
        prop::sample::select(vec!["packed", "isolated", "bind", "required", HOSTLER_API_VERSION, "CpuConfig"])
            .prop_map(Value::from),
    ];
    let names = prop_oneof![
        "[a-zA-Z]{0,10}",
        prop::sample::select(vec!["spread", "smt", "kind", "policy"]).prop_map(str::to_owned)
    ];
    leaf.prop_recursive(2, 16, 6, move |inner| {
        prop::collection::vec((names.clone(), inner), 0..6)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    })
}

proptest! {
    #[test]
    fn whatever_is_read_is_accepted_or_refused_with_paths_and_reasons(value in values(), kind in 0..5_usize) {
        let mut value = value;
        if let (Some(object), Some(kind)) = (value.as_object_mut(), schema().get(kind)) {
            object.insert("apiVersion".to_owned(), HOSTLER_API_VERSION.into());
            object.insert("kind".to_owned(), kind.name.into());
        }
        match OpaqueConfig::parse(&value, "at") {
            Ok(config) => prop_assert_eq!(value["kind"].as_str(), Some(config.kind())),
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|problem| problem.field.starts_with("at") && !problem.reason.is_empty()));
            }
        }
    }
}

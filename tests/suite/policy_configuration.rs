//! The admission policy for claim configuration: the API accepts it, and its rules are those of the code.
use std::{collections::BTreeSet, fs, path::Path};

use hostler_api::{
    opaque::{FieldValues, schema},
    well_known::HOSTLER_API_VERSION,
};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicySpec,
};
use serde_json::Value;

const POLICY: &str = include_str!("../../deploy/cluster/policy-configuration.yaml");

fn documents() -> Vec<Value> {
    serde_saphyr::from_multiple(POLICY).unwrap()
}

/// Reads a document as the type of the API; no field of it may be lost on the way.
fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(document: &Value) -> T {
    let read: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&read).unwrap(), document, "a field that the API does not know");
    read
}

fn spec() -> ValidatingAdmissionPolicySpec {
    typed::<ValidatingAdmissionPolicy>(&documents()[0]).spec.unwrap()
}

/// The expressions of the validations.
fn expressions() -> Vec<String> {
    spec().validations.unwrap().into_iter().map(|validation| validation.expression).collect()
}

/// The words in the list `[…]` that begins with `'first'`, of the one expression that tests `left in` it.
fn list(expression: &str) -> BTreeSet<String> {
    let inner = expression.split_once(" in [").unwrap().1.split_once(']').unwrap().0;
    inner.split(',').map(|word| word.trim().trim_matches('\'').to_owned()).collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn policy_and_binding_are_what_the_api_takes() {
    let documents = documents();
    assert_eq!(documents.len(), 2);
    let policy: ValidatingAdmissionPolicy = typed(&documents[0]);
    let binding: ValidatingAdmissionPolicyBinding = typed(&documents[1]);
    let binding = binding.spec;
    assert_eq!(Some(binding.policy_name), policy.metadata.name);
    assert_eq!(binding.validation_actions, ["Deny"]);
    assert_eq!(policy.spec.unwrap().failure_policy.as_deref(), Some("Fail"));
}

#[test]
fn claims_are_checked_when_they_are_made_and_never_when_a_finalizer_goes() {
    let rules = spec().match_constraints.unwrap().resource_rules.unwrap();
    for rule in rules {
        let (resources, operations) = (rule.resources.unwrap(), rule.operations.unwrap());
        assert!(resources.iter().all(|resource| !resource.contains('/')), "no subresource: {resources:?}");
        let updates = operations.contains(&"UPDATE".to_owned());
        assert_eq!(updates, resources == ["deviceclasses"], "{resources:?} {operations:?}");
    }
}

#[test]
fn every_expression_has_a_message_and_only_names_variables_that_come_before() {
    let spec = spec();
    let mut known = BTreeSet::new();
    let check = |expression: &str, known: &BTreeSet<String>| {
        for used in expression.split("variables.").skip(1) {
            let name: String = used.chars().take_while(char::is_ascii_alphanumeric).collect();
            assert!(known.contains(&name), "{name} is not known in {expression}");
        }
    };
    for variable in spec.variables.unwrap() {
        check(&variable.expression, &known);
        known.insert(variable.name);
    }
    for validation in spec.validations.unwrap() {
        check(&validation.expression, &known);
        assert!(validation.message.is_some() != validation.message_expression.is_some());
    }
}

#[test]
fn kinds_and_version_are_those_of_the_code() {
    let kinds: Vec<&str> = schema().iter().map(|kind| kind.name).collect();
    let expressions = expressions();
    let tests_kind = expressions.iter().find(|expression| expression.contains("p.kind in")).unwrap();
    assert_eq!(list(tests_kind), set(&kinds));
    let version = spec().variables.unwrap().into_iter().find(|variable| variable.name == "version").unwrap();
    assert_eq!(version.expression, format!("'{HOSTLER_API_VERSION}'"));
}

#[test]
fn fields_and_words_are_those_of_the_code() {
    let (spec, expressions) = (spec(), expressions());
    let mut tested = 0;
    for kind in schema() {
        let Some(fields) = kind.fields else { continue };
        let of_kind = format!("p.kind == '{}'", kind.name);
        let variables = spec.variables.as_ref().unwrap();
        let variable = variables.iter().find(|variable| variable.expression.contains(&of_kind)).unwrap();
        let own: Vec<&String> =
            expressions.iter().filter(|text| text.starts_with(&format!("variables.{}.all(p", variable.name))).collect();
        let known = own.iter().find(|expression| expression.contains("field in")).unwrap();
        let names: Vec<&str> =
            ["apiVersion", "kind"].into_iter().chain(fields.iter().map(|field| field.name)).collect();
        assert_eq!(list(known), set(&names), "{}", kind.name);
        for field in &fields {
            let guard = format!("!has(p.{})", field.name);
            let test = own.iter().find(|expression| expression.contains(&guard));
            let test = test.unwrap_or_else(|| panic!("{} of {} is not tested", field.name, kind.name));
            match &field.values {
                FieldValues::Truth => assert!(test.contains(&format!("type(p.{}) == bool", field.name)), "{test}"),
                FieldValues::Text => assert!(test.contains(&format!("type(p.{}) == string", field.name)), "{test}"),
                FieldValues::Words(words) => assert_eq!(list(test), set(words), "{} of {}", field.name, kind.name),
            }
            tested += 1;
        }
        assert_eq!(own.len(), fields.len() + 1, "an expression about {} that the code knows nothing of", kind.name);
    }
    assert_eq!(tested, 13);
}

/// The page for people has every kind, field and word too.
#[test]
fn the_documentation_names_every_field_and_word() {
    let page = include_str!("../../docs/claim-configuration.md");
    for kind in schema().into_iter().filter(|kind| kind.fields.is_some()) {
        let section = page.split(&format!("\n## {}\n", kind.name)).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for field in kind.fields.unwrap_or_default() {
            let row = section.lines().find(|line| line.starts_with(&format!("| `{}` |", field.name)));
            let row = row.unwrap_or_else(|| panic!("{} has no row for {}", kind.name, field.name));
            let FieldValues::Words(words) = field.values else { continue };
            assert!(words.iter().all(|word| row.contains(&format!("`{word}`"))), "{row}");
        }
    }
}

/// The shipped manifests have to pass the shipped check.
#[test]
fn every_manifest_that_is_shipped_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let mut checked = 0;
    for folder in [root.clone(), root.join("examples")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "yaml") {
                let found = hostler::validate::check(
                    &fs::read_to_string(&path).unwrap(),
                    hostler::validate::ValidationTarget::of_driver("hostler.dev"),
                );
                assert_eq!(found.problems, [], "{}", path.display());
                checked += found.checked;
            }
        }
    }
    assert!(checked > 5, "only {checked} objects were found");
}

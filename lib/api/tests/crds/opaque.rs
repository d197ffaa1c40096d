//! What a CRD can say of the configuration for hostler: made of the kinds that are known, and of their fields.
//!
//! A field belongs to one kind alone, so that it can stand in the schema of the parameters whatever their kind is, and
//! whatever the driver: only hostler reads these objects. Fields that there are not have no place there; the controller tells
//! them.

use hostler_api::{
    opaque::{FieldSchema, FieldValues, schema},
    well_known::HOSTLER_API_VERSION,
};
use serde_json::{Map, Value, json};

/// The longest text of a field: a digest in hexadecimal is 64 long, a bitstream's name may be longer.
const MOST_BYTES_OF_A_TEXT: usize = 256;

/// Fields of the parameters.
pub(crate) fn properties() -> Map<String, Value> {
    let text = |about: &str| json!({"type": "string", "maxLength": 63, "description": about});
    let header = [("apiVersion", text("Version of the configuration.")), ("kind", text("Kind of the configuration."))];
    let header = header.map(|(name, schema)| (name.to_owned(), schema)).into_iter();
    header.chain(fields().map(|(kind, field)| (field.name.to_owned(), property(kind, &field)))).collect()
}

fn property(kind: &str, field: &FieldSchema) -> Value {
    let description = format!("Of {kind}.");
    match field.values {
        FieldValues::Truth => json!({"type": "boolean", "description": description}),
        FieldValues::Words(words) => json!({"type": "string", "enum": words, "description": description}),
        FieldValues::Text => {
            json!({"type": "string", "minLength": 1, "maxLength": MOST_BYTES_OF_A_TEXT, "description": description})
        }
    }
}

/// What parameters for hostler must be.
pub(crate) fn rules() -> Value {
    let names: Vec<&str> = schema().into_iter().map(|kind| kind.name).collect();
    let is_ours = |rule: String| format!("self.driver != 'hostler.dev' || ({rule})");
    let has = |field: &str, value: String| format!("has(self.parameters.{field}) && self.parameters.{field} {value}");
    let known = json!({
        "rule": is_ours(has("kind", format!("in ['{}']", names.join("', '")))),
        "message": format!("kind of parameters for hostler.dev is one of {}", names.join(", ")),
    });
    let version = json!({
        "rule": is_ours(has("apiVersion", format!("== '{HOSTLER_API_VERSION}'"))),
        "message": format!("apiVersion of parameters for hostler.dev is {HOSTLER_API_VERSION}"),
    });
    let of_kinds = names.iter().filter_map(|kind| of_kind(kind).map(|rule| (kind, rule)));
    let of_kinds = of_kinds.map(|(kind, (rule, names))| {
        json!({"rule": is_ours(rule), "message": format!("{names} of parameters for hostler.dev: only with kind {kind}")})
    });
    let all: Vec<Value> = [known, version].into_iter().chain(of_kinds).collect();
    json!({"x-kubernetes-validations": all})
}

/// That fields of a kind stand in it alone; nothing where it has none of its own.
fn of_kind(kind: &str) -> Option<(String, String)> {
    let own: Vec<&str> = fields().filter(|(owner, _)| *owner == kind).map(|(_, field)| field.name).collect();
    let absent: Vec<String> = own.iter().map(|name| format!("!has(self.parameters.{name})")).collect();
    let is_it = format!("has(self.parameters.kind) && self.parameters.kind == '{kind}'");
    (!own.is_empty()).then(|| (format!("({is_it}) || ({})", absent.join(" && ")), own.join(", ")))
}

fn fields() -> impl Iterator<Item = (&'static str, FieldSchema)> {
    schema().into_iter().flat_map(|kind| kind.fields.into_iter().flatten().map(move |field| (kind.name, field)))
}

#[test]
fn no_two_kinds_have_a_field_of_one_name() {
    let all: Vec<&str> = fields().map(|(_, field)| field.name).collect();
    let distinct: std::collections::BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len());
    assert_eq!(properties().len(), all.len() + 2);
}

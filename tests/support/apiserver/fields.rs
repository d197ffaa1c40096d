//! Who owns which field: `metadata.managedFields`.

use serde_json::Value;

use super::verbs::Call;

/// Notes that the writer owns what he changed.
pub fn written(_call: &Call, _old: Option<&Value>, _object: &mut Value) {}

/// Whether nothing would change, but for the notes on who wrote when.
pub fn same(old: &Value, new: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        object
    };
    plain(old) == plain(new)
}

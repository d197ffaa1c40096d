//! Server-side apply.

use serde_json::Value;

use super::{refusal::Refusal, verbs::Call};

pub fn check_parameters(call: &Call) -> Result<(), Refusal> {
    if call.parameter("fieldManager").is_empty() {
        return Err(Refusal::bad_request(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ));
    }
    Ok(())
}

pub fn apply(call: &Call, old: Option<&Value>, config: &Value) -> Result<Value, Refusal> {
    check_parameters(call)?;
    let mut new = old.cloned().unwrap_or_default();
    super::patch::merge(&mut new, config);
    Ok(new)
}

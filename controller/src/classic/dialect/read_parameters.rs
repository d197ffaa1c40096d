//! Parameters as they were read, whichever their origin: their key, and the mistake where they cannot be understood.

use hostler_api::classic::{ClassicMeta, ParametersMistake};
use serde_json::Value;

use super::read::read;
use crate::classic::model::{Parameters, ParametersKey};

/// Parameters under the name that claims or classes call them by, if they can be understood.
pub(crate) type ReadParameters = (ParametersKey, Result<Box<Parameters>, ParametersMistake>);

/// Returns the key with the name of the object itself.
pub(super) fn own_key(group: &str, kind: &str, object: &Value) -> ParametersKey {
    let metadata: ClassicMeta = read(&object["metadata"]).unwrap_or_default();
    ParametersKey { group: group.to_owned(), kind: kind.to_owned(), namespace: metadata.namespace, name: metadata.name }
}

pub(super) fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> ParametersMistake {
    ParametersMistake::new(error.path().to_string(), format!("{}; correct it", error.inner()))
}

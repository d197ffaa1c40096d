//! Objects that may not be there.

use serde::de::DeserializeOwned;

use super::ApiClient;
use crate::{ApiFailure, Collection};

impl ApiClient {
    /// An object, if there is one. That the server does not know its kind is a failure all the same.
    ///
    /// # Errors
    /// As [`get`](Self::get), but where there is no object of the name.
    pub async fn find<T: DeserializeOwned>(&self, all: &Collection, name: &str) -> Result<Option<T>, ApiFailure> {
        match self.get(all, name).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code() == Some(404) && !failure.is_unknown_resource() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

//! Parameters of both origins: hostler's own kinds, and those of 1.30.

use hostler_api::classic::{
    CLAIM_PARAMETERS_KIND, CLASS_PARAMETERS_KIND, ClaimParameters, ClassParameters, check_configs,
};
use serde_json::Value;
use serde_path_to_error::deserialize;

use super::{
    ClassicDialect, generated,
    read_parameters::{ReadParameters, own_key, unreadable},
};
use crate::classic::model::Parameters;

/// Path of configurations in hostler's own kinds, and in a DeviceClass.
pub(crate) const CONFIG: &str = "spec.config";

impl ClassicDialect {
    /// Returns parameters of one of the known kinds; `None` if the kind is none of them.
    pub(crate) fn parameters(&self, kind: &str, object: &Value) -> Option<ReadParameters> {
        let group = hostler_api::hardware::GROUP;
        match kind {
            CLAIM_PARAMETERS_KIND => {
                let read = deserialize(object).map_err(|error| unreadable(&error)).and_then(|it: ClaimParameters| {
                    it.spec.check()?;
                    check_configs(&self.driver, CONFIG, it.spec.config.iter().map(|config| config.opaque.as_ref()))?;
                    Ok(Box::new(Parameters::Claim(it.spec)))
                });
                Some((own_key(group, kind, object), read))
            }
            CLASS_PARAMETERS_KIND => {
                let read = deserialize(object).map_err(|error| unreadable(&error)).and_then(|it: ClassParameters| {
                    check_configs(&self.driver, CONFIG, it.spec.config.iter().map(|config| config.opaque.as_ref()))?;
                    Ok(Box::new(Parameters::Class(it.spec)))
                });
                Some((own_key(group, kind, object), read))
            }
            _ => generated::parameters(&self.driver, kind, object),
        }
    }
}

//! Names in CDI files, of those files, and of what they lead to.

use std::path::PathBuf;

use hostler_api::ClaimUid;

/// CDI class of every claim's file.
const CLASS: &str = "claim";

/// Parts that names in CDI files are made of.
#[derive(Clone, Debug)]
pub struct CdiNaming {
    /// CDI vendor: the driver's name.
    pub driver: String,
    /// The binary that containers' hooks run, as the runtime sees it.
    pub hook: PathBuf,
    /// The folder in which hooks note containers, as the runtime sees it.
    pub containers: PathBuf,
    /// The folder with what containers can read about their devices, as the runtime sees it.
    pub metadata: PathBuf,
}

impl CdiNaming {
    /// `vendor/class` of claim files.
    pub fn kind(&self) -> String {
        claim_kind(&self.driver)
    }

    /// Name of a claim's CDI file, without the ending.
    pub fn stem(&self, uid: &ClaimUid) -> String {
        format!("{}-{CLASS}_{uid}", self.driver)
    }

    /// The claim whose CDI file has this name, if it is one.
    pub fn claim_of_stem(&self, stem: &str) -> Option<ClaimUid> {
        ClaimUid::new(stem.strip_prefix(&format!("{}-{CLASS}_", self.driver))?).ok()
    }
}

/// `vendor/class` of the claim files of a driver.
pub fn claim_kind(driver: &str) -> String {
    format!("{driver}/{CLASS}")
}

//! What the allocator does with whole claims on whole nodes, rule by rule.

use std::collections::BTreeMap;

use hostler_api::resource::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::*;

mod constraints;
mod counters;
mod pools;
mod rest;
mod search;
mod support;

//! What the webhook makes of claims, what the allocator makes of that, and what becomes of its keys.

#![allow(clippy::needless_pass_by_value, reason = "values are made for the call")]

mod claims;
mod gates;
mod keys;
mod repair;
mod rewriting;
mod sets;

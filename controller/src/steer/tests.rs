//! What the webhook makes of claims, what the allocator makes of that, and what becomes of its keys.

mod claims;
mod keys;
mod repair;
mod rewriting;

//! The core against a server that enforces the API's rules, with a scheduler and a controller manager that do what those of
//! 1.31 do. docs/classic-dra.md says which test is which scenario.

#![allow(clippy::needless_pass_by_value, reason = "values are made for the call")]

mod boxes;
mod configuration;
mod crash;
mod defects;
mod figures;
mod labels;
mod nodes;
mod objects;
mod optional;
mod parameters;
mod parts;
mod random;
mod scenarios;
mod scheduler;
mod server;
mod world;

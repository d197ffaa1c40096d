//! The core in a model of a cluster: a server that keeps versions, the real planner, users that make requests and pods.

mod booking;
mod keeper;
mod kept;
mod kueue;
mod random;
mod scenarios;
mod world;

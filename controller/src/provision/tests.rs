//! The core in a model of a cluster: a server that keeps versions, the real planner, users that make requests and pods.

mod anew;
mod booking;
mod boxes;
mod gains;
mod keeper;
mod kept;
mod kueue;
mod pooled;
mod random;
mod scenarios;
mod world;

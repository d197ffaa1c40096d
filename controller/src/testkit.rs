//! The model that tests of controllers share: one source of chances, one table of what happens to a write, one API server,
//! and one way to live through a story.

mod dice;
mod fate;
mod server;
mod world;

pub(crate) use self::{
    dice::{Dice, RandomLife, expect_enough, live, seeds},
    fate::{Fate, Fated, Fates},
    server::{
        ApiError, Change, ModelCluster, ModelMeta, ModelObject, ModelServer, ModelWatch, Part, Serves, model_kind,
        over, serves,
    },
    world::{Model, Sorted, World},
};

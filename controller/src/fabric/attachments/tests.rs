//! The life of attachments: each line of the table, and all of them in any order.

mod adopted;
mod amounts;
mod kept;
mod random;
mod reserved;
mod round;
mod server;
mod table;
mod world;

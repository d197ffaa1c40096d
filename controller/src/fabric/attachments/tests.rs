//! The life of attachments: each line of the table, and all of them in any order.

mod adopted;
mod random;
mod server;
mod table;
mod world;

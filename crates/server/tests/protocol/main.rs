//! The protocol against a double of the database: what each message is answered with, and that no bytes do harm.

mod double;
mod messages;
mod mutations;

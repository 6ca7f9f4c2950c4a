//! What are the yardsticks made of? Data and statements that several drivers and tests share.

pub mod tpch;

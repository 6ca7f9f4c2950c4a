//! How do servers scale with nodes? Homenode, PostgreSQL and MariaDB under sysbench's and pgbench's transactions, on one, two, ... all
//! nodes of a machine, with what they waited for meanwhile: the method of K. Bauskar, "Understanding NUMA scalability with
//! MariaDB 10.6" (2021), with open loops added.

pub mod drive;
pub mod keys;
pub mod load;
pub mod outcome;
pub mod plan;
pub mod report;
pub mod run;
pub mod server;
pub mod summary;
mod watch;
pub mod workload;

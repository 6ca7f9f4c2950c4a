//! Who is calling? The PostgreSQL protocol, connections pinned to workers.

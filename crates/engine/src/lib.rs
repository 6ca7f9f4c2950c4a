//! The embedded database: catalog, tables, indexes, typed rows, sessions, recovery.

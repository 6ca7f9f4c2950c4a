//! Who sees which version? Snapshots, transaction states, waits and deadlocks.

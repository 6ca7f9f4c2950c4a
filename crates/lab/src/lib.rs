//! Does it hold when the machine misbehaves? Deterministic schedule and crash exploration.

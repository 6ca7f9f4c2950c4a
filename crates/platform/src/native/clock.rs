//! What time is it?

use std::time::{SystemTime, UNIX_EPOCH};

/// Monotonic time, nanoseconds since an arbitrary start.
#[inline]
pub fn now_ns() -> u64 {
    // std::time::Instant hides its value; CLOCK_MONOTONIC is what it reads on Linux (std's
    // sys/pal/unix/time.rs).
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(result, 0, "CLOCK_MONOTONIC exists on every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wall-clock time, microseconds since 1970-01-01 UTC; negative before.
pub fn unix_time_us() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

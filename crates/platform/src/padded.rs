//! How far apart must hot words be? A wrapper that gives a value cache lines of its own.

use std::ops::{Deref, DerefMut};

/// A value aligned to 128 bytes, so that it shares no cache line with its neighbours.
///
/// 128 rather than 64: the adjacent-line prefetcher of x86 servers pulls lines in pairs, and some
/// Arm machines have 128-byte lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> CachePadded<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

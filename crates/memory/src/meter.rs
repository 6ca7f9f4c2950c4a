//! How much has this thread taken from the allocator? A count for each thread, so that what was built in one go can be weighed.
//!
//! A program that wants to know makes [`Metered`] its global allocator; elsewhere the count stays 0. It costs an addition to a
//! variable of the thread for each allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that the calling thread has taken from the allocator, less what it has given back; wraps around below 0, when it has given
/// back what others took. Only differences mean anything.
pub fn taken_bytes() -> u64 {
    TAKEN.get()
}

fn add(bytes: usize) {
    TAKEN.set(TAKEN.get().wrapping_add(bytes as u64));
}

fn subtract(bytes: usize) {
    TAKEN.set(TAKEN.get().wrapping_sub(bytes as u64));
}

/// The system's allocator, counted.
pub struct Metered;

// SAFETY: every call goes on to the system's allocator with its arguments as they came, so what that one promises holds. The count
// is a cell without initialisation and without a destructor: touching it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are the system's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: as above; the memory came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add(bytes);
        subtract(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Metered = Metered;

    #[test]
    fn what_is_kept_is_counted() {
        let before = taken_bytes();
        let mut list: Vec<u64> = Vec::with_capacity(1000);
        assert_eq!(taken_bytes().wrapping_sub(before), 8000);
        list.reserve_exact(2000);
        assert_eq!(taken_bytes().wrapping_sub(before), 16_000);
        let zeroed = vec![0_u8; 500];
        assert_eq!(taken_bytes().wrapping_sub(before), 16_500);
        drop((list, zeroed));
        assert_eq!(taken_bytes(), before);
    }
}

//! PostgreSQL's buffer descriptor: a page's tag, state word (pins, flags) and content lock, on one line of 64 bytes, or parted.
//!
//! Freund's c2c talk (PGConf.dev 2024) shows the structure and its split: on the common line, readers of the tag and of the buffer's
//! number miss because others pin and lock. A reader pins (a compare-and-swap loop on the state), locks the content shared
//! (another on the lock's word), reads, unlocks, unpins: four writes of lines that all readers write.
//! *Super-locked* is that author's proposal for pages that are hot and seldom changed (PGConf.EU 2024): pin and lock are
//! noted in the session's own memory; who wants the page alone has to visit every session (not modelled: it is rare).

use super::lwlock::{LwLock, Mode};
use homenode_platform::atomic::{AtomicU32, Ordering};
use homenode_platform::task;

const REFCOUNT_ONE: u32 = 1;
const REFCOUNT_MASK: u32 = USAGE_ONE - 1;
const USAGE_ONE: u32 = 1 << 18;
const USAGE_MASK: u32 = 0xF << 18;
const HEADER_LOCKED: u32 = 1 << 22;

/// One page's descriptor in either layout.
pub trait Descriptor: Send + Sync {
    /// The descriptor of page `page`.
    fn new(page: u32, fair: bool) -> Self;
    /// Tablespace, database, relation, fork, block.
    fn tag(&self) -> &[AtomicU32; 5];
    /// The buffer's number, fixed.
    fn buffer(&self) -> &AtomicU32;
    /// Pins, usage count, flags.
    fn state(&self) -> &AtomicU32;
    /// The content lock.
    fn lock(&self) -> &LwLock;
}

/// All on one line (the lock's list is outside: only its word is PostgreSQL's 16 bytes here).
#[repr(C, align(64))]
pub struct OneLine {
    tag: [AtomicU32; 5],
    buffer: AtomicU32,
    state: AtomicU32,
    wait_backend: AtomicU32,
    free_next: AtomicU32,
    lock: LwLock,
}

#[repr(C, align(64))]
struct Alone<T>(T);

/// Three lines: what is read, the state, the lock.
#[repr(C, align(64))]
pub struct Split {
    tag: [AtomicU32; 5],
    buffer: AtomicU32,
    wait_backend: AtomicU32,
    free_next: AtomicU32,
    state: Alone<AtomicU32>,
    lock: Alone<LwLock>,
}

fn tag_of(page: u32) -> [AtomicU32; 5] {
    [1663, 5, 16384, 0, page].map(AtomicU32::new)
}

macro_rules! layout {
    ($name:ident, $state:ident => $state_at:expr, $lock:ident => $lock_at:expr, $make:expr) => {
        impl Descriptor for $name {
            fn new(page: u32, fair: bool) -> $name {
                $make(page, fair)
            }
            fn tag(&self) -> &[AtomicU32; 5] {
                &self.tag
            }
            fn buffer(&self) -> &AtomicU32 {
                &self.buffer
            }
            fn state(&self) -> &AtomicU32 {
                let $state = self;
                $state_at
            }
            fn lock(&self) -> &LwLock {
                let $lock = self;
                $lock_at
            }
        }
    };
}

layout!(OneLine, it => &it.state, it => &it.lock, |page, fair| OneLine {
    tag: tag_of(page),
    buffer: AtomicU32::new(page + 1),
    state: AtomicU32::new(0),
    wait_backend: AtomicU32::new(0),
    free_next: AtomicU32::new(0),
    lock: LwLock::new(fair),
});
layout!(Split, it => &it.state.0, it => &it.lock.0, |page, fair| Split {
    tag: tag_of(page),
    buffer: AtomicU32::new(page + 1),
    wait_backend: AtomicU32::new(0),
    free_next: AtomicU32::new(0),
    state: Alone(AtomicU32::new(0)),
    lock: Alone(LwLock::new(fair)),
});

// The point of the first layout: everything that a hit touches shares a line.
const _: () = assert!(std::mem::offset_of!(OneLine, lock) + 8 <= 64);
const _: () = assert!(std::mem::offset_of!(Split, state) == 64 && std::mem::offset_of!(Split, lock) == 128);

/// `PinBuffer`: one more pin, and the usage count up to its bound.
pub fn pin<D: Descriptor>(descriptor: &D) {
    let state = descriptor.state();
    let mut now = state.load(Ordering::Relaxed);
    let mut turn = 0;
    loop {
        if now & HEADER_LOCKED != 0 {
            task::spin_hint(turn);
            turn += 1;
            now = state.load(Ordering::Relaxed);
            continue;
        }
        let mut next = now + REFCOUNT_ONE;
        if now & USAGE_MASK < 5 * USAGE_ONE {
            next += USAGE_ONE;
        }
        match state.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Whether others than the caller, who has a pin, have one too.
pub fn is_pinned_by_others<D: Descriptor>(descriptor: &D) -> bool {
    descriptor.state().load(Ordering::Acquire) & REFCOUNT_MASK > REFCOUNT_ONE
}

/// `UnpinBuffer`: a compare-and-swap loop as well.
pub fn unpin<D: Descriptor>(descriptor: &D) {
    let state = descriptor.state();
    let mut now = state.load(Ordering::Relaxed);
    let mut turn = 0;
    loop {
        if now & HEADER_LOCKED != 0 {
            task::spin_hint(turn);
            turn += 1;
            now = state.load(Ordering::Relaxed);
            continue;
        }
        match state.compare_exchange(now, now - REFCOUNT_ONE, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Reads a page as a scan of an index does: is it still the page (tag), pin, lock shared, read, unlock, unpin; the buffer's and
/// block's number are read once more on the way (`BufferGetBlockNumber`, `ReleaseAndReadBuffer` in the talk's report).
pub fn read_page<D: Descriptor>(descriptor: &D, read: impl FnOnce()) {
    let tag = descriptor.tag();
    for field in tag {
        field.load(Ordering::Relaxed);
    }
    pin(descriptor);
    descriptor.buffer().load(Ordering::Relaxed);
    descriptor.lock().lock(Mode::Shared);
    read();
    tag[4].load(Ordering::Relaxed);
    descriptor.lock().unlock(Mode::Shared);
    tag[4].load(Ordering::Relaxed);
    unpin(descriptor);
}

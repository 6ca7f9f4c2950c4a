//! Where does a core's own memory lie? An allocator with a heap for each core of the simulated machine.
//!
//! On a real machine each thread allocates from an arena of its own, so that what two cores allocate doesn't share cache lines,
//! and pages lie on the node of the core that uses them. In the lab one OS thread does everything; with the system's allocator
//! objects of all cores would lie mixed, and the model would see false sharing that isn't there. The program that runs the lab
//! makes this its global allocator. Outside of runs with a cost model it is the system's.

use super::machine::heap_owner;
use super::sim::PAGE_BYTES;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

/// Address space set aside; memory is used only as it is touched.
const RESERVED: usize = 64 << 30;
/// What a core takes at a time; each belongs to one core and holds blocks of one size.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = RESERVED / CHUNK;
/// Block sizes are powers of two from 16 bytes to this.
const LARGEST: usize = CHUNK / 2;
const CLASSES: usize = LARGEST.trailing_zeros() as usize - SMALLEST.trailing_zeros() as usize + 1;
const SMALLEST: usize = 16;
/// Heaps: one for each core.
const HEAPS: usize = super::sim::Hardware::CORES_MAX;

/// The allocator. One OS thread only: the lab's processes have no other.
pub struct Heap {
    state: UnsafeCell<State>,
}

struct State {
    start: usize,
    chunks: usize,
    /// Owner and class of each chunk.
    about: *mut u16,
    /// First free block, by owner and class.
    free: [[*mut u8; CLASSES]; HEAPS],
}

// SAFETY: used by one OS thread: whoever makes it the global allocator runs the lab, which starts no others. Where another
// thread allocates all the same (a test runner's), no run is on in that thread, and `heap_owner` says so before the state is touched.
unsafe impl Sync for Heap {}

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

impl Heap {
    /// An allocator that has taken nothing yet.
    pub const fn new() -> Heap {
        let free = [[ptr::null_mut(); CLASSES]; HEAPS];
        Heap { state: UnsafeCell::new(State { start: 0, chunks: 0, about: ptr::null_mut(), free }) }
    }
}

fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST);
    (bytes <= LARGEST).then(|| (bytes.next_power_of_two().trailing_zeros() - SMALLEST.trailing_zeros()) as usize)
}

impl State {
    /// Maps the reserved space when first needed.
    fn ready(&mut self) -> bool {
        if self.start != 0 {
            return true;
        }
        let about_bytes = CHUNKS * size_of::<u16>();
        // SAFETY: a private anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                RESERVED + CHUNK + about_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return false;
        }
        self.start = map.addr().next_multiple_of(CHUNK);
        self.about = map.with_addr(self.start + RESERVED).cast();
        true
    }

    fn owns(&self, address: usize) -> bool {
        self.start != 0 && (self.start..self.start + RESERVED).contains(&address)
    }

    /// A block from the heap of `owner`; none when the space is used up.
    fn take(&mut self, owner: usize, class: usize) -> Option<NonNull<u8>> {
        if self.free[owner][class].is_null() && !self.add_chunk(owner, class) {
            return None;
        }
        let block = self.free[owner][class];
        // SAFETY: blocks in a free list are ours, aligned, and begin with the address of the next one.
        self.free[owner][class] = unsafe { block.cast::<*mut u8>().read() };
        NonNull::new(block)
    }

    fn add_chunk(&mut self, owner: usize, class: usize) -> bool {
        if !self.ready() || self.chunks == CHUNKS {
            return false;
        }
        let number = self.chunks;
        self.chunks += 1;
        let bytes = SMALLEST << class;
        let chunk = self.about.cast::<u8>().with_addr(self.start + number * CHUNK);
        // SAFETY: the chunk lies in the mapping, as does its word behind the reserved space; nobody has it yet.
        unsafe {
            self.about.add(number).write((owner << 4 | class) as u16);
            for at in (0..CHUNK / bytes).rev() {
                self.give(chunk.add(at * bytes), owner, class);
            }
        }
        true
    }

    /// # Safety
    /// `block` is a block of this class in a chunk of this owner, and nobody uses it.
    unsafe fn give(&mut self, block: *mut u8, owner: usize, class: usize) {
        // SAFETY: at least 16 aligned bytes that nobody uses.
        unsafe { block.cast::<*mut u8>().write(self.free[owner][class]) };
        self.free[owner][class] = block;
    }
}

// SAFETY: blocks come from disjoint parts of one mapping, sized and aligned to the next power of two; what isn't from there is
// the system allocator's. A block goes back to the heap that its chunk belongs to.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let (Some(owner), Some(class)) = (heap_owner(), class_of(layout)) {
            // SAFETY: see Sync; the borrow ends before anything else allocates.
            let state = unsafe { &mut *self.state.get() };
            if let Some(block) = state.take(owner, class) {
                return block.as_ptr();
            }
        }
        // Large blocks of a run begin at a page, so that what lies on a line together is the same in every run.
        let align = if heap_owner().is_some() && layout.size() > LARGEST { PAGE_BYTES } else { 1 };
        // SAFETY: the caller's contract, with a stricter alignment (the system's `free` doesn't ask for it again).
        unsafe { System.alloc(layout.align_to(align).unwrap_or(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: see Sync; the borrow ends before anything else allocates.
        let state = unsafe { &mut *self.state.get() };
        if !state.owns(block.addr()) {
            // SAFETY: it is not ours, so it is the system's.
            return unsafe { System.dealloc(block, layout) };
        }
        let chunk = (block.addr() - state.start) / CHUNK;
        // SAFETY: the chunk was handed out, so its word was written; the block is one of its blocks and is given back by its user.
        unsafe {
            let about = state.about.add(chunk).read();
            state.give(block, usize::from(about >> 4), usize::from(about & 15));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_two_cores_share_no_line_and_come_back_to_their_core() {
        let heap = Heap::new();
        // SAFETY: the heap is this test's alone.
        let state = unsafe { &mut *heap.state.get() };
        let class = class_of(Layout::new::<[u64; 3]>()).unwrap();
        assert_eq!((class, CLASSES <= 16), (1, true));
        let a: Vec<usize> = (0..3000).map(|_| state.take(0, class).unwrap().addr().get()).collect();
        let b: Vec<usize> = (0..3000).map(|_| state.take(1, class).unwrap().addr().get()).collect();
        assert!(a.iter().all(|a| b.iter().all(|b| a / 64 != b / 64)));
        assert!(a.iter().chain(&b).all(|block| block % 32 == 0));
        let first = ptr::with_exposed_provenance_mut::<u8>(b[7]);
        // SAFETY: a block that was handed out and that nobody uses.
        unsafe { heap.dealloc(first, Layout::new::<[u64; 3]>()) };
        assert_eq!(state.take(1, class).unwrap().addr().get(), b[7]);
        assert!(class_of(Layout::from_size_align(LARGEST + 1, 8).unwrap()).is_none());
    }
}

//! What is there without Linux? Plain allocations. The simulated machine is told where a range's pages come from; under Miri
//! and on other systems every policy is refused.

#[cfg(not(homenode_lab))]
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

use crate::{HUGE_PAGE_BYTES, Refusal};

/// The policies that the Linux side knows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Default,
    Preferred,
    Bind,
    Interleave,
    Local,
    WeightedInterleave,
}

#[cfg(not(homenode_lab))]
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, HUGE_PAGE_BYTES).ok().filter(|layout| layout.size() > 0)
}

#[cfg(not(homenode_lab))]
pub(crate) fn map(bytes: usize, reserved_huge_pages: bool) -> io::Result<NonNull<u8>> {
    if reserved_huge_pages {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let layout = layout(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// The range must be exactly one allocation of [`map`] that nobody uses any more.
#[cfg(not(homenode_lab))]
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: the caller's promise; `map` used the same layout.
        unsafe { dealloc(start.as_ptr(), layout) };
    }
}

/// Address space whose pages exist as they are touched: a simulated machine's pools are larger than what a run uses of them, and
/// an allocation with so large an alignment would be written with zeros.
#[cfg(homenode_lab)]
pub(crate) fn map(bytes: usize, reserved_huge_pages: bool) -> io::Result<NonNull<u8>> {
    if reserved_huge_pages {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let all = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a private anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let head = map.addr().next_multiple_of(HUGE_PAGE_BYTES) - map.addr();
    let start = map.wrapping_byte_add(head);
    // SAFETY: what lies before and behind the aligned part belongs to the mapping just made, and nobody knows it.
    unsafe {
        if head > 0 {
            libc::munmap(map, head);
        }
        if head < HUGE_PAGE_BYTES {
            libc::munmap(start.wrapping_byte_add(bytes), HUGE_PAGE_BYTES - head);
        }
    }
    NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// The range must be exactly one mapping of [`map`] that nobody uses any more.
#[cfg(homenode_lab)]
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

pub(crate) fn advise_huge(_start: NonNull<u8>, _bytes: usize, _wanted: bool) {}

/// Nothing can be given back here.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn discard(_start: NonNull<u8>, _bytes: usize) -> io::Result<()> {
    Ok(())
}

/// A zeroed allocation is present as far as anyone here can tell.
pub(crate) fn populate(_start: NonNull<u8>, _bytes: usize) -> io::Result<()> {
    Ok(())
}

pub(crate) fn present(_start: NonNull<u8>, _bytes: usize) -> io::Result<Vec<bool>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(homenode_lab))]
pub(crate) fn set_range_policy(_: NonNull<u8>, _: usize, _: Mode, _: &[usize]) -> Result<(), Refusal> {
    Err(Refusal::NotSupported)
}

/// Weights are the kernel's, of which the simulated machine has none: a weighted policy is a plain interleaving.
#[cfg(homenode_lab)]
pub(crate) fn set_range_policy(start: NonNull<u8>, bytes: usize, mode: Mode, nodes: &[usize]) -> Result<(), Refusal> {
    use homenode_platform::lab::{measure, sim::Home};
    let numbers = || nodes.iter().map(|&node| node as u8).collect::<Vec<u8>>();
    let home = match (mode, nodes) {
        (Mode::Default | Mode::Local, _) | (_, []) => Home::FirstTouch,
        (Mode::Preferred, [node, ..]) => Home::Node(*node as u8),
        (Mode::Bind | Mode::Interleave | Mode::WeightedInterleave, _) => Home::Interleave(numbers()),
    };
    measure::place(start.as_ptr().addr(), bytes, home);
    Ok(())
}

pub(crate) fn set_thread_policy(_: Mode, _: &[usize]) -> Result<(), Refusal> {
    Err(Refusal::NotSupported)
}

pub(crate) fn move_pages(_: &[usize], _: Option<usize>, _: &mut [i32]) -> Result<(), Refusal> {
    Err(Refusal::NotSupported)
}

pub(crate) fn pin(_cpus: &[usize]) {}

pub(crate) fn current_cpu() -> Option<usize> {
    None
}

pub(crate) fn page_bytes() -> usize {
    4096
}

pub(crate) fn free_huge_bytes(_node: usize) -> u64 {
    0
}

pub(crate) fn available_bytes(_node: usize) -> Option<u64> {
    None
}

pub(crate) fn error_text(errno: i32) -> String {
    format!("error {errno}")
}

pub(crate) const ABSENT: i32 = -2;
pub(crate) const NO_PAGE: i32 = -14;
pub(crate) const UNASKED: i32 = i32::MIN;
pub(crate) const HAS_POLICIES: bool = cfg!(homenode_lab);

//! What does Linux offer for placing memory? Its calls, each with the smallest safe surface. `libc` names neither the
//! wrappers nor all constants, so they stand here (include/uapi/linux/mempolicy.h).

use std::io;
use std::ptr::{self, NonNull};

use crate::{HUGE_PAGE_BYTES, Refusal};

/// Policies as the kernel numbers them.
#[derive(Clone, Copy, Debug)]
#[repr(i64)]
pub(crate) enum Mode {
    Default = 0,
    Preferred = 1,
    Bind = 2,
    Interleave = 3,
    Local = 4,
    /// Linux 6.9.
    WeightedInterleave = 6,
}

/// Move pages that only this process maps.
const MPOL_MF_MOVE: i64 = 2;

/// log2 of 2 MiB in the place where mmap looks for a huge page's size (MAP_HUGE_SHIFT).
const MAP_HUGE_2MB: i32 = 21 << 26;

/// Maps private zeroed memory, aligned to 2 MiB. `bytes` must be a multiple of 2 MiB.
pub(crate) fn map(bytes: usize, reserved_huge_pages: bool) -> io::Result<NonNull<u8>> {
    if reserved_huge_pages {
        // The kernel aligns these by itself.
        return map_anonymous(bytes, libc::MAP_HUGETLB | MAP_HUGE_2MB);
    }
    let wide = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let raw = map_anonymous(wide, 0)?.as_ptr();
    let before = raw.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: before < HUGE_PAGE_BYTES, and the mapping is HUGE_PAGE_BYTES longer than needed: the middle stays inside. The
    // two ends go before anyone else can know their addresses.
    unsafe {
        let start = raw.add(before);
        if before > 0 {
            libc::munmap(raw.cast(), before);
        }
        libc::munmap(start.add(bytes).cast(), HUGE_PAGE_BYTES - before);
        Ok(NonNull::new_unchecked(start))
    }
}

fn map_anonymous(bytes: usize, flags: i32) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
    let raw = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    match NonNull::new(raw.cast()) {
        Some(start) if raw != libc::MAP_FAILED => Ok(start),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
/// The range must be exactly one mapping of [`map`] that nobody uses any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

/// Asks for transparent huge pages, or declines them. Kernels without them answer EINVAL, which changes nothing.
pub(crate) fn advise_huge(start: NonNull<u8>, bytes: usize, wanted: bool) {
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: this advice changes no contents, whatever the range.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
}

/// Makes pages present and writable, contents kept (Linux 5.14; older ones answer EINVAL). Unlike touching, it reports what
/// would otherwise be a SIGBUS.
pub(crate) fn populate(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    loop {
        // SAFETY: populating changes no contents, whatever the range.
        let answer = unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
        if answer == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
            return Err(error);
        }
    }
}

/// Gives a range's pages back; the next touch finds zeros.
///
/// # Safety
/// Nobody relies on the range's contents.
pub(crate) unsafe fn discard(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: the mapping stays, so accesses stay valid; contents are the caller's promise.
    let answer = unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Which of a range's small pages are present; one entry each.
pub(crate) fn present(start: NonNull<u8>, bytes: usize) -> io::Result<Vec<bool>> {
    let mut pages = vec![0u8; bytes.div_ceil(page_bytes())];
    // SAFETY: the kernel writes one byte for each page of the range, and `pages` has that many.
    let answer = unsafe { libc::mincore(start.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pages.iter().map(|page| page & 1 != 0).collect())
}

/// Sets the policy of a range for pages that are not present yet (mbind).
pub(crate) fn set_range_policy(start: NonNull<u8>, bytes: usize, mode: Mode, nodes: &[usize]) -> Result<(), Refusal> {
    let (mask, bits) = node_mask(nodes);
    // SAFETY: mbind without move flags changes no contents; the mask is `bits` long and outlives the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_mbind, start.as_ptr(), bytes, mode as i64, mask.as_ptr(), bits, 0i64) };
    check(answer)
}

/// Sets the calling thread's policy (set_mempolicy).
pub(crate) fn set_thread_policy(mode: Mode, nodes: &[usize]) -> Result<(), Refusal> {
    let (mask, bits) = node_mask(nodes);
    // SAFETY: only decides where later pages come from; the mask is `bits` long and outlives the call.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode as i64, mask.as_ptr(), bits) })
}

/// A bit for each node, and the number of bits as these calls count them: one more than the mask has (mm/mempolicy.c,
/// get_nodes, takes `maxnode - 1` bits).
fn node_mask(nodes: &[usize]) -> (Vec<u64>, usize) {
    let highest = nodes.iter().copied().max().unwrap_or(0);
    let mut mask = vec![0u64; highest / 64 + 1];
    for node in nodes {
        mask[node / 64] |= 1 << (node % 64);
    }
    let bits = mask.len() * 64 + 1;
    (mask, bits)
}

/// Asks where pages of this process are, or moves them to a node (move_pages). `statuses[i]` becomes the node of
/// `pages[i]`, or a negative error number; an entry that the kernel didn't come to keeps its value.
pub(crate) fn move_pages(pages: &[usize], target: Option<usize>, statuses: &mut [i32]) -> Result<(), Refusal> {
    assert_eq!(pages.len(), statuses.len());
    let targets = target.map(|node| vec![i32::try_from(node).unwrap_or(i32::MAX); pages.len()]);
    let targets = targets.as_ref().map_or(ptr::null(), |targets| targets.as_ptr());
    // SAFETY: three arrays of pages.len() entries (or none of targets) that outlive the call; the kernel writes only
    // `statuses`. Moving a page keeps its address and contents.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0i64,
            pages.len(),
            pages.as_ptr(),
            targets,
            statuses.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    // A positive answer counts pages that were not moved; their statuses say why.
    if answer > 0 { Ok(()) } else { check(answer) }
}

pub(crate) fn check(answer: i64) -> Result<(), Refusal> {
    if answer == 0 {
        return Ok(());
    }
    Err(match io::Error::last_os_error().raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Refusal::NotPermitted,
        Some(libc::ENOSYS) => Refusal::NotSupported,
        Some(libc::EINVAL | libc::ENODEV) => Refusal::NotUnderstood,
        other => Refusal::Other(other.unwrap_or(0)),
    })
}

/// Lets the calling thread run on these CPUs only. A refusal leaves it where it was, which costs speed and nothing else.
pub(crate) fn pin(cpus: &[usize]) {
    let mut mask = vec![0u64; cpus.iter().copied().max().unwrap_or(0) / 64 + 1];
    for cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads that many bytes of the mask.
    unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) };
}

/// The CPU that this thread runs on at this moment.
pub(crate) fn current_cpu() -> Option<usize> {
    // SAFETY: no arguments, no effects.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Size of a small page in bytes.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no effects.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Bytes of reserved 2 MiB pages that are free on a node at this moment.
pub(crate) fn free_huge_bytes(node: usize) -> u64 {
    let path = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/free_hugepages");
    let pages = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    pages.unwrap_or(0).saturating_mul(HUGE_PAGE_BYTES as u64)
}

/// Bytes that a node could give small pages from at this moment: free ones, and page cache that can be dropped.
pub(crate) fn available_bytes(node: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo")).ok()?;
    // "Node 0 MemFree:          996096 kB"
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name))?;
        line.split_whitespace().nth(3)?.parse::<u64>().ok()
    };
    // The kernel keeps some back (vm.min_free_kbytes, and more in front of it), and dirty cache is not dropped at once.
    let kept_back = field("MemTotal:")? / 64 + (8 << 10);
    let dropped = field("Active(file):").unwrap_or(0) + field("Inactive(file):").unwrap_or(0);
    let dirty = field("Dirty:").unwrap_or(0) + field("Mapped:").unwrap_or(0);
    Some((field("MemFree:")? + dropped.saturating_sub(dirty)).saturating_sub(kept_back) << 10)
}

/// Names of the error numbers that pages are refused with, for people.
pub(crate) fn error_text(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// The page isn't present.
pub(crate) const ABSENT: i32 = -libc::ENOENT;
/// Nothing is mapped at the address, or only the page of zeros that all share.
pub(crate) const NO_PAGE: i32 = -libc::EFAULT;
/// What a status is set to before asking; the kernel never writes it.
pub(crate) const UNASKED: i32 = i32::MIN;
/// Whether this system has memory policies at all.
pub(crate) const HAS_POLICIES: bool = true;

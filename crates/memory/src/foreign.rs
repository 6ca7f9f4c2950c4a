//! Where are another process's pages, and who may move them? The calls that look into a process from outside: none of them
//! stops it or makes a page of it present.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use crate::Refusal;
use crate::sys::{self, Mode};

/// What [`page_statuses`] and [`move_pages`] report for a page that isn't present.
pub const STATUS_ABSENT: i32 = sys::ABSENT;
/// What a status stays at when the kernel didn't come to its page.
pub const STATUS_UNASKED: i32 = sys::UNASKED;

/// Move pages also if several processes map them (include/uapi/linux/mempolicy.h). Needs CAP_SYS_NICE.
const MPOL_MF_MOVE_ALL: i64 = 4;

/// A policy as the kernel numbers it; which nodes go with it is said beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyMode {
    /// No policy: the thread's own, usually the node of whoever touches a page first.
    Default,
    /// One node while it has memory.
    Preferred,
    /// Only these nodes.
    Bind,
    /// Page by page over these nodes.
    Interleave,
    /// The node of the toucher, whatever its own policy says.
    Local,
    /// Page by page by the kernel's weights (Linux 6.9).
    WeightedInterleave,
}

impl PolicyMode {
    fn kernel(self) -> Mode {
        match self {
            PolicyMode::Default => Mode::Default,
            PolicyMode::Preferred => Mode::Preferred,
            PolicyMode::Bind => Mode::Bind,
            PolicyMode::Interleave => Mode::Interleave,
            PolicyMode::Local => Mode::Local,
            PolicyMode::WeightedInterleave => Mode::WeightedInterleave,
        }
    }
}

/// On which node is each page of a process (0: this one)? A status is a node, or a negative error number:
/// [`STATUS_ABSENT`] for a page that is not in this process's page tables, present elsewhere or not.
///
/// # Errors
/// [`Refusal::NotPermitted`] without the right to look into the process (same user, or CAP_SYS_PTRACE) or in a container
/// whose filter forbids the call; `Refusal::Other(ESRCH)` if the process is gone.
pub fn page_statuses(pid: u32, pages: &[usize]) -> Result<Vec<i32>, Refusal> {
    let mut statuses = vec![STATUS_UNASKED; pages.len()];
    ask(pid, pages, ptr::null(), &mut statuses, 0)?;
    Ok(statuses)
}

/// Moves pages of a process (0: this one) to `targets`, one node a page, those that several processes map included. Returns
/// a status for each page: the node it is on now, or a negative error number.
///
/// # Errors
/// As [`page_statuses`], and without CAP_SYS_NICE.
pub fn move_pages(pid: u32, pages: &[usize], targets: &[i32]) -> Result<Vec<i32>, Refusal> {
    assert_eq!(pages.len(), targets.len());
    let mut statuses = vec![STATUS_UNASKED; pages.len()];
    ask(pid, pages, targets.as_ptr(), &mut statuses, MPOL_MF_MOVE_ALL)?;
    Ok(statuses)
}

fn ask(pid: u32, pages: &[usize], targets: *const i32, statuses: &mut [i32], flags: i64) -> Result<(), Refusal> {
    if pages.is_empty() {
        return Ok(());
    }
    let pid = i64::from(pid);
    // SAFETY: three arrays of pages.len() entries (or none of targets, then nothing moves) that outlive the call; the kernel
    // writes only `statuses`. Moving a page keeps its address and contents.
    let answer = unsafe {
        libc::syscall(libc::SYS_move_pages, pid, pages.len(), pages.as_ptr(), targets, statuses.as_mut_ptr(), flags)
    };
    // A positive answer counts pages that were not moved; their statuses say why.
    if answer > 0 { Ok(()) } else { sys::check(answer) }
}

/// Size of the machine's small pages in bytes.
pub fn small_page_bytes() -> usize {
    sys::page_bytes()
}

/// Lets the calling thread, and what it starts from now on, run on these CPUs only.
///
/// # Errors
/// EINVAL if none of them is one that this process may use; EPERM.
pub fn run_on(cpus: &[usize]) -> io::Result<()> {
    let mut mask = vec![0u64; cpus.iter().copied().max().unwrap_or(0) / 64 + 1];
    for cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads that many bytes of the mask.
    let answer = unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where the object's next bytes that are in memory (or swapped out) begin, from `offset` on; `None` behind the last ones.
///
/// # Errors
/// What lseek says; EINVAL for objects that don't tell.
pub fn next_data(object: &File, offset: u64) -> io::Result<Option<u64>> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: moves the position of a descriptor of ours, which nobody reads at.
    let found = unsafe { libc::lseek(object.as_raw_fd(), offset, libc::SEEK_DATA) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

/// Registers of a thread that an unwinder begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Address of the next instruction.
    pub instruction: u64,
    /// Stack pointer.
    pub stack: u64,
    /// Frame pointer (rbp, x29).
    pub frame: u64,
    /// Link register (Arm); 0 elsewhere.
    pub link: u64,
}

/// Stops a thread for as long as `look` takes, and lets it go on. Its system call, if it is in one, may end with EINTR: ask
/// only about threads that run.
///
/// # Errors
/// EPERM without the right to trace (same user, or CAP_SYS_PTRACE; somebody else traces it already), ESRCH without the thread.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn look_at_thread<T>(thread: u32, look: impl FnOnce(&Registers) -> T) -> io::Result<T> {
    let tid = thread as libc::pid_t;
    trace(libc::PTRACE_SEIZE, tid, 0)?;
    // If this fails the thread has ended in between, and its end also ends the tracing.
    trace(libc::PTRACE_INTERRUPT, tid, 0)?;
    let status = stopped(tid)?;
    if !libc::WIFSTOPPED(status) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let registers = registers(tid);
    let looked = registers.map(|registers| look(&registers));
    // A signal that stopped it before we did is handed on.
    let is_ours = status >> 16 == libc::PTRACE_EVENT_STOP;
    trace(libc::PTRACE_DETACH, tid, if is_ours { 0 } else { libc::WSTOPSIG(status) as usize })?;
    looked
}

/// Waits until a thread has come to its stop, or to its end. A thread that runs stops within microseconds, and going to sleep for
/// them would take longer: so it is asked again and again for a moment, and only then slept on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn stopped(tid: libc::pid_t) -> io::Result<libc::c_int> {
    const WATCHED: std::time::Duration = std::time::Duration::from_micros(50);
    let begun = std::time::Instant::now();
    let mut status = 0;
    loop {
        let patience = if begun.elapsed() < WATCHED { libc::WNOHANG } else { 0 };
        // SAFETY: the kernel writes one int.
        let answer = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | patience) };
        if answer == tid {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if answer < 0 && error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn trace(request: libc::c_uint, tid: libc::pid_t, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made here reads or writes memory of this process.
    let answer = unsafe { libc::ptrace(request, tid, 0usize, data) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Registers of a stopped thread.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn registers(tid: libc::pid_t) -> io::Result<Registers> {
    /// The general registers (include/uapi/linux/elf.h).
    const NT_PRSTATUS: usize = 1;
    // SAFETY: a structure of plain numbers; all zero is a value of it.
    let mut raw: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let mut area = libc::iovec { iov_base: (&raw mut raw).cast(), iov_len: size_of_val(&raw) };
    // SAFETY: the kernel writes at most iov_len bytes to `raw`.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, &raw mut area) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    #[cfg(target_arch = "x86_64")]
    let found = Registers { instruction: raw.rip, stack: raw.rsp, frame: raw.rbp, link: 0 };
    #[cfg(target_arch = "aarch64")]
    let found = Registers { instruction: raw.pc, stack: raw.sp, frame: raw.regs[29], link: raw.regs[30] };
    Ok(found)
}

/// Copies bytes of another process's memory; returns how many were there to be read. The process doesn't notice.
///
/// # Errors
/// What the kernel says: EPERM without the right, ESRCH without the process, EFAULT if the first byte isn't mapped.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: ptr::without_provenance_mut(address as usize), iov_len: into.len() };
    // SAFETY: `local` is exactly `into`; the kernel checks `remote` against the other process's mappings.
    let answer = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Copies `each` bytes from each of many addresses of another process; what can't be read is zeros. Returns all of it in the order of
/// the addresses.
///
/// # Errors
/// EPERM without the right, ESRCH without the process.
pub fn read_scattered(pid: u32, addresses: &[u64], each: usize) -> io::Result<Vec<u8>> {
    /// Pieces that the kernel takes in one call (UIO_MAXIOV, include/uapi/linux/uio.h).
    const PIECES: usize = 1024;
    let mut copy = vec![0u8; addresses.len() * each];
    if each == 0 {
        return Ok(copy);
    }
    let mut done = 0;
    while done < addresses.len() {
        let now = &addresses[done..addresses.len().min(done + PIECES)];
        let into = &mut copy[done * each..(done + now.len()) * each];
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let piece = |at: &u64| libc::iovec { iov_base: ptr::without_provenance_mut(*at as usize), iov_len: each };
        let remote: Vec<libc::iovec> = now.iter().map(piece).collect();
        // SAFETY: `local` is exactly `into`; the kernel checks each of `remote` against the other process's mappings.
        let answer = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        match usize::try_from(answer) {
            // It ends at the first piece that can't be read, which stays zeros.
            Ok(bytes) if bytes < into.len() => {
                let whole = bytes / each;
                into[whole * each..].fill(0);
                done += whole + 1;
            }
            Ok(_) => done += now.len(),
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EFAULT) => done += 1,
                error => return Err(error),
            },
        }
    }
    Ok(copy)
}

/// Part of an object (shared memory, a file) that others map too, mapped here to ask about it: reserved address space,
/// never read or written.
#[derive(Debug)]
pub struct SharedWindow {
    start: NonNull<u8>,
    bytes: usize,
}

impl SharedWindow {
    /// Maps `bytes` of the object from `offset`; both in whole pages (huge ones if the object is made of them).
    ///
    /// # Errors
    /// What mmap says.
    pub fn map(object: &File, offset: u64, bytes: usize) -> io::Result<SharedWindow> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let fd = object.as_raw_fd();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let raw = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, offset) };
        match NonNull::new(raw.cast()) {
            Some(start) if raw != libc::MAP_FAILED => Ok(SharedWindow { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of a byte of the window in this process.
    pub fn address(&self, offset: usize) -> usize {
        self.start.as_ptr().addr() + offset
    }

    /// Which of the window's small pages the object has in memory, mapped by anyone or not. Always `false` for reserved huge
    /// pages: the kernel doesn't look there.
    ///
    /// # Errors
    /// What mincore says.
    pub fn present(&self) -> io::Result<Vec<bool>> {
        sys::present(self.start, self.bytes)
    }

    /// Enters pages of a range into this process's page tables, so that they can be asked about and moved. Ask only for
    /// pages that are present: another one would be made present by this.
    ///
    /// # Errors
    /// What madvise says (EINVAL before Linux 5.14).
    ///
    /// # Panics
    /// If the range is not inside the window.
    pub fn enter(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} is not inside the window");
        loop {
            // SAFETY: the range is inside the mapping, and populating for reading changes no contents.
            let answer = unsafe {
                libc::madvise(self.start.as_ptr().add(range.start).cast(), range.len(), libc::MADV_POPULATE_READ)
            };
            if answer == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                return Err(error);
            }
        }
    }

    /// Sets where later pages of this part of the object come from, whoever touches them: the policy of shared memory
    /// belongs to the object and stays when this window goes. (Of ordinary files and reserved huge pages the kernel keeps
    /// none: there it has no effect.)
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn set_policy(&self, mode: PolicyMode, nodes: &[usize]) -> Result<(), Refusal> {
        if mode == PolicyMode::Default {
            // The kernel compares with the policy of this mapping, which has none, and would leave the object's as it is
            // (mm/mempolicy.c, mbind_range: mpol_equal). Another one in between makes it look.
            sys::set_range_policy(self.start, self.bytes, Mode::Local, &[])?;
        }
        sys::set_range_policy(self.start, self.bytes, mode.kernel(), nodes)
    }
}

impl Drop for SharedWindow {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; no reference into it was ever handed out.
        unsafe { sys::unmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_pages_can_be_asked_about_or_the_call_is_refused() {
        let page = Box::new([1u8; 8192]);
        let address = page.as_ptr().addr() & !4095;
        match page_statuses(0, &[address, 4096]) {
            // The page at 4096 is mapped by nobody.
            Ok(statuses) => assert!(statuses[0] >= 0 && statuses[1] < 0, "{statuses:?}"),
            Err(refusal) => assert_eq!(refusal, Refusal::NotPermitted),
        }
        assert_eq!(page_statuses(0, &[]), Ok(Vec::new()));
    }

    #[test]
    fn our_own_memory_can_be_read_from_outside() {
        let source = *b"some bytes to read";
        let mut copy = [0u8; 18];
        let read = read_memory(std::process::id(), source.as_ptr().addr() as u64, &mut copy);
        assert_eq!(read.unwrap(), 18);
        assert_eq!(copy, source);
        assert!(read_memory(std::process::id(), 64, &mut copy).is_err());
    }

    #[test]
    fn scattered_bytes_are_read_past_those_that_cannot_be() {
        let source: Vec<u64> = (0..3000).collect();
        let mut addresses: Vec<u64> = source.iter().map(|number| ptr::from_ref(number).addr() as u64).collect();
        addresses[0] = 64;
        addresses[1500] = 64;
        let copy = read_scattered(std::process::id(), &addresses, 8).unwrap();
        let read: Vec<u64> = copy.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        let expected: Vec<u64> = (0..3000).map(|number| if number == 1500 { 0 } else { number }).collect();
        assert_eq!(read, expected);
        assert_eq!(read_scattered(std::process::id(), &[64], 0).unwrap(), []);
    }

    #[test]
    fn a_window_shows_what_is_present_and_makes_nothing_so() {
        let path = std::env::temp_dir().join(format!("homenode-window-{}", std::process::id()));
        std::fs::write(&path, vec![1u8; 16_384]).unwrap();
        let file = File::open(&path).unwrap();
        let window = SharedWindow::map(&file, 0, 16_384).unwrap();
        assert_eq!(window.present().unwrap().len(), 16_384 / sys::page_bytes());
        window.enter(0..4096).unwrap();
        assert!(window.present().unwrap()[0]);
        assert!(SharedWindow::map(&file, 1, 4096).is_err());
        std::fs::remove_file(path).unwrap();
    }
}

//! How does an operating-system thread start, and where may it run?

use super::task;
use crate::wait::WaitEvent;
use std::io;

/// A running thread, to be waited for.
#[derive(Debug)]
pub struct JoinHandle(std::thread::JoinHandle<()>);

impl JoinHandle {
    /// Waits until the thread has ended. Blocks the calling OS thread, coroutines on it included.
    ///
    /// # Panics
    /// With the thread's own panic, if it panicked.
    pub fn join(self) {
        if let Err(panic) = self.0.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Starts a thread.
///
/// # Panics
/// When the system cannot start one.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle {
    let builder = std::thread::Builder::new().name(name.to_owned());
    JoinHandle(builder.spawn(f).expect("the system refused a thread"))
}

/// How many CPUs this process may use (its affinity mask and control group), at least 1.
pub fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The CPU that the calling thread runs on now (system number). A hint: it may be another a moment
/// later. A vDSO call; for slow paths only.
pub fn current_cpu() -> usize {
    // SAFETY: no arguments, no memory touched.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}

/// Restricts the calling thread to `cpus` (system CPU numbers).
///
/// # Errors
/// `EINVAL` when none of them is usable or a number is beyond the system's mask.
pub fn pin_to_cpus(cpus: &[usize]) -> io::Result<()> {
    const WORD_BITS: usize = u64::BITS as usize;
    let words = cpus.iter().max().map_or(1, |&max| max / WORD_BITS + 1);
    // A mask of our own size: libc's cpu_set_t ends at CPU 1023.
    let mut mask = vec![0u64; words];
    for &cpu in cpus {
        mask[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the pointer and the length describe `mask`; the call only reads it.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&mask[..]), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sleeps for at least `duration_ns` nanoseconds; inside a coroutine only the task sleeps.
pub fn sleep_ns(duration_ns: u64) {
    let end = super::clock::now_ns() + duration_ns;
    loop {
        let now = super::clock::now_ns();
        if now >= end {
            return;
        }
        task::park_timeout(WaitEvent::Sleep, end - now);
    }
}

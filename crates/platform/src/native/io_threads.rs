//! Who blocks so that a worker need not? A few threads that read for parked tasks.

use super::task::{self, Task};
use super::thread::pin_to_cpus;
use crate::wait::WaitEvent;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Reads in flight beyond that wait in the queue. One NVMe device is busy with a few dozen; threads
/// only block, so there may be more of them than CPUs.
const MAX_THREADS: usize = 16;

const PENDING: i64 = i64::MIN;

struct Job {
    fd: RawFd,
    buffer: *mut u8,
    len: usize,
    offset: u64,
    /// Bytes read, or minus the error number; PENDING until then. Lives on the waiting task's stack.
    result: *const AtomicI64,
    task: Task,
}

// SAFETY: the pointers are into the waiting task's frame, which read_parked keeps until the result
// is there, and nobody else uses the buffer until then.
unsafe impl Send for Job {}

struct Pool {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { jobs: VecDeque::new(), threads: 0, idle: 0 });
static ARRIVED: Condvar = Condvar::new();
/// The CPUs near the device, where somebody has said which.
static NEAR: OnceLock<Vec<usize>> = OnceLock::new();

/// Has the threads that begin from now on run on these CPUs. The first to say so in a process decides.
pub(super) fn live_near(cpus: &[usize]) {
    NEAR.get_or_init(|| cpus.to_vec());
}

/// One `pread` by another thread; the calling task is parked meanwhile (`WaitEvent::PageRead`).
pub(super) fn read_parked(fd: RawFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let result = AtomicI64::new(PENDING);
    let job =
        Job { fd, buffer: buffer.as_mut_ptr(), len: buffer.len(), offset, result: &result, task: task::current() };
    submit(job);
    // Never leaves before the result is there: the other thread writes into our frame.
    // Acquire pairs with the release in `run`: the buffer's bytes are seen.
    while result.load(Ordering::Acquire) == PENDING {
        task::park(WaitEvent::PageRead);
    }
    match result.load(Ordering::Relaxed) {
        n @ 0.. => Ok(n as usize),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

fn submit(job: Job) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    pool.jobs.push_back(job);
    if pool.idle == 0 && pool.threads < MAX_THREADS {
        let started = std::thread::Builder::new().name("page-read".into()).spawn(work);
        // With at least one thread a refused further one costs only time.
        assert!(started.is_ok() || pool.threads > 0, "the system refused a first I/O thread");
        pool.threads += started.is_ok() as usize;
    }
    drop(pool);
    ARRIVED.notify_one();
}

fn work() {
    if let Some(cpus) = NEAR.get() {
        // Refused in some containers; then it just is not near.
        let _ = pin_to_cpus(cpus);
    }
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match pool.jobs.pop_front() {
            Some(job) => {
                drop(pool);
                run(job);
                pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            }
            None => {
                pool.idle += 1;
                pool = ARRIVED.wait(pool).unwrap_or_else(PoisonError::into_inner);
                pool.idle -= 1;
            }
        }
    }
}

fn run(job: Job) {
    // SAFETY: buffer and length are the waiting task's buffer, ours until the result is stored.
    let n = unsafe { libc::pread(job.fd, job.buffer.cast(), job.len, job.offset as libc::off_t) };
    let value = match n {
        0.. => n as i64,
        _ => -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    };
    let task = job.task;
    // SAFETY: the waiting task's frame exists until this store; it is not touched afterwards.
    unsafe { &*job.result }.store(value, Ordering::Release);
    task.unpark();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;

    #[test]
    #[cfg(not(miri))]
    fn threads_read_where_they_were_told_to() {
        // One CPU that this process may use.
        let cpu = super::super::thread::current_cpu();
        live_near(&[cpu]);
        live_near(&[cpu + 1]);
        let file = fs::File::open("/proc/self/exe").unwrap();
        let mut head = [0; 4];
        assert_eq!(read_parked(file.as_raw_fd(), &mut head, 0).unwrap(), 4);
        assert_eq!(&head, b"\x7fELF");
        let threads = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let reads =
            |task: &std::path::PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "page-read\n");
        let masks: Vec<String> =
            threads.filter(reads).map(|task| fs::read_to_string(task.join("status")).unwrap()).collect();
        assert!(!masks.is_empty());
        let wanted = format!("Cpus_allowed_list:\t{cpu}\n");
        assert!(masks.iter().all(|status| status.contains(&wanted)), "{masks:?}");
    }
}

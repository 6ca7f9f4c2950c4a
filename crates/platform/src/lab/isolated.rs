//! How is a run kept from harming the next? A forked process for each, with an answer in bytes.
//!
//! A crashed machine's threads are never resumed, so what they own is never freed; and a run may
//! overflow a stack or be killed. In a child process neither matters to the explorer.

use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child process that works on an answer.
#[derive(Debug)]
pub struct Isolated {
    pid: libc::pid_t,
    answer: std::fs::File,
}

/// The child's exit status when `f` panicked outside a run.
const PANICKED: i32 = 101;

impl Isolated {
    /// Forks a process that calls `f` and answers what it returns. The calling process should have no
    /// other threads: only the forking one exists in the child.
    ///
    /// # Errors
    /// The system's, when it gives no process or pipe.
    pub fn start(f: impl FnOnce() -> Vec<u8>) -> std::io::Result<Isolated> {
        let mut ends = [0; 2];
        // SAFETY: pipe writes two descriptors into the array.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: both descriptors are new and ours.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: the caller's process has one thread, so the child's memory is consistent.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                drop(read);
                answer_and_exit(write, f)
            }
            pid => Ok(Isolated { pid, answer: read.into() }),
        }
    }

    /// Waits for the child; its answer, or how it died.
    ///
    /// # Errors
    /// A text that names the signal or exit status.
    pub fn wait(mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let read = self.answer.read_to_end(&mut bytes);
        let mut status = 0;
        // SAFETY: a child of ours that nobody else waits for.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } == -1 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(format!("waiting for the run: {error}"));
            }
        }
        if libc::WIFSIGNALED(status) {
            return Err(format!("killed by signal {}", libc::WTERMSIG(status)));
        }
        match libc::WEXITSTATUS(status) {
            0 => read.map(|_| bytes).map_err(|error| error.to_string()),
            status => Err(format!("the run's process ended with status {status}")),
        }
    }
}

fn answer_and_exit(write: OwnedFd, f: impl FnOnce() -> Vec<u8>) -> ! {
    let answered = catch_unwind(AssertUnwindSafe(|| std::io::Write::write_all(&mut std::fs::File::from(write), &f())));
    let status = if matches!(answered, Ok(Ok(()))) { 0 } else { PANICKED };
    // SAFETY: ends this process without running the parent's exit handlers twice.
    unsafe { libc::_exit(status) }
}

//! Which threads does a process have, and which of them have run since they were last looked at? Asked a hundred times a second, so
//! it has to be cheap: one read of an open file for a thread that has not run, two for one that has.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::InspectError;
use crate::proc::{explain, path};

/// Threads of a process whose files are kept open, two each: below the usual limit of 1024 for all processes of a small server. The
/// files of further threads are opened each time.
const KEPT: usize = 200;

/// What the scheduler has counted of a thread (`schedstat`, Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    /// Time on a CPU, in nanoseconds. Of a thread that runs it may be one tick old.
    on_cpu_ns: u64,
    /// Time ready without a CPU, in nanoseconds, up to when it last got one.
    pub(super) queued_ns: u64,
    /// How often it got a CPU.
    times: u64,
}

/// What a thread does, as its `syscall` file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It runs, or is ready to.
    Running,
    /// It waits in the kernel; its stack pointer and the next instruction outside.
    Waiting { stack: u64, instruction: u64 },
    /// It waits without having left a program (a kernel thread, an ending one).
    Nothing,
}

/// One thread.
#[derive(Debug)]
pub(super) struct Thread {
    pid: u32,
    pub(super) tid: u32,
    schedstat: Option<File>,
    syscall: Option<File>,
    /// As it was when it was last looked at and waited.
    waited: Option<Ran>,
}

impl Thread {
    fn new(pid: u32, tid: u32, kept: bool) -> Thread {
        // A file that can't be opened now is tried each time, and what is wrong is said then.
        let open = |name: &str| File::open(path(pid, &format!("task/{tid}/{name}"))).ok().filter(|_| kept);
        Thread { pid, tid, schedstat: open("schedstat"), syscall: open("syscall"), waited: None }
    }

    fn read<'b>(&self, kept: Option<&File>, name: &str, buffer: &'b mut [u8]) -> io::Result<&'b str> {
        let read = match kept {
            Some(file) => file.read_at(buffer, 0)?,
            None => File::open(path(self.pid, &format!("task/{}/{name}", self.tid)))?.read_at(buffer, 0)?,
        };
        Ok(std::str::from_utf8(&buffer[..read]).unwrap_or_default())
    }

    /// What the scheduler has counted; `None` where the kernel doesn't (CONFIG_SCHED_INFO) or the thread is gone.
    pub(super) fn ran(&self) -> Option<Ran> {
        parse_schedstat(self.read(self.schedstat.as_ref(), "schedstat", &mut [0; 128]).ok()?)
    }

    /// Whether it has ended: it is gone, or only its number is left (states Z and X of proc_pid_stat(5)).
    pub(super) fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(path(self.pid, &format!("task/{}/stat", self.tid))).unwrap_or_default();
        stat.rfind(')').is_none_or(|end| stat[end + 1..].trim_start().starts_with(['Z', 'X', 'x']))
    }

    /// What it does now; `None` if it waits as it did when this was last asked and has not run in between, so that nothing about it
    /// can be different.
    ///
    /// # Errors
    /// [`InspectError::Vanished`] if the thread is gone, [`InspectError::NotPermitted`].
    pub(super) fn doing(&mut self) -> Result<Option<Doing>, InspectError> {
        let ran = self.ran();
        if ran.is_some() && self.waited == ran {
            return Ok(None);
        }
        self.waited = None;
        let mut buffer = [0; 256];
        let doing = match self.read(self.syscall.as_ref(), "syscall", &mut buffer) {
            Ok(text) => parse_syscall(text),
            Err(error) => {
                let file = path(self.pid, &format!("task/{}/syscall", self.tid));
                return Err(if error.kind() == io::ErrorKind::NotFound {
                    InspectError::Vanished(self.pid)
                } else {
                    explain(self.pid, &file, error)
                });
            }
        };
        if matches!(doing, Doing::Waiting { .. }) {
            // If it has run between the two readings, the next comparison tells.
            self.waited = ran;
        }
        Ok(Some(doing))
    }
}

/// The threads of a process.
#[derive(Debug)]
pub(super) struct Threads {
    folder: PathBuf,
    pid: u32,
    /// How many there were when they were listed.
    links: u64,
    listed: HashMap<u32, Thread>,
}

impl Threads {
    pub(super) fn of(pid: u32) -> Threads {
        Threads { folder: path(pid, "task"), pid, links: 0, listed: HashMap::new() }
    }

    /// All of them now. They are listed anew when their number is another one (which the kernel says as the folder's links) or when
    /// one was found to have ended.
    ///
    /// # Errors
    /// [`InspectError::Vanished`] if the process is gone.
    pub(super) fn all(&mut self) -> Result<impl Iterator<Item = &mut Thread>, InspectError> {
        let links = fs::metadata(&self.folder).map_err(|error| explain(self.pid, &self.folder, error))?.nlink();
        if links != self.links {
            let entries = fs::read_dir(&self.folder).map_err(|error| explain(self.pid, &self.folder, error))?;
            let mut before = std::mem::take(&mut self.listed);
            for tid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
                let kept = self.listed.len() < KEPT;
                let thread = before.remove(&tid).unwrap_or_else(|| Thread::new(self.pid, tid, kept));
                self.listed.insert(tid, thread);
            }
            self.links = links;
        }
        Ok(self.listed.values_mut())
    }

    /// One of them has ended: the next time they are listed anew.
    pub(super) fn list_again(&mut self) {
        self.links = 0;
    }
}

/// Three numbers. Anything else is a form that isn't known, and then every thread is looked at each time.
fn parse_schedstat(text: &str) -> Option<Ran> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let ran = Ran { on_cpu_ns: words.next()??, queued_ns: words.next()??, times: words.next()?? };
    words.next().is_none().then_some(ran)
}

/// The file says `running`, or a system call's number (-1: in the kernel without one, as for a page fault) with its arguments, and
/// last the two pointers (proc_pid_syscall(5)).
fn parse_syscall(text: &str) -> Doing {
    if text.trim_end() == "running" {
        return Doing::Running;
    }
    let mut words = text.split_ascii_whitespace().rev();
    let mut pointer = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    match (pointer(), pointer()) {
        (Some(instruction), Some(stack)) if stack != 0 => Doing::Waiting { stack, instruction },
        _ => Doing::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waiting_threads_are_told_from_running_ones() {
        assert_eq!(parse_syscall("running\n"), Doing::Running);
        let text = "202 0x55d0 0x80 0x0 0x0 0x0 0x0 0x7ffc12345678 0x7f0012345678\n";
        assert_eq!(parse_syscall(text), Doing::Waiting { stack: 0x7ffc_1234_5678, instruction: 0x7f00_1234_5678 });
        assert_eq!(parse_syscall("-1 0x7ffc 0x7f00"), Doing::Waiting { stack: 0x7ffc, instruction: 0x7f00 });
        for text in ["", "0x zz", "-1 0x0 0x0"] {
            assert_eq!(parse_syscall(text), Doing::Nothing, "{text}");
        }
        assert_eq!(parse_schedstat("12 34 56\n"), Some(Ran { on_cpu_ns: 12, queued_ns: 34, times: 56 }));
        for text in ["", "1 2", "1 2 3 4", "1 2 x"] {
            assert_eq!(parse_schedstat(text), None, "{text}");
        }
    }

    #[test]
    fn a_thread_that_waits_is_not_looked_at_again_until_it_has_run() {
        let (wake, woken) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            while woken.recv().is_ok() {}
        });
        let tid = told.recv().unwrap() as u32;
        let mut threads = Threads::of(std::process::id());
        let until = |threads: &mut Threads, wanted: fn(&Option<Doing>) -> bool| {
            let begun = Instant::now();
            loop {
                let thread = threads.all().unwrap().find(|thread| thread.tid == tid).expect("the thread is listed");
                let doing = thread.doing().unwrap();
                if wanted(&doing) {
                    return;
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "{doing:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        if threads.all().unwrap().any(|thread| thread.ran().is_none()) {
            return; // A kernel that doesn't count.
        }
        until(&mut threads, |doing| matches!(doing, Some(Doing::Waiting { .. })));
        until(&mut threads, Option::is_none);
        wake.send(()).unwrap();
        until(&mut threads, Option::is_some);
        drop(wake);
        waiter.join().unwrap();
        threads.list_again();
        assert!(threads.all().unwrap().all(|thread| thread.tid != tid));
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[-0-9a-fx rung\n]{0,60}") {
            let _ = parse_syscall(&text);
            let _ = parse_schedstat(&text);
        }
    }
}

//! What does each thread do at this moment? One sample is one stack of every thread.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder, UnwinderNative};
use homenode_memory::foreign::{self, Registers};

use super::module::Files;
use super::threads::{Doing, Thread, Threads};
use crate::InspectError;
use crate::place::{Server, Who, find, mappings_of};
use crate::proc::{Mapping, processes};

/// More of a stack is not copied: a deeper one ends in `...`.
const STACK_BYTES: u64 = 64 << 10;

/// Time between two looks for further processes: each reads the list of all of the machine's.
const SEARCH: Duration = Duration::from_secs(1);

/// More frames are not unwound.
const FRAMES: usize = 128;

/// One frame: a file (an index into [`Profile::files`]) and an offset in it, or `None` and an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The program file.
    pub file: Option<usize>,
    /// Offset in the file in bytes; the address where there is no file.
    pub at: u64,
}

/// Samples, summed. Stacks are innermost frame first.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Files that frames are in.
    pub files: Vec<PathBuf>,
    /// Samples of threads that ran, by stack.
    pub running: HashMap<Vec<Frame>, u64>,
    /// Samples of threads that waited, by stack.
    pub waiting: HashMap<Vec<Frame>, u64>,
    /// Samples of threads whose stack could not be had.
    pub missed: u64,
    /// Rounds of samples.
    pub rounds: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// For how long threads were stopped, all together, in seconds.
    pub stopped_seconds: f64,
    /// How long each stop took, in nanoseconds, ascending.
    pub stops_ns: Vec<u64>,
    /// CPU time that the sampler itself used, in seconds.
    pub own_cpu_seconds: f64,
    /// Threads that were seen.
    pub threads: usize,
}

impl Profile {
    /// A stack that could not be unwound at all counts as missed.
    fn add_waiting(&mut self, waited: Waited) {
        if waited.frames.is_empty() {
            self.missed += waited.samples;
        } else {
            *self.waiting.entry(waited.frames).or_default() += waited.samples;
        }
    }

    /// How long a stop took in the middle, in nanoseconds; 0 if there was none.
    pub fn stop_ns_p50(&self) -> u64 {
        self.stops_ns.get(self.stops_ns.len() / 2).copied().unwrap_or(0)
    }

    /// By how much sampling slowed the threads that ran: time stopped by time run.
    pub fn slowed(&self) -> f64 {
        let running: u64 = self.running.values().sum();
        if running == 0 || self.rounds == 0 {
            return 0.0;
        }
        self.stopped_seconds / (running as f64 * self.seconds / self.rounds as f64)
    }
}

/// One process.
struct Target {
    pid: u32,
    mappings: Vec<Mapping>,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    threads: Threads,
    /// For each thread that waited: where it waited, and its stack.
    last: HashMap<u32, Waited>,
    /// What is at an address of its code, once it was asked.
    frames: HashMap<u64, Frame>,
    /// What is called by the direct call that ends at an address, if one does.
    calls: HashMap<u64, Option<u64>>,
}

/// A thread that waited. Its samples are added to the profile when its stack changes, and at the end.
struct Waited {
    stack: u64,
    instruction: u64,
    frames: Vec<Frame>,
    samples: u64,
}

/// Samples a server's threads.
pub struct Sampler {
    /// The server's first process, and all that were found so far.
    first: u32,
    known: HashSet<u32>,
    targets: Vec<Target>,
    files: Files,
    cache: CacheNative<MayAllocateDuringUnwind>,
    profile: Profile,
    seen: HashSet<u32>,
    /// Room for a copy of a stack, made before a thread is stopped.
    copy: Vec<u8>,
}

impl Sampler {
    /// Reads the programs' unwind tables.
    ///
    /// # Errors
    /// [`InspectError::NotPermitted`], [`InspectError::Vanished`] if no process is left.
    pub fn new(server: &Server) -> Result<Sampler, InspectError> {
        let mut sampler = Sampler {
            first: server.pid(),
            known: server.processes.iter().map(|process| process.pid).collect(),
            targets: Vec::new(),
            files: Files::default(),
            cache: CacheNative::new_in(),
            profile: Profile::default(),
            seen: HashSet::new(),
            copy: vec![0; STACK_BYTES as usize],
        };
        for process in &server.processes {
            match sampler.target(process.pid) {
                Ok(target) => sampler.targets.push(target),
                Err(InspectError::Vanished(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if sampler.targets.is_empty() { Err(InspectError::Vanished(server.pid())) } else { Ok(sampler) }
    }

    fn target(&mut self, pid: u32) -> Result<Target, InspectError> {
        let mappings = mappings_of(pid)?;
        let mut unwinder = UnwinderNative::new();
        for mapping in mappings.iter().filter(|mapping| mapping.executable && mapping.inode != 0) {
            let file = file_of(pid, mapping);
            if let Some(module) = self.files.module(&file, mapping) {
                unwinder.add_module(module);
            }
        }
        Ok(Target {
            pid,
            mappings,
            unwinder,
            threads: Threads::of(pid),
            last: HashMap::new(),
            frames: HashMap::new(),
            calls: HashMap::new(),
        })
    }

    /// Samples for a while, `rate` times a second.
    ///
    /// # Errors
    /// [`InspectError::NotPermitted`] if threads may not be looked at.
    pub fn run(mut self, duration: Duration, rate: u32) -> Result<Profile, InspectError> {
        let _urgent = Urgent::new();
        let (begun, cpu_before) = (Instant::now(), own_cpu());
        let period = Duration::from_secs(1) / rate.max(1);
        let mut searched = begun;
        while begun.elapsed() < duration && !self.targets.is_empty() {
            let next = Instant::now() + period;
            if searched.elapsed() >= SEARCH {
                self.search();
                searched = Instant::now();
            }
            self.round()?;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        for waited in self.targets.iter_mut().flat_map(|target| std::mem::take(&mut target.last).into_values()) {
            self.profile.add_waiting(waited);
        }
        self.profile.stops_ns.sort_unstable();
        self.profile.seconds = begun.elapsed().as_secs_f64();
        self.profile.own_cpu_seconds = own_cpu().saturating_sub(cpu_before).as_secs_f64();
        self.profile.threads = self.seen.len();
        Ok(self.profile)
    }

    /// Adds processes that the server has started since: those of new connections.
    fn search(&mut self) {
        // A server that ends meanwhile has none.
        let Ok(server) = find(&Who::Pid(self.first), &processes()) else { return };
        for process in server.processes {
            if self.known.insert(process.pid) {
                let target = self.target(process.pid);
                self.targets.extend(target.ok());
            }
        }
    }

    fn round(&mut self) -> Result<(), InspectError> {
        self.profile.rounds += 1;
        let mut targets = std::mem::take(&mut self.targets);
        let mut failed = None;
        targets.retain_mut(|target| match self.process(target) {
            Ok(()) => true,
            Err(InspectError::Vanished(_)) => {
                std::mem::take(&mut target.last).into_values().for_each(|waited| self.profile.add_waiting(waited));
                false
            }
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        self.targets = targets;
        failed.map_or(Ok(()), Err)
    }

    fn process(&mut self, target: &mut Target) -> Result<(), InspectError> {
        // Taken out, so that what is known of the process can be changed beside it.
        let mut threads = std::mem::replace(&mut target.threads, Threads::of(target.pid));
        let mut ended = false;
        for thread in threads.all()? {
            self.seen.insert(thread.tid);
            match thread.doing() {
                Ok(None) => match target.last.get_mut(&thread.tid) {
                    Some(waited) => waited.samples += 1,
                    None => self.profile.missed += 1,
                },
                Ok(Some(Doing::Waiting { stack, instruction })) => self.waiting(target, thread.tid, stack, instruction),
                Ok(Some(Doing::Running)) => self.running(target, thread)?,
                Ok(Some(Doing::Nothing)) => self.profile.missed += 1,
                Err(InspectError::Vanished(_)) => {
                    ended = true;
                    target.last.remove(&thread.tid).into_iter().for_each(|waited| self.profile.add_waiting(waited));
                }
                Err(error) => return Err(error),
            }
        }
        if ended {
            threads.list_again();
        }
        target.threads = threads;
        Ok(())
    }

    /// A thread that waits keeps its stack: what was unwound a moment ago still holds if it is at the same place.
    fn waiting(&mut self, target: &mut Target, tid: u32, stack: u64, instruction: u64) {
        let last =
            target.last.get_mut(&tid).filter(|waited| (waited.stack, waited.instruction) == (stack, instruction));
        if let Some(waited) = last {
            waited.samples += 1;
            return;
        }
        // The kernel doesn't tell the frame pointer; code that needs it saved an older one further up.
        let registers = Registers { instruction, stack, frame: 0, link: 0 };
        let mut copy = std::mem::take(&mut self.copy);
        let bytes = copy_stack(target.pid, &target.mappings, stack, &mut copy);
        let frames = self.unwind(target, &registers, &copy[..bytes]);
        self.copy = copy;
        let waited = Waited { stack, instruction, frames, samples: 1 };
        target.last.insert(tid, waited).into_iter().for_each(|before| self.profile.add_waiting(before));
    }

    fn running(&mut self, target: &mut Target, thread: &Thread) -> Result<(), InspectError> {
        target.last.remove(&thread.tid).into_iter().for_each(|waited| self.profile.add_waiting(waited));
        let mut copy = std::mem::take(&mut self.copy);
        let queued_ns = || thread.ran().map_or(0, |ran| ran.queued_ns);
        let (begun, queued_before) = (Instant::now(), queued_ns());
        let looked = foreign::look_at_thread(thread.tid, |registers| {
            let bytes = copy_stack(target.pid, &target.mappings, registers.stack, &mut copy);
            (*registers, bytes, queued_ns())
        });
        let result = match looked {
            Ok((registers, bytes, queued_after)) => {
                // A thread that was ready but had no CPU comes to its stop when it gets one: it did not lose that time.
                let queued = queued_after.saturating_sub(queued_before);
                let stopped_ns = (begun.elapsed().as_nanos() as u64).saturating_sub(queued);
                self.profile.stopped_seconds += stopped_ns as f64 / 1e9;
                self.profile.stops_ns.push(stopped_ns);
                let frames = self.unwind(target, &registers, &copy[..bytes]);
                *self.profile.running.entry(frames).or_default() += 1;
                Ok(())
            }
            // An ending thread is refused with the same number (kernel/ptrace.c, ptrace_attach: exit_state).
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !thread.has_ended() => {
                Err(InspectError::NotPermitted {
                    what: format!("looking at thread {}", thread.tid),
                    needs: "CAP_SYS_PTRACE, or the same user with kernel.yama.ptrace_scope = 0; a debugger may have it already",
                })
            }
            Err(_) => {
                self.profile.missed += 1;
                Ok(())
            }
        };
        self.copy = copy;
        result
    }

    fn unwind(&mut self, target: &mut Target, registers: &Registers, copy: &[u8]) -> Vec<Frame> {
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(registers.stack).ok_or(())?).map_err(|_| ())?;
            let word = copy.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_ne_bytes(word.try_into().map_err(|_| ())?))
        };
        #[cfg(target_arch = "x86_64")]
        let start = UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame);
        #[cfg(target_arch = "aarch64")]
        let start = UnwindRegsNative::new(registers.link, registers.stack, registers.frame);
        let mut frames = Vec::new();
        let (mut instruction, mut start) = (registers.instruction, start);
        loop {
            let mut iter = target.unwinder.iter_frames(instruction, start, &mut self.cache, &mut read);
            // An error is where the stack could not be followed further; without a frame pointer its end may be none either.
            while let Ok(Some(frame)) = iter.next() {
                frames.push(frame.address_for_lookup());
                if frames.len() >= FRAMES {
                    break;
                }
            }
            let caller = frames.last().filter(|_| frames.len() < FRAMES && registers.frame == 0);
            let Some(caller) = caller.and_then(|at| caller_of(target, *at, registers.stack, copy)) else { break };
            // Each new beginning lies above the last one on a finite stack.
            if caller.stack <= start_of(&start) {
                break;
            }
            instruction = caller.instruction;
            #[cfg(target_arch = "x86_64")]
            {
                start = UnwindRegsNative::new(caller.instruction, caller.stack, caller.frame);
            }
        }
        frames.iter().map(|address| self.frame(target, *address)).collect()
    }

    fn frame(&mut self, target: &mut Target, address: u64) -> Frame {
        if let Some(frame) = target.frames.get(&address) {
            return *frame;
        }
        let frame = self.frame_at(target, address);
        target.frames.insert(address, frame);
        frame
    }

    fn frame_at(&mut self, target: &Target, address: u64) -> Frame {
        let index = target.mappings.partition_point(|mapping| mapping.end <= address);
        let mapping = target.mappings.get(index).filter(|mapping| mapping.start <= address && mapping.inode != 0);
        let Some(mapping) = mapping else {
            return Frame { file: None, at: address };
        };
        let file = file_of(target.pid, mapping);
        // Servers of many processes run one program: a handful of files.
        let known = self.profile.files.iter().position(|known| same_file(known, &file));
        let file = known.unwrap_or_else(|| {
            self.profile.files.push(file);
            self.profile.files.len() - 1
        });
        Frame { file: Some(file), at: address - mapping.start + mapping.offset }
    }
}

/// The file of a mapping as this process can open it: in a container it is below the process's own root.
fn file_of(pid: u32, mapping: &Mapping) -> PathBuf {
    let name = mapping.name.trim_end_matches(" (deleted)");
    PathBuf::from(format!("/proc/{pid}/root{name}"))
}

/// Whether two paths below `/proc/PID/root` are the same file for two processes of one server.
fn same_file(one: &std::path::Path, other: &std::path::Path) -> bool {
    let below_root = |path: &std::path::Path| path.components().skip(4).collect::<PathBuf>();
    one == other || below_root(one) == below_root(other)
}

fn start_of(registers: &UnwindRegsNative) -> u64 {
    registers.sp()
}

/// Who called the function that `at` lies in, if that function keeps its frame by a frame pointer that nobody told us: the
/// first place on the stack with a return address behind a call of just that function. On x86-64 a direct call is E8 and the
/// distance to its target (Intel SDM, volume 2, CALL); indirect ones don't say whom they call, so they are not believed.
#[cfg(target_arch = "x86_64")]
fn caller_of(target: &mut Target, at: u64, pointer: u64, copy: &[u8]) -> Option<Registers> {
    /// Larger functions are rare; a call to something further away is of another function.
    const FUNCTION_BYTES: u64 = 16 << 10;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    for (index, pair) in copy.windows(16).step_by(8).enumerate() {
        let (frame, back) = (word(&pair[..8]), word(&pair[8..]));
        // Code does not change: whether a call ends at an address is asked once.
        let called = match target.calls.get(&back) {
            Some(known) => *known,
            None if is_code(target, back) => {
                let called = called_before(target.pid, back);
                target.calls.insert(back, called);
                called
            }
            None => None,
        };
        if called.is_some_and(|called| called <= at && at - called < FUNCTION_BYTES) {
            let stack = pointer + (index as u64 + 2) * 8;
            return Some(Registers { instruction: back, stack, frame, link: 0 });
        }
    }
    None
}

#[cfg(target_arch = "x86_64")]
fn is_code(target: &Target, address: u64) -> bool {
    let index = target.mappings.partition_point(|mapping| mapping.end <= address);
    target.mappings.get(index).is_some_and(|mapping| mapping.start <= address && mapping.executable)
}

/// What is called by the instruction that ends at an address, if it is a direct call.
#[cfg(target_arch = "x86_64")]
fn called_before(pid: u32, back: u64) -> Option<u64> {
    let mut call = [0u8; 5];
    if foreign::read_memory(pid, back.checked_sub(5)?, &mut call).ok() != Some(5) || call[0] != 0xe8 {
        return None;
    }
    let distance = i32::from_le_bytes([call[1], call[2], call[3], call[4]]);
    Some(back.wrapping_add_signed(i64::from(distance)))
}

/// Frame pointers are the rule on Arm, and the kernel's omission is not mended there.
#[cfg(not(target_arch = "x86_64"))]
fn caller_of(_target: &mut Target, _at: u64, _pointer: u64, _copy: &[u8]) -> Option<Registers> {
    None
}

/// Copies the thread's stack from its pointer up; returns how many bytes. A system call's red zone below it is nobody's.
fn copy_stack(pid: u32, mappings: &[Mapping], pointer: u64, copy: &mut [u8]) -> usize {
    let index = mappings.partition_point(|mapping| mapping.end <= pointer);
    // A stack that was mapped since we looked is copied as far as it goes.
    let end = mappings.get(index).filter(|m| m.start <= pointer).map_or(u64::MAX, |m| m.end);
    let bytes = (end - pointer).min(copy.len() as u64) as usize;
    foreign::read_memory(pid, pointer, &mut copy[..bytes]).unwrap_or(0)
}

/// Lets this thread go before others while it lives, where that is permitted (CAP_SYS_NICE): somebody is stopped while it works, and
/// it works for a few per cent of the time.
struct Urgent {
    before: Option<i32>,
}

impl Urgent {
    const NICE: i32 = -20;

    fn new() -> Urgent {
        let before = rustix::process::getpriority_process(Some(rustix::thread::gettid())).ok();
        let raised = rustix::process::setpriority_process(Some(rustix::thread::gettid()), Urgent::NICE);
        Urgent { before: before.filter(|_| raised.is_ok()) }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // What could be raised can be lowered.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), before);
        }
    }
}

/// CPU time of this thread, in its own code and in the kernel.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_forked_processes_are_the_same() {
        let path = PathBuf::from;
        assert!(same_file(&path("/proc/1/root/usr/bin/postgres"), &path("/proc/2/root/usr/bin/postgres")));
        assert!(!same_file(&path("/proc/1/root/usr/bin/postgres"), &path("/proc/1/root/usr/bin/psql")));
    }
}

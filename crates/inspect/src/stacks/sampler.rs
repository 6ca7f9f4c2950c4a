//! What does each thread do at this moment? One sample is one stack of every thread.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder, UnwinderNative};
use homenode_memory::foreign::{self, Registers};

use super::module::Files;
use crate::InspectError;
use crate::place::{Server, mappings_of};
use crate::proc::{Mapping, explain, path};

/// More of a stack is not copied: a deeper one ends in `...`.
const STACK_BYTES: u64 = 64 << 10;

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
    /// Threads that were seen.
    pub threads: usize,
}

impl Profile {
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
    /// For each thread that waited: where it waited, and its stack.
    last: HashMap<u32, (u64, u64, Vec<Frame>)>,
}

/// Samples a server's threads.
pub struct Sampler {
    targets: Vec<Target>,
    files: Files,
    cache: CacheNative<MayAllocateDuringUnwind>,
    profile: Profile,
    seen: std::collections::HashSet<u32>,
}

impl Sampler {
    /// Reads the programs' unwind tables.
    ///
    /// # Errors
    /// [`InspectError::NotPermitted`], [`InspectError::Vanished`] if no process is left.
    pub fn new(server: &Server) -> Result<Sampler, InspectError> {
        let mut sampler = Sampler {
            targets: Vec::new(),
            files: Files::default(),
            cache: CacheNative::new_in(),
            profile: Profile::default(),
            seen: std::collections::HashSet::new(),
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
        Ok(Target { pid, mappings, unwinder, last: HashMap::new() })
    }

    /// Samples for a while, `rate` times a second.
    ///
    /// # Errors
    /// [`InspectError::NotPermitted`] if threads may not be looked at.
    pub fn run(mut self, duration: Duration, rate: u32) -> Result<Profile, InspectError> {
        let begun = Instant::now();
        let period = Duration::from_secs(1) / rate.max(1);
        while begun.elapsed() < duration && !self.targets.is_empty() {
            let next = Instant::now() + period;
            self.round()?;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        self.profile.seconds = begun.elapsed().as_secs_f64();
        self.profile.threads = self.seen.len();
        Ok(self.profile)
    }

    fn round(&mut self) -> Result<(), InspectError> {
        self.profile.rounds += 1;
        let mut targets = std::mem::take(&mut self.targets);
        let mut failed = None;
        targets.retain_mut(|target| match self.process(target) {
            Ok(()) => true,
            Err(InspectError::Vanished(_)) => false,
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        self.targets = targets;
        failed.map_or(Ok(()), Err)
    }

    fn process(&mut self, target: &mut Target) -> Result<(), InspectError> {
        let folder = path(target.pid, "task");
        let entries = fs::read_dir(&folder).map_err(|error| explain(target.pid, &folder, error))?;
        for tid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
            self.seen.insert(tid);
            if is_ready(target.pid, tid) {
                self.running(target, tid)?;
                continue;
            }
            let file = path(target.pid, &format!("task/{tid}/syscall"));
            match fs::read_to_string(&file) {
                Ok(text) => match waiting_at(&text) {
                    Some((stack, instruction)) => self.waiting(target, tid, stack, instruction),
                    // It has begun or ceased to run just now. Only threads that run are stopped, so this one is let be.
                    None => self.profile.missed += 1,
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => match explain(target.pid, &file, error) {
                    InspectError::Vanished(_) => {}
                    other => return Err(other),
                },
            }
        }
        Ok(())
    }

    /// A thread that waits keeps its stack: what was unwound a moment ago still holds if it is at the same place.
    fn waiting(&mut self, target: &mut Target, tid: u32, stack: u64, instruction: u64) {
        let same = target.last.get(&tid).filter(|(s, i, _)| (*s, *i) == (stack, instruction));
        let frames = match same {
            Some((_, _, frames)) => frames.clone(),
            None => {
                // The kernel doesn't tell the frame pointer; code that needs it saved an older one further up.
                let registers = Registers { instruction, stack, frame: 0, link: 0 };
                let copy = copy_stack(target, stack);
                let frames = self.unwind(target, &registers, &copy);
                target.last.insert(tid, (stack, instruction, frames.clone()));
                frames
            }
        };
        if frames.is_empty() {
            self.profile.missed += 1;
        } else {
            *self.profile.waiting.entry(frames).or_default() += 1;
        }
    }

    fn running(&mut self, target: &mut Target, tid: u32) -> Result<(), InspectError> {
        target.last.remove(&tid);
        let looked = foreign::look_at_thread(tid, |registers| {
            let begun = Instant::now();
            let copy = copy_stack(target, registers.stack);
            (*registers, copy, begun)
        });
        match looked {
            Ok((registers, copy, begun)) => {
                self.profile.stopped_seconds += begun.elapsed().as_secs_f64();
                let frames = self.unwind(target, &registers, &copy);
                *self.profile.running.entry(frames).or_default() += 1;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(InspectError::NotPermitted {
                what: format!("looking at thread {tid}"),
                needs: "CAP_SYS_PTRACE, or the same user with kernel.yama.ptrace_scope = 0; a debugger may have it already",
            }),
            Err(_) => {
                self.profile.missed += 1;
                Ok(())
            }
        }
    }

    fn unwind(&mut self, target: &Target, registers: &Registers, copy: &[u8]) -> Vec<Frame> {
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

    fn frame(&mut self, target: &Target, address: u64) -> Frame {
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

/// Whether a thread runs, or is ready to (field 3 of proc_pid_stat(5)).
fn is_ready(pid: u32, tid: u32) -> bool {
    let stat = fs::read_to_string(path(pid, &format!("task/{tid}/stat"))).unwrap_or_default();
    stat.rfind(')').is_some_and(|end| stat[end + 1..].trim_start().starts_with('R'))
}

/// Stack and instruction pointer of a thread that waits; `None` if it runs. The file says `running`, or a system call's number
/// (-1: in the kernel without one, as for a page fault) with its arguments, and last the two pointers.
fn waiting_at(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace().rev();
    let mut pointer = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (instruction, stack) = (pointer()?, pointer()?);
    Some((stack, instruction))
}

fn start_of(registers: &UnwindRegsNative) -> u64 {
    registers.sp()
}

/// Who called the function that `at` lies in, if that function keeps its frame by a frame pointer that nobody told us: the
/// first place on the stack with a return address behind a call of just that function. On x86-64 a direct call is E8 and the
/// distance to its target (Intel SDM, volume 2, CALL); indirect ones don't say whom they call, so they are not believed.
#[cfg(target_arch = "x86_64")]
fn caller_of(target: &Target, at: u64, pointer: u64, copy: &[u8]) -> Option<Registers> {
    /// Larger functions are rare; a call to something further away is of another function.
    const FUNCTION_BYTES: u64 = 16 << 10;
    let words: Vec<u64> = copy.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default())).collect();
    let code = |address: u64| {
        let index = target.mappings.partition_point(|mapping| mapping.end <= address);
        target.mappings.get(index).is_some_and(|mapping| mapping.start <= address && mapping.executable)
    };
    for (index, pair) in words.windows(2).enumerate() {
        let (frame, back) = (pair[0], pair[1]);
        // A saved frame pointer points further up the same stack, or is a plain value of the caller's.
        if !code(back) || back < 5 {
            continue;
        }
        let mut call = [0u8; 5];
        if foreign::read_memory(target.pid, back - 5, &mut call).ok() != Some(5) || call[0] != 0xe8 {
            continue;
        }
        let distance = i32::from_le_bytes([call[1], call[2], call[3], call[4]]);
        let called = back.wrapping_add_signed(i64::from(distance));
        if called <= at && at - called < FUNCTION_BYTES {
            let stack = pointer + (index as u64 + 2) * 8;
            return Some(Registers { instruction: back, stack, frame, link: 0 });
        }
    }
    None
}

/// Frame pointers are the rule on Arm, and the kernel's omission is not mended there.
#[cfg(not(target_arch = "x86_64"))]
fn caller_of(_target: &Target, _at: u64, _pointer: u64, _copy: &[u8]) -> Option<Registers> {
    None
}

/// The thread's stack from its pointer up. A system call's red zone below it is nobody's.
fn copy_stack(target: &Target, pointer: u64) -> Vec<u8> {
    let index = target.mappings.partition_point(|mapping| mapping.end <= pointer);
    // A stack that was mapped since we looked is copied as far as it goes.
    let end = target
        .mappings
        .get(index)
        .filter(|m| m.start <= pointer)
        .map_or(pointer.saturating_add(STACK_BYTES), |m| m.end);
    let mut copy = vec![0u8; (end - pointer).min(STACK_BYTES) as usize];
    let read = foreign::read_memory(target.pid, pointer, &mut copy).unwrap_or(0);
    copy.truncate(read);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_are_told_from_running_ones() {
        assert_eq!(waiting_at("running\n"), None);
        let text = "202 0x55d0 0x80 0x0 0x0 0x0 0x0 0x7ffc12345678 0x7f0012345678\n";
        assert_eq!(waiting_at(text), Some((0x7ffc_1234_5678, 0x7f00_1234_5678)));
        assert_eq!(waiting_at("-1 0x7ffc 0x7f00"), Some((0x7ffc, 0x7f00)));
        assert_eq!(waiting_at(""), None);
        assert_eq!(waiting_at("0x zz"), None);
    }

    #[test]
    fn files_of_forked_processes_are_the_same() {
        let path = PathBuf::from;
        assert!(same_file(&path("/proc/1/root/usr/bin/postgres"), &path("/proc/2/root/usr/bin/postgres")));
        assert!(!same_file(&path("/proc/1/root/usr/bin/postgres"), &path("/proc/1/root/usr/bin/psql")));
    }
}

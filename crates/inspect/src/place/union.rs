//! On which node is each page of an object that many processes map? Page by page, each counted once.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use homenode_memory::foreign::{self, SharedWindow};

use crate::InspectError;
use crate::proc::{Pagemap, path};

/// Small pages that are looked at together: 64 MiB, so that an object of any size takes little memory to look at.
const WINDOW_PAGES: usize = 16_384;

/// Threads that count one object at most.
const THREADS: usize = 8;

/// One process's mapping of (a part of) the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Whose mapping.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// Where in the object it begins, in bytes.
    pub offset: u64,
    /// Bytes that the process has in its tables.
    pub present_bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Union {
    /// Bytes on each node.
    pub by_node: BTreeMap<usize, u64>,
    /// Bytes of these that no process has in its tables: touched by one that has ended, for instance.
    pub in_no_process: u64,
    /// Whether pages that no process has in its tables could be looked for.
    pub complete: bool,
    /// Bytes about which the kernel answered with an error number.
    pub unknown: u64,
}

/// Hears of every page: its offset in the object in bytes, and its node.
pub type Pages<'a> = &'a mut dyn FnMut(u64, usize);

/// Counts the pages of an object. `look_inside`: also look for pages that nobody has in his tables, by mapping the object here
/// (only for memory without a file behind it; needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, otherwise it is left out).
///
/// # Errors
/// [`InspectError::NotPermitted`] if no process's tables may be read. Processes that end meanwhile are left out.
pub fn unite(instances: &[Instance], look_inside: bool, pages: Pages<'_>) -> Result<Union, InspectError> {
    let (object, instances) = prepared(instances, look_inside);
    let object = object.as_ref();
    let range = range_of(&instances);
    let left = left_of(&instances);
    Part { instances: &instances, object, left: &left }.unite(range, pages)
}

/// As [`unite`], for who wants the sums alone: large objects are counted by several threads, because the kernel is asked about each page.
///
/// # Errors
/// As [`unite`].
pub fn unite_sums(instances: &[Instance], look_inside: bool) -> Result<Union, InspectError> {
    let (object, instances) = prepared(instances, look_inside);
    let object = object.as_ref();
    let left = left_of(&instances);
    let range = range_of(&instances);
    let window_bytes = (WINDOW_PAGES * foreign::small_page_bytes()) as u64;
    let windows = (range.end - range.start).div_ceil(window_bytes);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS) as u64;
    let step = windows.div_ceil(threads).max(1) * window_bytes;
    let starts = (0..threads).map(|thread| range.start + thread * step).take_while(|start| *start < range.end);
    let parts: Vec<Result<Union, InspectError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = starts
            .map(|start| {
                let (part, end) = (Part { instances: &instances, object, left: &left }, range.end.min(start + step));
                scope.spawn(move || part.unite(start..end, &mut |_, _| {}))
            })
            .collect();
        let failed = || Err(InspectError::Refused("a counting thread failed".to_owned()));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| failed())).collect()
    });
    let mut sum = Union { complete: object.is_some(), ..Union::default() };
    for part in parts {
        let part = part?;
        part.by_node.iter().for_each(|(node, bytes)| *sum.by_node.entry(*node).or_default() += bytes);
        sum.in_no_process += part.in_no_process;
        sum.unknown += part.unknown;
    }
    Ok(sum)
}

/// The object, if it is to be looked into, and the mappings, those that have most first: they answer for most, the others are only asked
/// about the rest.
fn prepared(instances: &[Instance], look_inside: bool) -> (Option<(File, u64)>, Vec<Instance>) {
    let mut instances: Vec<Instance> = instances.to_vec();
    instances.sort_by_key(|instance| std::cmp::Reverse(instance.present_bytes));
    (if look_inside { instances.iter().find_map(open_object) } else { None }, instances)
}

/// The stretch of the object that any of the mappings shows.
fn range_of(instances: &[Instance]) -> Range<u64> {
    let end = instances.iter().map(|i| i.offset + (i.end - i.start)).max().unwrap_or(0);
    instances.iter().map(|i| i.offset).min().unwrap_or(0)..end
}

/// A mapping that has shown all that its process has in it needs no further look.
fn left_of(instances: &[Instance]) -> Vec<AtomicU64> {
    instances.iter().map(|instance| AtomicU64::new(instance.present_bytes)).collect()
}

/// What one thread needs to count a stretch of an object.
struct Part<'a> {
    instances: &'a [Instance],
    object: Option<&'a (File, u64)>,
    /// Bytes that each mapping has and that have not been seen yet, by any thread.
    left: &'a [AtomicU64],
}

impl Part<'_> {
    fn unite(&self, range: Range<u64>, pages: Pages<'_>) -> Result<Union, InspectError> {
        let page = foreign::small_page_bytes() as u64;
        let mut union = Union { complete: self.object.is_some(), ..Union::default() };
        let mut maps: BTreeMap<u32, Pagemap> = BTreeMap::new();
        let mut window = Window { offset: range.start, statuses: Vec::new(), page };
        while window.offset < range.end {
            // Large objects are mostly holes: those are passed over, where the object tells them.
            if let Some((file, _)) = self.object {
                match foreign::next_data(file, window.offset) {
                    Ok(Some(data)) => window.offset = window.offset.max(data & !(page - 1)),
                    Ok(None) => break,
                    Err(_) => {}
                }
            } else if self.left.iter().all(|bytes| bytes.load(Relaxed) == 0) {
                break;
            }
            if window.offset >= range.end {
                break;
            }
            let count = ((range.end - window.offset) / page).min(WINDOW_PAGES as u64) as usize;
            window.statuses.clear();
            window.statuses.resize(count, foreign::STATUS_UNASKED);
            for (instance, left) in self.instances.iter().zip(self.left) {
                if left.load(Relaxed) == 0 {
                    continue;
                }
                if window.is_known() {
                    break;
                }
                let seen = window.ask_process(instance, &mut maps)? * page;
                let _ = left.fetch_update(Relaxed, Relaxed, |bytes| Some(bytes.saturating_sub(seen)));
            }
            if let Some((file, size)) = self.object {
                union.in_no_process += window.look_inside(file, *size);
            }
            window.count(&mut union, pages);
            window.offset += (count.max(1) as u64) * page;
        }
        Ok(union)
    }
}

/// Opens the object itself through a process's mapping of it; `None` if that is not permitted. With its size.
fn open_object(instance: &Instance) -> Option<(File, u64)> {
    let link: PathBuf = path(instance.pid, &format!("map_files/{:x}-{:x}", instance.start, instance.end));
    let file = File::open(link).ok()?;
    // An object may end within its last page (System V segments do).
    let size = file.metadata().ok()?.len().checked_next_multiple_of(foreign::small_page_bytes() as u64)?;
    Some((file, size))
}

/// A stretch of the object, with what is known of its pages so far.
struct Window {
    offset: u64,
    statuses: Vec<i32>,
    page: u64,
}

impl Window {
    fn count(&self, union: &mut Union, pages: Pages<'_>) {
        for (index, status) in self.statuses.iter().enumerate() {
            match usize::try_from(*status) {
                Ok(node) => {
                    *union.by_node.entry(node).or_default() += self.page;
                    pages(self.offset + index as u64 * self.page, node);
                }
                Err(_) if matches!(*status, foreign::STATUS_ABSENT | foreign::STATUS_UNASKED) => {}
                Err(_) => union.unknown += self.page,
            }
        }
    }

    fn is_known(&self) -> bool {
        self.statuses.iter().all(|status| *status >= 0)
    }

    /// Asks a process about those pages that are not known yet and that it has in its tables; returns how many it has.
    fn ask_process(&mut self, instance: &Instance, maps: &mut BTreeMap<u32, Pagemap>) -> Result<u64, InspectError> {
        let length = self.statuses.len() as u64 * self.page;
        let from = instance.offset.max(self.offset);
        let to = (instance.offset + (instance.end - instance.start)).min(self.offset + length);
        if from >= to {
            return Ok(0);
        }
        let address = instance.start + (from - instance.offset);
        let pagemap = match maps.entry(instance.pid) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => match Pagemap::open(instance.pid, self.page) {
                Ok(pagemap) => entry.insert(pagemap),
                Err(InspectError::Vanished(_)) => return Ok(0),
                Err(error) => return Err(error),
            },
        };
        let first = ((from - self.offset) / self.page) as usize;
        let entries = match pagemap.read(address, ((to - from) / self.page) as usize) {
            Ok(entries) => entries,
            Err(InspectError::Vanished(_)) => return Ok(0),
            Err(error) => return Err(error),
        };
        let present = entries.enumerate().filter(|(_, entry)| entry.is_present()).map(|(index, _)| index);
        let mut has = 0;
        let present = present.inspect(|_| has += 1);
        let wanted: Vec<usize> = present.filter(|index| self.statuses[first + index] < 0).collect();
        let addresses: Vec<usize> = wanted.iter().map(|index| address as usize + index * self.page as usize).collect();
        let answers = match foreign::page_statuses(instance.pid, &addresses) {
            Ok(answers) => answers,
            Err(homenode_memory::Refusal::Other(_)) => return Ok(has),
            Err(_) => {
                return Err(InspectError::NotPermitted {
                    what: format!("asking for the nodes of process {}'s pages (move_pages)", instance.pid),
                    needs: "run as the same user or as root; in a container its filter must allow the call",
                });
            }
        };
        for (index, status) in wanted.iter().zip(answers) {
            self.statuses[first + index] = status;
        }
        Ok(has)
    }

    /// Asks about pages that the object has, and that no process has in its tables; returns their bytes.
    fn look_inside(&mut self, file: &File, size: u64) -> u64 {
        let length = (self.statuses.len() as u64 * self.page).min(size.saturating_sub(self.offset)) as usize;
        if length == 0 || self.is_known() {
            return 0;
        }
        let Ok(window) = SharedWindow::map(file, self.offset, length) else {
            return 0;
        };
        let Ok(present) = window.present() else {
            return 0;
        };
        let page = self.page as usize;
        let wanted: Vec<usize> = (0..present.len()).filter(|i| present[*i] && self.statuses[*i] < 0).collect();
        let entered = wanted.chunk_by(|a, b| a + 1 == *b).all(|run| {
            let range = run[0] * page..(run[run.len() - 1] + 1) * page;
            window.enter(range).is_ok()
        });
        if !entered {
            return 0;
        }
        let addresses: Vec<usize> = wanted.iter().map(|index| window.address(index * page)).collect();
        let Ok(answers) = foreign::page_statuses(0, &addresses) else {
            return 0;
        };
        let mut found = 0;
        for (index, status) in wanted.iter().zip(answers) {
            self.statuses[*index] = status;
            found += if status >= 0 { self.page } else { 0 };
        }
        found
    }
}

//! Which memory is to be spread, and how is each page of it reached?

use std::collections::BTreeMap;
use std::fs::{self, File};

use homenode_memory::Refusal;
use homenode_memory::foreign::{self, SharedWindow};

use super::journal::PieceId;
use crate::InspectError;
use crate::place::{Census, Instance, Kind, Server, mappings_of, shared_memory};
use crate::proc::{FrameFlags, Mapping, Marks, Pagemap, marks, path};
use crate::text::size;

/// Bytes of a piece that are looked at together.
const WINDOW_BYTES: u64 = 64 << 20;

/// A huge page that the kernel made by itself moves as one.
const HUGE_BYTES: u64 = 2 << 20;

/// Memory that is spread as one: a shared object, or a private mapping.
#[derive(Debug)]
pub struct Piece {
    /// For the journal.
    pub id: PieceId,
    /// For people.
    pub name: String,
    /// The policy that later pages come by, as the kernel writes it.
    pub policy: String,
    /// Bytes of a page, small or reserved huge.
    pub unit: u64,
    /// Whether the kernel may have joined pages to huge ones in it: those move as one.
    pub has_huge_blocks: bool,
    /// Who maps it.
    instances: Vec<Instance>,
    /// The object itself, to reach pages that are in nobody's tables and to set its policy; with its size.
    object: Option<(File, u64)>,
}

/// One unit of a piece that is present.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Its number in the piece.
    pub number: u64,
    /// Through whose tables it is reached (0: this process), and where.
    pub pid: u32,
    /// The address there.
    pub address: usize,
    /// The node it is on.
    pub node: usize,
    /// Whether it may be part of a huge page that the kernel made by itself, and then moves with the block of 2 MiB that it lies in.
    pub is_joined: bool,
}

/// Units of a stretch of a piece, valid while this lives.
#[derive(Debug)]
pub struct Looked {
    _window: Option<SharedWindow>,
    /// Ascending.
    pub units: Vec<Unit>,
}

impl Piece {
    /// The pieces of a server worth spreading: shared memory, and private mappings of at least `private_min` bytes.
    ///
    /// # Errors
    /// As the census; processes that end meanwhile are left out.
    pub fn of(server: &Server, private_min: u64) -> Result<Vec<Piece>, InspectError> {
        let mut shared: BTreeMap<(u32, u32, u64), Piece> = BTreeMap::new();
        let mut private = Vec::new();
        // smaps does not show huge pages that automatic balancing has marked, so the setting decides for private memory.
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let may_join = !setting.contains("[never]") && !setting.is_empty();
        for process in &server.processes {
            let mappings = match mappings_of(process.pid) {
                Ok(mappings) => mappings,
                Err(InspectError::Vanished(_)) => continue,
                Err(error) => return Err(error),
            };
            let wanted = |mapping: &&Mapping| {
                let (is_shared, _) = shared_memory(mapping);
                is_shared || is_private_memory(mapping) && mapping.bytes() >= private_min
            };
            let is_new = |m: &Mapping| !m.shared || !shared.contains_key(&(m.device.0, m.device.1, m.inode));
            // The kernel walks all tables for this file: not for a hundred processes that share one memory.
            let ask = mappings.iter().filter(wanted).any(is_new);
            let marks = if ask { marks(process.pid).unwrap_or_default() } else { Marks::default() };
            for mapping in &mappings {
                let has_huge_blocks = marks.joined.contains(&mapping.start);
                let reserved = marks.reserved.get(&mapping.start).copied();
                if shared_memory(mapping).0 {
                    let key = (mapping.device.0, mapping.device.1, mapping.inode);
                    let piece = shared.entry(key).or_insert_with(|| Piece::shared(process.pid, mapping, reserved));
                    piece.has_huge_blocks |= has_huge_blocks;
                    piece.instances.push(instance(process.pid, mapping));
                } else if is_private_memory(mapping) && mapping.bytes() >= private_min {
                    let is_pool = marks.undumped.contains(&mapping.start);
                    private.push((!is_pool, Piece::private(process.pid, mapping, reserved, may_join)));
                }
            }
        }
        // Each piece evens out what those before it could not. A pool, which is kept out of core dumps, comes first: even by itself.
        private.sort_by_key(|(is_other, _)| *is_other);
        Ok(shared.into_values().chain(private.into_iter().map(|(_, piece)| piece)).collect())
    }

    /// `reserved` is the size of its pages if they are reserved huge ones. A System V segment's name doesn't tell that.
    fn shared(pid: u32, mapping: &Mapping, reserved: Option<u64>) -> Piece {
        let reserved = reserved.or_else(|| shared_memory(mapping).1.then_some(HUGE_BYTES));
        let link = path(pid, &format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
        // An object may end within its last page (System V segments do).
        let page = foreign::small_page_bytes() as u64;
        let size = |file: &File| file.metadata().ok()?.len().checked_next_multiple_of(page);
        let object = File::open(link).ok().and_then(|file| size(&file).map(|size| (file, size)));
        let (major, minor) = mapping.device;
        Piece {
            id: PieceId::Shared(major, minor, mapping.inode),
            name: mapping.name.trim_end_matches(" (deleted)").to_owned(),
            policy: "default".to_owned(),
            unit: reserved.unwrap_or(foreign::small_page_bytes() as u64),
            has_huge_blocks: false,
            instances: Vec::new(),
            // Of reserved huge pages neither presence nor policy can be had from the object.
            object: object.filter(|_| reserved.is_none()),
        }
    }

    fn private(pid: u32, mapping: &Mapping, reserved: Option<u64>, may_join: bool) -> Piece {
        Piece {
            id: PieceId::Private(pid, mapping.start),
            name: format!("private memory of process {pid} ({})", size(mapping.bytes())),
            policy: "default".to_owned(),
            unit: reserved.unwrap_or(foreign::small_page_bytes() as u64),
            has_huge_blocks: may_join && reserved.is_none(),
            instances: vec![Instance { offset: 0, ..instance(pid, mapping) }],
            object: None,
        }
    }

    /// A private piece that is nobody's.
    #[cfg(test)]
    pub(super) fn for_test(start: u64, unit: u64, has_huge_blocks: bool) -> Piece {
        let instance = Instance { pid: 1, start, end: start + (1 << 30), offset: 0, present_bytes: 1 };
        let id = PieceId::Private(1, start);
        let (name, policy) = ("memory".to_owned(), "default".to_owned());
        Piece { id, name, policy, unit, has_huge_blocks, instances: vec![instance], object: None }
    }

    /// Takes names and policies over from a census of the same server.
    pub fn describe(&mut self, census: &Census) {
        let first = self.instances.first().map(|instance| (instance.pid, instance.start));
        let mut known = census.objects.iter().filter(|object| object.kind == Kind::SharedMemory);
        let same = known.find(|object| object.instances.iter().any(|i| Some((i.pid, i.start)) == first));
        if let Some(object) = same {
            self.name.clone_from(&object.name);
            if let Some(policy) = object.policies.first() {
                self.policy.clone_from(policy);
            }
        }
    }

    /// Which block of 2 MiB a unit lies in: a page that the kernel made huge is one of these.
    pub fn block(&self, unit: &Unit) -> u64 {
        match self.id {
            PieceId::Shared(..) => unit.number * self.unit / HUGE_BYTES,
            PieceId::Private(..) => unit.address as u64 / HUGE_BYTES,
        }
    }

    /// Stretches of the piece, in units: first unit and number of units.
    pub fn windows(&self) -> Vec<(u64, u64)> {
        let begin = self.instances.iter().map(|instance| instance.offset).min().unwrap_or(0) / self.unit;
        let end = self.instances.iter().map(|i| i.offset + (i.end - i.start)).max().unwrap_or(0).div_ceil(self.unit);
        let step = (WINDOW_BYTES / self.unit).max(1);
        (begin..end).step_by(step as usize).map(|first| (first, step.min(end - first))).collect()
    }

    /// Where the units of a stretch are. Makes no page present.
    ///
    /// # Errors
    /// [`InspectError::NotPermitted`], [`InspectError::Io`].
    pub fn look(&self, first: u64, count: u64) -> Result<Looked, InspectError> {
        if let Some(looked) = self.look_at_object(first, count) {
            return Ok(looked);
        }
        let mut units: BTreeMap<u64, Unit> = BTreeMap::new();
        for instance in &self.instances {
            if units.len() as u64 == count {
                break;
            }
            self.look_through(instance, first, count, &mut units)?;
        }
        Ok(Looked { _window: None, units: units.into_values().collect() })
    }

    /// Through the object itself: also pages that are in nobody's tables.
    fn look_at_object(&self, first: u64, count: u64) -> Option<Looked> {
        let (file, size) = self.object.as_ref()?;
        let offset = first * self.unit;
        let length = (count * self.unit).min(size.saturating_sub(offset));
        if length == 0 {
            return Some(Looked { _window: None, units: Vec::new() });
        }
        let window = SharedWindow::map(file, offset, length as usize).ok()?;
        let page = foreign::small_page_bytes();
        let present = window.present().ok()?;
        let wanted: Vec<usize> = (0..present.len()).filter(|index| present[*index]).collect();
        for run in wanted.chunk_by(|a, b| a + 1 == *b) {
            window.enter(run[0] * page..(run[run.len() - 1] + 1) * page).ok()?;
        }
        // A unit is where its first present page is.
        let mut firsts = wanted;
        firsts.dedup_by_key(|index| *index as u64 * page as u64 / self.unit);
        let addresses: Vec<usize> = firsts.iter().map(|index| window.address(index * page)).collect();
        let statuses = foreign::page_statuses(0, &addresses).ok()?;
        let units = firsts.iter().zip(&addresses).zip(statuses).filter_map(|((index, address), status)| {
            let number = first + *index as u64 * page as u64 / self.unit;
            let node = usize::try_from(status).ok()?;
            Some(Unit { number, pid: 0, address: *address, node, is_joined: self.has_huge_blocks })
        });
        Some(Looked { units: units.collect(), _window: Some(window) })
    }

    /// Through a process's tables: what it has touched.
    fn look_through(
        &self,
        instance: &Instance,
        first: u64,
        count: u64,
        units: &mut BTreeMap<u64, Unit>,
    ) -> Result<(), InspectError> {
        let from = (first * self.unit).max(instance.offset);
        let to = ((first + count) * self.unit).min(instance.offset + (instance.end - instance.start));
        if from >= to {
            return Ok(());
        }
        let page = foreign::small_page_bytes() as u64;
        let start = instance.start + (from - instance.offset);
        let mut present: Vec<Touched> = Vec::new();
        let read = Pagemap::open(instance.pid, page).and_then(|mut pagemap| {
            for (index, entry) in pagemap.read(start, ((to - from) / page) as usize)?.enumerate() {
                let number = (from + index as u64 * page) / self.unit;
                let is_new = present.last().is_none_or(|last| last.number != number) && !units.contains_key(&number);
                if entry.is_present() && is_new {
                    let address = (start + index as u64 * page) as usize;
                    present.push(Touched { number, address, frame: entry.frame() });
                }
            }
            Ok(())
        });
        match read {
            Ok(()) => {}
            Err(InspectError::Vanished(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        let addresses: Vec<usize> = present.iter().map(|touched| touched.address).collect();
        let mut statuses = match foreign::page_statuses(instance.pid, &addresses) {
            Ok(statuses) => statuses,
            Err(Refusal::Other(_)) => return Ok(()),
            Err(refusal) => return Err(not_permitted(refusal)),
        };
        let hidden: Vec<usize> = (0..statuses.len()).filter(|index| is_hidden(statuses[*index])).collect();
        let again: Vec<usize> = hidden.iter().map(|index| addresses[*index]).collect();
        unhide(instance.pid, &again);
        for (index, status) in hidden.iter().zip(foreign::page_statuses(instance.pid, &again).unwrap_or_default()) {
            statuses[*index] = status;
        }
        let joined = self.joined(&present);
        for ((Touched { number, address, .. }, status), is_joined) in present.into_iter().zip(statuses).zip(joined) {
            if let Ok(node) = usize::try_from(status) {
                units.insert(number, Unit { number, pid: instance.pid, address, node, is_joined });
            }
        }
        Ok(())
    }

    /// For each touched page whether it may be part of a huge page. Of private memory the frames tell: smaps doesn't show huge pages that
    /// automatic balancing has marked.
    fn joined(&self, present: &[Touched]) -> Vec<bool> {
        if !self.has_huge_blocks || matches!(self.id, PieceId::Shared(..)) {
            return vec![self.has_huge_blocks; present.len()];
        }
        let flags = FrameFlags::open();
        let same = |a: &Touched, b: &Touched| a.address as u64 / HUGE_BYTES == b.address as u64 / HUGE_BYTES;
        let mut joined = Vec::with_capacity(present.len());
        for block in present.chunk_by(same) {
            let frames: Vec<Option<u64>> = block.iter().map(|touched| touched.frame).collect();
            let is_joined = may_be_joined(&frames, HUGE_BYTES / self.unit, |frame| flags.is_joined(frame));
            joined.resize(joined.len() + block.len(), is_joined);
        }
        joined
    }

    /// Whether the policy for later pages can be set from here.
    pub fn policy_can_be_set(&self) -> bool {
        self.object.is_some()
    }

    /// Sets the policy for later pages of the whole piece, whoever touches them.
    ///
    /// # Errors
    /// [`InspectError::Io`] or [`InspectError::NotPermitted`].
    pub fn set_policy(&self, mode: foreign::PolicyMode, nodes: &[usize]) -> Result<(), InspectError> {
        let Some((file, size)) = &self.object else {
            return Ok(());
        };
        let page = foreign::small_page_bytes() as u64;
        let window = SharedWindow::map(file, 0, size.next_multiple_of(page) as usize)
            .map_err(|error| InspectError::Refused(format!("mapping {}: {error}", self.name)))?;
        window.set_policy(mode, nodes).map_err(not_permitted)
    }
}

/// A page that a process has in its tables.
struct Touched {
    /// The unit that it begins.
    number: u64,
    address: usize,
    /// Its frame, where we may know it.
    frame: Option<u64>,
}

/// Whether the pages of a block of 2 MiB may be one huge page: it is whole, its frames follow each other from a multiple of their number,
/// and the kernel doesn't say that they are single. What may not be known counts as one.
fn may_be_joined(frames: &[Option<u64>], whole: u64, is_joined: impl Fn(u64) -> Option<bool>) -> bool {
    if frames.len() as u64 != whole {
        return false;
    }
    let Some(first) = frames[0] else { return true };
    let follow = frames.iter().zip(first..).all(|(frame, expected)| frame.is_none_or(|frame| frame == expected));
    first % whole == 0 && follow && is_joined(first).unwrap_or(true)
}

/// Whether the kernel denied a page that is present: Linux 6.1 to 6.4 do so while the page is marked by automatic balancing
/// (mm/gup.c, gup_can_follow_protnone), as ENOENT or EFAULT.
pub(super) fn is_hidden(status: i32) -> bool {
    matches!(status, foreign::STATUS_ABSENT | -14)
}

/// Takes that mark off pages, by reading a byte of each from outside: what the owner's next access would do.
pub(super) fn unhide(pid: u32, addresses: &[usize]) {
    let mut byte = [0u8];
    for address in addresses {
        // A page that went away meanwhile needs no mark taken off.
        let _ = foreign::read_memory(pid, *address as u64, &mut byte);
    }
}

/// What the kernel's refusal means for somebody who wants to move pages.
pub(super) fn not_permitted(refusal: Refusal) -> InspectError {
    match refusal {
        Refusal::NotPermitted => InspectError::NotPermitted {
            what: "moving another process's pages (move_pages)".to_owned(),
            needs: "CAP_SYS_NICE is missing; in a container its filter must allow the call too",
        },
        other => InspectError::Refused(format!("moving pages: {other}")),
    }
}

fn is_private_memory(mapping: &Mapping) -> bool {
    let is_nobodys_file = mapping.inode == 0 || shared_memory(mapping).1;
    !mapping.shared && mapping.writable && is_nobodys_file && !mapping.name.starts_with("[v")
}

fn instance(pid: u32, mapping: &Mapping) -> Instance {
    // Which process has how much doesn't matter here: all are asked for what is missing.
    Instance { pid, start: mapping.start, end: mapping.end, offset: mapping.offset, present_bytes: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_row_of_frames_can_be_a_huge_page() {
        let frames = |first: u64| (first..first + 4).map(Some).collect::<Vec<_>>();
        let unknown = |_| None;
        assert!(may_be_joined(&frames(8), 4, unknown));
        assert!(may_be_joined(&frames(8), 4, |frame| Some(frame == 8)));
        assert!(!may_be_joined(&frames(8), 4, |_| Some(false)));
        // Not from a multiple; with a gap; not whole.
        assert!(!may_be_joined(&frames(9), 4, unknown));
        assert!(!may_be_joined(&[Some(8), Some(9), Some(10), Some(12)], 4, unknown));
        assert!(!may_be_joined(&frames(8)[..3], 4, unknown));
        // Frames that we may not see.
        assert!(may_be_joined(&[None; 4], 4, unknown));
    }
}

//! How does memory become present before it is needed? Threads on each node's CPUs fill that node's parts, in pieces that
//! they take from a common list.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::region::Nodes;
use crate::{HUGE_PAGE_BYTES, MemoryError, PageKind, Placement, Policy, Region, sys};

/// What one thread takes at a time: long enough to make taking it free, short enough that threads end together.
const PIECE_BYTES: usize = 32 << 20;

/// Zeroing is bound by a node's memory bandwidth, which about this many cores use up; more would only wait for locks.
const THREADS_PER_NODE_MAX: usize = 16;

/// What pre-faulting did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefault {
    /// Bytes that are present now.
    pub bytes: usize,
    /// Threads that worked; 1 may be the caller itself.
    pub threads: usize,
}

impl Region {
    /// Makes every page of the region present, contents kept. A part bound to a node, or preferring one, is filled by
    /// threads on that node's CPUs (on the nearest ones, if it has none); an interleaved part by threads on all nodes; a
    /// part without policy by threads on the caller's node, as if the caller did it.
    ///
    /// # Errors
    /// [`MemoryError::NodesFull`] if bound memory does not fit on its nodes, [`MemoryError::Populate`] if memory runs out;
    /// what was filled by then stays present.
    pub fn prefault(&self) -> Result<Prefault, MemoryError> {
        self.prefault_part(0..self.len())
    }

    /// As [`Region::prefault`], of a part.
    ///
    /// # Errors
    /// As [`Region::prefault`].
    ///
    /// # Panics
    /// If the range is not inside the region, or its ends are not multiples of 2 MiB.
    pub fn prefault_part(&self, range: Range<usize>) -> Result<Prefault, MemoryError> {
        self.checked(&range);
        self.check_room_of(&range)?;
        let parts = self.parts_within(&range).into_iter();
        let crews = crews(parts.map(|(range, policy, _)| (range, policy)), self.nodes());
        let threads: usize = crews.iter().map(|crew| crew.threads).sum();
        let work = |crew: &Crew| crew.work(|piece| self.fill(piece));
        let outcome = match &crews[..] {
            [crew] if crew.threads == 1 && crew.cpus.is_empty() => work(crew),
            _ => in_threads(&crews, &work),
        };
        outcome.map_err(|source| MemoryError::Populate { source })?;
        Ok(Prefault { bytes: range.len(), threads })
    }

    /// Looks whether the nodes that a part is bound to can give the pages of it that are not present yet.
    ///
    /// # Errors
    /// [`MemoryError::NodesFull`].
    pub fn check_room(&self, range: Range<usize>) -> Result<(), MemoryError> {
        self.checked(&range);
        self.check_room_of(&range)
    }

    /// A bound page that its nodes cannot give is no error that could be handled: the kernel ends a process to make room
    /// (mm/oom_kill.c, CONSTRAINT_MEMORY_POLICY). So the room is looked at before.
    fn check_room_of(&self, range: &Range<usize>) -> Result<(), MemoryError> {
        if self.nodes().uniform || self.pages() == PageKind::Reserved {
            return Ok(());
        }
        for (range, policy, _) in self.parts_within(range) {
            let Policy::Bind(bound) = &policy else { continue };
            let present = self.residency(range.clone()).map_or(0, |residency| residency.present_bytes());
            let bytes = (range.len() as u64).saturating_sub(present);
            let Some(available_bytes) = bound.iter().map(|node| sys::available_bytes(*node)).sum::<Option<u64>>()
            else {
                continue;
            };
            if available_bytes < bytes {
                return Err(MemoryError::NodesFull { bytes, policy, available_bytes });
            }
        }
        Ok(())
    }

    /// The parts of a range with their policies.
    fn parts_within(&self, range: &Range<usize>) -> Vec<(Range<usize>, Policy, Placement)> {
        let inside = |part: Range<usize>| part.start.max(range.start)..part.end.min(range.end);
        let parts = self.placements().into_iter().map(|(part, policy, placement)| (inside(part), policy, placement));
        parts.filter(|(part, ..)| !part.is_empty()).collect()
    }

    fn fill(&self, range: Range<usize>) -> io::Result<()> {
        let (start, bytes) = self.checked(&range);
        match sys::populate(start, bytes) {
            // Before Linux 5.14 the advice is unknown.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                touch(start, bytes);
                Ok(())
            }
            other => other,
        }
    }
}

/// Makes every page of several regions present, all at the same time: regions of different nodes are filled by their own
/// nodes' CPUs.
///
/// # Errors
/// As [`Region::prefault`], of the first region that has one; the others are filled all the same.
pub fn prefault_all(regions: &[&Region]) -> Result<(), MemoryError> {
    // Room on each node is for all its regions together, so it is looked at while none is being filled.
    regions.iter().try_for_each(|region| region.check_room_of(&(0..region.len())))?;
    if let [only] = regions {
        return only.prefault().map(|_| ());
    }
    let filled = std::thread::scope(|scope| {
        let threads: Vec<_> = regions.iter().map(|region| scope.spawn(|| region.prefault())).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    filled.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
}

/// Writes to every page without changing it, also beside other threads that use the memory.
fn touch(start: NonNull<u8>, bytes: usize) {
    for offset in (0..bytes).step_by(sys::page_bytes()) {
        // SAFETY: inside the region; other accesses at the same time are the owner's affair, as with every page of a region
        // that is shared between threads: they have to be atomic.
        let byte = unsafe { AtomicU8::from_ptr(start.add(offset).as_ptr()) };
        // A compare-and-swap of 0 with 0, because an addition of 0 may be compiled to a load, which leaves the page to the
        // kernel's zero page. A byte that isn't 0 was written, so its page is present.
        let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Threads on the same CPUs, and the pieces that they fill.
struct Crew {
    /// Where to run; empty: wherever the caller may.
    cpus: Vec<usize>,
    threads: usize,
    pieces: Vec<Range<usize>>,
    next: AtomicUsize,
}

impl Crew {
    fn new(cpus: Vec<usize>, ranges: impl Iterator<Item = Range<usize>>, threads_max: usize) -> Crew {
        let pieces: Vec<Range<usize>> = ranges.flat_map(pieces_of).collect();
        let threads = pieces.len().min(threads_max).clamp(1, THREADS_PER_NODE_MAX);
        Crew { cpus, threads, pieces, next: AtomicUsize::new(0) }
    }

    fn work(&self, fill: impl Fn(Range<usize>) -> io::Result<()>) -> io::Result<()> {
        while let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            fill(piece.clone())?;
        }
        Ok(())
    }
}

fn pieces_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    const { assert!(PIECE_BYTES.is_multiple_of(HUGE_PAGE_BYTES)) };
    let end = range.end;
    range.step_by(PIECE_BYTES).map(move |start| start..end.min(start + PIECE_BYTES))
}

/// Deals the parts to crews. On a machine with one node that is one crew without pinning; where making present does nothing
/// (outside Linux) it is the caller.
fn crews(parts: impl Iterator<Item = (Range<usize>, Policy)>, nodes: &Nodes) -> Vec<Crew> {
    if nodes.uniform || !sys::HAS_POLICIES {
        let own = nodes.cpus.iter().find(|(node, _)| sys::HAS_POLICIES && *node == nodes.memory[0]);
        let threads_max = own.map_or(1, |(_, cpus)| cpus.len());
        return vec![Crew::new(Vec::new(), parts.map(|(range, _)| range), threads_max)];
    }
    let here = caller_node(nodes);
    let mut ranges: Vec<Vec<Range<usize>>> = vec![Vec::new(); nodes.cpus.len()];
    for (range, policy) in parts {
        let filled_by: Vec<usize> = match policy {
            Policy::Default | Policy::Local => vec![here],
            Policy::Interleave => nodes.interleaved.clone(),
            Policy::WeightedInterleave => nodes.memory.clone(),
            Policy::Bind(bound) => bound,
            Policy::Preferred(node) => vec![node],
        };
        let crew_of = |node: &usize| nodes.cpus.iter().position(|(id, _)| id == node);
        let filled_by: Vec<usize> = filled_by.iter().filter_map(crew_of).collect();
        for (i, piece) in pieces_of(range).enumerate() {
            ranges[filled_by[i % filled_by.len()]].push(piece);
        }
    }
    let crews = ranges.into_iter().zip(&nodes.cpus).filter(|(ranges, _)| !ranges.is_empty());
    crews.map(|(ranges, (_, cpus))| Crew::new(cpus.clone(), ranges.into_iter(), cpus.len())).collect()
}

/// The node of the CPU that the caller is on.
fn caller_node(nodes: &Nodes) -> usize {
    let own = sys::current_cpu().and_then(|cpu| nodes.cpus.iter().find(|(_, cpus)| cpus.contains(&cpu)));
    own.map_or(nodes.memory[0], |(node, _)| *node)
}

fn in_threads(crews: &[Crew], work: &(impl Fn(&Crew) -> io::Result<()> + Sync)) -> io::Result<()> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for crew in crews {
            for _ in 0..crew.threads {
                let body = move || {
                    if !crew.cpus.is_empty() {
                        sys::pin(&crew.cpus);
                    }
                    work(crew)
                };
                let named = std::thread::Builder::new().name("prefault".to_owned());
                threads.push(named.spawn_scoped(scope, body));
            }
        }
        let mut outcome = Ok(());
        for thread in threads {
            let joined =
                thread.and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            outcome = outcome.and(joined);
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HugePages;
    use homenode_topology::{Topology, machines};

    const GIB: usize = 1 << 30;

    fn nodes(machine: &str) -> Nodes {
        Nodes::of(&Topology::from_bundle(machines::text(machine).unwrap()).unwrap())
    }

    /// CPUs and bytes of each crew, after checking that its pieces are whole.
    #[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
    fn dealt(machine: &str, parts: &[(Range<usize>, Policy)]) -> Vec<(Vec<usize>, usize)> {
        let crews = crews(parts.iter().cloned(), &nodes(machine));
        let mut pieces: Vec<Range<usize>> = crews.iter().flat_map(|crew| crew.pieces.clone()).collect();
        pieces.sort_unstable_by_key(|piece| piece.start);
        let total: usize = parts.iter().map(|(range, _)| range.len()).sum();
        assert_eq!(pieces.iter().map(Range::len).sum::<usize>(), total);
        assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(crews.iter().all(|crew| (1..=THREADS_PER_NODE_MAX).contains(&crew.threads)));
        crews.iter().map(|crew| (crew.cpus.clone(), crew.pieces.iter().map(Range::len).sum())).collect()
    }

    #[test]
    #[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
    fn parts_are_filled_by_their_nodes() {
        let parts = [(0..GIB, Policy::Bind(vec![1])), (GIB..3 * GIB, Policy::Preferred(3))];
        let expected = [((32..64).collect(), GIB), ((96..128).collect(), 2 * GIB)];
        assert_eq!(dealt("kunpeng-920", &parts), expected);
        let interleaved = dealt("kunpeng-920", &[(0..GIB, Policy::Interleave)]);
        assert_eq!(interleaved.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [GIB / 4; 4]);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
    fn a_far_node_is_filled_from_the_nearest_cpus() {
        let near: Vec<usize> = (0..24).chain(48..72).collect();
        let interleaved = dealt("sapphire-rapids-2s-cxl", &[(0..GIB, Policy::Interleave)]);
        assert_eq!(interleaved.len(), 2, "the far node takes no part");
        let expected = [(near, GIB)];
        assert_eq!(dealt("sapphire-rapids-2s-cxl", &[(0..GIB, Policy::Bind(vec![2]))]), expected);
    }

    #[test]
    fn one_node_needs_no_pinning() {
        let crews = crews([(0..GIB, Policy::Default)].into_iter(), &nodes("laptop-8"));
        assert_eq!((crews.len(), crews[0].cpus.len()), (1, 0));
        assert_eq!(crews[0].threads, if sys::HAS_POLICIES { 16 } else { 1 });
    }

    #[test]
    fn touching_makes_present_and_keeps_contents() {
        let machine = Topology::from_bundle(machines::text("laptop-8").unwrap()).unwrap();
        let region = Region::new(4 << 20, &Policy::Default, HugePages::Off, &machine).unwrap();
        // SAFETY: the first byte of a region that this test alone uses.
        unsafe { region.as_ptr().write(9) };
        let (start, bytes) = region.checked(&(0..region.len()));
        touch(start, bytes);
        // SAFETY: as above.
        assert_eq!(unsafe { region.as_ptr().read() }, 9);
        if sys::HAS_POLICIES {
            assert_eq!(region.residency(0..bytes).unwrap().absent_bytes, 0);
        }
    }
}

//! How does the pool get another size, or another policy, while it is used? Unit by unit, of 2 MiB.
//!
//! Nodes that are to have more get units: vacant ones of their partitions first, then new memory. Nodes that are to have less give
//! units up: their free frames are parked, their clean pages are copied to frames elsewhere (or evicted, when there are none), dirty
//! ones are written first; an empty unit's memory goes back to the kernel. Growing and giving up take turns, so that the pool is
//! never much larger than the larger of its sizes. Then pages that lie on another node than their numbers say are moved, too.
//!
//! Nobody notices but by a miss more: descriptors stay where they are and are never unmapped, so a reader that holds an old frame
//! finds its version moved on, as after an eviction; what it reads meanwhile are the old bytes or zeros. Only clean pages are moved.
//! So a checkpoint that looks through the frames meanwhile misses no change: one made after the move is younger than its beginning.

use std::io;
use std::sync::Arc;

use homenode_memory::Policy;
use homenode_platform::sync::Mutex;
use homenode_platform::{clock, thread};
use homenode_topology::Topology;

use crate::arena::{Routes, Share, Slab, layout, shares_of};
use crate::frame::Frame;
use crate::partition::{Partition, UNIT};
use crate::stats::bump;
use crate::writeback::{BATCH_PAGES, Buffers};
use crate::{NO_PAGE, PAGE_BYTES, PageNo, Pool, PoolConfig, PoolError};

/// Units that come or go at a time: 64 MiB.
const STEP: usize = 32;
/// Frames looked at between two pauses when pages are brought to their nodes.
const FRAMES_PER_PAUSE: usize = 1024;
const PAUSE_NS: u64 = 200_000;
/// How often pages are looked for that are not at home.
const ROUNDS: usize = 8;
/// How long the pages of a step may keep their frames: they are latched for microseconds, and written again after a failed write.
const PATIENCE_NS: u64 = 30_000_000_000;

/// What the pool is to look like.
pub(crate) struct Shape {
    topology: Topology,
    /// With the size and the policy of now.
    now: Mutex<PoolConfig>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl Shape {
    pub(crate) fn new(config: &PoolConfig, topology: &Topology) -> Shape {
        Shape { topology: topology.clone(), now: Mutex::new(config.clone()), changing: Mutex::new(()) }
    }
}

/// What a change did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reshaped {
    /// Bytes of frames that came.
    pub grown_bytes: u64,
    /// Bytes of frames that went back to the kernel.
    pub shrunk_bytes: u64,
    /// Pages copied to another frame.
    pub moved: u64,
    /// Pages that were evicted instead.
    pub evicted: u64,
    /// Pages that could not be brought to their node: its frames are all in use. They go there when they are next read.
    pub left: u64,
}

impl Reshaped {
    fn count(&mut self, left: &Left) {
        match left {
            Left::Moved => self.moved += 1,
            Left::Evicted => self.evicted += 1,
            Left::NoRoom | Left::Dirty(_) | Left::Held => self.left += 1,
            Left::Empty => {}
        }
    }
}

/// Why a page is to leave its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Its frame goes. Without another it is evicted; if it is in use, another page is evicted instead.
    Leave,
    /// It belongs to another node, if that has a free frame.
    Home,
    /// It was in use in the far tier: another page cools in its stead.
    Return,
}

/// What became of a page that was to leave its frame.
enum Left {
    Moved,
    Evicted,
    /// There was none.
    Empty,
    /// It has to be written first.
    Dirty(PageNo),
    /// Somebody holds it.
    Held,
    /// No frame for it.
    NoRoom,
}

/// One node's units: how many it has and how many it is to have.
struct Aim {
    node: usize,
    policy: Policy,
    units: usize,
    /// Partitions that new memory is divided among.
    partitions: usize,
}

impl Pool {
    /// Size and policy of now; without the far tier.
    pub fn shape(&self) -> (usize, Policy) {
        let now = self.shape.now.lock();
        let near = self.partitions.iter().filter(|partition| !partition.is_far());
        (near.map(|p| p.active_frames() * PAGE_BYTES).sum(), now.policy.clone())
    }

    /// Gives the pool another size (bytes of frames, rounded as [`PoolConfig::bytes`]) or another policy, while it is used. Blocks the
    /// calling thread: for a thread of its own.
    ///
    /// # Errors
    /// [`PoolError::Memory`] when memory cannot be had as the policy wants it, and [`PoolError::NotVacated`]; the pool then keeps the
    /// size and the policy that it had, as far as it can.
    pub fn reshape(self: &Arc<Pool>, bytes: Option<usize>, policy: Option<&Policy>) -> Result<Reshaped, PoolError> {
        let _one_at_a_time = self.shape.changing.lock();
        let before = self.shape.now.lock().clone();
        let wanted = PoolConfig {
            bytes: bytes.unwrap_or(before.bytes),
            policy: policy.unwrap_or(&before.policy).clone(),
            ..before.clone()
        };
        let mut done = Reshaped::default();
        match self.approach(&wanted, &mut done) {
            Ok(()) => {
                *self.shape.now.lock() = wanted;
                Ok(done)
            }
            Err(error) => {
                // What fails on the way back, too, stays as it is: frames are where they are, and all of them are used.
                let _ = self.approach(&before, &mut Reshaped::default());
                Err(error)
            }
        }
    }

    fn approach(self: &Arc<Pool>, wanted: &PoolConfig, done: &mut Reshaped) -> Result<(), PoolError> {
        let topology = &self.shape.topology;
        let shares = shares_of(&wanted.policy, &wanted.far_nodes, topology)?;
        let aims = self.aims(wanted, &shares);
        let growth = self.prepare(wanted, &aims)?;
        if wanted.cleaners {
            self.start_cleaners();
        }
        let mut surplus = self.surplus(&aims);
        let mut growth = growth.into_iter();
        let publish = || {
            let routes = Routes::new(&wanted.policy, &shares, topology, &self.partitions);
            if routes != *self.arena.routes() {
                self.arena.publish(routes);
            }
        };
        let mut buffers = Buffers::default();
        loop {
            let come: Vec<(usize, usize)> = growth.by_ref().take(STEP).collect();
            self.bring_in(wanted, &come)?;
            done.grown_bytes += (come.len() * UNIT * PAGE_BYTES) as u64;
            let go = surplus.split_off(surplus.len().saturating_sub(STEP));
            go.iter().for_each(|(partition, unit)| {
                self.partitions[*partition].deactivate(*unit);
            });
            publish();
            self.vacate(&go, &mut buffers, done)?;
            done.shrunk_bytes += (go.len() * UNIT * PAGE_BYTES) as u64;
            if come.is_empty() && go.is_empty() {
                break;
            }
        }
        // Only those that are not at home in the end.
        done.left = 0;
        self.bring_home(&mut buffers, done);
        Ok(())
    }

    /// How many units each node is to have; nodes that are to have none are among them.
    fn aims(&self, wanted: &PoolConfig, shares: &[Share]) -> Vec<Aim> {
        let aim = |(share, counts): (&Share, Vec<usize>)| Aim {
            node: share.node,
            policy: share.policy.clone(),
            units: counts.iter().sum::<usize>() / UNIT,
            partitions: counts.len(),
        };
        let mut aims: Vec<Aim> = shares.iter().zip(layout(wanted, shares)).map(aim).collect();
        for partition in self.partitions.iter().filter(|partition| !partition.is_far()) {
            let node = partition.node();
            if !aims.iter().any(|aim| aim.node == node) {
                aims.push(Aim { node, policy: Policy::Default, units: 0, partitions: 0 });
            }
        }
        aims
    }

    fn on(&self, node: usize) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(move |partition| partition.node() == node && !partition.is_far())
    }

    fn active_units(&self, node: usize) -> usize {
        self.on(node).map(Partition::active_frames).sum::<usize>() / UNIT
    }

    /// The units (partition and number) that are to be used in addition; new memory is mapped for what is lacking, and room for
    /// bound memory is looked for before anything changes.
    fn prepare(&self, wanted: &PoolConfig, aims: &[Aim]) -> Result<Vec<(usize, usize)>, PoolError> {
        // A pool that outgrows the machine is the end of the process, not an error. What goes at the same time is not counted on.
        let growth = aims.iter().map(|aim| aim.units.saturating_sub(self.active_units(aim.node))).sum::<usize>();
        let bytes = growth as u64 * (UNIT * PAGE_BYTES) as u64;
        if let Some(available_bytes) =
            homenode_memory::available_bytes(&self.shape.topology).filter(|room| *room < bytes)
        {
            return Err(PoolError::NoMemory { bytes, available_bytes });
        }
        let mut units = Vec::new();
        for aim in aims.iter().filter(|aim| aim.units > 0) {
            for slab in self.arena.slabs().iter().filter(|slab| slab.node == aim.node && !slab.far) {
                slab.data.place(0..slab.data.len(), &aim.policy).map_err(Arc::new)?;
                slab.descriptors.place(0..slab.descriptors.len(), &aim.policy).map_err(Arc::new)?;
            }
            let lacking = aim.units.saturating_sub(self.active_units(aim.node));
            let vacant = self.on(aim.node).map(|partition| self.vacant_units(partition).len()).sum::<usize>();
            if lacking > vacant {
                let new = lacking - vacant;
                let slab = Slab::map(wanted, &self.shape.topology, aim.node, &aim.policy, new * UNIT)?;
                slab.data.check_room(0..slab.data.len()).map_err(Arc::new)?;
                let count = aim.partitions.clamp(1, new);
                let counts: Vec<usize> =
                    (0..count).map(|i| (new / count + usize::from(i < new % count)) * UNIT).collect();
                self.arena.add(slab, &counts, &self.partitions)?;
            }
            // In turn from each partition, so that all grow alike.
            let mut vacant: Vec<_> =
                self.on(aim.node).map(|partition| (partition, self.vacant_units(partition))).collect();
            let mut taken = 0;
            while taken < lacking {
                let fewest = vacant.iter_mut().filter(|(_, units)| !units.is_empty());
                let Some((partition, left)) = fewest.max_by_key(|(_, units)| units.len()) else { break };
                units.extend(left.pop().map(|unit| (partition.id(), unit)));
                taken += 1;
            }
        }
        Ok(units)
    }

    fn vacant_units(&self, partition: &Partition) -> Vec<usize> {
        (0..partition.units()).filter(|unit| partition.is_vacant(*unit)).collect()
    }

    /// The units that are not to be used any more: of each node the partitions that have most give first.
    fn surplus(&self, aims: &[Aim]) -> Vec<(usize, usize)> {
        let mut units = Vec::new();
        for aim in aims {
            let over = self.active_units(aim.node).saturating_sub(aim.units);
            let active = |partition: &Partition| -> Vec<usize> {
                (0..partition.units()).filter(|unit| partition.is_active(*unit)).collect()
            };
            let mut left: Vec<(usize, Vec<usize>)> = self.on(aim.node).map(|p| (p.id(), active(p))).collect();
            for _ in 0..over {
                let Some((partition, most)) = left.iter_mut().max_by_key(|(_, units)| units.len()) else { break };
                units.extend(most.pop().map(|unit| (*partition, unit)));
            }
        }
        units
    }

    /// Makes the memory of units present, where that is wanted, and lets them be used.
    fn bring_in(&self, wanted: &PoolConfig, units: &[(usize, usize)]) -> Result<(), PoolError> {
        let slabs = self.arena.slabs();
        let bound = |slab: &Slab| matches!(slab.data.placements().first(), Some((_, Policy::Bind(_), _)));
        for &(partition, unit) in units {
            let partition = &self.partitions[partition];
            let (slab, at) = partition.place(unit);
            if wanted.prefault || bound(&slabs[slab]) {
                slabs[slab].data.prefault_part(Slab::bytes(at..at + 1)).map_err(Arc::new)?;
            }
            partition.activate(unit);
        }
        Ok(())
    }

    /// Empties units that are not active any more, and gives their memory back.
    fn vacate(&self, units: &[(usize, usize)], buffers: &mut Buffers, done: &mut Reshaped) -> Result<(), PoolError> {
        let until_ns = clock::now_ns() + PATIENCE_NS;
        let slabs = self.arena.slabs();
        let mut left: Vec<(&Partition, usize)> =
            units.iter().map(|(partition, unit)| (&self.partitions[*partition], *unit)).collect();
        let mut failure = None;
        while !left.is_empty() {
            let frames = left.iter().flat_map(|(partition, unit)| partition.unit_frames(*unit));
            failure = self.empty(frames, Goal::Leave, buffers, done).or(failure);
            left.retain(|(partition, unit)| {
                let vacant = partition.is_vacant(*unit);
                if vacant {
                    let (slab, at) = partition.place(*unit);
                    // SAFETY: no frame of the unit holds a page, and none gets one before the unit is active again; readers with
                    // an outdated frame throw away what they read. What the kernel refuses to take stays with us.
                    let _ = unsafe { slabs[slab].data.discard(Slab::bytes(at..at + 1)) };
                }
                !vacant
            });
            if !left.is_empty() {
                if clock::now_ns() > until_ns {
                    left.iter().for_each(|(partition, unit)| partition.activate(*unit));
                    return Err(PoolError::NotVacated { last_write_error: failure });
                }
                thread::sleep_ns(1_000_000);
            }
        }
        Ok(())
    }

    /// Takes pages out of frames; why dirty ones could not be written, if so.
    pub(crate) fn empty<'p>(
        &'p self,
        frames: impl Iterator<Item = &'p Frame>,
        goal: Goal,
        buffers: &mut Buffers,
        done: &mut Reshaped,
    ) -> Option<Arc<io::Error>> {
        let mut failure = None;
        let mut dirty: Vec<(PageNo, &Frame)> = Vec::new();
        let mut frames = frames.peekable();
        while let Some(frame) = frames.next() {
            match self.move_out(frame, goal) {
                Left::Dirty(page_no) => dirty.push((page_no, frame)),
                other => done.count(&other),
            }
            if dirty.len() == BATCH_PAGES || (frames.peek().is_none() && !dirty.is_empty()) {
                let mut batch = buffers.batch(self);
                for &(page_no, frame) in &dirty {
                    batch.add(frame, page_no, false);
                }
                if let Err(PoolError::Write { source, .. }) = batch.write() {
                    failure = Some(source);
                }
                drop(batch);
                // At once, before they change again; those that have stay for the next round.
                dirty.drain(..).for_each(|(_, frame)| done.count(&self.move_out(frame, goal)));
            }
        }
        failure
    }

    /// Copies a clean page to a frame of the node that it belongs to.
    fn move_out(&self, frame: &Frame, goal: Goal) -> Left {
        let page_no = frame.page_no();
        if page_no == NO_PAGE {
            return Left::Empty;
        }
        if !frame.is_clean() {
            return Left::Dirty(page_no);
        }
        let partition = &self.partitions[frame.partition()];
        let evict = goal == Goal::Return || (goal == Goal::Leave && frame.is_referenced());
        let Some(target) = self.frame_to_move_to(page_no, evict) else {
            return match goal == Goal::Leave && self.evict(frame) {
                true => {
                    partition.push_free(frame);
                    Left::Evicted
                }
                false => Left::NoRoom,
            };
        };
        match self.move_page(frame, page_no, target) {
            true => {
                partition.push_free(frame);
                if goal == Goal::Return {
                    target.touch();
                    bump(&partition.counters.returned, 1);
                    bump(&self.partitions[target.partition()].counters.returned, 1);
                }
                Left::Moved
            }
            false => Left::Held,
        }
    }

    /// A frame of the near tier for a page on its node, or anywhere if it has to leave; exclusively latched.
    fn frame_to_move_to(&self, page_no: PageNo, evict: bool) -> Option<&Frame> {
        let wanted = self.partition_for(page_no);
        let there = |partition: &&Partition| partition.node() == wanted.node();
        let mut near = self.near(wanted);
        let found = near.clone().filter(there).find_map(Partition::pop_free);
        let found = found.or_else(|| if evict { near.find_map(Partition::pop_free) } else { None });
        let found = found.or_else(|| if evict { self.evict_near(wanted) } else { None })?;
        bump(&self.partitions[found.partition()].counters.taken, 1);
        crate::pool::latch_unwanted(found);
        Some(found)
    }

    /// Copies a page that is clean into another frame, which the caller has latched exclusively, and takes it out of its own, which is
    /// in no list then and the caller's. False when somebody holds it or has changed it; `target` is given back then.
    pub(crate) fn move_page(&self, frame: &Frame, page_no: PageNo, target: &Frame) -> bool {
        if !frame.latch().try_lock_exclusive() {
            self.give_back(target);
            return false;
        }
        if frame.page_no() != page_no || !frame.is_clean() {
            frame.latch().unlock_exclusive_unchanged();
            self.give_back(target);
            return false;
        }
        // SAFETY: the target is exclusively latched and holds no page; a reader that still looks at it holds a version from before.
        let bytes = unsafe { std::slice::from_raw_parts_mut(target.data(), PAGE_BYTES) };
        frame.page().copy_to(0, bytes);
        let slot = self.translation.slot(page_no).expect("a resident page has an entry");
        target.swap_warm(false);
        self.publish(target, page_no, slot, frame.is_unlogged());
        if frame.is_referenced() {
            target.touch();
        }
        frame.set_page_no(NO_PAGE);
        // The version moves: readers of the page fail from here on and find it in its new frame.
        frame.latch().unlock_exclusive();
        target.latch().unlock_exclusive();
        true
    }

    /// Moves pages that lie on another node than their numbers say, as far as there are free frames.
    fn bring_home(&self, buffers: &mut Buffers, done: &mut Reshaped) {
        let routes = self.arena.routes();
        if !routes.is_dealt() {
            return;
        }
        // Some are changed again while they are being written.
        for _ in 0..ROUNDS {
            done.left = 0;
            for partition in self.partitions.iter().filter(|partition| !partition.is_far()) {
                for frames in partition.frames().chunks(FRAMES_PER_PAUSE) {
                    let elsewhere = |frame: &&Frame| {
                        let page_no = frame.page_no();
                        page_no != NO_PAGE && routes.node_for(page_no) != Some(partition.node())
                    };
                    let strays: Vec<&Frame> = frames.iter().filter(elsewhere).collect();
                    if !strays.is_empty() {
                        self.empty(strays.into_iter(), Goal::Home, buffers, done);
                        thread::sleep_ns(PAUSE_NS);
                    }
                }
            }
            if done.left == 0 {
                break;
            }
        }
    }
}

//! How long would it take on a machine with many nodes? Cores with their own clocks, coherent caches, links, memory.
//!
//! Each virtual thread belongs to a core. The machine always goes on with the core that is furthest behind, so that requests reach a
//! line in the order of their times. An access is charged by where its line is; see `cost`. The seed decides ties, how much
//! a piece of work varies, and nothing else.
//!
//! **Not modelled:** instruction timing beyond flat costs, out-of-order overlap of loads, prefetching other than of lines that
//! follow each other, address translation, cores that share execution units. It ranks designs and gives ratios.

mod cache;
mod callers;
mod cost;
mod hardware;
mod kernel;
mod order;
mod pages;
mod record;
mod threads;
mod what_if;

pub use cost::Kind;
pub use hardware::{Device, Hardware, Link, NodeSpec, Threading};
pub use pages::Home;
pub use record::{Counters, LineRecord, Named, PlaceRecord, Source};
pub(super) use threads::Next;
pub use what_if::WhatIf;

use super::random::Random;
use cache::Tags;
use cost::Costs;
use order::{NEVER, Order};
use pages::{Cores, LINE_SHIFT, PAGE_SHIFT, Pages};
use record::{Recorder, Seen};
use std::collections::{BinaryHeap, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use threads::{SimThread, Timer};
use what_if::{Changes, Instead};

/// Accesses that only touch the core's own cache may be that far ahead of the others: one turn of the machine's loop then
/// serves many of them.
const SLACK_PS: u64 = 20_000;
/// Stores under way from one core at once (line-fill buffers of current x86 cores).
const STORES: usize = 12;

fn ps(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

/// One core.
struct Core {
    node: usize,
    group: usize,
    /// Where it is when it does not run.
    clock: u64,
    /// Since when it has had nothing to run, if it has nothing.
    idle_from: u64,
    thread: Option<usize>,
    /// Threads that want it, with the moment from which they can.
    ready: VecDeque<(usize, u64)>,
    slice_end: u64,
    /// A background thread was woken and goes first from then on.
    preempt_at: u64,
    tags: Tags,
    /// Moments at which stores under way arrive.
    stores: [u64; STORES],
    store_next: usize,
    stores_done: u64,
    /// The line that came for a write last, and until when nobody can take it.
    held_line: u32,
    held_until: u64,
    /// Last lines missed, to see sequential readers.
    streams: [u32; 4],
    stream_next: usize,
    /// Threads that belong to it.
    threads: usize,
}

impl Core {
    /// Whether the line follows one that was missed lately; remembers it.
    fn follows(&mut self, line: u32) -> bool {
        match self.streams.iter().position(|&last| last.wrapping_add(1) == line) {
            Some(at) => {
                self.streams[at] = line;
                true
            }
            None => {
                self.stream_next = (self.stream_next + 1) % self.streams.len();
                self.streams[self.stream_next] = line;
                false
            }
        }
    }
}

/// What the caller of an access has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Go on.
    Done,
    /// Let the cores go that are further behind, then ask again.
    Before,
    /// Let them go, then do the access.
    After,
}

/// How a simulated machine is to be run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The machine.
    pub hardware: Arc<Hardware>,
    /// Sessions are kernel threads of their own (with time slices) rather than tasks of a worker per core.
    pub processes: bool,
    /// Keep what the line report needs.
    pub record: bool,
    /// What shall cost nothing or lie elsewhere.
    pub what_if: WhatIf,
}

/// The machine's state.
pub(super) struct Sim {
    pub hardware: Arc<Hardware>,
    processes: bool,
    costs: Costs,
    pages: Pages,
    cores: Vec<Core>,
    group_nodes: Vec<usize>,
    group_members: Vec<Cores>,
    /// L3 groups of each node, as bits.
    node_groups: Vec<u32>,
    l3_tags: Vec<Tags>,
    memory_free: Vec<u64>,
    link_free: Vec<u64>,
    order: Order,
    timers: BinaryHeap<Timer>,
    threads: Vec<SimThread>,
    /// The core that runs, and its time.
    pub running: usize,
    pub now: u64,
    /// The time of the core that is next furthest behind.
    horizon: u64,
    /// The line touched last, and whether the core owns it.
    last_line: usize,
    last_owned: bool,
    pub charging: bool,
    random: Random,
    counters: Counters,
    /// Accesses charged before the counters were last reset.
    before_reset: u64,
    waited_ps: u64,
    queued_ps: u64,
    spun_ps: u64,
    idle_ps: u64,
    ready_ps: u64,
    pub hash: u64,
    recorder: Option<Recorder>,
    names: Vec<Named>,
    changes: Changes,
    /// Whether structures have other costs than their own.
    changed: bool,
    /// The running thread costs nothing.
    free: bool,
    device_free: Vec<u64>,
}

const NO_LINE: usize = usize::MAX;

impl Sim {
    pub fn new(config: &SimConfig, seed: u64) -> Sim {
        let hardware = config.hardware.clone();
        let mut random = Random::new(seed ^ 0x51A1_AB1E);
        let nodes = hardware.nodes.len();
        let mut cores = Vec::new();
        let mut group_nodes = Vec::new();
        let mut group_members = Vec::new();
        let mut node_groups = vec![0u32; nodes];
        for (node, spec) in hardware.nodes.iter().enumerate() {
            for &size in &spec.groups {
                let group = group_nodes.len();
                let mut members = Cores::default();
                for _ in 0..size {
                    members.add(cores.len());
                    cores.push(new_core(node, group, hardware.private_bytes));
                }
                node_groups[node] |= 1 << group;
                group_nodes.push(node);
                group_members.push(members);
            }
        }
        let ties = random.next_u64();
        Sim {
            costs: Costs::of(&hardware),
            processes: config.processes,
            pages: Pages::new(),
            // One entry more for the timers.
            order: Order::new(cores.len() + 1, ties),
            l3_tags: group_nodes.iter().map(|_| Tags::new(hardware.l3_bytes)).collect(),
            memory_free: vec![0; nodes],
            link_free: vec![0; nodes * nodes],
            device_free: vec![0; hardware.device.queue_depth.max(1)],
            cores,
            group_nodes,
            group_members,
            node_groups,
            timers: BinaryHeap::new(),
            threads: Vec::new(),
            running: 0,
            now: 0,
            horizon: NEVER,
            last_line: NO_LINE,
            last_owned: false,
            charging: false,
            random,
            counters: Counters::default(),
            before_reset: 0,
            waited_ps: 0,
            queued_ps: 0,
            spun_ps: 0,
            idle_ps: 0,
            ready_ps: 0,
            hash: 0xCBF2_9CE4_8422_2325,
            recorder: config.record.then(Recorder::default),
            names: Vec::new(),
            changed: config.what_if != WhatIf::default(),
            changes: Changes::new(&config.what_if),
            free: false,
            hardware,
        }
    }

    fn trace(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3);
    }

    /// Charges one access to the running core.
    #[inline]
    pub fn access(&mut self, address: usize, kind: Kind, place: &'static Location<'static>) -> Turn {
        if self.changed {
            match self.instead(address) {
                Instead::Same => {}
                Instead::Free => return Turn::Done,
                Instead::At(other) => return self.access_line(other, other >> LINE_SHIFT, kind, place),
            }
        }
        let line = address >> LINE_SHIFT;
        if line == self.last_line && (kind == Kind::Load || self.last_owned) && self.recorder.is_none() {
            self.counters.by_source[Source::Own as usize] += 1;
            self.now += if kind == Kind::Update { self.costs.atomic } else { self.costs.same_line };
            return self.after_hit();
        }
        self.access_line(address, line, kind, place)
    }

    #[cold]
    fn instead(&mut self, address: usize) -> Instead {
        if self.free {
            return Instead::Free;
        }
        if self.changes.concern_memory() { self.changes.of(address, &self.names) } else { Instead::Same }
    }

    #[inline]
    fn after_hit(&self) -> Turn {
        if self.now > self.horizon.saturating_add(SLACK_PS) { Turn::After } else { Turn::Done }
    }

    fn access_line(&mut self, address: usize, line: usize, kind: Kind, place: &'static Location<'static>) -> Turn {
        let page = self.pages.number(address);
        let line_no = page * 64 + (line as u32 & 63);
        let entry = *self.pages.line(line_no);
        let me = self.running;
        if kind == Kind::Update {
            // A locked instruction waits until the core's stores are visible.
            self.now = self.now.max(self.cores[me].stores_done);
        }
        let held = self.cores[me].held_line == line_no && self.now <= self.cores[me].held_until;
        let hit = held || if kind == Kind::Load { entry.sharers.has(me) } else { entry.owner == me as u16 };
        let before = self.now;
        if hit {
            if kind != Kind::Load && !entry.dirty && !held {
                self.pages.line(line_no).dirty = true;
            }
            self.now += match kind {
                Kind::Update => self.costs.atomic,
                Kind::Load => self.costs.hit,
                Kind::Store => self.costs.same_line,
            };
            self.counters.by_source[Source::Own as usize] += 1;
            if held && entry.owner != me as u16 {
                // Others wait for it: the hold is for one retry, not for a run of updates.
                self.cores[me].held_line = u32::MAX;
                self.last_line = NO_LINE;
            } else {
                let owned = kind != Kind::Load || (entry.owner == me as u16 && entry.dirty);
                (self.last_line, self.last_owned) = (line, owned);
            }
            self.note(line_no, address, place, kind, Source::Own, self.now - before);
            return self.after_hit();
        }
        if self.now > self.horizon {
            return Turn::Before;
        }
        let served = self.serve(line_no, kind);
        self.trace(u64::from(line_no) << 20 ^ served.at ^ (me as u64) << 52);
        self.counters.by_source[served.source as usize] += 1;
        self.counters.transfers += 1;
        if kind == Kind::Store {
            self.buffer_store(served.at);
        } else {
            self.queued_ps += entry.free_at.saturating_sub(before);
            self.now = served.at + if kind == Kind::Update { self.costs.atomic } else { 0 };
        }
        self.waited_ps += self.now - before;
        (self.last_line, self.last_owned) = (line, kind != Kind::Load);
        self.note(line_no, address, place, kind, served.source, served.at - before);
        if self.now > self.horizon { Turn::After } else { Turn::Done }
    }

    fn note(
        &mut self,
        line: u32,
        address: usize,
        place: &'static Location<'static>,
        kind: Kind,
        source: Source,
        took: u64,
    ) {
        let core = self.running;
        if let Some(recorder) = &mut self.recorder {
            let offset = (address & 63) as u8;
            recorder.note(&Seen { line, offset, place, core, kind, source, took_ps: took });
        }
    }

    /// A store that misses is under way while the core goes on, unless too many are.
    fn buffer_store(&mut self, arrives: u64) {
        let same_line = self.costs.same_line;
        let core = &mut self.cores[self.running];
        let oldest = std::mem::replace(&mut core.stores[core.store_next], arrives);
        core.store_next = (core.store_next + 1) % STORES;
        core.stores_done = core.stores_done.max(arrives);
        self.now = self.now.max(oldest) + same_line;
    }

    /// A full fence: the core's stores are visible when it ends.
    pub fn fence(&mut self) -> Turn {
        if self.free {
            return Turn::Done;
        }
        self.now = self.now.max(self.cores[self.running].stores_done) + self.costs.fence;
        self.after_hit()
    }

    /// Work that touches nothing shared, varied by up to a tenth either way.
    pub fn work(&mut self, ns: u64) -> Turn {
        if self.free {
            return Turn::Done;
        }
        let base = ns * 1000;
        self.now += base - base / 10 + self.random.below((base / 5).max(1));
        self.after_hit()
    }

    /// `count` turns of a spin loop's pause.
    pub fn pause(&mut self, count: u64) -> Turn {
        self.now += count * self.costs.pause;
        self.spun_ps += count * self.costs.pause;
        if self.now > self.horizon { Turn::After } else { Turn::Done }
    }

    /// Begins to charge: all cores at the same time, counters at zero.
    pub fn start_charging(&mut self) {
        self.charging = true;
        self.last_line = NO_LINE;
        self.reset_counters();
    }

    pub fn reset_counters(&mut self) {
        self.before_reset += self.counters.accesses();
        self.counters = Counters::default();
        (self.waited_ps, self.queued_ps) = (0, 0);
        (self.spun_ps, self.idle_ps, self.ready_ps) = (0, 0, 0);
        for core in &mut self.cores {
            core.idle_from = core.idle_from.max(self.now);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.clear();
        }
    }

    /// Accesses charged since the run began.
    pub fn accesses(&self) -> u64 {
        self.before_reset + self.counters.accesses()
    }

    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        (counters.waited_ns, counters.queued_ns) = (self.waited_ps / 1000, self.queued_ps / 1000);
        (counters.spun_ns, counters.ready_ns) = (self.spun_ps / 1000, self.ready_ps / 1000);
        let idle = |core: &&Core| core.thread.is_none() && core.ready.is_empty();
        let still: u64 = self.cores.iter().filter(idle).map(|core| self.now.saturating_sub(core.idle_from)).sum();
        counters.idle_ns = (self.idle_ps + still) / 1000;
        counters
    }

    pub fn lines(&self) -> Vec<LineRecord> {
        let recorder = self.recorder.as_ref();
        recorder.map_or_else(Vec::new, |recorder| recorder.lines(|line| self.pages.about(line)))
    }

    pub fn pages_by_home(&self) -> Vec<u64> {
        self.pages.by_home(self.hardware.nodes.len())
    }

    pub fn place(&mut self, start: usize, bytes: usize, home: Home) {
        self.pages.place(start, start + bytes, home);
    }

    pub fn name(&mut self, named: Named) {
        self.names.retain(|other| other.start + other.bytes <= named.start || named.start + named.bytes <= other.start);
        self.names.push(named);
        self.changes.forget();
    }

    pub fn describe(&self, address: usize) -> Option<String> {
        let named = self.names.iter().find(|named| (named.start..named.start + named.bytes).contains(&address));
        named.map(|named| named.describe(address))
    }

    /// When a request of the running core for the device is answered, picoseconds.
    pub fn device(&mut self, latency_ns: f64, bytes: u64) -> u64 {
        let device = &self.hardware.device;
        let way = match self.cores[self.running].node {
            node if node == device.node => 0.0,
            // An interrupt and a descriptor each cross the link.
            node => 2.0 * self.hardware.link(node, device.node).memory_ns,
        };
        let transfer = bytes as f64 / device.gbs;
        let took = ps(latency_ns + way + transfer);
        let vary = took / 10;
        let took = took - vary + self.random.below((2 * vary).max(1));
        let free = self.device_free.iter_mut().min().expect("a device serves at least one request at a time");
        *free = self.now.max(*free) + took;
        *free
    }
}

fn new_core(node: usize, group: usize, private_bytes: usize) -> Core {
    Core {
        node,
        group,
        clock: 0,
        idle_from: 0,
        thread: None,
        ready: VecDeque::new(),
        slice_end: 0,
        preempt_at: NEVER,
        tags: Tags::new(private_bytes),
        stores: [0; STORES],
        store_next: 0,
        stores_done: 0,
        held_line: u32::MAX,
        held_until: 0,
        streams: [u32::MAX - 1; 4],
        stream_next: 0,
        threads: 0,
    }
}

/// Pages of the simulated machine, bytes.
pub const PAGE_BYTES: usize = 1 << PAGE_SHIFT;

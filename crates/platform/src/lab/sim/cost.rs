//! How long does an access take, and where is the line afterwards? The coherence protocol and its queues.
//!
//! MESI by directory. A request that the core's own cache cannot answer queues at the line: it begins when the line is
//! free, ends after the transfer, and only then its value is read or written (the caller waits for its turn at that time).
//! A line that came for a write stays for a short hold, so that a compare-and-swap that fails is tried again on a line
//! that is there. Memory controllers and links serve one line at a time.

use super::hardware::Hardware;
use super::pages::{Cores, IN_L3, Line, NOBODY, UNPLACED};
use super::record::Source;
use super::{Core, Sim, ps};

/// What an access does to its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads.
    Load,
    /// Writes through the store buffer: the core goes on before the line has come.
    Store,
    /// Reads and writes in one: the core waits for the line.
    Update,
}

/// Costs in picoseconds, and between groups and nodes as tables.
pub(super) struct Costs {
    pub hit: u64,
    pub same_line: u64,
    pub atomic: u64,
    pub fence: u64,
    pub pause: u64,
    pub l3: u64,
    pub hold: u64,
    pub stream_lines: u64,
    group_hitm: u64,
    node_hitm: u64,
    nodes: usize,
    /// By node of the reader and node of the owner: memory at the owner's, and elsewhere.
    hitm_home_owner: Vec<u64>,
    hitm_home_reader: Vec<u64>,
    /// By node of the core and of the memory.
    memory: Vec<u64>,
    /// One line through the memory controller of the node.
    memory_line: Vec<u64>,
    /// One line over the link from one node to another.
    link_line: Vec<u64>,
}

impl Costs {
    pub fn of(hardware: &Hardware) -> Costs {
        let nodes = hardware.nodes.len();
        let pairs = |f: &dyn Fn(usize, usize) -> f64| -> Vec<u64> {
            (0..nodes * nodes).map(|pair| ps(f(pair / nodes, pair % nodes))).collect()
        };
        let line_ns = |gbs: f64| 64.0 / gbs;
        Costs {
            hit: ps(hardware.hit_ns),
            same_line: ps(hardware.hit_ns / 4.0),
            atomic: ps(hardware.atomic_ns),
            fence: ps(hardware.fence_ns),
            pause: ps(hardware.pause_ns),
            l3: ps(hardware.l3_ns),
            hold: ps(hardware.hold_ns),
            stream_lines: hardware.stream_lines.max(1.0) as u64,
            group_hitm: ps(hardware.group_hitm_ns),
            node_hitm: ps(hardware.node_hitm_ns),
            nodes,
            hitm_home_owner: pairs(&|a, b| if a == b { 0.0 } else { hardware.link(a, b).hitm_home_owner_ns }),
            hitm_home_reader: pairs(&|a, b| if a == b { 0.0 } else { hardware.link(a, b).hitm_home_reader_ns }),
            memory: pairs(&|a, b| {
                let far = &hardware.nodes[b];
                let own = if far.groups.is_empty() { far.memory_ns - hardware.nodes[a].memory_ns } else { 0.0 };
                if a == b { far.memory_ns } else { hardware.link(a, b).memory_ns + own }
            }),
            memory_line: hardware.nodes.iter().map(|node| ps(line_ns(node.memory_gbs))).collect(),
            link_line: pairs(&|a, b| if a == b { 0.0 } else { line_ns(hardware.link(a, b).gbs) }),
        }
    }

    /// A line that a core (or L3) in `group` of `node` has modified, for `reader`.
    fn transfer(&self, reader: &Core, group: usize, node: usize, home: usize) -> u64 {
        if reader.group == group {
            return self.group_hitm;
        }
        if reader.node == node {
            return self.node_hitm;
        }
        let pair = reader.node * self.nodes + node;
        if home == node {
            self.hitm_home_owner[pair]
        } else if home == reader.node {
            self.hitm_home_reader[pair]
        } else {
            // The directory of a third node is asked first; it may be further away than the owner.
            self.hitm_home_reader[pair].max(self.memory[reader.node * self.nodes + home])
        }
    }
}

/// What an access came to.
pub(super) struct Served {
    /// When the data is there.
    pub at: u64,
    pub source: Source,
}

impl Sim {
    /// Serves a request of the running core that its own cache could not: moves the line, returns when it arrives.
    pub(super) fn serve(&mut self, line_no: u32, kind: Kind) -> Served {
        let me = self.running;
        let home = self.home_of(line_no);
        let line = *self.pages.line(line_no);
        let start = self.now.max(line.free_at);
        let mut after = line;
        let (latency, source) = match kind {
            Kind::Load => self.load(me, home, &line, &mut after, start, line_no),
            Kind::Store | Kind::Update => self.own(me, home, &line, &mut after, start, line_no),
        };
        let at = start + latency;
        after.free_at = match kind {
            // Readers of a clean line don't wait for each other.
            Kind::Load if source.is_clean() => line.free_at,
            Kind::Load => at,
            Kind::Store | Kind::Update => at + self.costs.hold,
        };
        *self.pages.line(line_no) = after;
        if kind != Kind::Load {
            let core = &mut self.cores[me];
            core.held_line = line_no;
            core.held_until = at + self.costs.hold;
        }
        self.fill(me, line_no, !line.sharers.has(me));
        Served { at, source }
    }

    fn home_of(&mut self, line_no: u32) -> usize {
        let page = line_no / 64;
        let home = self.pages.page(page).home;
        if home != UNPLACED {
            return home as usize;
        }
        let node = self.cores[self.running].node as u8;
        self.pages.settle(page, node) as usize
    }

    fn load(&mut self, me: usize, home: usize, line: &Line, after: &mut Line, start: u64, no: u32) -> (u64, Source) {
        let group = self.cores[me].group;
        after.sharers.add(me);
        after.l3 |= 1 << group;
        if line.owner != NOBODY {
            let (owner_group, owner_node) = self.place_of(line.owner);
            after.owner = NOBODY;
            after.dirty = false;
            after.l3 |= 1 << owner_group;
            if line.dirty {
                self.write_back(home, owner_node, start);
                let latency = self.costs.transfer(&self.cores[me], owner_group, owner_node, home);
                // Loads of lines that follow each other don't depend on each other: they overlap here as from memory.
                let overlap = if self.cores[me].follows(no) { self.costs.stream_lines } else { 1 };
                return (latency / overlap, self.hitm(me, owner_node));
            }
            return self.clean_from(me, home, 1 << owner_group, start, no);
        }
        if line.l3 == 0 && line.sharers.is_empty() {
            // Nobody has it: the first reader may write it later without asking.
            after.owner = me as u16;
        }
        let groups = line.l3 | self.groups_of(&line.sharers);
        self.clean_from(me, home, groups, start, no)
    }

    /// A clean line of which some groups have copies, or none.
    fn clean_from(&mut self, me: usize, home: usize, groups: u32, start: u64, no: u32) -> (u64, Source) {
        let core = &self.cores[me];
        if groups >> core.group & 1 != 0 {
            return (self.costs.l3, Source::L3);
        }
        let same_node = groups & self.node_groups[core.node];
        if same_node != 0 && self.costs.node_hitm < self.costs.memory[core.node * self.costs.nodes + home] {
            return (self.costs.node_hitm, Source::NodeClean);
        }
        // A copy at the home answers at the same time as the memory behind it, without using its bandwidth.
        let cached_at_home = groups & self.node_groups[home] != 0;
        self.memory(me, home, start, no, cached_at_home)
    }

    /// From memory, through controller and link. Lines that follow each other are fetched ahead.
    fn memory(&mut self, me: usize, home: usize, start: u64, no: u32, cached: bool) -> (u64, Source) {
        let node = self.cores[me].node;
        let streaming = self.cores[me].follows(no);
        let mut begin = start;
        if !cached {
            begin = begin.max(self.memory_free[home]);
            self.memory_free[home] = begin + self.costs.memory_line[home];
        }
        if node != home {
            let link = &mut self.link_free[home * self.costs.nodes + node];
            begin = begin.max(*link);
            *link = begin + self.costs.link_line[home * self.costs.nodes + node];
        }
        let full = self.costs.memory[node * self.costs.nodes + home];
        let latency = if streaming { full / self.costs.stream_lines } else { full };
        let source = if node == home { Source::LocalMemory } else { Source::RemoteMemory };
        (begin - start + latency, source)
    }

    /// Takes a line for writing: everybody else loses it.
    fn own(&mut self, me: usize, home: usize, line: &Line, after: &mut Line, start: u64, no: u32) -> (u64, Source) {
        let group = self.cores[me].group;
        after.sharers = Cores::default();
        after.sharers.add(me);
        after.l3 = 1 << group;
        after.owner = me as u16;
        after.dirty = true;
        if line.owner != NOBODY && line.owner != me as u16 {
            let (owner_group, owner_node) = self.place_of(line.owner);
            let latency = self.costs.transfer(&self.cores[me], owner_group, owner_node, home);
            let source = if line.dirty { self.hitm(me, owner_node) } else { Source::NodeClean };
            return (latency, source);
        }
        let mut others = line.sharers;
        others.remove(me);
        let groups = (line.l3 & !(1 << group)) | self.groups_of(&others);
        let invalidation = self.farthest(me, home, groups);
        if line.sharers.has(me) {
            return (invalidation.max(self.costs.l3), Source::Upgrade);
        }
        let all = line.l3 | self.groups_of(&line.sharers);
        let (data, source) = self.clean_from(me, home, all, start, no);
        (data.max(invalidation), source)
    }

    /// The longest way to one of the groups that lose their copies.
    fn farthest(&self, me: usize, home: usize, groups: u32) -> u64 {
        let core = &self.cores[me];
        let mut rest = groups;
        let mut longest = 0;
        while rest != 0 {
            let group = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            longest = longest.max(self.costs.transfer(core, group, self.group_nodes[group], home));
        }
        longest
    }

    fn hitm(&self, me: usize, owner_node: usize) -> Source {
        if self.cores[me].node == owner_node { Source::LocalHitm } else { Source::RemoteHitm }
    }

    /// Group and node of an owner.
    fn place_of(&self, owner: u16) -> (usize, usize) {
        let group = match owner & IN_L3 {
            0 => self.cores[owner as usize].group,
            _ => (owner & !IN_L3) as usize,
        };
        (group, self.group_nodes[group])
    }

    fn groups_of(&self, cores: &Cores) -> u32 {
        if cores.is_empty() {
            return 0;
        }
        let meets = |(group, members): (usize, &Cores)| u32::from(cores.meets(members)) << group;
        self.group_members.iter().enumerate().map(meets).sum()
    }

    /// A modified line goes to memory: nobody waits for it, but it takes bandwidth.
    fn write_back(&mut self, home: usize, from: usize, start: u64) {
        let free = &mut self.memory_free[home];
        *free = start.max(*free) + self.costs.memory_line[home];
        if from != home {
            let link = &mut self.link_free[from * self.costs.nodes + home];
            *link = start.max(*link) + self.costs.link_line[from * self.costs.nodes + home];
        }
    }

    /// Puts a line into the core's own cache and its group's; what has no room there leaves.
    fn fill(&mut self, me: usize, line_no: u32, is_new: bool) {
        if !is_new {
            return;
        }
        let group = self.cores[me].group;
        if let Some(victim) = self.cores[me].tags.insert(line_no) {
            self.leave_core(me, group, victim);
        }
        if let Some(victim) = self.l3_tags[group].insert(line_no) {
            self.leave_l3(group, victim);
        }
    }

    fn leave_core(&mut self, me: usize, group: usize, victim: u32) {
        let line = self.pages.line(victim);
        line.sharers.remove(me);
        if line.owner == me as u16 {
            line.owner = if line.dirty { IN_L3 | group as u16 } else { NOBODY };
            line.l3 |= 1 << group;
        }
    }

    fn leave_l3(&mut self, group: usize, victim: u32) {
        let line = self.pages.line(victim);
        line.l3 &= !(1 << group);
        if line.owner == IN_L3 | group as u16 {
            line.owner = NOBODY;
            line.dirty = false;
            let home = self.pages.about(victim).0 as usize;
            self.write_back(home, self.group_nodes[group], self.now);
        }
    }
}

//! What is told about a run? Counts by where data came from, and for the line report, by line and place in the code.

use super::callers::{EVERY, Names, Stacks};
use super::cost::Kind;
use crate::Field;
use std::collections::{BTreeMap, HashMap};
use std::panic::Location;

/// Where the data of an access came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(usize)]
pub enum Source {
    /// The core's own cache.
    Own = 0,
    /// The cache of its L3 group, clean.
    L3,
    /// Another group of its node, or another core's unmodified copy.
    NodeClean,
    /// Its own copy was shared, the others' had to go.
    Upgrade,
    /// Modified in another cache of the node.
    LocalHitm,
    /// Modified in a cache of another node.
    RemoteHitm,
    /// Memory of its node.
    LocalMemory,
    /// Memory of another node.
    RemoteMemory,
}

impl Source {
    /// How many there are.
    pub const COUNT: usize = 8;

    pub(super) fn is_clean(self) -> bool {
        matches!(self, Source::L3 | Source::NodeClean | Source::LocalMemory | Source::RemoteMemory)
    }
}

/// Counts since they were last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Accesses by [`Source`].
    pub by_source: [u64; Source::COUNT],
    /// Lines that changed caches: everything that the own cache didn't have.
    pub transfers: u64,
    /// Nanoseconds that all cores together waited for lines.
    pub waited_ns: u64,
    /// Of those, for lines that were on their way to others.
    pub queued_ns: u64,
    /// Nanoseconds that all cores together spent in the pauses of spin loops.
    pub spun_ns: u64,
    /// Nanoseconds that they had nothing to run.
    pub idle_ns: u64,
    /// Nanoseconds that threads could have run and their core ran others.
    pub ready_ns: u64,
}

impl Counters {
    /// All accesses.
    pub fn accesses(&self) -> u64 {
        self.by_source.iter().sum()
    }

    /// Accesses served from `source`.
    pub fn of(&self, source: Source) -> u64 {
        self.by_source[source as usize]
    }
}

/// One line in the report: how often it was touched, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineRecord {
    /// The host's address, for names.
    pub address: usize,
    /// The line's number, the same in every run.
    pub number: u64,
    /// Node that its memory is on.
    pub node: usize,
    /// Where it was touched.
    pub places: Vec<PlaceRecord>,
}

/// What one place in the code did to one offset of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceRecord {
    /// Bytes from the line's start.
    pub offset: usize,
    /// File and line.
    pub place: &'static Location<'static>,
    /// Accesses; an update is one.
    pub accesses: u64,
    /// Reads and updates by [`Source`].
    pub loads: [u64; Source::COUNT],
    /// Writes and updates.
    pub stores: u64,
    /// Of those, the ones that the own cache could not take.
    pub store_misses: u64,
    /// Nanoseconds from request to data, of those that the own cache couldn't answer, added up.
    pub miss_ns: u64,
    /// How many those were.
    pub misses: u64,
    /// Cores that were there, as a set.
    pub cores: Vec<u64>,
    /// Sampled call stacks, innermost function first, with their numbers.
    pub callers: BTreeMap<Vec<String>, u64>,
}

impl PlaceRecord {
    /// Reads and updates that a modified copy in another cache had to answer.
    pub fn hitm(&self) -> u64 {
        self.loads[Source::LocalHitm as usize] + self.loads[Source::RemoteHitm as usize]
    }

    fn new(seen: &Seen) -> PlaceRecord {
        PlaceRecord {
            offset: seen.offset as usize,
            place: seen.place,
            accesses: 0,
            loads: [0; Source::COUNT],
            stores: 0,
            store_misses: 0,
            miss_ns: 0,
            misses: 0,
            cores: Vec::new(),
            callers: BTreeMap::new(),
        }
    }
}

type Key = (u32, u8, usize);

/// Collects line records.
#[derive(Default)]
pub(super) struct Recorder {
    places: HashMap<Key, (PlaceRecord, Stacks)>,
}

/// One access as the recorder sees it.
pub(super) struct Seen {
    pub line: u32,
    pub offset: u8,
    pub place: &'static Location<'static>,
    pub core: usize,
    pub kind: Kind,
    pub source: Source,
    pub took_ps: u64,
}

impl Recorder {
    pub fn note(&mut self, seen: &Seen) {
        let key = (seen.line, seen.offset, std::ptr::from_ref(seen.place).addr());
        let (place, stacks) = self.places.entry(key).or_insert_with(|| (PlaceRecord::new(seen), Stacks::default()));
        place.accesses += 1;
        if seen.kind != Kind::Store {
            place.loads[seen.source as usize] += 1;
            if matches!(seen.source, Source::LocalHitm | Source::RemoteHitm) && place.hitm().is_multiple_of(EVERY) {
                stacks.sample();
            }
        }
        if seen.kind != Kind::Load {
            place.stores += 1;
            place.store_misses += u64::from(seen.source != Source::Own);
        }
        if seen.source != Source::Own {
            place.misses += 1;
            place.miss_ns += seen.took_ps / 1000;
        }
        let word = seen.core / 64;
        if place.cores.len() <= word {
            place.cores.resize(word + 1, 0);
        }
        place.cores[word] |= 1 << (seen.core % 64);
    }

    pub fn clear(&mut self) {
        self.places.clear();
    }

    /// The lines that any modified copy was fetched for; `about` gives home and address.
    pub fn lines(&self, about: impl Fn(u32) -> (u8, usize)) -> Vec<LineRecord> {
        let mut by_line: HashMap<u32, Vec<&(PlaceRecord, Stacks)>> = HashMap::new();
        for (&(line, _, _), place) in &self.places {
            by_line.entry(line).or_default().push(place);
        }
        by_line.retain(|_, places| places.iter().any(|(place, _)| place.hitm() > 0));
        let mut names = Names::default();
        let mut named =
            |(place, stacks): &(PlaceRecord, Stacks)| PlaceRecord { callers: names.of(stacks), ..place.clone() };
        let record = |(line, places): (u32, Vec<&(PlaceRecord, Stacks)>)| {
            let (node, address) = about(line);
            let places = places.into_iter().map(&mut named).collect();
            LineRecord { address, number: u64::from(line), node: node as usize, places }
        };
        let mut lines: Vec<LineRecord> = by_line.into_iter().map(record).collect();
        for line in &mut lines {
            // One place in the text may be several in the program: those go by what they did.
            line.places.sort_by_key(|place| {
                let at = (place.offset, place.place.file(), place.place.line(), place.place.column());
                (at, std::cmp::Reverse((place.accesses, place.stores, place.miss_ns)))
            });
        }
        let hitm = |line: &LineRecord| line.places.iter().map(PlaceRecord::hitm).sum::<u64>();
        lines.sort_by_key(|line| (std::cmp::Reverse(hitm(line)), line.number));
        lines
    }
}

/// A range of memory that holds structures of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The host's address.
    pub start: usize,
    /// Its length.
    pub bytes: usize,
    /// The structure's name.
    pub name: &'static str,
    /// From one structure to the next.
    pub stride: usize,
    /// Its fields.
    pub fields: &'static [Field],
}

impl Named {
    /// Name and index of the structure at an address of the range, and the field.
    pub fn describe(&self, address: usize) -> String {
        let at = address - self.start;
        let (index, inside) = (at / self.stride.max(1), at % self.stride.max(1));
        // The nearest one that begins before: padding counts to the field that it follows.
        let before = self.fields.iter().filter(|field| field.offset <= inside);
        let field = before.max_by_key(|field| field.offset);
        match field {
            Some(field) => format!("{}[{index}].{}", self.name, field.name),
            None => format!("{}[{index}]+{inside}", self.name),
        }
    }
}

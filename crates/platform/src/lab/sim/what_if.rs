//! What would be if something cost nothing, or lay elsewhere? Changes of a run's costs, to prove what limits it.
//!
//! A *free* thread runs without charge, as if on a core of infinite speed; a free structure is always in the core's own cache. A
//! *parted* field has its line for itself. (Curtsinger and Berger, "Coz: finding code that counts with causal profiling", SOSP 2015,
//! ask the same of real programs by slowing everything else down.)

use super::record::Named;
use std::collections::HashMap;

/// What of a run is to be different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// Threads whose names begin so, and `struct` or `struct.field` as the line report names them: they cost nothing.
    pub free: Vec<String>,
    /// `struct.field`: lies on a line of its own.
    pub parted: Vec<String>,
}

/// What an access comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Instead {
    /// As it is.
    Same,
    /// It costs nothing.
    Free,
    /// It is one of this address.
    At(usize),
}

/// Lines of parted fields lie here: no host gives a process these addresses.
const PARTED: usize = 1 << 60;

/// The changes of a run, with what was found out about addresses.
#[derive(Default)]
pub(super) struct Changes {
    wanted: WhatIf,
    known: HashMap<usize, Instead>,
    lines: HashMap<String, usize>,
}

impl Changes {
    pub fn new(wanted: &WhatIf) -> Changes {
        Changes { wanted: wanted.clone(), ..Changes::default() }
    }

    /// Whether structures are asked about at all.
    pub fn concern_memory(&self) -> bool {
        !self.wanted.free.is_empty() || !self.wanted.parted.is_empty()
    }

    /// Whether a thread of this name costs nothing.
    pub fn is_free_thread(&self, name: &str) -> bool {
        self.wanted.free.iter().any(|free| name.starts_with(free.as_str()))
    }

    /// Names changed: what is known of addresses may be wrong.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// What an access to `address` comes to.
    pub fn of(&mut self, address: usize, names: &[Named]) -> Instead {
        let word = address & !7;
        if let Some(&known) = self.known.get(&word) {
            return known;
        }
        let instead = self.find(word, names);
        self.known.insert(word, instead);
        instead
    }

    fn find(&mut self, word: usize, names: &[Named]) -> Instead {
        let named = names.iter().find(|named| (named.start..named.start + named.bytes).contains(&word));
        let Some(exact) = named.map(|named| named.describe(word)) else { return Instead::Same };
        let kind = without_index(&exact);
        let is = |wanted: &String| kind == *wanted || kind.split_once('.').is_some_and(|(owner, _)| owner == wanted);
        if self.wanted.free.iter().any(is) {
            return Instead::Free;
        }
        if self.wanted.parted.contains(&kind) {
            // A page each, so that its memory can lie at any node.
            let next = PARTED + (self.lines.len() << super::PAGE_SHIFT);
            return Instead::At(*self.lines.entry(exact).or_insert(next));
        }
        Instead::Same
    }
}

/// `pool::Frame[12].latch` without which one it is.
fn without_index(name: &str) -> String {
    let (Some(open), Some(close)) = (name.find('['), name.find(']')) else { return name.to_owned() };
    format!("{}{}", &name[..open], &name[close + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

    const FIELDS: &[Field] = &[Field { name: "a", offset: 0 }, Field { name: "b", offset: 8 }];

    fn names() -> Vec<Named> {
        vec![Named { start: 0x1000, bytes: 64, name: "t::Pair", stride: 16, fields: FIELDS }]
    }

    #[test]
    fn fields_become_free_and_parted() {
        let wanted = WhatIf { free: vec!["t::Pair.a".to_owned()], parted: vec!["t::Pair.b".to_owned()] };
        let mut changes = Changes::new(&wanted);
        assert_eq!(changes.of(0x1010, &names()), Instead::Free);
        let Instead::At(first) = changes.of(0x1008, &names()) else { panic!("b is parted") };
        let Instead::At(second) = changes.of(0x1018, &names()) else { panic!("b is parted") };
        assert_ne!(first >> 6, second >> 6, "each structure's field has its own line");
        assert_eq!(changes.of(0x2000, &names()), Instead::Same);
    }

    #[test]
    fn a_structure_is_free_as_a_whole() {
        let mut changes = Changes::new(&WhatIf { free: vec!["t::Pair".to_owned()], ..WhatIf::default() });
        assert!(changes.is_free_thread("t::Pair") && !changes.is_free_thread("t"));
        assert_eq!((changes.of(0x1000, &names()), changes.of(0x1008, &names())), (Instead::Free, Instead::Free));
    }
}

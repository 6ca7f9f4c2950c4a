//! How does a big scan spare itself the copy? Leaves in place, each under its shared latch.
//!
//! A cursor's copy of a leaf writes no shared line but moves 16 KiB. A scan that reads a few bytes of every row of a big table is
//! better off with two writes of the leaf's latch word: its leaves are many and seldom anybody else's.

use homenode_pool::Shared;
use std::ops::Range;

use crate::descend::To;
use crate::layout::{Header, View};
use crate::{Tree, TreeError};

/// A leaf under its shared latch.
pub struct LeafView<'p> {
    view: View<'p, [u8]>,
    slots: Range<usize>,
}

impl LeafView<'_> {
    /// The slots from the key on that was asked for.
    pub fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    /// Header of an entry.
    #[inline(always)]
    pub fn header(&self, slot: usize) -> Header {
        self.view.header(slot)
    }

    /// Value of an entry.
    #[inline(always)]
    pub fn value(&self, slot: usize) -> &[u8] {
        self.view.value(slot)
    }

    /// Whole key of an entry into `out` (cleared first).
    pub fn key(&self, slot: usize, out: &mut Vec<u8>) {
        self.view.key_into(slot, out);
    }

    /// Whether all keys of the leaf are below `key`.
    pub fn is_below(&self, key: &[u8]) -> bool {
        self.view.upper().is_some_and(|upper| upper <= key)
    }
}

impl Tree {
    /// Shows `visit` the leaf that holds the keys from `from` on, latched in shared mode while it looks: it must not wait for
    /// anything. The key at which the next leaf begins is put into `next`; false when there is none.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn visit_leaf(
        &self,
        from: &[u8],
        next: &mut Vec<u8>,
        visit: impl FnOnce(&LeafView<'_>),
    ) -> Result<bool, TreeError> {
        let leaf: Shared<'_> = self.latch_leaf_shared(To(from))?;
        let view = View(leaf.bytes());
        let first = match view.find(from) {
            Ok(slot) | Err(slot) => slot,
        };
        visit(&LeafView { view, slots: first..view.count() });
        next.clear();
        Ok(view.upper().map(|upper| next.extend_from_slice(upper)).is_some())
    }
}

//! Which leaves will a scan come to? The parent names them, so they can be read before the scan asks.
//!
//! A scan that has gone through a few leaves copies the page numbers that follow from the level above and has the pool read a window of
//! them ahead. They are hints: what a split or a merge has changed meanwhile is read in vain, or met by a miss. A scan of pages that are
//! all in memory pays a look at each page's entry.

use homenode_pool::PageNo;

use crate::cursor::Direction;
use crate::descend::{Below, To};
use crate::layout::View;
use crate::{Tree, TreeError};

/// Leaves that a scan goes through before its next ones are read ahead: short ranges end before.
const LEAVES_BEFORE: u32 = 2;

/// One scan's place among the leaves.
#[derive(Default)]
pub struct Ahead {
    leaves: u32,
    /// The leaves that follow under one parent, in the scan's order.
    children: Vec<PageNo>,
    /// How many of them the scan has come to.
    reached: usize,
    /// How many of them the system was told of.
    announced: usize,
    /// How many of them were asked for.
    asked: usize,
    /// How many to have read ahead; the pool's size decides.
    window: usize,
}

impl Ahead {
    /// Another scan begins.
    pub fn restart(&mut self) {
        self.leaves = 0;
        self.children.clear();
        (self.reached, self.announced, self.asked) = (0, 0, 0);
    }

    /// The scan is done with a leaf; the next one begins (backwards: ends) at `key`, and leaves beyond `stop` are not wanted.
    ///
    /// # Errors
    /// If an inner page cannot be read.
    #[inline]
    pub fn leaf_done(
        &mut self,
        tree: &Tree,
        key: &[u8],
        stop: Option<&[u8]>,
        direction: Direction,
    ) -> Result<(), TreeError> {
        self.leaves += 1;
        if self.leaves <= LEAVES_BEFORE {
            return Ok(());
        }
        self.advance(tree, key, stop, direction)
    }

    fn advance(&mut self, tree: &Tree, key: &[u8], stop: Option<&[u8]>, direction: Direction) -> Result<(), TreeError> {
        if self.reached == self.children.len() {
            self.window = tree.pool.read_ahead_window();
            if self.window == 0 {
                return Ok(());
            }
            self.children_from(tree, key, stop, direction)?;
        }
        let at_most = |ahead: usize| (self.reached + ahead).min(self.children.len());
        if self.announced < at_most(self.window / 2) {
            let end = at_most(self.window);
            tree.pool.announce(&self.children[self.announced..end]);
            self.announced = end;
        }
        if self.asked <= self.reached {
            let end = at_most(self.window / 4);
            tree.pool.read_ahead(&self.children[self.asked..end]);
            self.asked = end;
        }
        // The scan comes to the next one now.
        self.reached = (self.reached + 1).min(self.children.len());
        Ok(())
    }

    /// Copies the leaves from `key` on from their parent.
    fn children_from(
        &mut self,
        tree: &Tree,
        key: &[u8],
        stop: Option<&[u8]>,
        direction: Direction,
    ) -> Result<(), TreeError> {
        let children = &mut self.children;
        (self.reached, self.announced, self.asked) = (0, 0, 0);
        match direction {
            Direction::Forward => tree.read_page(To(key), 1, |page| {
                let view = View(page);
                children.clear();
                if view.level() == 1 {
                    let last = stop.map_or(view.count(), |stop| view.child_index(stop));
                    children.extend((view.child_index(key)..=last).map(|child| view.child(child)));
                }
            }),
            Direction::Backward => tree.read_page(Below(key), 1, |page| {
                let view = View(page);
                children.clear();
                if view.level() == 1 {
                    let last = stop.map_or(0, |stop| view.child_index(stop));
                    children.extend((last..=view.child_index_below(key)).rev().map(|child| view.child(child)));
                }
            }),
        }
    }
}

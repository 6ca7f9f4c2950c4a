//! How is the leaf of a key found? Optimistic descent, and the latched one behind it.
//!
//! Optimistic: read the child's number, validate the page it came from *before* the number is
//! followed (a torn number must not cause I/O), get the child, validate the parent again (the child
//! was still its child when it was got: it was neither split, merged nor freed before its own
//! version was taken). After [`RETRIES`] failures the descent couples shared latches instead, which
//! queue fairly, so no reader starves under writers (Leis et al., "Optimistic Lock Coupling: A
//! Scalable and Efficient General-Purpose Synchronization Method", 2019).

use homenode_platform::task;
use homenode_pool::{Exclusive, Optimistic, PageNo, PageRef, Shared};

use crate::bytes::Bytes;
use crate::layout::View;
use crate::{Tree, TreeError};

/// Optimistic attempts before latches are taken.
const RETRIES: u32 = 16;

/// Which way a descent goes at each inner page. A trait rather than an enum, so that each kind of
/// descent is compiled by itself.
pub(crate) trait Route: Copy {
    /// Index of the child to go to.
    fn child_index<P: Bytes + ?Sized>(self, view: View<'_, P>) -> usize;
}

/// To the page that holds this key.
#[derive(Clone, Copy)]
pub(crate) struct To<'k>(pub &'k [u8]);

/// To the page that holds the largest keys below this one.
#[derive(Clone, Copy)]
pub(crate) struct Below<'k>(pub &'k [u8]);

/// To the right-most page.
#[derive(Clone, Copy)]
pub(crate) struct Last;

/// Outcome of an attempt to find a child.
pub(crate) enum Found<'t> {
    /// The parent, and the child's number in it; neither is validated.
    Child(Optimistic<'t>, PageNo),
    /// The whole tree lies below the level.
    TooLow,
    /// Something changed on the way.
    Changed,
}

impl Route for To<'_> {
    #[inline(always)]
    fn child_index<P: Bytes + ?Sized>(self, view: View<'_, P>) -> usize {
        view.child_index(self.0)
    }
}

impl Route for Below<'_> {
    fn child_index<P: Bytes + ?Sized>(self, view: View<'_, P>) -> usize {
        view.child_index_below(self.0)
    }
}

impl Route for Last {
    fn child_index<P: Bytes + ?Sized>(self, view: View<'_, P>) -> usize {
        view.count()
    }
}

impl Tree {
    /// Runs `read` on the leaf of `key` until it has seen one consistent state.
    #[inline]
    pub(crate) fn read_leaf<R>(&self, key: &[u8], read: impl FnMut(&PageRef<'_>) -> R) -> Result<R, TreeError> {
        self.read_page(To(key), 0, read)
    }

    /// Runs `read` on the page of `level` that `target` leads to (or the root, if that is lower)
    /// until it has seen one consistent state.
    #[inline]
    pub(crate) fn read_page<R>(
        &self,
        target: impl Route,
        level: u8,
        mut read: impl FnMut(&PageRef<'_>) -> R,
    ) -> Result<R, TreeError> {
        for attempt in 0..RETRIES {
            if let Some(page) = self.descend_optimistic(target, level)? {
                let result = read(&page.page());
                if page.validate() {
                    return Ok(result);
                }
            }
            task::spin_hint(attempt);
        }
        Ok(read(&self.descend_shared(target, level)?.0.page()))
    }

    /// One optimistic attempt to reach `level`. None: something changed on the way.
    #[inline]
    fn descend_optimistic(&self, target: impl Route, level: u8) -> Result<Option<Optimistic<'_>>, TreeError> {
        let mut page = self.pool.optimistic(self.root)?;
        loop {
            let view_page = page.page();
            let view = View(&view_page);
            if view.level() <= level {
                return Ok(Some(page));
            }
            let child = view.child(target.child_index(view));
            if !page.validate() {
                return Ok(None);
            }
            let next = self.pool.optimistic(child);
            if !page.validate() {
                return Ok(None);
            }
            page = next?;
        }
    }

    /// Reaches `level` by coupling shared latches. Also returns the page's parent, still latched.
    fn descend_shared(&self, target: impl Route, level: u8) -> Result<(Shared<'_>, Option<Shared<'_>>), TreeError> {
        let mut parent = None;
        let mut page = self.pool.shared(self.root)?;
        loop {
            let view = View(page.bytes());
            if view.level() <= level {
                return Ok((page, parent));
            }
            let child = self.pool.shared(view.child(target.child_index(view)))?;
            parent = Some(std::mem::replace(&mut page, child));
        }
    }

    /// The leaf that `target` leads to, in shared mode.
    pub(crate) fn latch_leaf_shared(&self, target: impl Route) -> Result<Shared<'_>, TreeError> {
        for attempt in 0..RETRIES {
            if let Found::Child(parent, leaf) = self.find_child(target, 1)?
                && parent.validate()
            {
                let latched = self.pool.shared(leaf);
                // While the parent stands, the page is its child; and from now on it is latched.
                if parent.validate() {
                    return Ok(latched?);
                }
            }
            task::spin_hint(attempt);
        }
        Ok(self.descend_shared(target, 0)?.0)
    }

    /// The leaf of `key`, exclusively latched.
    pub(crate) fn latch_leaf(&self, key: &[u8]) -> Result<Exclusive<'_>, TreeError> {
        for attempt in 0..RETRIES {
            if let Some(leaf) = self.latch_leaf_optimistic(key)? {
                return Ok(leaf);
            }
            task::spin_hint(attempt);
        }
        self.latch_leaf_coupled(key)
    }

    #[inline]
    fn latch_leaf_optimistic(&self, key: &[u8]) -> Result<Option<Exclusive<'_>>, TreeError> {
        match self.find_child(To(key), 1)? {
            Found::Child(parent, leaf) => self.latch_child(&parent, leaf),
            Found::TooLow => self.latch_root_leaf(),
            Found::Changed => Ok(None),
        }
    }

    /// Latches a child that was read from an optimistic parent. None: the parent has changed.
    #[inline]
    fn latch_child(&self, parent: &Optimistic<'_>, child: PageNo) -> Result<Option<Exclusive<'_>>, TreeError> {
        if !parent.validate() {
            return Ok(None);
        }
        let latched = self.pool.exclusive(child);
        // While the parent stands, the page is its child; and from now on it is latched.
        if !parent.validate() {
            return Ok(None);
        }
        Ok(Some(latched?))
    }

    /// One attempt to reach the optimistic page at `level` and to read the child's number from it.
    #[inline]
    pub(crate) fn find_child(&self, target: impl Route, level: u8) -> Result<Found<'_>, TreeError> {
        let Some(page) = self.descend_optimistic(target, level)? else { return Ok(Found::Changed) };
        let view_page = page.page();
        let view = View(&view_page);
        if view.level() < level {
            return Ok(if page.validate() { Found::TooLow } else { Found::Changed });
        }
        let child = view.child(target.child_index(view));
        Ok(Found::Child(page, child))
    }

    /// The root, if it is (still) a leaf.
    fn latch_root_leaf(&self) -> Result<Option<Exclusive<'_>>, TreeError> {
        let root = self.pool.exclusive(self.root)?;
        let is_leaf = View(root.bytes()).level() == 0;
        Ok(is_leaf.then_some(root))
    }

    /// Shared latches down to the leaf's parent, which is held while the leaf is latched.
    fn latch_leaf_coupled(&self, key: &[u8]) -> Result<Exclusive<'_>, TreeError> {
        loop {
            let (parent, _) = self.descend_shared(To(key), 1)?;
            let view = View(parent.bytes());
            if view.level() == 0 {
                drop(parent);
                if let Some(root) = self.latch_root_leaf()? {
                    return Ok(root);
                }
                continue;
            }
            return Ok(self.pool.exclusive(view.child(view.child_index(key)))?);
        }
    }

    /// The parent of the page at `level - 1` on the way to `key`, exclusively latched. None: the
    /// tree has no such level.
    pub(crate) fn latch_inner(&self, key: &[u8], level: u8) -> Result<Option<Exclusive<'_>>, TreeError> {
        for attempt in 0..RETRIES {
            let latched = match self.find_child(To(key), level + 1)? {
                Found::Child(parent, child) => self.latch_child(&parent, child)?,
                Found::TooLow => break,
                Found::Changed => None,
            };
            if latched.is_some() {
                return Ok(latched);
            }
            task::spin_hint(attempt);
        }
        let latched = self.latch_inner_coupled(key, level)?;
        let reached = View(latched.bytes()).level() == level;
        Ok(reached.then_some(latched))
    }

    fn latch_inner_coupled(&self, key: &[u8], level: u8) -> Result<Exclusive<'_>, TreeError> {
        loop {
            let (parent, _) = self.descend_shared(To(key), level + 1)?;
            let view = View(parent.bytes());
            if view.level() <= level {
                drop(parent);
                let root = self.pool.exclusive(self.root)?;
                if View(root.bytes()).level() <= level {
                    return Ok(root);
                }
                continue;
            }
            return Ok(self.pool.exclusive(view.child(view.child_index(key)))?);
        }
    }
}

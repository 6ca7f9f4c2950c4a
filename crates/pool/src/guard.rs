//! How is a page held? Guards: optimistic, shared, exclusive.

use homenode_latch::Version;

use crate::frame::Frame;
use crate::page::{PageMut, PageRef};
use crate::pool::RECOVERED_SINCE;
use crate::{PAGE_BYTES, PageNo, Pool};

/// A page being read without holding anything.
///
/// Nothing read through it may be believed before [`Optimistic::validate`] returned true: the page
/// may be changing, or the frame may hold another page by now.
pub struct Optimistic<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) frame: &'p Frame,
    pub(crate) version: Version,
    pub(crate) page_no: PageNo,
}

impl<'p> Optimistic<'p> {
    /// The page's number.
    #[inline]
    pub fn page_no(&self) -> PageNo {
        self.page_no
    }

    /// The page's bytes, which may be changing.
    #[inline(always)]
    pub fn page(&self) -> PageRef<'p> {
        self.frame.page()
    }

    /// True if nothing has changed since the guard was made, so all that was read is one state.
    #[inline(always)]
    #[must_use]
    pub fn validate(&self) -> bool {
        self.frame.latch().validate(self.version)
    }

    /// The page as it is now, read anew without waiting; `None` while somebody holds it exclusively, or when it has left its frame.
    /// For those who hold a latch below it, and so may not wait for it.
    #[must_use]
    pub fn renewed(&self) -> Option<Optimistic<'p>> {
        let version = self.frame.latch().try_optimistic()?;
        // Page number after version, as in `Pool::optimistic`.
        (self.frame.page_no() == self.page_no).then_some(Optimistic { version, ..*self })
    }

    /// Takes the exclusive latch if nothing has changed since the guard was made and nobody holds
    /// the page.
    #[inline]
    pub fn upgrade(self) -> Option<Exclusive<'p>> {
        let upgraded = self.frame.latch().try_upgrade(self.version);
        upgraded.then(|| Exclusive::new(self.pool, self.frame, self.page_no, false))
    }
}

/// A page held in shared mode: it cannot change.
pub struct Shared<'p> {
    pub(crate) frame: &'p Frame,
    pub(crate) page_no: PageNo,
}

impl<'p> Shared<'p> {
    /// The page's number.
    #[inline]
    pub fn page_no(&self) -> PageNo {
        self.page_no
    }

    /// The page for reading.
    #[inline(always)]
    pub fn page(&self) -> PageRef<'_> {
        self.frame.page()
    }

    /// The page's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the shared latch keeps writers out while self, and with it the borrow, lives.
        unsafe { std::slice::from_raw_parts(self.frame.data(), PAGE_BYTES) }
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.frame.latch().unlock_shared();
    }
}

/// A page held in exclusive mode. Dropping releases it; optimistic readers are invalidated only if
/// [`Exclusive::mark_dirty`] or [`Exclusive::page_mut`] was called.
pub struct Exclusive<'p> {
    pool: &'p Pool,
    frame: &'p Frame,
    page_no: PageNo,
    changed: bool,
    recovering: bool,
    waited: bool,
}

impl<'p> Exclusive<'p> {
    /// The frame is exclusively latched and holds the page.
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, frame: &'p Frame, page_no: PageNo, changed: bool) -> Exclusive<'p> {
        Exclusive { pool, frame, page_no, changed, recovering: false, waited: false }
    }

    #[inline(always)]
    pub(crate) fn after_wait(mut self, waited: bool) -> Exclusive<'p> {
        self.waited = waited;
        self
    }

    /// Whether the caller had to wait for the page, as many others had lately.
    #[inline]
    pub fn waited_with_many(&self) -> bool {
        self.waited && self.is_contended()
    }

    /// Whether many had to wait for the page lately.
    pub fn is_contended(&self) -> bool {
        self.frame.is_contended()
    }

    /// The page has been divided: who waited for it before says nothing about it now.
    pub fn forget_waits(&self) {
        self.frame.forget_waits();
    }

    /// For changes that are in the log already.
    pub(crate) fn recovering(mut self) -> Exclusive<'p> {
        self.recovering = true;
        self
    }

    /// The page's number.
    #[inline]
    pub fn page_no(&self) -> PageNo {
        self.page_no
    }

    /// The page for reading.
    #[inline(always)]
    pub fn page(&self) -> PageRef<'_> {
        self.frame.page()
    }

    /// The page's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the exclusive latch is held, and writing needs &mut self.
        unsafe { std::slice::from_raw_parts(self.frame.data(), PAGE_BYTES) }
    }

    /// The page for writing. [`Exclusive::mark_dirty`] comes first.
    #[inline(always)]
    pub fn page_mut(&mut self) -> PageMut<'_> {
        debug_assert!(self.frame.has_uncopied_change(), "mark_dirty comes before page_mut");
        self.changed = true;
        // SAFETY: the exclusive latch is held while self lives, and self is borrowed exclusively.
        unsafe { self.frame.page_mut() }
    }

    /// Stamps the LSN behind the log record that describes the change.
    #[inline]
    pub fn set_lsn(&mut self, lsn: u64) {
        self.page_mut().set_lsn(lsn);
    }

    /// Notes that the page is about to change. Call it **before** the change's log record is
    /// appended: the position noted for recovery is the log's tail at this moment.
    #[inline]
    pub fn mark_dirty(&mut self) {
        self.changed = true;
        if self.recovering {
            self.pool.mark_frame_dirty_since(self.frame, || RECOVERED_SINCE);
        } else {
            self.pool.mark_frame_dirty(self.frame);
        }
    }

    /// Frees the page, as [`Pool::free`] does, without letting go of it first.
    pub fn free(self) {
        let (pool, frame, page_no) = (self.pool, self.frame, self.page_no);
        std::mem::forget(self);
        pool.free_latched(frame, page_no);
    }
}

impl Drop for Exclusive<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.frame.latch().unlock_exclusive();
        } else {
            self.frame.latch().unlock_exclusive_unchanged();
        }
    }
}

impl std::fmt::Debug for Optimistic<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Optimistic({})", self.page_no)
    }
}

impl std::fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.page_no)
    }
}

impl std::fmt::Debug for Exclusive<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exclusive({})", self.page_no)
    }
}

//! Which of MariaDB's tables are on which node? InnoDB doesn't tell at which address it holds a page, but every page says in its own first
//! bytes which one it is: they are read from outside, of pages that are present, without the server's doing.

use std::collections::{BTreeMap, HashMap};

use homenode_memory::foreign;

use super::census::mappings_of;
use super::object::could_be_pool;
use crate::InspectError;
use crate::proc::{Pagemap, marks};

/// Bytes of a page that say what it is: the file page header and, of an index page, the page header up to the index's number.
const HEADER_BYTES: usize = 74;

/// Small pages that are looked at together.
const WINDOW_PAGES: u64 = 16_384;

/// What a page of the pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Number of its tablespace.
    pub space: u32,
    /// Number of the index whose page it is; `None` for pages of another use (undo, long values, free space).
    pub index: Option<u64>,
}

/// Reads a page's header (storage/innobase/include/fil0fil.h and page0page.h: the numbers are big-endian). `None` for bytes that are no
/// page's: those between the pages of a pool, which hold InnoDB's own accounts, and pages that were never used.
pub fn parse_header(header: &[u8]) -> Option<Owner> {
    const FIL_PAGE_TYPE: usize = 24;
    const FIL_PAGE_SPACE_ID: usize = 34;
    const PAGE_INDEX_ID: usize = 38 + 28;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = header.get(at..at + bytes)?;
        Some(field.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let kind = number(FIL_PAGE_TYPE, 2)?;
    let space = u32::try_from(number(FIL_PAGE_SPACE_ID, 4)?).ok()?;
    match kind {
        // FIL_PAGE_TYPE_INSTANT, FIL_PAGE_RTREE, FIL_PAGE_INDEX.
        18 | 17_854 | 17_855 => Some(Owner { space, index: Some(number(PAGE_INDEX_ID, 8)?) }),
        // From FIL_PAGE_UNDO_LOG to FIL_PAGE_TYPE_ZBLOB2; 0 is a page without contents.
        2..=12 => Some(Owner { space, index: None }),
        _ => None,
    }
}

/// Bytes of each owner on each node.
pub type Owners = HashMap<Owner, BTreeMap<usize, u64>>;

/// Counts the pool of a MariaDB process. `frame_bytes` is its `innodb_page_size`. A frame that InnoDB has given back keeps what was in it,
/// and is counted as that.
///
/// # Errors
/// [`InspectError::NotPermitted`], [`InspectError::Vanished`].
pub fn count_pool(pid: u32, frame_bytes: u64) -> Result<Owners, InspectError> {
    let page = foreign::small_page_bytes() as u64;
    let undumped = marks(pid)?.undumped;
    let mut pools: Vec<_> = mappings_of(pid)?.into_iter().filter(could_be_pool).collect();
    if pools.iter().any(|mapping| undumped.contains(&mapping.start)) {
        pools.retain(|mapping| undumped.contains(&mapping.start));
    }
    let mut owners = Owners::new();
    let mut pagemap = Pagemap::open(pid, page)?;
    let window_bytes = (WINDOW_PAGES * page).max(frame_bytes);
    for pool in pools {
        // Frames lie at multiples of their size.
        let mut start = pool.start.next_multiple_of(frame_bytes);
        while start + frame_bytes <= pool.end {
            let end = pool.end.min(start + window_bytes);
            let window = Window { pid, page, frame_bytes, start };
            let present: Vec<bool> =
                pagemap.read(start, ((end - start) / page) as usize)?.map(|entry| entry.is_present()).collect();
            window.count(&present, &mut owners)?;
            start += window_bytes;
        }
    }
    Ok(owners)
}

/// A stretch of the pool, beginning at a frame.
struct Window {
    pid: u32,
    page: u64,
    frame_bytes: u64,
    start: u64,
}

impl Window {
    fn count(&self, present: &[bool], owners: &mut Owners) -> Result<(), InspectError> {
        // A page size below that of memory pages puts several frames into one.
        let frames = present.len() as u64 * self.page / self.frame_bytes;
        let page_of = |frame: u64| (frame * self.frame_bytes / self.page) as usize;
        let here: Vec<u64> = (0..frames).filter(|frame| present[page_of(*frame)]).collect();
        let addresses: Vec<u64> = here.iter().map(|frame| self.start + frame * self.frame_bytes).collect();
        let headers = foreign::read_scattered(self.pid, &addresses, HEADER_BYTES).map_err(|error| {
            let what = format!("reading the memory of process {}", self.pid);
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => InspectError::NotPermitted { what, needs: "CAP_SYS_PTRACE" },
                _ => InspectError::Vanished(self.pid),
            }
        })?;
        let pages: Vec<usize> = (0..present.len()).filter(|page| present[*page]).collect();
        let places: Vec<usize> = pages.iter().map(|index| self.start as usize + index * self.page as usize).collect();
        let statuses = foreign::page_statuses(self.pid, &places).map_err(|_| InspectError::Vanished(self.pid))?;
        let mut nodes = vec![None; present.len()];
        for (index, status) in pages.into_iter().zip(statuses) {
            nodes[index] = usize::try_from(status).ok();
        }
        for (frame, header) in here.into_iter().zip(headers.chunks_exact(HEADER_BYTES)) {
            let Some(owner) = parse_header(header) else { continue };
            let by_node = owners.entry(owner).or_default();
            let whole_pages = (self.frame_bytes / self.page).max(1) as usize;
            for node in nodes[page_of(frame)..].iter().take(whole_pages).flatten() {
                *by_node.entry(*node).or_default() += self.page.min(self.frame_bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(kind: u16, space: u32, index: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[24..26].copy_from_slice(&kind.to_be_bytes());
        bytes[34..38].copy_from_slice(&space.to_be_bytes());
        bytes[66..74].copy_from_slice(&index.to_be_bytes());
        bytes
    }

    #[test]
    fn pages_say_what_they_are() {
        assert_eq!(parse_header(&header(17_855, 5, 42)), Some(Owner { space: 5, index: Some(42) }));
        assert_eq!(parse_header(&header(10, 5, 42)), Some(Owner { space: 5, index: None }));
        for none in [0, 1, 13, 4711] {
            assert_eq!(parse_header(&header(none, 5, 42)), None);
        }
        assert_eq!(parse_header(&[]), None);
    }

    #[test]
    fn a_process_without_a_pool_has_no_pages_of_one() {
        assert_eq!(count_pool(std::process::id(), 16_384).unwrap(), Owners::new());
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_header(&bytes);
        }
    }
}

//! What is in each frame, and on which node? For views; nothing is latched, loaded, marked as used or waited for.

use std::ops::Range;

use homenode_memory::{Census, Refusal, Whereabouts};

use crate::page::header;
use crate::partition::Partition;
use crate::{NO_PAGE, PageNo, Pool};

/// One frame at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// Its number, from 0, over all partitions.
    pub frame: usize,
    /// Its partition.
    pub partition: usize,
    /// The node that the partition belongs to.
    pub home_node: usize,
    /// Where its first bytes are. (A frame of small pages can be on several nodes.)
    pub place: Whereabouts,
    /// Address of its bytes.
    pub address: usize,
    /// What it holds, if anything.
    pub page: Option<PageInfo>,
}

/// The page in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageInfo {
    /// Its number.
    pub page_no: PageNo,
    /// Its kind, level and tree, as its user wrote them into the header.
    pub page_type: u8,
    /// See `page_type`.
    pub level: u8,
    /// See `page_type`.
    pub tree_id: u32,
    /// Changed since it was last copied out for writing, or that copy isn't written yet.
    pub is_dirty: bool,
    /// Used since the clock hand came by.
    pub is_referenced: bool,
    /// Not logged: undo.
    pub is_unlogged: bool,
}

impl Pool {
    /// Number of frames.
    pub fn frame_count(&self) -> usize {
        self.partitions.iter().map(|partition| partition.frames().len()).sum()
    }

    /// Address of the frame that holds a page, if one does at this moment.
    pub fn address_of(&self, page_no: PageNo) -> Option<usize> {
        let frame = self.translation.slot(page_no).and_then(|slot| slot.frame())?;
        Some(frame.data().addr()).filter(|_| frame.page_no() == page_no)
    }

    /// Looks at frames, by number. What is in a frame is read without a latch: a page that is replaced at the same moment is
    /// left out, one that is changed may show the header from before.
    ///
    /// # Errors
    /// When the kernel doesn't say where memory is; see [`Census::look`].
    pub fn look(&self, frames: Range<usize>, census: &Census) -> Result<Vec<FrameInfo>, Refusal> {
        let mut found = Vec::with_capacity(frames.len());
        let mut first = 0;
        for partition in self.partitions.iter() {
            let all = partition.frames().len();
            let here = frames.start.clamp(first, first + all) - first..frames.end.clamp(first, first + all) - first;
            for index in here {
                found.push(describe(partition, index, first + index));
            }
            first += all;
        }
        let addresses: Vec<usize> = found.iter().map(|info| info.address).collect();
        for (info, place) in found.iter_mut().zip(census.look(&addresses)?) {
            info.place = place;
        }
        Ok(found)
    }
}

fn describe(partition: &Partition, index: usize, number: usize) -> FrameInfo {
    let frame = &partition.frames()[index];
    let page_no = frame.page_no();
    // A frame that holds a page is present: looking at the page makes nothing so.
    let page = (page_no != NO_PAGE).then(|| frame.page()).and_then(|page| {
        // Both bytes of one word, so of one moment.
        let [page_type, level, ..] = page.load_u32(header::PAGE_TYPE).to_le_bytes();
        let info = PageInfo {
            page_no,
            page_type,
            level,
            tree_id: page.load_u32(header::TREE_ID),
            is_dirty: frame.oldest_change() != 0,
            is_referenced: frame.is_referenced(),
            is_unlogged: frame.is_unlogged(),
        };
        (frame.page_no() == page_no).then_some(info)
    });
    FrameInfo {
        frame: number,
        partition: partition.id(),
        home_node: partition.node(),
        place: Whereabouts::Absent,
        address: frame.data().addr(),
        page,
    }
}

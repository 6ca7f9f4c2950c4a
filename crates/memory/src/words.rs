//! How is a region read and written without `unsafe`? As a slice of atomic words that owns the region.

use std::sync::atomic::AtomicU64;

use crate::Region;

/// A region as words. The region is inside and never lent for writing, so every access to its bytes is atomic.
#[derive(Debug)]
pub struct Words(Region);

impl Words {
    /// Takes the region over. Its bytes are zero, or what was written through its pointer before.
    pub fn new(region: Region) -> Words {
        Words(region)
    }

    /// The words, eight bytes each.
    pub fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: the region is a readable and writable mapping of `len` bytes, aligned to 2 MiB, alive as long as `self`;
        // its bytes are initialized (zeroed by the kernel), and any bytes are a u64. Nobody else can write them plainly: the
        // region is private to this value.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<AtomicU64>(), self.0.len() / 8) }
    }

    /// Where the region is, and moving it, which keep its contents.
    pub fn region(&self) -> &Region {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use homenode_topology::Topology;

    use super::*;
    use crate::{HUGE_PAGE_BYTES, HugePages, Policy};

    #[test]
    fn words_are_zero_and_keep_what_is_written() {
        let region = Region::new(1, &Policy::Default, HugePages::Off, &Topology::discover()).unwrap();
        let words = Words::new(region);
        assert_eq!(words.as_slice().len(), HUGE_PAGE_BYTES / 8);
        assert!(words.as_slice().iter().all(|word| word.load(Relaxed) == 0));
        words.as_slice()[7].store(9, Relaxed);
        assert_eq!(words.as_slice()[7].load(Relaxed), 9);
    }
}

//! What has to leave a cache when something comes? Tags of one cache, without data.

/// Lines of one set.
const WAYS: usize = 8;
const EMPTY: u32 = u32::MAX;

/// A set-associative cache with first-in, first-out replacement. Whether a line is in it is the directory's
/// knowledge; this one only says whom a new line drives out.
pub(super) struct Tags {
    sets: Vec<[u32; WAYS]>,
    next: Vec<u8>,
}

impl Tags {
    /// A cache of about `bytes`, with lines of 64 bytes.
    pub fn new(bytes: usize) -> Tags {
        let sets = (bytes / 64 / WAYS).max(1);
        Tags { sets: vec![[EMPTY; WAYS]; sets], next: vec![0; sets] }
    }

    /// Brings a line in that isn't there; the line that has to go, if one has to.
    #[inline]
    pub fn insert(&mut self, line: u32) -> Option<u32> {
        // Multiplicative hashing spreads power-of-two strides over the sets, as hardware's set hashes do.
        let hash = u64::from(line).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let set = ((hash * self.sets.len() as u64) >> 32) as usize;
        let way = self.next[set];
        self.next[set] = (way + 1) % WAYS as u8;
        let old = std::mem::replace(&mut self.sets[set][way as usize], line);
        (old != EMPTY && old != line).then_some(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_keeps_as_many_lines_as_it_has_room_for() {
        let mut tags = Tags::new(64 * 1024);
        let gone = (0..4096).filter(|&line| tags.insert(line).is_some()).count();
        assert_eq!(gone, 4096 - 1024, "all sets are filled by four times the capacity");
    }
}

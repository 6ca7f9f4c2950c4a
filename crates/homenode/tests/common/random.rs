//! Which numbers come next? A generator with a seed, so that a failure can be had again.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// From `HOMENODE_TEST_SEED` if that is set, else from `seed`.
    pub fn new(seed: u64) -> Random {
        let seed = std::env::var("HOMENODE_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// From `low` up to and without `high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low) as u64) as i64
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Another generator, independent of what comes from this one.
    pub fn fork(&mut self) -> Random {
        Random(self.next())
    }
}

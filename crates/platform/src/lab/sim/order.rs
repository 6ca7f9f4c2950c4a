//! Who is furthest behind? A tournament tree over the cores' next moments.

/// Bits for the core's number below the time.
const LOW: u32 = 10;
/// Nobody.
pub(super) const NEVER: u64 = u64::MAX;

/// The least time of up to 1,023 entries, changed one at a time in a logarithmic number of steps and without allocation.
pub(super) struct Order {
    /// A complete binary tree; the leaves are the second half. A key is the time with the entry's number below it.
    keys: Vec<u64>,
    leaves: usize,
    /// Mixed into the entries' numbers, so that the seed decides between equal times.
    ties: u64,
}

impl Order {
    pub fn new(entries: usize, ties: u64) -> Order {
        let leaves = entries.next_power_of_two();
        assert!(leaves <= 1 << LOW);
        Order { keys: vec![NEVER; 2 * leaves], leaves, ties: ties & ((1 << LOW) - 1) }
    }

    /// Sets the moment of `entry`, picoseconds; [`NEVER`] takes it out.
    #[inline]
    pub fn set(&mut self, entry: usize, time_ps: u64) {
        let key = if time_ps == NEVER { NEVER } else { time_ps << LOW | (entry as u64 ^ self.ties) };
        let mut at = self.leaves + entry;
        self.keys[at] = key;
        while at > 1 {
            let least = self.keys[at].min(self.keys[at ^ 1]);
            at /= 2;
            if self.keys[at] == least {
                return;
            }
            self.keys[at] = least;
        }
    }

    /// The least moment, [`NEVER`] if there is none.
    #[inline]
    pub fn first_time(&self) -> u64 {
        match self.keys[1] {
            NEVER => NEVER,
            key => key >> LOW,
        }
    }

    /// The entry that is furthest behind.
    pub fn first(&self) -> Option<usize> {
        let key = self.keys[1];
        (key != NEVER).then_some(((key ^ self.ties) & ((1 << LOW) - 1)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_comes_first_and_ties_differ_by_seed() {
        let mut order = Order::new(5, 0);
        assert_eq!((order.first(), order.first_time()), (None, NEVER));
        for (entry, time) in [(0, 50), (1, 20), (2, 30), (3, 20), (4, 90)] {
            order.set(entry, time);
        }
        assert_eq!((order.first(), order.first_time()), (Some(1), 20));
        order.set(1, NEVER);
        order.set(3, 100);
        assert_eq!(order.first(), Some(2));
        let winner = |ties| {
            let mut order = Order::new(4, ties);
            (0..4).for_each(|entry| order.set(entry, 7));
            order.first().unwrap()
        };
        assert_eq!((0..4).map(winner).collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}

//! Which partitions are there? A list that only grows, read without a lock.
//!
//! Frames name their partition by its number, and readers hold frames whose partition has been emptied: so none is ever taken
//! out, and what is not used any more is filled again before a new one is made.

use std::ops::Index;

use homenode_platform::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};
use homenode_platform::sync::Mutex;

use crate::partition::Partition;

/// How many may be added while the pool lives.
const MORE_MAX: usize = 4096;

/// All partitions of a pool, by number.
pub(crate) struct Partitions {
    /// Addresses of partitions; 0 from `count` on.
    places: Box<[AtomicUsize]>,
    count: AtomicUsize,
    adding: Mutex<()>,
}

impl Partitions {
    pub(crate) fn new(first: Vec<Partition>) -> Partitions {
        let places = (0..first.len() + MORE_MAX).map(|_| AtomicUsize::new(0)).collect();
        let partitions = Partitions { places, count: AtomicUsize::new(0), adding: Mutex::new(()) };
        for partition in first {
            partitions.add(|_| partition);
        }
        partitions
    }

    /// Adds a partition, which is told its number; `None` when there are too many.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> Partition) -> Option<&Partition> {
        let _one_at_a_time = self.adding.lock();
        let number = self.count.load(Acquire);
        let place = self.places.get(number)?;
        let partition = Box::into_raw(Box::new(make(number)));
        place.store(partition.expose_provenance(), Release);
        self.count.store(number + 1, Release);
        Some(&self[number])
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Acquire)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Partition> + Clone {
        (0..self.len()).map(|number| &self[number])
    }
}

impl Index<usize> for Partitions {
    type Output = Partition;

    #[inline]
    fn index(&self, number: usize) -> &Partition {
        let address = self.places[number].load(Acquire);
        assert!(address != 0, "there is no partition {number}");
        // SAFETY: an address that is not 0 comes from `add`, of a partition that lives until this list is dropped, and is shared
        // from then on.
        unsafe { &*std::ptr::with_exposed_provenance::<Partition>(address) }
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        for place in &self.places[..self.len()] {
            let address = place.load(Acquire);
            // SAFETY: made by `Box::into_raw` in `add`, and nobody has a reference any more, as the list is exclusively ours.
            drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Partition>(address)) });
        }
    }
}

//! How do cores of many nodes add to one counter without its line crossing the links at every addition?
//!
//! The cores of a node gather their additions, and one of them adds the sum for all: a list of requests on a line of the node, whose
//! first comer becomes the leader, waits until the node's previous leader is back, takes the list, adds once, and tells each how
//! much of it is his (combining: Goodman, Vernon and Woest, ASPLOS 1989; Hendler and others, "Flat combining", SPAA 2010). The longer
//! the counter's line takes, the more come together meanwhile, so the line never limits. Every addition happens between its call
//! and its return, as one of the counter's own would: a value read from the counter before is less, one read after is not.
//!
//! On one node an addition to the counter itself is cheaper: see [`Gather::for_nodes`].

use crate::CachePadded;
use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::task;

/// Nobody, in a list of requests.
const END: u32 = 0;
/// Looks at a line before pauses between them grow.
const LOOKS: u32 = 64;

/// Where a node's cores meet. Written by them alone.
struct Meeting {
    /// The last request of the list, its number plus one; [`END`]: the next comer leads.
    last: AtomicU32,
    /// A leader is on its way to the counter.
    busy: AtomicBool,
}

/// One requester's part. Written by it, and by its leader once.
struct Request {
    amount: AtomicU64,
    /// The one before in the list, its number plus one.
    next: AtomicU32,
    /// The counter's value before its addition, plus one; 0: not yet.
    result: AtomicU64,
}

/// Gathers additions to a counter by node.
pub struct Gather {
    meetings: Box<[CachePadded<Meeting>]>,
    requests: Box<[CachePadded<Request>]>,
}

impl Gather {
    /// For `requesters` at `nodes` nodes; nothing for one node.
    pub fn for_nodes(nodes: usize, requesters: usize) -> Option<Gather> {
        let meeting = || CachePadded(Meeting { last: AtomicU32::new(END), busy: AtomicBool::new(false) });
        let request =
            || CachePadded(Request { amount: AtomicU64::new(0), next: AtomicU32::new(END), result: AtomicU64::new(0) });
        (nodes > 1).then(|| Gather {
            meetings: (0..nodes).map(|_| meeting()).collect(),
            requests: (0..requesters).map(|_| request()).collect(),
        })
    }

    /// Adds `amount` to `counter`, which stays below 2^64 - 1, from a core of `node` (any number below that of
    /// [`for_nodes`](Gather::for_nodes) is right, its own is fast). Returns the value before. Sequentially consistent, as
    /// `counter.fetch_add(amount, SeqCst)`. `requester` is nobody else's at the same time. All calls name the same counter.
    pub fn add(&self, counter: &AtomicU64, node: usize, requester: usize, amount: u64) -> u64 {
        let meeting = &self.meetings[node];
        let mine = &self.requests[requester];
        mine.amount.store(amount, Ordering::Relaxed);
        mine.result.store(0, Ordering::Relaxed);
        let mut last = meeting.last.load(Ordering::Relaxed);
        loop {
            mine.next.store(last, Ordering::Relaxed);
            // Release: the leader, who acquires, sees the request, and all that its requester did before. Acquire: a
            // later comer passes on what earlier ones released.
            match meeting.last.compare_exchange(last, requester as u32 + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => last = now,
            }
        }
        if last == END { self.lead(meeting, counter, requester) } else { self.follow(mine) }
    }

    /// Adds for all who have come by the time that it is the node's turn. Returns the leader's own value before.
    fn lead(&self, meeting: &Meeting, counter: &AtomicU64, me: usize) -> u64 {
        wait_until(|| !meeting.busy.load(Ordering::Relaxed) && !meeting.busy.swap(true, Ordering::Acquire));
        let last = meeting.last.swap(END, Ordering::AcqRel);
        let mut sum = 0;
        self.each(last, |request, _| sum += request.amount.load(Ordering::Relaxed));
        let before = counter.fetch_add(sum, Ordering::SeqCst);
        meeting.busy.store(false, Ordering::Release);
        let (mut at, mut own) = (before, before);
        self.each(last, |request, number| {
            let amount = request.amount.load(Ordering::Relaxed);
            if number == me {
                own = at;
            } else {
                // Release: what the counter's earlier adders released is handed on.
                request.result.store(at + 1, Ordering::Release);
            }
            at += amount;
        });
        own
    }

    /// Visits the list that ends with `last`. A request is its requester's again as soon as it has its result: `next` is read before.
    fn each(&self, last: u32, mut visit: impl FnMut(&Request, usize)) {
        let mut number = last;
        while let Some(at) = number.checked_sub(1) {
            let request = &self.requests[at as usize];
            number = request.next.load(Ordering::Relaxed);
            visit(request, at as usize);
        }
    }

    fn follow(&self, mine: &Request) -> u64 {
        let mut result = 0;
        wait_until(|| {
            result = mine.result.load(Ordering::Acquire);
            result != 0
        });
        result - 1
    }
}

/// Spins: what is waited for takes as long as one line's transfer.
fn wait_until(mut ready: impl FnMut() -> bool) {
    let mut looks = 0;
    while !ready() {
        task::spin_hint(looks / LOOKS);
        looks += 1;
    }
}

#[cfg(all(test, not(homenode_lab)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_node_needs_none() {
        assert!(Gather::for_nodes(1, 4).is_none());
    }

    #[test]
    fn every_addition_gets_a_part_of_its_own() {
        const EACH: u64 = 5_000;
        let gather = Arc::new(Gather::for_nodes(2, 4).unwrap());
        let counter = Arc::new(AtomicU64::new(7));
        let adders = (0..4).map(|requester| {
            let (gather, counter) = (gather.clone(), counter.clone());
            std::thread::spawn(move || {
                let amount = |round: u64| 1 + (round + requester as u64) % 3;
                let mut parts = Vec::new();
                for round in 0..EACH {
                    let below = counter.load(Ordering::SeqCst);
                    let before = gather.add(&counter, requester % 2, requester, amount(round));
                    assert!(below <= before && before + amount(round) <= counter.load(Ordering::SeqCst));
                    parts.push((before, amount(round)));
                }
                parts
            })
        });
        let adders: Vec<_> = adders.collect();
        let mut parts: Vec<(u64, u64)> = adders.into_iter().flat_map(|adder| adder.join().unwrap()).collect();
        parts.sort_unstable();
        let mut at = 7;
        for (before, amount) in parts {
            assert_eq!(before, at, "parts follow each other");
            at += amount;
        }
        assert_eq!(at, counter.load(Ordering::SeqCst));
    }
}

// What does a loop over atomics cost? Included by the two programs that `bench/seam-cost` compares,
// each with its own `atomic` module in scope.

use atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Every kind of operation that the engine uses on its hot paths.
#[unsafe(no_mangle)]
#[inline(never)]
fn seam_loop(words: &[AtomicU64; 8], flag: &AtomicBool, small: &AtomicU32, rounds: usize) -> u64 {
    let position = AtomicUsize::new(0);
    let mut sum = 0u64;
    for _ in 0..rounds {
        let at = position.fetch_add(3, Ordering::Relaxed) % words.len();
        let seen = words[at].load(Ordering::Acquire);
        fence(Ordering::Acquire);
        let next = seen.wrapping_mul(31).wrapping_add(sum);
        if words[at].compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            sum = sum.wrapping_add(next);
        }
        small.fetch_or(at as u32, Ordering::Release);
        flag.store(sum & 1 == 0, Ordering::Release);
        sum ^= u64::from(small.swap(1, Ordering::AcqRel));
        words[7 - at].fetch_max(sum, Ordering::Relaxed);
    }
    sum
}

fn main() {
    let words = [const { AtomicU64::new(7) }; 8];
    let (flag, small) = (AtomicBool::new(false), AtomicU32::new(0));
    let sum = seam_loop(&words, &flag, &small, 100_000);
    println!("{sum}");
}

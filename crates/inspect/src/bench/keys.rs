//! Which row does the next statement want? Uniform, zipfian, scrambled zipfian.

use std::fmt;
use std::str::FromStr;

/// Random numbers, from a seed: xorshift64* (Vigna, ACM TOMS 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(mixed(seed.wrapping_add(1)) | 1)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 up to 1, without it.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 1 to `most`.
    pub fn up_to(&mut self, most: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(most)) >> 64) as u32 + 1
    }
}

/// A number's bits in disorder (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// How often each row is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each as often as the others.
    Uniform,
    /// The row of rank r in proportion to r to the power of minus this exponent; the rank is the key, so hot rows are neighbours.
    Zipfian(f64),
    /// The same, hot rows strewn over all keys (YCSB: Cooper et al., SoCC 2010).
    Scrambled(f64),
}

/// sysbench's default exponent.
const EXPONENT: f64 = 0.8;

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let (name, exponent) = text.split_once('=').unwrap_or((text, ""));
        let value = match exponent {
            "" => Some(EXPONENT),
            number => number.parse().ok().filter(|value: &f64| (0.01..=10.0).contains(value)),
        };
        match (name, value) {
            ("uniform", _) if exponent.is_empty() => Ok(Distribution::Uniform),
            ("zipfian", Some(value)) => Ok(Distribution::Zipfian(value)),
            ("scrambled", Some(value)) => Ok(Distribution::Scrambled(value)),
            _ => Err("uniform, zipfian or scrambled is wanted; the last two with an exponent if need be: zipfian=0.99"
                .into()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => out.write_str("uniform"),
            Distribution::Zipfian(exponent) => write!(out, "zipfian={exponent}"),
            Distribution::Scrambled(exponent) => write!(out, "scrambled={exponent}"),
        }
    }
}

/// Draws keys from 1 to a largest one.
#[derive(Clone, Debug)]
pub struct Keys {
    most: u32,
    zipf: Option<Zipf>,
    scrambled: bool,
}

impl Keys {
    /// Keys from 1 to `most`, which is at least 1.
    pub fn new(distribution: Distribution, most: u32) -> Keys {
        let most = most.max(1);
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipfian(exponent) | Distribution::Scrambled(exponent) => Some(Zipf::new(most, exponent)),
        };
        Keys { most, zipf, scrambled: matches!(distribution, Distribution::Scrambled(_)) }
    }

    /// The next key.
    pub fn next(&self, random: &mut Random) -> u32 {
        let rank = match &self.zipf {
            None => return random.up_to(self.most),
            Some(zipf) => zipf.rank(random),
        };
        if self.scrambled { (mixed(u64::from(rank)) % u64::from(self.most)) as u32 + 1 } else { rank }
    }
}

/// Zipf's distribution by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 1996): no table and no sum over all ranks.
#[derive(Clone, Debug)]
struct Zipf {
    most: f64,
    exponent: f64,
    /// The integral of the density up to 1.5 less the first rank's, and up to the last rank.
    area: (f64, f64),
    /// Below this distance from the rank no rejection is needed.
    sure: f64,
}

impl Zipf {
    fn new(most: u32, exponent: f64) -> Zipf {
        let mut zipf = Zipf { most: f64::from(most), exponent, area: (0.0, 0.0), sure: 0.0 };
        zipf.area = (zipf.integral(1.5) - 1.0, zipf.integral(zipf.most + 0.5));
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        // (e^p - 1) / p, which is 1 where p is 0.
        let ratio = if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 };
        ratio * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.exponent)).max(-1.0);
        let ratio = if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 };
        (ratio * area).exp()
    }

    fn rank(&self, random: &mut Random) -> u32 {
        loop {
            let area = self.area.1 + random.unit() * (self.area.0 - self.area.1);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.most);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(distribution: Distribution, most: u32, draws: u32) -> Vec<u32> {
        let (keys, mut random) = (Keys::new(distribution, most), Random::new(7));
        let mut counts = vec![0; most as usize + 1];
        (0..draws).for_each(|_| counts[keys.next(&mut random) as usize] += 1);
        counts
    }

    #[test]
    fn zipfian_ranks_are_as_frequent_as_the_law_says() {
        for exponent in [0.8, 1.0, 1.3] {
            let sum: f64 = (1..=100).map(|rank| f64::from(rank).powf(-exponent)).sum();
            let counts = counts(Distribution::Zipfian(exponent), 100, 400_000);
            for rank in [1u32, 2, 10, 50, 100] {
                let expected = 400_000.0 * f64::from(rank).powf(-exponent) / sum;
                let share = f64::from(counts[rank as usize]) / expected;
                assert!((0.93..1.07).contains(&share), "exponent {exponent}, rank {rank}: {share}");
            }
        }
    }

    #[test]
    fn the_most_wanted_of_three_million_keys_gets_one_in_a_hundred() {
        // What the design notes measured of sysbench: exponent 0.8 over 3 million rows gives the first key 1.06%.
        let (keys, mut random) = (Keys::new(Distribution::Zipfian(0.8), 3_000_000), Random::new(1));
        let first = (0..200_000).filter(|_| keys.next(&mut random) == 1).count();
        assert!((0.0098..0.0116).contains(&(first as f64 / 200_000.0)), "{first}");
    }

    #[test]
    fn scrambled_keys_are_as_skewed_but_not_neighbours() {
        let counts = counts(Distribution::Scrambled(0.99), 10_000, 200_000);
        let mut order: Vec<usize> = (1..counts.len()).collect();
        order.sort_by_key(|key| std::cmp::Reverse(counts[*key]));
        assert!(counts[order[0]] > 15_000, "{}", counts[order[0]]);
        assert!(order[..10].iter().any(|key| *key > 5_000) && order[..10].iter().any(|key| *key < 5_000));
        let uniform = super::tests::counts(Distribution::Uniform, 100, 100_000);
        assert!(uniform[1..].iter().all(|count| (800..1200).contains(count)));
    }

    #[test]
    fn names_are_read_and_written() {
        for text in ["uniform", "zipfian=0.8", "scrambled=0.99"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        assert_eq!("zipfian".parse(), Ok(Distribution::Zipfian(0.8)));
        for wrong in ["", "normal", "zipfian=x", "zipfian=-1", "uniform=2", "zipfian=nan"] {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn keys_stay_in_their_range(seed: u64, most in 1u32.., exponent in 0.01f64..10.0, scrambled: bool) {
            let kind = if scrambled { Distribution::Scrambled(exponent) } else { Distribution::Zipfian(exponent) };
            let (keys, mut random) = (Keys::new(kind, most), Random::new(seed));
            for _ in 0..50 {
                prop_assert!((1..=most).contains(&keys.next(&mut random)));
            }
        }
    }
}

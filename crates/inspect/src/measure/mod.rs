//! How long do memory and cores take to reach each other? Latency by pair of nodes, idle and under load, bandwidth by policy, core
//! to core, migration.
//!
//! Everything is repeated; the median is shown with its spread, and a machine that is too busy to say is said to be. Distances
//! of the firmware are no times: only this measures them.

mod run;

pub use run::{Loaded, bandwidth, core_to_core, latency, loaded_latency, migration};

/// Repeats of one measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeats {
    sorted: Vec<f64>,
}

impl Repeats {
    /// Takes measurements; `None` without any.
    pub fn new(mut values: Vec<f64>) -> Option<Repeats> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Repeats { sorted: values })
    }

    /// The middle one (the mean of the two in the middle).
    pub fn median(&self) -> f64 {
        let middle = self.sorted.len() / 2;
        if self.sorted.len() % 2 == 1 {
            self.sorted[middle]
        } else {
            (self.sorted[middle - 1] + self.sorted[middle]) / 2.0
        }
    }

    /// Difference of the largest and the smallest, as a share of the median.
    pub fn spread(&self) -> f64 {
        let (least, most) = (self.sorted[0], self.sorted[self.sorted.len() - 1]);
        if self.median() == 0.0 { 0.0 } else { (most - least) / self.median() }
    }
}

/// A spread beyond this is noise: something else used the machine.
pub const NOISY: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let repeats = Repeats::new(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((repeats.median(), repeats.spread()), (2.0, 1.0));
        assert_eq!(Repeats::new(vec![4.0, 2.0]).unwrap().median(), 3.0);
        assert_eq!(Repeats::new(vec![f64::NAN]), None);
    }
}

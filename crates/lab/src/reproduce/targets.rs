//! What shall hold of the engine on many nodes, and does it?

use super::{Experiment, Results};
use homenode_platform::lab::sim::Source;

/// One aim.
pub struct Target {
    /// Of what.
    pub what: String,
    /// What is wanted.
    pub aim: String,
    /// What the lab sees.
    pub seen: String,
    /// Whether that is enough.
    pub met: bool,
}

impl Target {
    /// One line.
    pub fn line(&self) -> String {
        let met = if self.met { "met    " } else { "NOT MET" };
        format!("{met} {}: {} (aim: {})", self.what, self.seen, self.aim)
    }
}

/// The aims that the experiments at hand speak of.
pub fn judge(all: &[(&Experiment, Results)]) -> Vec<Target> {
    let find = |name: &str| all.iter().find(|(experiment, _)| experiment.name == name).map(|(_, results)| results);
    let mut targets = Vec::new();
    if let Some(results) = find("hot-root") {
        let share = results.at("homenode", "4") / results.at("homenode-separate", "4");
        targets.push(at_least("hot-root, 4 nodes of separate databases", share, 0.95));
        let hitm = results.figure("homenode", "4", |figures| figures.each(Source::RemoteHitm));
        targets.push(Target {
            what: "hot-root, remote HITM a statement".to_owned(),
            aim: "below 0.05".to_owned(),
            seen: format!("{hitm:.3}"),
            met: hitm < 0.05,
        });
    }
    let linear = |results: &Results, series: &str| results.at(series, "4") / (4.0 * results.at(series, "1"));
    if let Some(results) = find("read-scale") {
        for series in ["point-select", "read-only"] {
            targets.push(at_least(&format!("{series}, 4 nodes of linear"), linear(results, series), 0.90));
        }
    }
    if let Some(results) = find("write-regress") {
        for workload in ["update-index", "update-non-index"] {
            let share = linear(results, &format!("{workload}, homenode"));
            targets.push(at_least(&format!("{workload} uniform, 4 nodes of linear"), share, 0.80));
        }
        let name = "update-index zipfian, homenode";
        let share = results.at(name, "4") / results.at(name, "1");
        targets.push(at_least("update-index zipfian, 4 nodes of 1 node", share, 1.0));
    }
    if let Some(results) = find("tpcb") {
        targets.push(at_least("TPC-B-like, 4 nodes of linear", linear(results, "homenode"), 0.70));
    }
    if let Some(results) = find("starvation") {
        let worst = results.at("homenode", "96 cores");
        targets.push(Target {
            what: "worst wait of an exclusive waiter, 96 cores sharing".to_owned(),
            aim: "bounded: at most 7 overtakings and the holds in between".to_owned(),
            seen: format!("{worst:.0} us"),
            met: worst > 0.0 && worst < 1000.0,
        });
        let blades = results.at("homenode", "320 cores");
        let lasted_us = results.figure("homenode", "320 cores", |figures| figures.seconds * 1e6);
        targets.push(Target {
            what: "the same on 320 cores of 16 sockets, 1,000 sessions".to_owned(),
            aim: "below 1 s".to_owned(),
            seen: format!("{:.4} s in a run of {:.4} s", blades / 1e6, lasted_us / 1e6),
            // A wait as long as the run says nothing about its end.
            met: blades > 0.0 && blades < lasted_us / 2.0 && blades < 1e6,
        });
    }
    if let Some(results) = find("blades") {
        let rates: Vec<f64> = ["2", "4", "8", "16"].iter().map(|nodes| results.at("homenode", nodes)).collect();
        let falls = rates.windows(2).any(|pair| pair[1] < pair[0]);
        targets.push(Target {
            what: "blades, point-select: more cores never mean less throughput".to_owned(),
            aim: "no fall from 2 to 16 sockets".to_owned(),
            seen: rates.iter().map(|rate| format!("{:.2} M", rate / 1e6)).collect::<Vec<_>>().join(", "),
            met: !falls,
        });
    }
    targets
}

fn at_least(what: &str, share: f64, aim: f64) -> Target {
    Target {
        what: what.to_owned(),
        aim: format!("at least {:.0}%", 100.0 * aim),
        seen: format!("{:.1}%", 100.0 * share),
        met: share >= aim,
    }
}

//! Which lines move between cores? The records of a run as JSON and as text, in the shape of `perf c2c`.
//!
//! One record type, [`LineReport`], so that the same printer can serve what `perf c2c` measured.

use homenode_platform::lab::measure;
use homenode_platform::lab::sim::{Hardware, LineRecord, PlaceRecord};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One line of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineReport {
    /// What lies there, as far as it has a name; else the line's number.
    pub name: String,
    /// The node that its memory is on.
    pub node: u64,
    /// Loads and updates that a modified copy in the same node answered.
    pub local_hitm: u64,
    /// The same from another node.
    pub remote_hitm: u64,
    /// Reads.
    pub loads: u64,
    /// Writes and updates.
    pub stores: u64,
    /// What was done at which offset.
    pub places: Vec<PlaceReport>,
}

/// What one place in the code did to one offset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceReport {
    /// Bytes from the line's start.
    pub offset: u64,
    /// Structure and field.
    pub field: String,
    /// File and line.
    pub place: String,
    /// As for the line.
    pub local_hitm: u64,
    /// As for the line.
    pub remote_hitm: u64,
    /// As for the line.
    pub loads: u64,
    /// As for the line.
    pub stores: u64,
    /// Mean time of the accesses that the own cache couldn't answer, nanoseconds.
    pub miss_ns_mean: f64,
    /// Cores that were there.
    pub cores: u64,
    /// Nodes that were there.
    pub nodes: u64,
}

/// The records with their names, as JSON: lines with the most transfers first.
pub fn to_json(lines: &[LineRecord], hardware: &Hardware) -> Value {
    let ranges = hardware.cores_of_nodes();
    let place = |line: &LineRecord, place: &PlaceRecord| {
        let has = |core: usize| place.cores.get(core / 64).is_some_and(|word| word >> (core % 64) & 1 != 0);
        let nodes = ranges.iter().filter(|range| (*range).clone().any(has)).count();
        let cores: u32 = place.cores.iter().map(|word| word.count_ones()).sum();
        json!({
            "offset": place.offset,
            "field": measure::describe(line.address + place.offset).unwrap_or_default(),
            "place": format!("{}:{}", place.place.file(), place.place.line()),
            "local_hitm": place.local_hitm, "remote_hitm": place.remote_hitm,
            "loads": place.loads, "stores": place.stores,
            "miss_ns_mean": place.miss_ns as f64 / place.misses.max(1) as f64,
            "cores": cores, "nodes": nodes,
        })
    };
    let line = |line: &LineRecord| {
        let sum = |f: fn(&PlaceRecord) -> u64| line.places.iter().map(f).sum::<u64>();
        let named = line.places.iter().find_map(|place| measure::describe(line.address + place.offset));
        let name = named.map_or_else(|| format!("line {}", line.number), |name| structure(&name).to_owned());
        json!({
            "name": name, "node": line.node,
            "local_hitm": sum(|place| place.local_hitm), "remote_hitm": sum(|place| place.remote_hitm),
            "loads": sum(|place| place.loads), "stores": sum(|place| place.stores),
            "places": merged(&line.places).iter().map(|one| place(line, one)).collect::<Vec<_>>(),
        })
    };
    Value::Array(lines.iter().take(LINES_KEPT).map(line).collect())
}

/// One place in the text may be several in the program (generic code, inlined code): they are added up.
fn merged(places: &[PlaceRecord]) -> Vec<PlaceRecord> {
    let mut merged: Vec<PlaceRecord> = Vec::new();
    let key = |place: &PlaceRecord| (place.offset, place.place.file(), place.place.line());
    for place in places {
        let Some(same) = merged.last_mut().filter(|last| key(last) == key(place)) else {
            merged.push(place.clone());
            continue;
        };
        same.local_hitm += place.local_hitm;
        same.remote_hitm += place.remote_hitm;
        same.loads += place.loads;
        same.stores += place.stores;
        same.misses += place.misses;
        same.miss_ns += place.miss_ns;
        same.cores.resize(same.cores.len().max(place.cores.len()), 0);
        same.cores.iter_mut().zip(&place.cores).for_each(|(all, more)| *all |= more);
    }
    merged
}

/// Lines that a report keeps.
const LINES_KEPT: usize = 200;

fn structure(field: &str) -> &str {
    field.split_once("].").map_or(field, |(before, _)| &field[..before.len() + 1])
}

/// Reads what [`to_json`] wrote.
pub fn from_json(value: &Value) -> Vec<LineReport> {
    let whole = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("").to_owned();
    let place = |value: &Value| PlaceReport {
        offset: whole(value, "offset"),
        field: text(value, "field"),
        place: text(value, "place"),
        local_hitm: whole(value, "local_hitm"),
        remote_hitm: whole(value, "remote_hitm"),
        loads: whole(value, "loads"),
        stores: whole(value, "stores"),
        miss_ns_mean: value["miss_ns_mean"].as_f64().unwrap_or(0.0),
        cores: whole(value, "cores"),
        nodes: whole(value, "nodes"),
    };
    let line = |value: &Value| LineReport {
        name: text(value, "name"),
        node: whole(value, "node"),
        local_hitm: whole(value, "local_hitm"),
        remote_hitm: whole(value, "remote_hitm"),
        loads: whole(value, "loads"),
        stores: whole(value, "stores"),
        places: value["places"].as_array().map_or_else(Vec::new, |all| all.iter().map(place).collect()),
    };
    value.as_array().map_or_else(Vec::new, |all| all.iter().map(line).collect())
}

/// The table of lines, and a page for each of the first `pages`.
pub fn to_text(lines: &[LineReport], statements: u64, top: usize, pages: usize) -> String {
    let mut out = String::new();
    let total: u64 = lines.iter().map(|line| line.local_hitm + line.remote_hitm).sum();
    let _ = writeln!(out, "   #   share   HITM local  remote   a statement      loads     stores  node  what");
    for (at, line) in lines.iter().take(top).enumerate() {
        let hitm = line.local_hitm + line.remote_hitm;
        let _ = writeln!(
            out,
            "{at:4} {:6.2}% {:12} {:7} {:13.4} {:10} {:10} {:5}  {}",
            100.0 * hitm as f64 / total.max(1) as f64,
            line.local_hitm,
            line.remote_hitm,
            hitm as f64 / statements.max(1) as f64,
            line.loads,
            line.stores,
            line.node,
            line.name,
        );
    }
    for (at, line) in lines.iter().take(pages.min(top)).enumerate() {
        let _ = writeln!(out, "\nline {at}: {} (memory of node {})", line.name, line.node);
        let _ = writeln!(out, "  offset  HITM local  remote      loads     stores  mean ns  cores nodes  field, code");
        for place in &line.places {
            let _ = writeln!(
                out,
                "    0x{:02x} {:11} {:7} {:10} {:10} {:8.1} {:6} {:5}  {} {}",
                place.offset,
                place.local_hitm,
                place.remote_hitm,
                place.loads,
                place.stores,
                place.miss_ns_mean,
                place.cores,
                place.nodes,
                if place.field.is_empty() { "-" } else { &place.field },
                place.place,
            );
        }
        if let Some(advice) = advice(line) {
            let _ = writeln!(out, "  {advice}");
        }
    }
    out
}

/// Which offsets should leave the line: those that are read by many and hardly written, beside ones that are written.
pub fn advice(line: &LineReport) -> Option<String> {
    let mut offsets: Vec<u64> = line.places.iter().map(|place| place.offset).collect();
    offsets.dedup();
    let sums = |offset: u64| {
        let here = line.places.iter().filter(|place| place.offset == offset);
        here.fold((0, 0, 0), |sum, place| {
            (sum.0 + place.loads, sum.1 + place.stores, sum.2 + place.local_hitm + place.remote_hitm)
        })
    };
    let is_read_mostly = |&offset: &u64| {
        let (loads, stores, _) = sums(offset);
        loads > 20 * stores
    };
    let (quiet, busy): (Vec<u64>, Vec<u64>) = offsets.iter().partition(|offset| is_read_mostly(offset));
    let saved: u64 = quiet.iter().map(|offset| sums(*offset).2).sum();
    if quiet.is_empty() || busy.is_empty() || saved == 0 {
        return None;
    }
    let total = line.local_hitm + line.remote_hitm;
    let named = |offset: &u64| {
        let place = line.places.iter().find(|place| place.offset == *offset);
        place.filter(|place| !place.field.is_empty()).map_or_else(|| format!("0x{offset:02x}"), |p| p.field.clone())
    };
    let list: Vec<String> = quiet.iter().map(named).collect();
    Some(format!(
        "part: {} {} read and hardly written, beside what is written; on a line of {} own {:.0}% of this line's transfers would go",
        list.join(", "),
        if list.len() == 1 { "is" } else { "are" },
        if list.len() == 1 { "its" } else { "their" },
        100.0 * saved as f64 / total.max(1) as f64,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64, loads: u64, stores: u64, remote_hitm: u64) -> PlaceReport {
        PlaceReport { offset, loads, stores, remote_hitm, field: format!("S[0].f{offset}"), ..PlaceReport::default() }
    }

    #[test]
    fn a_read_mostly_field_beside_a_written_one_is_found() {
        let mut line = LineReport {
            places: vec![place(0, 1000, 0, 300), place(8, 100, 900, 200)],
            remote_hitm: 500,
            ..LineReport::default()
        };
        let text = advice(&line).unwrap();
        assert!(text.contains("S[0].f0 is read") && text.contains("60%"), "{text}");
        line.places.pop();
        assert_eq!(advice(&line), None, "nothing disturbs it");
    }

    #[test]
    fn the_table_shows_shares_and_pages() {
        let line = |name: &str, remote_hitm| LineReport {
            name: name.to_owned(),
            remote_hitm,
            places: vec![place(8, 10, 5, remote_hitm)],
            ..LineReport::default()
        };
        let text = to_text(&[line("A[0]", 75), line("B[1]", 25)], 100, 10, 1);
        assert!(text.contains(" 75.00%") && text.contains("0.7500") && text.contains("B[1]"), "{text}");
        assert!(text.contains("0x08") && text.contains("line 0: A[0]") && !text.contains("line 1:"), "{text}");
    }
}

//! Which lines move between cores? A run's records as JSON, and as the lines of the one report that `homenode c2c` prints as well.

use homenode_lines::{Counts, Found, Line, Place, View, to_part};
use homenode_platform::lab::measure;
use homenode_platform::lab::sim::{Hardware, LineRecord, PlaceRecord, Source};
use serde_json::{Value, json};

/// Lines that a report keeps.
const LINES_KEPT: usize = 200;

/// The records with their names, as JSON: lines with the most transfers first.
pub fn to_json(lines: &[LineRecord]) -> Value {
    let place = |line: &LineRecord, place: &PlaceRecord| {
        json!({
            "offset": place.offset,
            "field": measure::describe(line.address + place.offset),
            "place": format!("{}:{}", place.place.file(), place.place.line()),
            "accesses": place.accesses,
            "loads": place.loads,
            "stores": place.stores,
            "store_misses": place.store_misses,
            "miss_ns": place.miss_ns,
            "misses": place.misses,
            "cores": cores(&place.cores),
            "callers": place.callers.iter().collect::<Vec<_>>(),
        })
    };
    let line = |line: &LineRecord| {
        let places: Vec<Value> = line.places.iter().map(|one| place(line, one)).collect();
        json!({ "number": line.number, "node": line.node, "places": places })
    };
    Value::Array(lines.iter().take(LINES_KEPT).map(line).collect())
}

/// The numbers in a set of cores.
fn cores(set: &[u64]) -> Vec<usize> {
    let is_in = |core: &usize| set[core / 64] >> (core % 64) & 1 != 0;
    (0..set.len() * 64).filter(is_in).collect()
}

/// Reads what [`to_json`] wrote.
pub fn from_json(value: &Value) -> Vec<Line> {
    value.as_array().map_or_else(Vec::new, |all| all.iter().map(line).collect())
}

fn line(value: &Value) -> Line {
    // Numbers rather than addresses: those of the host differ from run to run.
    let address = value["number"].as_u64().unwrap_or(0) * homenode_lines::LINE_BYTES;
    let mut line = Line {
        address,
        virtual_address: address,
        memory_node: value["node"].as_u64().map(|node| node as usize),
        ..Line::default()
    };
    let mut instructions: Vec<&str> = Vec::new();
    for value in value["places"].as_array().into_iter().flatten() {
        let at = value["place"].as_str().unwrap_or("");
        // One place in the text may be several in the program (generic code, inlined code): they are added up.
        let instruction = instructions.iter().position(|known| *known == at).unwrap_or_else(|| {
            instructions.push(at);
            instructions.len() - 1
        });
        let key = (value["offset"].as_u64().unwrap_or(0), instruction as u64);
        let read = place(value, at);
        line.counts.merge(&read.counts);
        line.cpus.extend(&read.cpus);
        merge(line.places.entry(key).or_default(), read);
    }
    line.cpus.sort_unstable();
    line.cpus.dedup();
    line
}

fn place(value: &Value, at: &str) -> Place {
    let whole = |value: &Value| value.as_u64().unwrap_or(0);
    let list = |value: &Value| value.as_array().map_or_else(Vec::new, |all| all.iter().map(whole).collect::<Vec<_>>());
    let stack = |pair: &Value| {
        let names = pair[0].as_array()?.iter().map(|name| Some(name.as_str()?.to_owned()));
        Some((names.collect::<Option<Vec<String>>>()?, whole(&pair[1])))
    };
    let mut counts = Counts {
        records: whole(&value["accesses"]),
        stores: whole(&value["stores"]),
        store_misses: whole(&value["store_misses"]),
        latency_sum: whole(&value["miss_ns"]),
        latency_samples: whole(&value["misses"]),
        ..Counts::default()
    };
    for (source, loads) in list(&value["loads"]).into_iter().enumerate().filter(|(_, loads)| *loads > 0) {
        *counts.loads.entry(found(source)).or_default() += loads;
    }
    Place {
        counts,
        cpus: list(&value["cores"]).into_iter().map(|core| core as usize).collect(),
        function: at.trim_start_matches("crates/").to_owned(),
        field: value["field"].as_str().map(str::to_owned),
        callers: value["callers"].as_array().into_iter().flatten().filter_map(stack).collect(),
    }
}

fn merge(place: &mut Place, more: Place) {
    place.counts.merge(&more.counts);
    place.cpus.extend(more.cpus);
    place.cpus.sort_unstable();
    place.cpus.dedup();
    (place.function, place.field) = (more.function, more.field);
    for (stack, samples) in more.callers {
        *place.callers.entry(stack).or_default() += samples;
    }
}

/// What a processor's counters call that source.
fn found(source: usize) -> Found {
    match source {
        s if s == Source::Own as usize || s == Source::Upgrade as usize => Found::Core,
        s if s == Source::L3 as usize || s == Source::NodeClean as usize => Found::LocalCache,
        s if s == Source::LocalHitm as usize => Found::LocalModified,
        s if s == Source::RemoteHitm as usize => Found::RemoteModified,
        s if s == Source::LocalMemory as usize => Found::LocalMemory,
        s if s == Source::RemoteMemory as usize => Found::RemoteMemory,
        _ => Found::Unknown,
    }
}

/// How a run's lines are shown.
pub fn view<'a>(hardware: &Hardware, topology: &'a homenode_topology::Topology, statements: u64) -> View<'a> {
    View { topology: Some(topology), unit: "ns", hit_latency: hardware.hit_ns.round() as u64, statements }
}

/// The fields that a report's page says to part, as `--part` takes them; empty if there are none or they have no names.
pub fn fields_to_part(line: &Line, view: &View<'_>) -> Vec<String> {
    let offsets = to_part(line, view).map_or_else(Vec::new, |part| part.read);
    let mut fields: Vec<String> = offsets.iter().filter_map(|offset| line.field(*offset)).map(of_all).collect();
    fields.dedup();
    fields
}

/// `pool::Frame[12].latch` is `pool::Frame.latch` of every frame.
fn of_all(field: &str) -> String {
    let (Some(open), Some(close)) = (field.find('['), field.find(']')) else { return field.to_owned() };
    format!("{}{}", &field[..open], &field[close + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: View<'_> = View { topology: None, unit: "ns", hit_latency: 2, statements: 10 };

    fn record() -> Value {
        let loads = |hitm: u64| json!([7, 0, 0, 0, 0, hitm, 0, 0]);
        let place = |offset: u64, field: &str, at: &str, hitm: u64, stores: u64| {
            json!({ "offset": offset, "field": field, "place": at, "accesses": 7 + hitm, "loads": loads(hitm), "stores": stores,
                "store_misses": 0, "miss_ns": 100 * hitm, "misses": hitm, "cores": [1, 70], "callers": [[["a", "b"], 2]] })
        };
        json!([{ "number": 3, "node": 1, "places": [
            place(0, "S[4].limit", "crates/s/src/s.rs:5", 3, 0),
            place(0, "S[4].limit", "crates/s/src/s.rs:5", 2, 0),
            place(8, "S[4].next", "crates/s/src/s.rs:9", 1, 8),
        ] }])
    }

    #[test]
    fn records_become_lines_and_one_place_in_the_text_is_one() {
        let lines = from_json(&record());
        let line = &lines[0];
        assert_eq!((line.address, line.memory_node, &line.cpus[..]), (192, Some(1), &[1, 70][..]));
        assert_eq!((line.places.len(), line.counts.modified(), line.counts.stores), (2, 6, 8));
        let limit = &line.places[&(0, 0)];
        assert_eq!((limit.counts.modified(), limit.counts.mean_latency()), (5, Some(100.0)));
        assert_eq!(limit.by_count(), [(&["a".to_owned(), "b".to_owned()][..], 4)]);
        assert_eq!(limit.function, "s/src/s.rs:5");
    }

    #[test]
    fn what_to_part_is_named_without_which_one_it_is() {
        let lines = from_json(&record());
        assert_eq!(fields_to_part(&lines[0], &VIEW), ["S.limit"]);
    }

    #[test]
    fn sets_of_cores_are_listed() {
        assert_eq!(cores(&[0b101, 1 << 6]), [0, 2, 70]);
        assert_eq!(cores(&[]), [0usize; 0]);
    }
}

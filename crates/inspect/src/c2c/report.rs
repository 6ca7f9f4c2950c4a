//! How are contended lines shown? A table of lines, a page for one line, and which fields to part.

use homenode_topology::Topology;

use super::{Counts, Found, Line, Place};
use crate::text::{Table, share, shorten};

/// Lines in a table, those fought over most first.
pub fn table(lines: &[Line], most: usize, topology: Option<&Topology>) -> String {
    let modified: u64 = lines.iter().map(|line| line.counts.modified()).sum();
    let mut table = Table::new(&[
        "#",
        "<line",
        "HITM",
        "local",
        "remote",
        "records",
        "loads",
        "stores",
        "missed",
        "memory",
        "remote",
        "CPUs",
        "nodes",
        "<hottest at",
    ]);
    for (index, line) in lines.iter().take(most).enumerate() {
        let counts = &line.counts;
        let hottest = line.places.iter().max_by_key(|(_, place)| (place.counts.modified(), place.counts.records));
        let hottest = hottest.map_or(String::new(), |((offset, _), place)| place_name(*offset, place));
        table.row([
            index.to_string(),
            format!("{:#x}", line.address),
            share(counts.modified(), modified),
            counts.found(Found::LocalModified).to_string(),
            counts.found(Found::RemoteModified).to_string(),
            counts.records.to_string(),
            counts.loads.values().sum::<u64>().to_string(),
            counts.stores.to_string(),
            counts.store_misses.to_string(),
            counts.found(Found::LocalMemory).to_string(),
            counts.found(Found::RemoteMemory).to_string(),
            line.cpus.len().to_string(),
            nodes(&line.cpus, topology),
            shorten(&hottest, 44),
        ]);
    }
    let kind = if lines.iter().any(|line| line.is_physical) { "physical" } else { "virtual" };
    format!(
        "{}\nHITM: share of all loads that found a line modified by another core ({modified} samples); addresses are {kind}\n",
        table.render()
    )
}

fn nodes(cpus: &[usize], topology: Option<&Topology>) -> String {
    let Some(topology) = topology else {
        return "?".to_owned();
    };
    let mut nodes: Vec<usize> = cpus.iter().filter_map(|cpu| topology.cpu(*cpu)).map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    homenode_topology::format_list(&nodes)
}

fn place_name(offset: u64, place: &Place) -> String {
    match &place.field {
        Some(field) => format!("{offset:#04x} {field} in {}", place.function),
        None => format!("{offset:#04x} in {}", place.function),
    }
}

/// One line: each offset and instruction with its shares, CPUs, nodes, latency, function and callers.
pub fn line_page(line: &Line, topology: Option<&Topology>) -> String {
    let all = &line.counts;
    let mut text = format!(
        "line {:#x}{}, seen at {:#x}: {} records, {} local and {} remote HITM, by {}\n\n",
        line.address,
        if line.is_physical { " (physical)" } else { "" },
        line.virtual_address,
        all.records,
        all.found(Found::LocalModified),
        all.found(Found::RemoteModified),
        shorten(&line.commands.join(", "), 60),
    );
    let mut table = Table::new(&[
        "offset",
        "<field",
        "remote HITM",
        "local HITM",
        "stores",
        "missed",
        "cycles",
        "CPUs",
        "nodes",
        "<function",
    ]);
    let mut places: Vec<(&(u64, u64), &Place)> = line.places.iter().collect();
    places.sort_by_key(|((offset, _), place)| (*offset, std::cmp::Reverse(place.counts.records)));
    for ((offset, _), place) in &places {
        let counts = &place.counts;
        table.row([
            format!("{offset:#04x}"),
            place.field.clone().unwrap_or_default(),
            share(counts.found(Found::RemoteModified), all.found(Found::RemoteModified)),
            share(counts.found(Found::LocalModified), all.found(Found::LocalModified)),
            share(counts.stores, all.stores),
            share(counts.store_misses, all.store_misses),
            counts.mean_latency_cycles().map_or("-".to_owned(), |cycles| format!("{cycles:.0}")),
            place.cpus.len().to_string(),
            nodes(&place.cpus, topology),
            place.function.clone(),
        ]);
    }
    text.push_str(&table.render());
    for ((offset, _), place) in places.iter().filter(|(_, place)| !place.callers.is_empty()) {
        text.push_str(&format!(
            "\n{offset:#04x} {} called by {}",
            place.function,
            shorten(&place.callers.join(" < "), 90)
        ));
    }
    if places.iter().any(|(_, place)| !place.callers.is_empty()) {
        text.push('\n');
    }
    text.push_str(&advice(line));
    text
}

/// Offsets of a line that are read by others than those who write them: fields to put on lines of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToPart {
    /// Offsets that are written.
    pub written: Vec<u64>,
    /// Offsets that are read and (in these samples) never written.
    pub read: Vec<u64>,
    /// Loads that found the line modified, at offsets that are never written: those that parting would save.
    pub saved: u64,
    /// All loads that found the line modified.
    pub of: u64,
    /// The predicted gain: cycles that the samples at those offsets took beyond what a line that nobody writes takes.
    pub saved_cycles: u64,
}

/// Which fields of a line to part; `None` if there is nothing to gain: one field is all there is, or every field is written.
pub fn to_part(line: &Line) -> Option<ToPart> {
    let counts = |offset: u64| -> Vec<&Counts> {
        line.places.iter().filter(|((at, _), _)| *at == offset).map(|(_, place)| &place.counts).collect()
    };
    let mut offsets: Vec<u64> = line.places.keys().map(|(offset, _)| *offset).collect();
    offsets.dedup();
    let (written, read): (Vec<u64>, Vec<u64>) =
        offsets.into_iter().partition(|offset| counts(*offset).iter().any(|counts| counts.stores > 0));
    let saved: u64 = read.iter().flat_map(|offset| counts(*offset)).map(Counts::modified).sum();
    let saved_cycles = read.iter().flat_map(|offset| counts(*offset)).map(beyond_a_hit).sum();
    (saved > 0 && !written.is_empty()).then(|| ToPart {
        written,
        read,
        saved,
        of: line.counts.modified(),
        saved_cycles,
    })
}

/// Cycles of the samples of a place beyond a hit in the first cache, if some of them found the line modified.
fn beyond_a_hit(counts: &Counts) -> u64 {
    /// Such a hit takes 4 to 6 cycles on all three vendors' current cores (Intel's and AMD's optimization manuals, Arm's for Neoverse).
    const HIT_CYCLES: u64 = 5;
    let modified = counts.modified();
    if modified == 0 { 0 } else { counts.latency_cycles().saturating_sub(counts.records * HIT_CYCLES) }
}

fn advice(line: &Line) -> String {
    let name = |offset: &u64| {
        let field = line.places.iter().find(|((at, _), place)| at == offset && place.field.is_some());
        field.and_then(|(_, place)| place.field.clone()).unwrap_or_else(|| format!("{offset:#04x}"))
    };
    match to_part(line) {
        Some(part) => format!(
            "\nto part: {} (only read here) from {} (written): {} of this line's HITM loads are to fields that nobody writes;\n\
             predicted gain: {} of the cycles that this line's samples took\n",
            part.read.iter().map(name).collect::<Vec<_>>().join(", "),
            part.written.iter().map(name).collect::<Vec<_>>().join(", "),
            share(part.saved, part.of),
            share(part.saved_cycles, line.counts.latency_cycles())
        ),
        None if line.counts.modified() > 0 => {
            "\nno fields to part: those that are read are written too; fewer writes or more copies would help\n"
                .to_owned()
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::access;
    use super::super::{What, lines};
    use super::*;

    /// The second document's first line: a tag and an id that are only read, beside a state that all write.
    fn descriptor() -> Vec<Line> {
        let hitm = What::Load(Found::RemoteModified);
        let accesses = [
            access(hitm, 0x1010, 0, 1),
            access(hitm, 0x1014, 0, 2),
            access(hitm, 0x1014, 0, 3),
            access(hitm, 0x1018, 0, 1),
            access(What::Store(Some(true)), 0x1018, 0, 1),
            access(What::Store(Some(false)), 0x1018, 0, 2),
        ];
        lines(&accesses)
    }

    #[test]
    fn read_fields_beside_written_ones_are_to_be_parted() {
        let part = to_part(&descriptor()[0]).unwrap();
        assert_eq!((part.read, part.written), (vec![0x10, 0x14], vec![0x18]));
        assert_eq!((part.saved, part.of), (3, 4));
    }

    #[test]
    fn a_lock_alone_has_nothing_to_part() {
        let accesses = [access(What::Load(Found::LocalModified), 0x40, 0, 1), access(What::Store(None), 0x40, 0, 2)];
        assert_eq!(to_part(&lines(&accesses)[0]), None);
        assert!(line_page(&lines(&accesses)[0], None).contains("no fields to part"));
    }

    #[test]
    fn the_table_and_the_page_say_what_was_counted() {
        let lines = descriptor();
        let text = table(&lines, 10, None);
        assert!(text.contains("0x1000") && text.contains("100.0%") && text.contains("addresses are virtual"), "{text}");
        let page = line_page(&lines[0], None);
        assert!(page.contains("75.0% of this line's HITM loads"), "{page}");
        assert_eq!(page.lines().filter(|line| line.trim_start().starts_with("0x1")).count(), 3, "{page}");
    }
}

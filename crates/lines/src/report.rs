//! How are contended lines shown? A table of lines, a page for one line, and which fields to part.

use homenode_topology::Topology;

use super::{Counts, Found, Line, Place};
use crate::text::{Table, share, shorten};

/// What a report needs to know of the machine that its lines come from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The machine, to tell CPUs' nodes.
    pub topology: Option<&'a Topology>,
    /// What latencies are counted in.
    pub unit: &'static str,
    /// What an access takes that the first cache answers.
    pub hit_latency: u64,
    /// Statements (or whatever was counted) in the same time; 0: not known.
    pub statements: u64,
}

impl<'a> View<'a> {
    /// For samples of a processor's counters.
    pub fn cycles(topology: Option<&'a Topology>) -> View<'a> {
        // A hit takes 4 to 6 cycles on all three vendors' current cores (Intel's and AMD's optimization manuals, Arm's for Neoverse).
        View { topology, unit: "cycles", hit_latency: 5, statements: 0 }
    }

    fn nodes(&self, cpus: &[usize]) -> String {
        let Some(topology) = self.topology else {
            return "?".to_owned();
        };
        let mut nodes: Vec<usize> = cpus.iter().filter_map(|cpu| topology.cpu(*cpu)).map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        homenode_topology::format_list(&nodes)
    }
}

/// Lines in a table, those fought over most first.
pub fn table(lines: &[Line], most: usize, view: &View<'_>) -> String {
    let modified: u64 = lines.iter().map(|line| line.counts.modified()).sum();
    let mut heading = vec!["#", "<line", "HITM", "local", "remote"];
    heading.extend((view.statements > 0).then_some("each"));
    heading.extend(["records", "loads", "stores", "missed", "memory", "remote", "CPUs", "nodes", "<hottest at"]);
    let mut table = Table::new(&heading);
    for (index, line) in lines.iter().take(most).enumerate() {
        let counts = &line.counts;
        let hottest = line.places.iter().max_by_key(|(_, place)| (place.counts.modified(), place.counts.records));
        let hottest = hottest.map_or(String::new(), |((offset, _), place)| place_name(*offset, place));
        let mut row = vec![
            index.to_string(),
            format!("{:#x}", line.address),
            share(counts.modified(), modified),
            counts.found(Found::LocalModified).to_string(),
            counts.found(Found::RemoteModified).to_string(),
        ];
        if view.statements > 0 {
            row.push(format!("{:.4}", counts.modified() as f64 / view.statements as f64));
        }
        row.extend([
            counts.records.to_string(),
            counts.loads.values().sum::<u64>().to_string(),
            counts.stores.to_string(),
            counts.store_misses.to_string(),
            counts.found(Found::LocalMemory).to_string(),
            counts.found(Found::RemoteMemory).to_string(),
            line.cpus.len().to_string(),
            view.nodes(&line.cpus),
            shorten(&hottest, 60),
        ]);
        table.row(row);
    }
    let each = if view.statements > 0 { "; each: of those for one statement" } else { "" };
    let kind = if lines.iter().any(|line| line.is_physical) { "physical" } else { "virtual" };
    format!(
        "{}\nHITM: share of all loads that found a line modified by another core ({modified} samples){each}; addresses are {kind}\n",
        table.render()
    )
}

fn place_name(offset: u64, place: &Place) -> String {
    match &place.field {
        Some(field) => format!("{offset:#04x} {field} in {}", place.function),
        None => format!("{offset:#04x} in {}", place.function),
    }
}

/// One line: each offset and instruction with its shares, CPUs, nodes, latency, function and callers.
pub fn line_page(line: &Line, view: &View<'_>) -> String {
    let all = &line.counts;
    let mut text = heading(line);
    let mut table = Table::new(&[
        "offset",
        "<field",
        "remote HITM",
        "local HITM",
        "stores",
        "missed",
        view.unit,
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
            counts.mean_latency().map_or("-".to_owned(), |mean| format!("{mean:.0}")),
            place.cpus.len().to_string(),
            view.nodes(&place.cpus),
            place.function.clone(),
        ]);
    }
    text.push_str(&table.render());
    text.push_str(&callers(&places));
    text.push_str(&advice(line, view));
    text
}

fn heading(line: &Line) -> String {
    let all = &line.counts;
    let mut text = format!("line {:#x}", line.address);
    if line.is_physical {
        text.push_str(&format!(" (physical), seen at {:#x}", line.virtual_address));
    }
    if let Some(node) = line.memory_node {
        text.push_str(&format!(" in memory of node {node}"));
    }
    let (local, remote) = (all.found(Found::LocalModified), all.found(Found::RemoteModified));
    text.push_str(&format!(": {} records, {local} local and {remote} remote HITM", all.records));
    if !line.commands.is_empty() {
        text.push_str(&format!(", by {}", shorten(&line.commands.join(", "), 60)));
    }
    text.push_str("\n\n");
    text
}

/// Stacks shown for one place.
const STACKS: usize = 4;

/// Who called, by share of the place's samples; places without samples say nothing.
fn callers(places: &[(&(u64, u64), &Place)]) -> String {
    let mut text = String::new();
    for ((offset, _), place) in places.iter().filter(|(_, place)| !place.callers.is_empty()) {
        let stacks = place.by_count();
        let all: u64 = stacks.iter().map(|(_, samples)| samples).sum();
        text.push_str(&format!("\n{offset:#04x} {} called by ({all} sampled)\n", place.function));
        for (stack, samples) in stacks.iter().take(STACKS) {
            text.push_str(&format!("  {:>6}  {}\n", share(*samples, all), shorten(&stack.join(" < "), 150)));
        }
        if stacks.len() > STACKS {
            let rest: u64 = stacks[STACKS..].iter().map(|(_, samples)| samples).sum();
            text.push_str(&format!("  {:>6}  from {} other stacks\n", share(rest, all), stacks.len() - STACKS));
        }
    }
    text
}

/// Offsets of a line that are read by others than those who write them: fields to put on lines of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToPart {
    /// Offsets that are written.
    pub written: Vec<u64>,
    /// Offsets that are read and hardly ever written: at most one store in [`READS_PER_WRITE`] loads.
    pub read: Vec<u64>,
    /// Loads that found the line modified at offsets that are hardly written: those that parting would save.
    pub saved: u64,
    /// All loads that found the line modified.
    pub of: u64,
    /// The predicted gain: what the accesses to those offsets took beyond what a line that nobody writes takes.
    pub saved_latency: u64,
}

/// A field with so many loads for a store counts as read.
pub const READS_PER_WRITE: u64 = 20;

/// Which fields of a line to part; `None` if there is nothing to gain: one field is all there is, or every field is written.
pub fn to_part(line: &Line, view: &View<'_>) -> Option<ToPart> {
    let counts = |offset: u64| -> Vec<&Counts> {
        line.places.iter().filter(|((at, _), _)| *at == offset).map(|(_, place)| &place.counts).collect()
    };
    let mut offsets: Vec<u64> = line.places.keys().map(|(offset, _)| *offset).collect();
    offsets.dedup();
    let is_written = |offset: &u64| {
        let all = counts(*offset);
        let loads: u64 = all.iter().flat_map(|counts| counts.loads.values()).sum();
        all.iter().map(|counts| counts.stores).sum::<u64>() * READS_PER_WRITE > loads
    };
    let (written, read): (Vec<u64>, Vec<u64>) = offsets.into_iter().partition(is_written);
    let saved: u64 = read.iter().flat_map(|offset| counts(*offset)).map(Counts::modified).sum();
    let beyond = |counts: &Counts| beyond_a_hit(counts, view.hit_latency);
    let saved_latency = read.iter().flat_map(|offset| counts(*offset)).map(beyond).sum();
    (saved > 0 && !written.is_empty()).then(|| ToPart {
        written,
        read,
        saved,
        of: line.counts.modified(),
        saved_latency,
    })
}

/// What the accesses of a place took beyond hits in the first cache, if some of them found the line modified.
fn beyond_a_hit(counts: &Counts, hit: u64) -> u64 {
    if counts.modified() == 0 { 0 } else { counts.latency_sum.saturating_sub(counts.latency_samples * hit) }
}

fn advice(line: &Line, view: &View<'_>) -> String {
    let names = |offsets: &[u64]| {
        let name = |offset: &u64| line.field(*offset).map_or_else(|| format!("{offset:#04x}"), str::to_owned);
        offsets.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    match to_part(line, view) {
        Some(part) => format!(
            "\nto part: {} (hardly written) from {} (written): {} of this line's HITM loads are to fields that hardly anybody writes;\n\
             predicted gain: {} of the {} that this line's accesses took\n",
            names(&part.read),
            names(&part.written),
            share(part.saved, part.of),
            share(part.saved_latency, line.counts.latency_sum),
            view.unit,
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

    const VIEW: View<'_> = View { topology: None, unit: "cycles", hit_latency: 5, statements: 0 };

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
        let part = to_part(&descriptor()[0], &VIEW).unwrap();
        assert_eq!((part.read, part.written), (vec![0x10, 0x14], vec![0x18]));
        assert_eq!((part.saved, part.of), (3, 4));
    }

    #[test]
    fn a_lock_alone_has_nothing_to_part() {
        let accesses = [access(What::Load(Found::LocalModified), 0x40, 0, 1), access(What::Store(None), 0x40, 0, 2)];
        assert_eq!(to_part(&lines(&accesses)[0], &VIEW), None);
        assert!(line_page(&lines(&accesses)[0], &VIEW).contains("no fields to part"));
    }

    #[test]
    fn the_table_and_the_page_say_what_was_counted() {
        let lines = descriptor();
        let text = table(&lines, 10, &VIEW);
        assert!(text.contains("0x1000") && text.contains("100.0%") && text.contains("addresses are virtual"), "{text}");
        let page = line_page(&lines[0], &VIEW);
        assert!(page.contains("75.0% of this line's HITM loads"), "{page}");
        assert_eq!(page.lines().filter(|line| line.trim_start().starts_with("0x1")).count(), 3, "{page}");
    }

    #[test]
    fn callers_are_shown_by_share() {
        let mut lines = descriptor();
        let place = lines[0].places.values_mut().next().unwrap();
        for (stack, samples) in [(["find", "get"], 1), (["find", "scan"], 3)] {
            place.callers.insert(stack.map(str::to_owned).to_vec(), samples);
        }
        let page = line_page(&lines[0], &VIEW);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("called by (4 sampled)") < at("75.0%  find < scan") && at("find < scan") < at("25.0%  find < get"));
    }

    #[test]
    fn statements_and_a_home_node_are_shown_where_they_are_known() {
        let mut lines = descriptor();
        lines[0].memory_node = Some(3);
        let view = View { statements: 8, unit: "ns", ..VIEW };
        // Four HITM loads for eight statements.
        assert!(table(&lines, 1, &view).contains("0.5000"), "{}", table(&lines, 1, &view));
        let page = line_page(&lines[0], &view);
        assert!(page.contains("in memory of node 3") && page.contains("of the ns that"), "{page}");
    }

    #[test]
    fn a_field_that_is_hardly_written_counts_as_read() {
        let mut accesses = vec![access(What::Store(None), 0x1000, 0, 1), access(What::Store(None), 0x1008, 0, 1)];
        accesses.extend((0..40).map(|_| access(What::Load(Found::RemoteModified), 0x1000, 0, 2)));
        assert_eq!(to_part(&lines(&accesses)[0], &VIEW).unwrap().read, [0]);
        accesses.extend((0..4).map(|_| access(What::Store(None), 0x1000, 0, 3)));
        assert_eq!(to_part(&lines(&accesses)[0], &VIEW), None);
    }
}

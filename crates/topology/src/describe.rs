//! How does a machine look to a person? A short drawing in text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{L3Group, Node, Topology, format_list};

impl Topology {
    /// A short drawing for people: counts, a table of nodes, L3 groups, distances, and what could not be read.
    pub fn describe(&self) -> String {
        let mut text = self.headline();
        text.push_str(&self.node_table());
        text.push_str(&self.l3_text());
        text.push_str(&self.distance_table());
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    fn headline(&self) -> String {
        let memory: u64 = self.nodes.iter().filter_map(|node| node.memory_bytes).fold(0, u64::saturating_add);
        let counts = [
            plural(self.nodes.len(), "node"),
            plural(self.packages.len(), "package"),
            plural(self.cores.len(), "core"),
            plural(self.cpus.len(), "CPU"),
            size(memory),
        ];
        let model = self.model_name.as_deref().map(|name| format!("{name}\n")).unwrap_or_default();
        format!("{model}{}\n\n", counts.join(", "))
    }

    fn node_table(&self) -> String {
        let mut rows = vec![["node", "CPUs", "memory", "free", "huge pages", "devices"].map(String::from)];
        for node in &self.nodes {
            let shown = |bytes: Option<u64>| bytes.map_or("?".to_owned(), size);
            let cpus = if node.cpus.is_empty() { "none".to_owned() } else { format_list(&node.cpus) };
            let devices: Vec<&str> =
                self.devices.iter().filter(|d| d.node == Some(node.id)).map(|d| d.name.as_str()).collect();
            rows.push([
                if node.allowed { node.id.to_string() } else { format!("{} (not ours)", node.id) },
                cpus,
                shown(node.memory_bytes),
                shown(node.free_bytes),
                huge_page_text(node),
                devices.join(" "),
            ]);
        }
        // Devices are a list of words: the one column that begins at the left.
        let width = rows.iter().map(|row| row[5].chars().count()).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row[5] = format!("{:<width$}", row[5]));
        table(&rows)
    }

    /// Groups of one size are counted, not listed: `24 L3 groups of 16 CPUs, 32 MiB each`.
    fn l3_text(&self) -> String {
        let mut kinds: BTreeMap<(usize, Option<u64>), usize> = BTreeMap::new();
        for L3Group { cpus, bytes, .. } in &self.l3_groups {
            *kinds.entry((cpus.len(), *bytes)).or_default() += 1;
        }
        let mut text = String::from("\n");
        for ((cpus, bytes), count) in kinds {
            let bytes = bytes.map_or("size unknown".to_owned(), size);
            let _ = writeln!(text, "{} of {}, {bytes}", plural(count, "L3 group"), plural(cpus, "CPU"));
        }
        text
    }

    fn distance_table(&self) -> String {
        if self.distances.len() < 2 {
            return String::new();
        }
        let names = self.nodes.iter().map(|node| node.id.to_string());
        let mut rows = vec![std::iter::once(String::new()).chain(names).collect::<Vec<_>>()];
        for (node, row) in self.nodes.iter().zip(&self.distances) {
            rows.push(std::iter::once(node.id.to_string()).chain(row.iter().map(u32::to_string)).collect());
        }
        format!("\ndistances (the firmware's order of near and far; no times)\n{}", table(&rows))
    }
}

fn huge_page_text(node: &Node) -> String {
    let pools = node.huge_pages.iter().filter(|pool| pool.total > 0);
    let parts: Vec<String> =
        pools.map(|pool| format!("{} of {} x {}", pool.free, pool.total, size(pool.page_bytes))).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Columns side by side, each as wide as its widest cell, the cells at its right.
fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let cell = |row: &R, column: usize| row.as_ref().get(column).cloned().unwrap_or_default();
    let width = |column| rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> = (0..columns).map(|c| format!("{:>w$}", cell(row, c), w = widths[c])).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

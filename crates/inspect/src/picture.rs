//! How does a machine look? Packages, nodes, L3 groups and cores as nested boxes, in text and as SVG.

use std::collections::BTreeMap;

use homenode_topology::{L3Group, Node, Topology, format_list};

use crate::svg::{self, Block, flow, stack};
use crate::text::size;

/// Columns that the drawing in text fills at most.
const TEXT_WIDTH: usize = 100;

/// Boxes in text: one a package, in it its nodes, L3 groups and cores; then nodes without CPUs.
pub fn text(topology: &Topology) -> String {
    let mut out = String::new();
    for (index, package) in topology.packages().iter().enumerate() {
        let mut lines = Vec::new();
        for node in topology.nodes().iter().filter(|node| node.cpus.iter().any(|cpu| package.contains(cpu))) {
            lines.push(node_line(topology, node));
            lines.extend(l3_lines(topology, node, package));
        }
        out.push_str(&boxed(&format!("package {index}"), &lines));
    }
    let far: Vec<String> = far_nodes(topology).map(|node| node_line(topology, node)).collect();
    if !far.is_empty() {
        out.push_str(&boxed("memory without CPUs", &far));
    }
    out
}

fn far_nodes(topology: &Topology) -> impl Iterator<Item = &Node> {
    topology.nodes().iter().filter(|node| node.cpus.is_empty())
}

fn node_line(topology: &Topology, node: &Node) -> String {
    let mut parts = vec![format!("node {}", node.id)];
    parts.push(memory_text(node));
    parts.extend(huge_text(node));
    parts.extend(node.memory_tier.map(|tier| format!("tier {tier}")));
    parts.extend(devices(topology, node));
    if !node.allowed {
        parts.push("not for this process".to_owned());
    }
    parts.join("  ")
}

fn memory_text(node: &Node) -> String {
    match (node.memory_bytes, node.free_bytes) {
        (Some(0), _) => "no memory".to_owned(),
        (Some(total), Some(free)) => format!("{} ({} free)", size(total), size(free)),
        (Some(total), None) => size(total),
        (None, _) => "memory not shown".to_owned(),
    }
}

fn huge_text(node: &Node) -> Vec<String> {
    let reserved = node.huge_pages.iter().filter(|pool| pool.total > 0);
    reserved.map(|pool| format!("{}x{} ({} free)", pool.total, size(pool.page_bytes), pool.free)).collect()
}

fn devices(topology: &Topology, node: &Node) -> Vec<String> {
    topology.devices().iter().filter(|device| device.node == Some(node.id)).map(|device| device.name.clone()).collect()
}

/// The cores of a node's L3 groups in one package: `L3 32 MiB  [0,192] [1,193] ...`, equal groups below each other.
fn l3_lines(topology: &Topology, node: &Node, package: &[usize]) -> Vec<String> {
    let groups = topology.l3_groups().iter().filter(|group| group.node == node.id);
    let groups = groups.filter(|group| group.cpus.iter().all(|cpu| package.contains(cpu)));
    groups.flat_map(|group| wrapped(&l3_title(group), &core_texts(topology, group))).collect()
}

fn l3_title(group: &L3Group) -> String {
    group.bytes.map_or("L3 ?".to_owned(), |bytes| format!("L3 {}", size(bytes)))
}

fn cores_of(topology: &Topology, group: &L3Group) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cpu in group.cpus.iter().filter_map(|id| topology.cpu(*id)) {
        cores.entry(cpu.core).or_default().push(cpu.id);
    }
    cores.into_values().collect()
}

fn core_texts(topology: &Topology, group: &L3Group) -> Vec<String> {
    let cores = cores_of(topology, group);
    if cores.iter().all(|core| core.len() == 1) && cores.len() > 8 {
        // Many cores without threads read better as a range.
        return vec![format!("cores {}", format_list(&group.cpus))];
    }
    cores.iter().map(|core| format!("[{}]", core_name(core))).collect()
}

fn wrapped(title: &str, words: &[String]) -> Vec<String> {
    let indent = " ".repeat(title.chars().count() + 4);
    let mut lines = vec![format!("  {title}  ")];
    for word in words {
        let line = lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < TEXT_WIDTH - 6);
        match line {
            Some(line) => line.push_str(&format!("{word} ")),
            None => lines.push(format!("{indent}{word} ")),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn boxed(title: &str, lines: &[String]) -> String {
    let inner = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(title.chars().count() + 2);
    let mut out = format!("┌ {title} {}┐\n", "─".repeat(inner.saturating_sub(title.chars().count())));
    for line in lines {
        out.push_str(&format!("│ {line:<inner$} │\n"));
    }
    out.push_str(&format!("└{}┘\n", "─".repeat(inner + 2)));
    out
}

/// The machine as an SVG file: packages side by side, cores by L3 group and node, memory as bars, distances as a table.
pub fn svg(topology: &Topology) -> String {
    let title = topology.model_name().unwrap_or("machine").to_owned();
    let counts = format!(
        "{} nodes, {} packages, {} cores, {} CPUs",
        topology.nodes().len(),
        topology.packages().len(),
        topology.cores().len(),
        topology.cpus().len()
    );
    let packages: Vec<Block> = (0..topology.packages().len()).map(|index| package_block(topology, index)).collect();
    let mut rows = vec![Block::line(&title, "h"), Block::line(&counts, ""), flow(&packages, 1500.0, 14.0)];
    let far: Vec<Block> = far_nodes(topology).map(|node| node_block(topology, node, &[])).collect();
    if !far.is_empty() {
        rows.push(Block::line("memory without CPUs", "h"));
        rows.push(flow(&far, 1500.0, 14.0));
    }
    let homeless: Vec<&str> =
        topology.devices().iter().filter(|device| device.node.is_none()).map(|device| device.name.as_str()).collect();
    if !homeless.is_empty() {
        rows.push(Block::line(&format!("devices of unknown node: {}", homeless.join(", ")), ""));
    }
    rows.extend(distance_block(topology));
    svg::document(&title, &stack(&rows, 10.0))
}

fn package_block(topology: &Topology, index: usize) -> Block {
    let package = &topology.packages()[index];
    let nodes = topology.nodes().iter().filter(|node| node.cpus.iter().any(|cpu| package.contains(cpu)));
    let nodes: Vec<Block> = nodes.map(|node| node_block(topology, node, package)).collect();
    let inside = flow(&nodes, if nodes.len() > 2 { 1450.0 } else { 700.0 }, 10.0);
    stack(&[Block::line(&format!("package {index}"), "h"), inside], 6.0).framed(10.0, "#f4f6f8", "#8a99a8")
}

fn node_block(topology: &Topology, node: &Node, package: &[usize]) -> Block {
    let name = if node.allowed { format!("node {}", node.id) } else { format!("node {} (not ours)", node.id) };
    let mut parts = vec![Block::line(&name, "h"), memory_bar(node)];
    parts.extend(huge_text(node).iter().map(|text| Block::line(text, "s")));
    let groups = topology.l3_groups().iter().filter(|group| group.node == node.id);
    let groups = groups.filter(|group| group.cpus.iter().all(|cpu| package.contains(cpu)));
    let groups: Vec<Block> = groups.map(|group| l3_block(topology, group)).collect();
    parts.push(flow(&groups, 330.0, 6.0));
    let devices: Vec<Block> = devices(topology, node)
        .iter()
        .map(|name| Block::cell(name.chars().count() as f64 * 6.0 + 12.0, 18.0, "#e8e0f5", "#8468b8", name, "s"))
        .collect();
    parts.push(flow(&devices, 330.0, 4.0));
    stack(&parts, 5.0).framed(8.0, "#fff", "#3f6d99")
}

/// Memory in use of all memory, as a bar with its text beside it.
fn memory_bar(node: &Node) -> Block {
    let used = match (node.memory_bytes, node.free_bytes) {
        (Some(total), Some(free)) if total > 0 => (total.saturating_sub(free)) as f64 / total as f64,
        _ => 0.0,
    };
    let body = format!(
        "<rect y=\"4\" width=\"100\" height=\"10\" fill=\"#dfe8f0\" stroke=\"#8a99a8\"/>\
         <rect y=\"4\" width=\"{:.1}\" height=\"10\" fill=\"#3f6d99\"/>\n",
        used * 100.0
    );
    flow(&[Block { width: 100.0, height: 18.0, body }, Block::line(&memory_text(node), "s")], f64::MAX, 8.0)
}

fn l3_block(topology: &Topology, group: &L3Group) -> Block {
    let cores = cores_of(topology, group);
    let widest = topology.cores().iter().map(|core| core_name(core).chars().count()).max().unwrap_or(1);
    let width = widest as f64 * 6.0 + 8.0;
    let cells: Vec<Block> = cores
        .iter()
        .map(|core| {
            let allowed = core.iter().all(|cpu| topology.cpu(*cpu).is_some_and(|cpu| cpu.allowed));
            let fill = if allowed { "#d5ead6" } else { "#e4e4e4" };
            Block::cell(width, 18.0, fill, "#6c9f6e", &core_name(core), "s")
        })
        .collect();
    // About twice as wide as high.
    let per_row = ((cells.len() as f64 * 18.0 * 2.0 / width).sqrt().ceil()).max(4.0);
    let grid = flow(&cells, per_row * (width + 3.0), 3.0);
    stack(&[Block::line(&l3_title(group), "s"), grid], 2.0).framed(5.0, "#fdf8ec", "#c9a85c")
}

fn core_name(core: &[usize]) -> String {
    core.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn distance_block(topology: &Topology) -> Option<Block> {
    let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    if ids.len() < 2 || topology.distance(ids[0], ids[0]).is_none() {
        return None;
    }
    let all = ids.iter().flat_map(|from| ids.iter().map(|to| topology.distance(*from, *to).unwrap_or(10)));
    let furthest = f64::from(all.max().unwrap_or(10)).max(11.0);
    let head = |text: &str| Block::cell(40.0, 20.0, "#fff", "#fff", text, "");
    let mut rows = vec![flow(
        &std::iter::once(head("")).chain(ids.iter().map(|id| head(&id.to_string()))).collect::<Vec<_>>(),
        f64::MAX,
        1.0,
    )];
    for from in &ids {
        let mut cells = vec![head(&from.to_string())];
        for to in &ids {
            let distance = topology.distance(*from, *to);
            let value = (f64::from(distance.unwrap_or(10)) - 10.0) / (furthest - 10.0) * 0.7;
            let text = distance.map_or("?".to_owned(), |distance| distance.to_string());
            cells.push(Block::cell(40.0, 20.0, &svg::heat(value), "#fff", &text, ""));
        }
        rows.push(flow(&cells, f64::MAX, 1.0));
    }
    let title = Block::line("distances (the firmware's order of near and far; not times)", "");
    Some(stack(&[title, stack(&rows, 1.0)], 6.0))
}

#[cfg(test)]
mod tests {
    use homenode_topology::{Topology, machines};

    use super::*;

    fn machine(name: &str) -> Topology {
        Topology::from_bundle(machines::text(name).expect("a shipped machine")).expect("a readable one")
    }

    #[test]
    fn every_cpu_and_node_of_every_machine_is_in_both_drawings() {
        for (name, _) in machines::ALL {
            let machine = machine(name);
            let (text, svg) = (text(&machine), svg(&machine));
            for node in machine.nodes() {
                assert!(text.contains(&format!("node {}", node.id)), "{name}: {text}");
                assert_eq!(svg.matches(&format!(">node {}<", node.id)).count(), 1, "{name}");
            }
            // A core is one green cell with its CPUs' numbers.
            assert_eq!(svg.matches("#d5ead6").count(), machine.cores().len(), "{name}");
            assert!(text.lines().all(|line| line.chars().count() <= TEXT_WIDTH), "{name}: {text}");
        }
    }

    #[test]
    fn nodes_without_cpus_and_distances_are_shown() {
        let machine = machine("sapphire-rapids-2s-cxl");
        assert!(text(&machine).contains("memory without CPUs"));
        assert!(svg(&machine).contains("memory without CPUs"));
        assert!(svg(&machine).contains("not times"));
    }
}

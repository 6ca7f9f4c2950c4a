//! `homenode rebalance`: put a running server's memory where it should be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use homenode_memory::foreign::PolicyMode;
use homenode_memory::{Policy, set_thread_policy};
use homenode_topology::{Topology, parse_list};
use serde_json::{Value, json};

use super::locate::by_node_json;
use super::target::Target;
use crate::InspectError;
use crate::place::{self, Server};
use crate::proc::has_capability;
use crate::rebalance::{
    Entry, Journal, Pace, Piece, PieceId, Shares, Tally, apply, failure, plan, policy_of, read_journal, undo,
};
use crate::text::{self, Table};
use crate::units;

#[derive(Debug, Args)]
#[command(
    after_help = "Example: homenode rebalance --postgres (shows the plan), then homenode rebalance --postgres --apply\n\n\
    Pages move while the server runs; contents and addresses stay. Stopping this command at any time is safe.\n\
    --undo puts every page and policy back as the journal says. Needs CAP_SYS_NICE, and for shared memory CAP_SYS_ADMIN."
)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// Only show what would move (the default)
    #[arg(long, conflicts_with_all = ["apply", "undo"])]
    plan: bool,
    /// Move the pages, and let later ones of shared memory be interleaved
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Put pages and policies back as the journal says
    #[arg(long)]
    undo: bool,
    /// Nodes to spread over (default: all with CPUs that give memory)
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// How much of the memory each node gets, in place of the same for all, e.g. 0=3,1=1
    #[arg(long, value_name = "NODE=WEIGHT,...", conflicts_with = "nodes")]
    weights: Option<String>,
    /// Move no more than this in a second
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = units::parse)]
    rate: u64,
    /// Private mappings from this size on are spread too
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = units::parse)]
    private_from: u64,
    /// Where every page was before (default: /var/tmp/homenode-rebalance-PID.journal)
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let topology = Topology::discover();
    let server = options.target.server()?;
    // With a policy of its own, this thread's look at a page that automatic balancing has marked does not draw the page to
    // the node that the thread runs on (mm/mempolicy.c, mpol_misplaced).
    set_thread_policy(&Policy::Local, &topology)?;
    let journal = options
        .journal
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("/var/tmp/homenode-rebalance-{}.journal", server.pid())));
    if options.undo {
        return take_back(options, &server, &journal);
    }
    if topology.is_uniform() {
        return Err(InspectError::Refused("all memory is one node: there is nothing to spread".to_owned()));
    }
    let shares = shares(options, &topology)?;
    let mut pieces = Piece::of(&server, options.private_from)?;
    let census = place::take(&server, None)?;
    pieces.iter_mut().for_each(|piece| piece.describe(&census));
    // The largest last: it can even out what smaller ones leave uneven.
    let mut sized = Vec::new();
    for piece in pieces {
        sized.push((plan(&piece, &shares, &Tally::default())?.before.values().sum::<u64>(), piece));
    }
    sized.sort_by_key(|(bytes, _)| *bytes);
    let pieces: Vec<Piece> = sized.into_iter().map(|(_, piece)| piece).collect();
    let (mut plans, mut all) = (Vec::new(), Tally::default());
    for piece in &pieces {
        let tally = plan(piece, &shares, &all)?;
        all.add(&tally);
        plans.push(tally);
    }
    let needed = check_room(&topology, &plans)?;
    if !options.apply {
        print_plan(options, &server, &pieces, &plans, &topology, &needed);
        return Ok(());
    }
    let done = spread(options, &server, &pieces, &plans, &shares, &journal)?;
    print_done(options, &pieces, &done, &topology, Some(&journal));
    Ok(())
}

fn shares(options: &Options, topology: &Topology) -> Result<Shares, InspectError> {
    let wrong = |text: &str| InspectError::Refused(format!("{text:?} names no nodes of this machine that give memory"));
    let gives = |node: usize| topology.memory_nodes().iter().any(|known| known.id == node);
    let nodes: Option<Vec<(usize, u64)>> = match (&options.weights, &options.nodes) {
        (Some(text), _) => text
            .split(',')
            .map(|part| {
                let (node, weight) = part.split_once('=')?;
                Some((node.trim().parse().ok()?, weight.trim().parse().ok().filter(|weight| *weight <= 1 << 20)?))
            })
            .collect(),
        (None, Some(text)) => parse_list(text).map(|nodes| nodes.into_iter().map(|node| (node, 1)).collect()),
        (None, None) => {
            let nodes = topology.memory_nodes();
            let with_cpus = nodes.iter().any(|node| !node.cpus.is_empty());
            Some(nodes.iter().filter(|n| !with_cpus || !n.cpus.is_empty()).map(|n| (n.id, 1)).collect())
        }
    };
    let named = options.weights.as_ref().or(options.nodes.as_ref()).map_or("", String::as_str);
    let nodes = nodes.filter(|nodes| nodes.iter().all(|(node, _)| gives(*node))).ok_or_else(|| wrong(named))?;
    Shares::new(nodes).ok_or_else(|| wrong(named))
}

/// What each node would gain, in bytes; refuses a plan for which a node has no room.
fn check_room(topology: &Topology, plans: &[Tally]) -> Result<BTreeMap<usize, u64>, InspectError> {
    let mut gains: BTreeMap<usize, u64> = BTreeMap::new();
    for ((_, to), bytes) in plans.iter().flat_map(|tally| tally.moved.iter()) {
        *gains.entry(*to).or_default() += bytes;
    }
    for (node, gain) in &gains {
        let Some((free, total)) = topology.node(*node).and_then(|node| Some((node.free_bytes?, node.memory_bytes?)))
        else {
            continue;
        };
        // The kernel begins to reclaim before the last pages are gone.
        let room = free.saturating_sub(total / 50);
        if *gain > room {
            return Err(InspectError::Refused(format!(
                "node {node} would get {} and has room for {}; free memory there (page cache: sync, then \
                 echo 1 > /proc/sys/vm/drop_caches), or spread by --weights",
                text::size(*gain),
                text::size(room)
            )));
        }
    }
    Ok(gains)
}

fn spread(
    options: &Options,
    server: &Server,
    pieces: &[Piece],
    plans: &[Tally],
    shares: &Shares,
    journal: &Path,
) -> Result<Vec<Tally>, InspectError> {
    let mut journal = Journal::append(journal)?;
    let processes = server.processes.iter().map(|process| Entry::Process(process.pid, process.started_ticks));
    journal.write(&processes.collect::<Vec<_>>())?;
    let mut pace = Pace::new(options.rate);
    let (mut done, mut all) = (Vec::new(), Tally::default());
    for (number, (piece, plan)) in pieces.iter().zip(plans).enumerate() {
        journal.write(&[Entry::Piece(number, piece.id, piece.unit, piece.policy.clone())])?;
        if piece.policy_can_be_set() && plan.before.values().sum::<u64>() >= 1 << 20 {
            // Later pages first: what is touched meanwhile is then in its place.
            journal.write(&[Entry::Policy(number)])?;
            piece.set_policy(PolicyMode::Interleave, &shares.nodes())?;
        }
        let tally = apply(piece, number, shares, &all, &mut journal, &mut pace)?;
        all.add(&tally);
        done.push(tally);
    }
    Ok(done)
}

fn take_back(options: &Options, server: &Server, journal: &Path) -> Result<(), InspectError> {
    let entries = read_journal(journal)?;
    let same = entries.iter().any(|entry| match entry {
        Entry::Process(pid, started) => {
            server.processes.iter().any(|process| process.pid == *pid && process.started_ticks == *started)
        }
        _ => false,
    });
    if !same {
        let text = format!("{} is about processes that have ended: nothing of it is left to undo", journal.display());
        return Err(InspectError::Refused(text));
    }
    let pieces = Piece::of(server, 1)?;
    let mut pace = Pace::new(options.rate);
    let mut done: Vec<Tally> = pieces.iter().map(|_| Tally::default()).collect();
    // A journal may hold several runs; each numbers its pieces anew. The last run is undone first.
    let mut runs: Vec<Vec<&Entry>> = Vec::new();
    for entry in &entries {
        if matches!(entry, Entry::Process(..))
            && !matches!(runs.last().and_then(|run| run.last()), Some(Entry::Process(..)))
        {
            runs.push(Vec::new());
        }
        if let Some(run) = runs.last_mut() {
            run.push(entry);
        }
    }
    for run in runs.iter().rev() {
        undo_run(run, &pieces, &mut pace, &mut done)?;
    }
    print_done(options, &pieces, &done, &Topology::discover(), None);
    fs::remove_file(journal).map_err(|error| InspectError::io(journal, error))
}

fn undo_run(run: &[&Entry], pieces: &[Piece], pace: &mut Pace, done: &mut [Tally]) -> Result<(), InspectError> {
    let find = |id: &PieceId, unit: u64| pieces.iter().position(|piece| piece.id == *id && piece.unit == unit);
    for entry in run {
        let Entry::Piece(number, id, unit, policy) = entry else { continue };
        // Memory that is gone, or whose pages were joined or split since, is as its owner made it meanwhile.
        let Some(index) = find(id, *unit) else { continue };
        let was: Vec<(u64, u64, usize)> = run
            .iter()
            .filter_map(|entry| match entry {
                Entry::Pages(piece, first, count, node) if piece == number => Some((*first, *count, *node)),
                _ => None,
            })
            .collect();
        done[index].add(&undo(&pieces[index], &was, pace)?);
        if run.iter().any(|entry| matches!(entry, Entry::Policy(piece) if piece == number)) {
            match policy_of(policy) {
                Some((mode, nodes)) => pieces[index].set_policy(mode, &nodes)?,
                None => eprintln!("homenode: the policy {policy:?} of {} can't be set again", pieces[index].name),
            }
        }
    }
    Ok(())
}

fn print_plan(
    options: &Options,
    server: &Server,
    pieces: &[Piece],
    plans: &[Tally],
    topology: &Topology,
    gains: &BTreeMap<usize, u64>,
) {
    let moved: u64 = plans.iter().map(Tally::moved_bytes).sum();
    let seconds = moved as f64 / options.rate as f64;
    let warnings = warnings(topology, pieces);
    if options.json {
        let value = json!({
            "pid": server.pid(),
            "pieces": as_json(pieces, plans),
            "moved_bytes": moved,
            "seconds_at_least": seconds,
            "gain_bytes_by_node": by_node_json(gains),
            "warnings": warnings,
        });
        println!("{value:#}");
        return;
    }
    println!("{} {}: what would move\n", server.kind.title(), server.pid());
    print!("{}", table(pieces, plans, topology));
    let mut room = Table::new(&["<node", "free now", "would get"]);
    for node in topology.nodes() {
        let free = node.free_bytes.map_or("?".to_owned(), text::size);
        room.row([format!("{}", node.id), free, text::size(gains.get(&node.id).copied().unwrap_or(0))]);
    }
    println!("\n{}", room.render());
    println!("{} to move, {seconds:.1} s or more at {} a second", text::size(moved), text::size(options.rate));
    warnings.iter().for_each(|warning| println!("note: {warning}"));
    println!("nothing was changed; --apply does it");
}

/// What could make the move fail, or not last.
fn warnings(topology: &Topology, pieces: &[Piece]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !has_capability(23) {
        warnings.push("CAP_SYS_NICE is missing: pages that several processes map would stay".to_owned());
    }
    if topology.settings().numa_balancing.is_some_and(|bits| bits & 1 != 0) {
        warnings.push(
            "kernel.numa_balancing is on and may move private pages again (sysctl kernel.numa_balancing=0)".to_owned(),
        );
    }
    if topology.settings().demotion == Some(true) {
        warnings.push("demotion is on: cold pages may move to a slower tier".to_owned());
    }
    for piece in pieces.iter().filter(|piece| !piece.policy_can_be_set()) {
        let why = match piece.id {
            PieceId::Private(..) => "it is private",
            PieceId::Shared(..) => {
                "its policy can't be set from here (CAP_SYS_ADMIN is missing, or reserved huge pages)"
            }
        };
        warnings.push(format!("later pages of {} come by its own policy: {why}", piece.name));
    }
    warnings
}

fn print_done(options: &Options, pieces: &[Piece], done: &[Tally], topology: &Topology, journal: Option<&Path>) {
    let mut all = Tally::default();
    done.iter().for_each(|tally| all.add(tally));
    if options.json {
        let value = json!({
            "pieces": as_json(pieces, done),
            "moved_bytes": all.moved_bytes(),
            "failed_bytes": all.failed.iter().map(|(errno, b)| (failure(*errno), json!(b))).collect::<serde_json::Map<_, _>>(),
            "journal": journal,
        });
        println!("{value:#}");
        return;
    }
    print!("{}", table(pieces, done, topology));
    println!("\n{} moved", text::size(all.moved_bytes()));
    for (errno, bytes) in &all.failed {
        println!("{} stayed: {}", text::size(*bytes), failure(*errno));
    }
    if let Some(journal) = journal {
        println!("--undo puts it back (journal: {})", journal.display());
    }
}

fn table(pieces: &[Piece], tallies: &[Tally], topology: &Topology) -> String {
    let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    let mut heading = vec!["<memory".to_owned(), "<".to_owned()];
    heading.extend(ids.iter().map(|id| format!("node {id}")));
    let mut table = Table::new(&heading);
    for (piece, tally) in pieces.iter().zip(tallies).filter(|(_, tally)| !tally.before.is_empty()) {
        for (name, when, by_node) in [(piece.name.as_str(), "before", &tally.before), ("", "after", &tally.after)] {
            let mut row = vec![name.to_owned(), when.to_owned()];
            row.extend(ids.iter().map(|id| by_node.get(id).map_or("-".to_owned(), |bytes| text::size(*bytes))));
            table.row(row);
        }
    }
    table.render()
}

fn as_json(pieces: &[Piece], tallies: &[Tally]) -> Value {
    let rows = pieces.iter().zip(tallies).map(|(piece, tally)| {
        json!({
            "name": piece.name,
            "policy": piece.policy,
            "unit_bytes": piece.unit,
            "before_bytes_by_node": by_node_json(&tally.before),
            "after_bytes_by_node": by_node_json(&tally.after),
            "moved_bytes": tally.moved_bytes(),
        })
    });
    rows.collect::<Vec<_>>().into()
}

//! Which of the measurements mean that something is wrong? One function a finding.

use std::collections::BTreeMap;

use super::{Facts, Finding, ServerFacts, Severity};
use crate::place::{ServerKind, imbalance};
use crate::text::{share, size};
use crate::waits::ON_CPU;

type Check = fn(&Facts) -> Option<Finding>;

const CHECKS: [Check; 13] = [
    first_touch,
    full_beside_free,
    reclaim_beside_free,
    foreign_pages,
    balancing_under_pinned,
    compaction,
    page_tables,
    wandering_workers,
    clients_beside,
    far_disk,
    interleaved_private,
    pool_policy_missing,
    unfair_latch,
];

/// All findings, the gravest first.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().filter_map(|check| check(facts)).collect();
    findings.extend(contended_events(facts));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn has_several_nodes(facts: &Facts) -> bool {
    facts.nodes.values().filter(|memory| memory.total > 0).count() > 1
}

/// First touch put the memory where whoever loaded it ran.
fn first_touch(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| has_several_nodes(facts))?;
    let total: u64 = server.own_by_node.values().sum();
    let nodes = facts.nodes.iter().filter(|(id, memory)| memory.total > 0 && facts.cpu_nodes.contains(id)).count();
    let uneven = imbalance(&server.own_by_node, nodes);
    if total < 64 << 20 || uneven < 0.10 {
        return None;
    }
    let (node, most) = server.own_by_node.iter().max_by_key(|(_, bytes)| **bytes)?;
    Some(Finding {
        severity: if uneven > 0.3 { Severity::High } else { Severity::Medium },
        title: "the server's memory is on few nodes".to_owned(),
        evidence: format!(
            "{} of its {} ({}) are on node {node}; {:.0}% would have to move to be even",
            size(*most),
            size(total),
            share(*most, total),
            uneven * 100.0
        ),
        cost: "CPUs of the other nodes read it over the interconnect, and one node's memory channels carry most accesses",
        mend: format!("homenode rebalance {} --apply", server.argument),
        document: "first-touch",
    })
}

fn free_share(memory: &crate::stat::NodeMemory) -> f64 {
    if memory.total == 0 { 0.0 } else { memory.free as f64 / memory.total as f64 }
}

fn full_beside_free(facts: &Facts) -> Option<Finding> {
    let (full, memory) = facts.nodes.iter().find(|(_, memory)| memory.total > 0 && free_share(memory) < 0.03)?;
    let (free, roomy) = facts.nodes.iter().max_by(|a, b| free_share(a.1).total_cmp(&free_share(b.1)))?;
    if free_share(roomy) < 0.2 {
        return None;
    }
    let cached = memory.page_cache > memory.total / 4;
    Some(Finding {
        severity: Severity::Medium,
        title: format!("node {full} is full while node {free} has room"),
        evidence: format!(
            "node {full}: {} free of {}, {} page cache; node {free}: {} free",
            size(memory.free),
            size(memory.total),
            size(memory.page_cache),
            size(roomy.free)
        ),
        cost: "new memory for threads on the full node comes from others, or after reclaiming there",
        mend: if cached {
            "sync; echo 1 > /proc/sys/vm/drop_caches   (once; the page cache crowds the node out)".to_owned()
        } else {
            "homenode where PID for the largest processes, then homenode rebalance".to_owned()
        },
        document: "full-node",
    })
}

fn reclaim_beside_free(facts: &Facts) -> Option<Finding> {
    let rate = |name: &str| facts.rates.get(name).copied().unwrap_or(0.0);
    let (swapped, scanned) = (rate("pswpout"), rate("pgscan_direct"));
    let roomy = facts.nodes.iter().max_by(|a, b| free_share(a.1).total_cmp(&free_share(b.1)))?;
    if swapped + scanned < 1.0 || free_share(roomy.1) < 0.1 {
        return None;
    }
    Some(Finding {
        severity: Severity::High,
        title: "memory is reclaimed although there is free memory".to_owned(),
        evidence: format!(
            "{swapped:.0} pages a second swapped out, {scanned:.0} scanned by processes that waited for memory; node {} has {} free",
            roomy.0,
            size(roomy.1.free)
        ),
        cost: "sessions stop for the disk, or for the kernel's search for pages",
        mend: "sysctl vm.zone_reclaim_mode=0; then spread what is bound to the full node (homenode where, homenode rebalance)"
            .to_owned(),
        document: "reclaim",
    })
}

fn foreign_pages(facts: &Facts) -> Option<Finding> {
    let (node, rate) = facts.foreign.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    if *rate < 100.0 {
        return None;
    }
    Some(Finding {
        severity: Severity::Medium,
        title: format!("pages wanted on node {node} come from elsewhere"),
        evidence: format!("{rate:.0} pages a second were asked for on node {node} and given by another (numa_foreign)"),
        cost: "what its threads allocate now stays remote for its lifetime",
        mend: format!(
            "homenode stat (node {node}'s free memory), then free memory there or start the server elsewhere"
        ),
        document: "full-node",
    })
}

fn balancing_under_pinned(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| has_several_nodes(facts))?;
    let rate = |name: &str| facts.rates.get(name).copied().unwrap_or(0.0);
    let (hints, moved) = (rate("numa_hint_faults"), rate("numa_pages_migrated"));
    let is_pinned = server.busy_threads > 0 && server.pinned_threads == server.busy_threads;
    if !facts.numa_balancing || hints + moved < 10.0 || !is_pinned {
        return None;
    }
    Some(Finding {
        severity: Severity::Medium,
        title: "the kernel balances memory under a pinned server".to_owned(),
        evidence: format!(
            "{hints:.0} hint faults and {moved:.0} moved pages a second; all {} busy threads are bound to CPUs",
            server.busy_threads
        ),
        cost: "a fault for every page that it samples, for moves that the binding makes needless",
        mend: "sysctl kernel.numa_balancing=0".to_owned(),
        document: "balancing",
    })
}

fn compaction(facts: &Facts) -> Option<Finding> {
    let stalls = facts.rates.get("compact_stall").copied().unwrap_or(0.0);
    if stalls < 1.0 || facts.transparent_huge_pages.as_deref() != Some("always") {
        return None;
    }
    Some(Finding {
        severity: Severity::Medium,
        title: "processes wait while huge pages are put together".to_owned(),
        evidence: format!("{stalls:.0} compaction stalls a second, with transparent huge pages for everybody"),
        cost: "an allocation takes milliseconds now and then",
        mend: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
        document: "huge-pages",
    })
}

fn page_tables(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    // A tenth of the pool again in tables, or half a gigabyte.
    let much = server.page_table_bytes > (512 << 20) || server.page_table_bytes > server.pool_small_page_bytes / 10;
    if server.pool_small_page_bytes < 1 << 30 || !much {
        return None;
    }
    let pages = server.pool_small_page_bytes.div_ceil(2 << 20);
    let setting = match server.kind {
        Some(ServerKind::Postgres) => "huge_pages = on",
        Some(ServerKind::MariaDb) => "large-pages",
        _ => "its setting for huge pages",
    };
    Some(Finding {
        severity: Severity::Medium,
        title: "a large pool in small pages".to_owned(),
        evidence: format!(
            "{} in small pages, {} of page tables over all its processes",
            size(server.pool_small_page_bytes),
            size(server.page_table_bytes)
        ),
        cost: "memory for the tables, and a walk through them for most accesses to the pool",
        mend: format!("sysctl vm.nr_hugepages={}, {setting}, restart the server", pages + pages / 50 + 8),
        document: "huge-pages",
    })
}

fn wandering_workers(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| facts.cpu_nodes.len() > 1)?;
    if server.thread_looks < 50 || server.node_changes * 20 < server.thread_looks {
        return None;
    }
    Some(Finding {
        severity: Severity::Low,
        title: "busy threads wander between nodes".to_owned(),
        evidence: format!(
            "in {} of {} looks a busy thread was on another node than the moment before; {} of {} are bound",
            server.node_changes, server.thread_looks, server.pinned_threads, server.busy_threads
        ),
        cost: "caches are filled again after each move, and private memory stays behind on the old node",
        mend: "pin workers or connections to nodes (for one node's worth of load: homenode run --nodes N -- COMMAND)"
            .to_owned(),
        document: "workers",
    })
}

fn clients_beside(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| facts.cpu_nodes.len() > 1)?;
    let (looks, client_looks) = (&server.looks_by_node, &server.client_looks_by_node);
    let (all, client_all) = (looks.values().sum::<u64>(), client_looks.values().sum::<u64>());
    let crowded =
        |looks: &BTreeMap<usize, u64>, all: u64, node: &usize| looks.get(node).is_some_and(|n| n * 10 > all * 9);
    let node = looks.keys().find(|node| crowded(looks, all, node) && crowded(client_looks, client_all, node))?;
    if all < 50 || client_all < 50 {
        return None;
    }
    Some(Finding {
        severity: Severity::Medium,
        title: format!("clients and server are on node {node} together"),
        evidence: format!(
            "{} of the looks at the server's busy threads and {} of those at its clients' found them there; the machine has {} \
             nodes with CPUs",
            share(looks[node], all),
            share(client_looks[node], client_all),
            facts.cpu_nodes.len()
        ),
        cost: "they take CPUs and caches from each other while other nodes have little to do",
        mend: format!("start the clients elsewhere: homenode run --nodes {} -- COMMAND", other_nodes(facts, *node)),
        document: "clients",
    })
}

/// The nodes with CPUs but for one, as a list.
fn other_nodes(facts: &Facts, node: usize) -> String {
    homenode_topology::format_list(&facts.cpu_nodes.iter().copied().filter(|other| *other != node).collect::<Vec<_>>())
}

fn far_disk(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| facts.cpu_nodes.len() > 1)?;
    let (disk, node) = server.disk.as_ref()?;
    let looks: u64 = server.looks_by_node.values().sum();
    let near = server.looks_by_node.get(node).copied().unwrap_or(0);
    // Spread over all nodes is as near as it gets.
    if looks < 50 || near * 20 >= looks {
        return None;
    }
    Some(Finding {
        severity: Severity::Low,
        title: format!("the disk {disk} is far from those who use it"),
        evidence: format!("it hangs at node {node}; {} of the looks found a busy thread there", share(near, looks)),
        cost: "every read and write crosses the interconnect once more",
        mend: format!("run the server, or its I/O workers, on node {node} too: homenode run --nodes {node} -- COMMAND"),
        document: "disk",
    })
}

fn interleaved_private(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| has_several_nodes(facts))?;
    let policy = server.private_policies.iter().find(|policy| policy.contains("interleave"))?;
    if server.private_bytes < 16 << 20 {
        return None;
    }
    Some(Finding {
        severity: Severity::Low,
        title: "private memory is interleaved".to_owned(),
        evidence: format!("{} of private memory by the policy {policy}", size(server.private_bytes)),
        cost: "sorts and hash tables of one session are mostly remote to it (5% of a parallel scan in the talk that measured it)",
        mend: "start the server without numactl --interleave, and spread its shared memory only: homenode rebalance --apply"
            .to_owned(),
        document: "interleaved-private",
    })
}

fn pool_policy_missing(facts: &Facts) -> Option<Finding> {
    let server = facts.server.as_ref().filter(|_| has_several_nodes(facts))?;
    if server.kind != Some(ServerKind::MariaDb) || server.has_libnuma {
        return None;
    }
    Some(Finding {
        severity: Severity::Low,
        title: "this MariaDB cannot interleave its pool".to_owned(),
        evidence: "libnuma is not among the libraries in its memory: innodb_numa_interleave is not compiled in"
            .to_owned(),
        cost: "the pool is where its pages were first read, until it is spread from outside",
        mend: format!("homenode rebalance {} --apply, after warming up", server.argument),
        document: "first-touch",
    })
}

/// Waits that have a tenth of the database's time or more, and what is known to help.
fn contended_events(facts: &Facts) -> Vec<Finding> {
    let Some((server, profile)) = facts.server.as_ref().and_then(|s| Some((s, s.waits.as_ref()?))) else {
        return Vec::new();
    };
    if profile.busy < 100 {
        return Vec::new();
    }
    let much =
        profile.by_event.iter().filter(|(event, count)| **count * 10 >= profile.busy && event.as_str() != ON_CPU);
    let finding = |(event, count): (&String, &u64)| Finding {
        severity: if *count * 4 >= profile.busy { Severity::High } else { Severity::Medium },
        title: format!("sessions wait for {event}"),
        evidence: format!(
            "{} of the database's time ({} of {} samples, {:.1} sessions busy on average)",
            share(*count, profile.busy),
            count,
            profile.busy,
            profile.average_busy()
        ),
        cost: "these sessions do nothing meanwhile",
        mend: advice(event, server),
        document: "waits",
    };
    much.map(finding).collect()
}

/// One session waits much longer for a latch than the others do: who comes first is not who asked first.
fn unfair_latch(facts: &Facts) -> Option<Finding> {
    /// Fewer samples of a session say little about it.
    const SAMPLES: u64 = 20;
    let (server, profile) = facts.server.as_ref().and_then(|s| Some((s, s.waits.as_ref()?)))?;
    let sessions: Vec<_> = profile.by_session.iter().filter(|(_, (busy, _))| *busy >= SAMPLES).collect();
    let is_latch = |event: &&String| event.starts_with("LWLock:") || event.contains("wait/synch/");
    let unfair = profile.by_event.keys().filter(is_latch).find_map(|event| {
        let waited = |events: &BTreeMap<String, u64>, busy: u64| {
            events.get(event).copied().unwrap_or(0) as f64 / busy.max(1) as f64
        };
        let mut shares: Vec<(f64, i64)> =
            sessions.iter().map(|(session, (busy, events))| (waited(events, *busy), **session)).collect();
        shares.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (most, session) = *shares.last().filter(|_| shares.len() >= 4)?;
        let middle = shares[shares.len() / 2].0;
        (most >= 0.3 && most >= 3.0 * middle).then_some((event, session, most, middle))
    });
    let (event, session, most, middle) = unfair?;
    Some(Finding {
        severity: Severity::Medium,
        title: format!("one session waits for {event} much longer than the others"),
        evidence: format!(
            "session {session} waited for it in {:.0}% of its samples, the middle one of {} sessions in {:.0}%",
            most * 100.0,
            sessions.len(),
            middle * 100.0
        ),
        cost: "its statements take several times as long as the same ones of other sessions",
        mend: format!("fewer sessions at a time (a pooler) shorten the queue; {}", advice(event, server)),
        document: "waits",
    })
}

fn advice(event: &str, server: &ServerFacts) -> String {
    let lower = event.to_ascii_lowercase();
    let known: [(&[&str], &str); 7] = [
        (
            &["walwrite", "walsync", "walinsert", "log_sys", "redo"],
            "log on a faster device, or fewer and larger transactions (group commit)",
        ),
        (
            &["bufferfreelist", "buffermapping", "buf_pool"],
            "a larger pool; PostgreSQL partitions this table 128 ways at compile time (NUM_BUFFER_PARTITIONS)",
        ),
        (
            &["buffercontent", "buffer_content", "index_tree_rw_lock"],
            "spread inserts over more index pages (hash or reversed keys, fillfactor)",
        ),
        (&["extend"], "larger extension steps: load with COPY, or fewer concurrent loaders a table"),
        (&["rseg", "undo"], "more undo tablespaces (innodb_undo_tablespaces) or rollback segments"),
        (
            &["lock:", "row lock"],
            "homenode waits shows who blocks whom; shorter transactions, another order of updates",
        ),
        (&["procarray", "xidgen", "subtrans"], "fewer connections (a pooler), no subtransactions on the hot path"),
    ];
    let found = known.iter().find(|(words, _)| words.iter().any(|word| lower.contains(word)));
    let text = found.map_or("homenode waits and homenode stacks show where it is waited for", |(_, text)| text);
    if server.argument.is_empty() { text.to_owned() } else { format!("{text}   (homenode stacks {})", server.argument) }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::stat::NodeMemory;
    use crate::waits::{Doing, Profile};

    fn memory(free: u64, page_cache: u64) -> NodeMemory {
        NodeMemory { total: 100 << 30, free: free << 30, page_cache: page_cache << 30, ..NodeMemory::default() }
    }

    /// Two nodes, a server with even memory, nothing wrong.
    fn healthy() -> Facts {
        Facts {
            seconds: 2.0,
            nodes: BTreeMap::from([(0, memory(40, 10)), (1, memory(40, 10))]),
            cpu_nodes: BTreeSet::from([0, 1]),
            rates: BTreeMap::from([("numa_hint_faults".to_owned(), 500.0)]),
            numa_balancing: true,
            transparent_huge_pages: Some("always".to_owned()),
            server: Some(ServerFacts {
                kind: Some(ServerKind::Postgres),
                argument: "--postgres".to_owned(),
                own_by_node: BTreeMap::from([(0, 8 << 30), (1, 8 << 30)]),
                pool_small_page_bytes: 16 << 30,
                private_policies: BTreeSet::from(["default".to_owned()]),
                private_bytes: 1 << 30,
                page_table_bytes: 100 << 20,
                busy_threads: 10,
                thread_looks: 200,
                looks_by_node: BTreeMap::from([(0, 100), (1, 100)]),
                disk: Some(("nvme0n1".to_owned(), 0)),
                ..ServerFacts::default()
            }),
            ..Facts::default()
        }
    }

    fn titles(facts: &Facts) -> Vec<String> {
        examine(facts).into_iter().map(|finding| finding.title).collect()
    }

    fn changed(change: impl Fn(&mut Facts, &mut ServerFacts)) -> Vec<String> {
        let mut facts = healthy();
        let mut server = facts.server.take().unwrap_or_default();
        change(&mut facts, &mut server);
        facts.server = Some(server);
        titles(&facts)
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        assert_eq!(titles(&healthy()), Vec::<String>::new());
        assert_eq!(titles(&Facts::default()), Vec::<String>::new());
    }

    #[test]
    fn each_trouble_is_found_and_only_that() {
        type Change = fn(&mut Facts, &mut ServerFacts);
        let cases: [(Change, &str); 12] = [
            (|_, s| s.own_by_node = BTreeMap::from([(0, 16 << 30)]), "the server's memory is on few nodes"),
            (
                |f, _| f.nodes = BTreeMap::from([(0, memory(1, 60)), (1, memory(50, 1))]),
                "node 0 is full while node 1 has room",
            ),
            (
                |f, _| {
                    f.rates.insert("pswpout".into(), 50.0);
                },
                "memory is reclaimed although there is free memory",
            ),
            (
                |f, _| {
                    f.foreign.insert(1, 5000.0);
                },
                "pages wanted on node 1 come from elsewhere",
            ),
            (|_, s| s.pinned_threads = 10, "the kernel balances memory under a pinned server"),
            (
                |f, _| {
                    f.rates.insert("compact_stall".into(), 9.0);
                },
                "processes wait while huge pages are put together",
            ),
            (|_, s| s.page_table_bytes = 3 << 30, "a large pool in small pages"),
            (
                |_, s| {
                    s.looks_by_node = BTreeMap::from([(0, 200), (1, 3)]);
                    s.client_looks_by_node = BTreeMap::from([(0, 99)]);
                },
                "clients and server are on node 0 together",
            ),
            (|_, s| s.node_changes = 50, "busy threads wander between nodes"),
            (|_, s| s.looks_by_node = BTreeMap::from([(1, 200)]), "the disk nvme0n1 is far from those who use it"),
            (
                |_, s| {
                    s.private_policies.insert("interleave:0-1".into());
                },
                "private memory is interleaved",
            ),
            (|_, s| s.kind = Some(ServerKind::MariaDb), "this MariaDB cannot interleave its pool"),
        ];
        for (change, title) in cases {
            assert_eq!(changed(change), [title]);
        }
    }

    #[test]
    fn waits_with_much_of_the_time_are_found_and_cpu_is_none() {
        let doing = |event: Option<&str>| Doing { event: event.map(str::to_owned), ..Doing::default() };
        let mut profile = Profile::default();
        (0..100).for_each(|_| profile.add(&[doing(None), doing(Some("LWLock:WALWrite"))]));
        let titles = changed(|_, server| server.waits = Some(profile.clone()));
        assert_eq!(titles, ["sessions wait for LWLock:WALWrite"]);
    }

    #[test]
    fn a_session_that_a_latch_keeps_is_found() {
        let sample = |kept: bool| {
            let doing =
                |session, event: Option<&str>| Doing { session, event: event.map(str::to_owned), ..Doing::default() };
            let mut all: Vec<Doing> = (0..15).map(|session| doing(session, None)).collect();
            all.push(doing(15, Some("LWLock:ProcArray").filter(|_| kept)));
            all
        };
        let profile = |kept: bool| {
            let mut profile = Profile::default();
            (0..100).for_each(|_| profile.add(&sample(kept)));
            profile
        };
        let titles = |kept| changed(|_, server| server.waits = Some(profile(kept)));
        assert_eq!(titles(true), ["one session waits for LWLock:ProcArray much longer than the others"]);
        assert_eq!(titles(false), Vec::<String>::new());
    }

    #[test]
    fn the_gravest_comes_first_and_all_is_said() {
        let mut facts = healthy();
        facts.rates.insert("compact_stall".to_owned(), 9.0);
        facts.rates.insert("pswpout".to_owned(), 9.0);
        let findings = examine(&facts);
        assert_eq!(findings.iter().map(|f| f.severity).collect::<Vec<_>>(), [Severity::High, Severity::Medium]);
        assert!(findings.iter().all(|f| !f.evidence.is_empty() && !f.cost.is_empty() && !f.mend.is_empty()));
    }
}

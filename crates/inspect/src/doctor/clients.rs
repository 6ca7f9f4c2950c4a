//! Who on this machine is connected to the server? The processes at the other ends of its TCP connections (`/proc/net/tcp`,
//! Documentation/networking/proc_net_tcp.rst). The kernel does not show there who is at the other end of a Unix socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::place::{Server, ServerKind};
use crate::proc::{Process, processes};

/// The processes connected to the server, as if they were one; `None` without any (that this user can see).
pub(super) fn clients_of(server: &Server) -> Option<Server> {
    let own: BTreeSet<u32> = server.processes.iter().map(|process| process.pid).collect();
    let theirs: BTreeSet<u64> = own.iter().flat_map(|pid| sockets(*pid)).collect();
    let mut peers = BTreeSet::new();
    for file in ["tcp", "tcp6"] {
        // Of the server's own network: a container has one of its own.
        let text = fs::read_to_string(format!("/proc/{}/net/{file}", server.pid())).unwrap_or_default();
        peers.extend(other_ends(&text, &theirs));
    }
    if peers.is_empty() {
        return None;
    }
    let is_client = |process: &Process| {
        process.pid != std::process::id()
            && !own.contains(&process.pid)
            && sockets(process.pid).iter().any(|socket| peers.contains(socket))
    };
    let processes: Vec<Process> = processes().into_iter().filter(is_client).collect();
    if processes.is_empty() { None } else { Some(Server { kind: ServerKind::Other, processes }) }
}

/// Inodes of a process's sockets; none if they may not be seen.
fn sockets(pid: u32) -> Vec<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| {
        fs::read_link(entry.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    links.collect()
}

/// Inodes of the other ends, on this machine, of the established connections that have one of these inodes.
fn other_ends(text: &str, inodes: &BTreeSet<u64>) -> BTreeSet<u64> {
    let rows: Vec<(&str, &str, u64)> = text.lines().filter_map(parse_row).collect();
    let by_ends: BTreeMap<(&str, &str), u64> =
        rows.iter().map(|(local, remote, inode)| ((*local, *remote), *inode)).collect();
    let own = rows.iter().filter(|(_, _, inode)| inodes.contains(inode));
    own.filter_map(|(local, remote, _)| by_ends.get(&(*remote, *local)).copied()).collect()
}

/// Local address, remote address and inode of an established connection.
fn parse_row(line: &str) -> Option<(&str, &str, u64)> {
    const ESTABLISHED: &str = "01";
    let mut words = line.split_ascii_whitespace();
    let (local, remote, state) = (words.nth(1)?, words.next()?, words.next()?);
    let inode = words.nth(5)?.parse().ok().filter(|inode| *inode != 0)?;
    (state == ESTABLISHED).then_some((local, remote, inode))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
       0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   104        0 100 1 0 100 0 0 10 0\n\
       1: 0100007F:1538 0100007F:C350 01 00000000:00000000 02:000A 00000000   104        0 101 2 0 20 4 30 10 -1\n\
       2: 0100007F:C350 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 202 1 0 20 4 30 10 -1\n\
       3: 0100007F:1538 0500000A:C351 01 00000000:00000000 00:00000000 00000000   104        0 103 1 0 20 4 30 10 -1\n";

    #[test]
    fn the_other_end_is_found_if_it_is_here() {
        assert_eq!(other_ends(TEXT, &BTreeSet::from([100, 101, 103])), BTreeSet::from([202]));
        assert_eq!(other_ends(TEXT, &BTreeSet::from([202])), BTreeSet::from([101]));
    }

    #[test]
    fn own_connections_are_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _other = listener.accept().unwrap();
        let own: BTreeSet<u64> = sockets(std::process::id()).into_iter().collect();
        let text = fs::read_to_string("/proc/self/net/tcp").unwrap();
        // Both ends are this process's.
        assert!(other_ends(&text, &own).intersection(&own).count() >= 2);
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[0-9A-F: \\n]{0,120}") {
            let _ = other_ends(&text, &BTreeSet::from([1]));
        }
    }
}

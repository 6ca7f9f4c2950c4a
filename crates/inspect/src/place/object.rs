//! What is a mapping to the server? Objects that an administrator knows by name.

use std::collections::BTreeSet;

use crate::place::ServerKind;
use crate::proc::Mapping;

/// Private mappings of a MariaDB server from this size on are taken to be chunks of InnoDB's pool: its default chunk is
/// 128 MiB, the smallest that MariaDB 10.11 makes out of a small pool is that pool; malloc's arenas grow to 64 MiB at most.
const POOL_BYTES_MIN: u64 = (64 << 20) + 1;

/// Kinds of objects, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Anonymous, System V or POSIX memory that several processes map.
    SharedMemory,
    /// InnoDB's buffer pool, known by its size and by being kept out of core dumps.
    InnodbPool,
    /// Private memory: malloc's, and whatever else has no file.
    Private,
    /// The stack of a process's first thread. (Other threads' stacks are private mappings like any other.)
    Stack,
    /// Program and libraries.
    Library,
    /// Other files.
    File,
    /// Pages of the kernel, such as `[vdso]`: nobody's memory.
    Kernel,
}

/// What a mapping belongs to: kind and a name for people. `undumped` are the mappings that core dumps leave out: MariaDB asks for that
/// for InnoDB's pool (storage/innobase/include/ut0new.h, allocate_large_dontdump), while other caches are as large and are dumped.
/// Where nothing is known about that, the size alone decides.
pub(super) fn classify(
    mapping: &Mapping,
    server: ServerKind,
    program_files: &[(u32, u32, u64)],
    undumped: Option<&BTreeSet<u64>>,
) -> (Kind, String) {
    let name = mapping.name.as_str();
    if is_shared_memory(mapping) {
        return (Kind::SharedMemory, shared_name(name, server));
    }
    match name {
        "[stack]" => return (Kind::Stack, "stacks".to_owned()),
        "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" | "[uprobes]" | "[sigpage]" | "[vectors]" => {
            return (Kind::Kernel, "kernel".to_owned());
        }
        _ => {}
    }
    if mapping.inode == 0 || name.starts_with('[') || is_hugetlb(name) {
        if server == ServerKind::MariaDb && could_be_pool(mapping) {
            match undumped {
                Some(undumped) if undumped.contains(&mapping.start) => {
                    return (Kind::InnodbPool, "InnoDB pool (over 64 MiB and kept out of core dumps)".to_owned());
                }
                Some(_) => {}
                None => return (Kind::InnodbPool, "InnoDB pool (private mappings over 64 MiB)".to_owned()),
            }
        }
        return (Kind::Private, "private memory (heaps)".to_owned());
    }
    let id = (mapping.device.0, mapping.device.1, mapping.inode);
    if program_files.contains(&id) {
        (Kind::Library, "program and libraries".to_owned())
    } else {
        (Kind::File, "mapped files".to_owned())
    }
}

/// Whether a MariaDB server's mapping is large enough for InnoDB's pool, and of the kind.
pub(super) fn could_be_pool(mapping: &Mapping) -> bool {
    let is_private = !mapping.shared && (mapping.inode == 0 && mapping.name.is_empty() || is_hugetlb(&mapping.name));
    is_private && mapping.writable && mapping.bytes() >= POOL_BYTES_MIN
}

/// Whether the mapping is of memory without a file on a disk, seen by all who map it.
pub(super) fn is_shared_memory(mapping: &Mapping) -> bool {
    const NAMES: [&str; 5] = ["/dev/zero (deleted)", "/SYSV", "/dev/shm/", "/memfd:", "/anon_hugepage"];
    // The inode is no sign: that of the first System V segment is 0.
    mapping.shared && NAMES.iter().any(|known| mapping.name.starts_with(known))
}

/// Whether the object consists of reserved huge pages.
pub(super) fn is_hugetlb(name: &str) -> bool {
    name.starts_with("/anon_hugepage")
}

fn shared_name(name: &str, server: ServerKind) -> String {
    let plain = name.trim_end_matches(" (deleted)");
    match (plain, server) {
        ("/dev/zero" | "/anon_hugepage", ServerKind::Postgres) => "main shared memory (buffers, WAL, locks)".to_owned(),
        ("/dev/zero" | "/anon_hugepage", _) => "anonymous shared memory".to_owned(),
        _ if plain.starts_with("/SYSV") => format!("System V segment {}", plain.trim_start_matches("/SYSV")),
        _ if plain.starts_with("/dev/shm/PostgreSQL.") => "dynamic shared memory".to_owned(),
        _ => format!("shared memory {plain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_maps_line;

    fn of(line: &str, server: ServerKind) -> (Kind, String) {
        classify(&parse_maps_line(line).unwrap(), server, &[(0xfd, 1, 7)], None)
    }

    #[test]
    fn mappings_are_named_for_people() {
        use ServerKind::{MariaDb, Other, Postgres};
        let shared = "7f0000000000-7f0010000000 rw-s 00000000 00:01 1027 /dev/zero (deleted)";
        assert_eq!(of(shared, Postgres), (Kind::SharedMemory, "main shared memory (buffers, WAL, locks)".into()));
        assert_eq!(of(shared, Other).1, "anonymous shared memory");
        let pool = "7f0000000000-7f0008200000 rw-p 00000000 00:00 0";
        assert_eq!(of(pool, MariaDb).0, Kind::InnodbPool);
        assert_eq!(of(pool, Other).0, Kind::Private);
        let marked = |starts: &[u64]| {
            let undumped = starts.iter().copied().collect();
            classify(&parse_maps_line(pool).unwrap(), MariaDb, &[], Some(&undumped)).0
        };
        assert_eq!((marked(&[0x7f00_0000_0000]), marked(&[0x1000])), (Kind::InnodbPool, Kind::Private));
        assert_eq!(of("7f0000000000-7f0000200000 rw-p 00000000 00:00 0", MariaDb).0, Kind::Private);
        // large-pages=on: a private mapping of reserved huge pages has a file that nobody sees.
        let huge = "7f0000000000-7f0008200000 rw-p 00000000 00:0f 77 /anon_hugepage (deleted)";
        assert_eq!((of(huge, MariaDb).0, of(huge, Other).0), (Kind::InnodbPool, Kind::Private));
        assert_eq!(of("7f0000000000-7f0000200000 rw-p 00000000 00:00 0 [stack]", Other).0, Kind::Stack);
        assert_eq!(of("7f0000000000-7f0000200000 r--p 00000000 fd:01 7 /lib/libc.so.6", Other).0, Kind::Library);
        assert_eq!(of("7f0000000000-7f0000200000 rw-s 00000000 fd:01 8 /data/x", Other).0, Kind::File);
        assert_eq!(
            of("7f0000000000-7f0000200000 rw-s 00000000 00:01 8 /SYSV0052e2c1 (deleted)", Other).1,
            "System V segment 0052e2c1"
        );
        let first = of("7f0000000000-7f0000200000 rw-s 00000000 00:01 0 /SYSV00000030 (deleted)", Postgres);
        assert_eq!(first, (Kind::SharedMemory, "System V segment 00000030".into()));
        assert_eq!(of("7f0000000000-7f0000002000 r-xp 00000000 00:00 0 [vdso]", Other).0, Kind::Kernel);
    }
}

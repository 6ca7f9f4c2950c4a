//! Which of PostgreSQL's tables, and which parts of its shared memory, are on which node? Asked from PostgreSQL itself: where in
//! its shared memory each part lies (`pg_shmem_allocations`), and which table's page is in which buffer (`pg_buffercache`). The
//! nodes come from the census: PostgreSQL's own view of them (`pg_buffercache_numa`, 18) makes every page present.

use std::collections::BTreeMap;

/// A named stretch of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// `Buffer Blocks`, a table's name, ...
    pub name: String,
    /// Where it begins in shared memory, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// Counts for each name the bytes on each node. A page belongs to each part in it by as many bytes as that has there, so the
/// sums fit. `page_node` is a node for every page of shared memory, `None` if it isn't present.
pub fn by_name(parts: &[Part], page_bytes: u64, page_node: &[Option<u16>]) -> BTreeMap<String, BTreeMap<usize, u64>> {
    let mut sums: BTreeMap<String, BTreeMap<usize, u64>> = BTreeMap::new();
    for part in parts {
        let end = part.offset.saturating_add(part.bytes);
        let sum = sums.entry(part.name.clone()).or_default();
        let mut at = part.offset;
        while at < end {
            let page = at / page_bytes;
            let next = ((page + 1) * page_bytes).min(end);
            match usize::try_from(page).ok().and_then(|page| page_node.get(page)) {
                Some(Some(node)) => *sum.entry(usize::from(*node)).or_default() += next - at,
                Some(None) => {}
                None => break,
            }
            at = next;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_shared_out_by_bytes() {
        let part = |name: &str, offset, bytes| Part { name: name.to_owned(), offset, bytes };
        let parts = [part("a", 0, 6000), part("b", 6000, 2192), part("a", 8192, 4096), part("far", 1 << 60, 9)];
        let sums = by_name(&parts, 4096, &[Some(1), Some(0), None]);
        assert_eq!(sums["a"], BTreeMap::from([(1, 4096), (0, 1904)]));
        assert_eq!(sums["b"], BTreeMap::from([(0, 2192)]));
        assert!(sums["far"].is_empty());
    }
}

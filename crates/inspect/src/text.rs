//! How do tables, sizes and shares look in a terminal?

pub use homenode_lines::text::{Side, Table, share, shorten};

/// A size in the largest binary unit that it has at least one of: `12.4 GiB`.
pub fn size(bytes: u64) -> String {
    homenode_memory::size::show(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A count with its noun: `1 node`, `3 nodes`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(2 << 40), "2 TiB");
    }
}

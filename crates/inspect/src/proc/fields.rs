//! What do the files of named numbers say? `meminfo` of the machine and of a node, `numastat`, `vmstat`.

use std::collections::BTreeMap;

/// Amounts of a `meminfo` file in bytes (counts for the `HugePages_*` lines), by name.
pub type Meminfo = BTreeMap<String, u64>;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// Reads `MemFree:  12 kB` as in `/proc/meminfo`, and `Node 0 MemFree:  12 kB` as in a node's.
///
/// # Errors
/// The first line that has neither form.
pub fn parse_meminfo(text: &str) -> Result<Meminfo, String> {
    let mut fields = Meminfo::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').ok_or(line)?;
        let name = name.rsplit(' ').next().unwrap_or(name);
        let mut words = value.split_ascii_whitespace();
        let number: u64 = words.next().and_then(|word| word.parse().ok()).ok_or(line)?;
        let scale = match words.next() {
            Some("kB") => 1024,
            None => 1,
            Some(_) => return Err(line.to_owned()),
        };
        fields.insert(name.to_owned(), number.checked_mul(scale).ok_or(line)?);
    }
    Ok(fields)
}

/// Reads `name number` lines, as in `numastat` and `vmstat`.
///
/// # Errors
/// The first line in another form.
pub fn parse_counters(text: &str) -> Result<Counters, String> {
    let mut counters = Counters::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(' ').ok_or(line)?;
        counters.insert(name.to_owned(), value.trim().parse().map_err(|_| line.to_owned())?);
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_of_meminfo_are_read() {
        let node =
            "Node 0 MemTotal:       67062324 kB\nNode 0 Active(file):   25018280 kB\nNode 0 HugePages_Total:     3\n";
        let fields = parse_meminfo(node).unwrap();
        assert_eq!(fields["MemTotal"], 67_062_324 << 10);
        assert_eq!(fields["Active(file)"], 25_018_280 << 10);
        assert_eq!(fields["HugePages_Total"], 3);
        assert_eq!(parse_meminfo("MemFree: 1 kB\n").unwrap()["MemFree"], 1024);
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["MemFree 1 kB", "MemFree: x kB", "MemFree: 1 MB", "MemFree: 18446744073709551615 kB"] {
            assert_eq!(parse_meminfo(text), Err(text.to_owned()));
        }
        assert_eq!(parse_counters("numa_hit 5\nnuma_miss 0\n").unwrap()["numa_hit"], 5);
        assert!(parse_counters("numa_hit").is_err());
        assert!(parse_counters("numa_hit -1").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[A-Za-z0-9: _()\\n]{0,80}") {
            let _ = parse_meminfo(&text);
            let _ = parse_counters(&text);
        }
    }
}

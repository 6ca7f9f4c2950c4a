//! On which nodes are a process's pages, and by which policy? `/proc/PID/numa_maps` (fs/proc/task_mmu.c, show_numa_map), line by
//! line. Counts are in pages of `kernelpagesize_kB`: reserved huge pages count as one each, transparent ones as 512 small ones.

/// One mapping's line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaLine {
    /// First address of the mapping.
    pub start: u64,
    /// The policy as the kernel writes it: `default`, `interleave:0-3`, `weighted interleave:0-3`, ...
    pub policy: String,
    /// Bytes on each node that has any: node and bytes.
    pub by_node: Vec<(usize, u64)>,
    /// Size of the pages that were counted, in bytes; 0 if none is present.
    pub page_bytes: u64,
    /// Bytes in private (copied) pages.
    pub anonymous_bytes: u64,
    /// How many page tables the most widely mapped page is in; 1 if not shown.
    pub mapped_by_max: u64,
    /// Whether the pages are reserved huge ones.
    pub huge: bool,
}

impl NumaLine {
    /// Bytes present on all nodes.
    pub fn present_bytes(&self) -> u64 {
        self.by_node.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Policies by the name that mm/mempolicy.c gives them (policy_modes). Nodes, or flags, may follow.
const POLICIES: [&str; 7] =
    ["default", "prefer (many)", "prefer", "bind", "interleave", "local", "weighted interleave"];

/// Words without a value.
const FLAGS: [&str; 3] = ["heap", "stack", "huge"];

/// Reads one line, without its line feed.
///
/// # Errors
/// What of it is not known. An unknown counter is no error: the ones that are read here don't depend on it.
pub fn parse_numa_line(line: &str) -> Result<NumaLine, &'static str> {
    let (start, rest) = line.split_once(' ').ok_or("there is no policy")?;
    if start.is_empty() || !start.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("it doesn't begin with an address");
    }
    let start = u64::from_str_radix(start, 16).map_err(|_| "the address is too large")?;
    let (policy, rest) = split_policy(rest)?;
    let mut out = NumaLine { start, policy: policy.to_owned(), mapped_by_max: 1, ..NumaLine::default() };
    let mut pages: Vec<(usize, u64)> = Vec::new();
    let (mut anonymous, mut page_kib) = (0, None);
    for word in rest.split_ascii_whitespace() {
        let Some((name, value)) = word.split_once('=') else {
            // Before Linux 4.5 the stack of a thread was `stack:TID`.
            if !FLAGS.contains(&word) && !word.starts_with("stack:") {
                return Err("a word is not known");
            }
            out.huge |= word == "huge";
            continue;
        };
        if name == "file" {
            continue;
        }
        let number: u64 = value.parse().map_err(|_| "a count is not a number")?;
        match name {
            "anon" => anonymous = number,
            "mapmax" => out.mapped_by_max = number.max(1),
            "kernelpagesize_kB" => page_kib = Some(number),
            _ => {
                if let Some(node) = name.strip_prefix('N').filter(|id| id.bytes().all(|byte| byte.is_ascii_digit())) {
                    pages.push((node.parse().map_err(|_| "a node is not a number")?, number));
                }
            }
        }
    }
    if pages.is_empty() {
        return Ok(out);
    }
    // Without it a huge page cannot be told from a small one.
    let page_kib = page_kib.ok_or("pages are counted without saying their size")?;
    out.page_bytes = page_kib.checked_mul(1024).filter(|bytes| *bytes > 0).ok_or("the page size can't be")?;
    let bytes = |pages: u64| pages.checked_mul(out.page_bytes).ok_or("more bytes than there are addresses");
    out.by_node = pages.iter().map(|(node, pages)| Ok((*node, bytes(*pages)?))).collect::<Result<_, &str>>()?;
    out.by_node
        .iter()
        .try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes))
        .ok_or("more bytes than there are addresses")?;
    out.anonymous_bytes = bytes(anonymous)?;
    Ok(out)
}

/// The policy at the head of `text` and what follows it. Two policies have a blank in their name (the kernel's own readers
/// stumble over them).
fn split_policy(text: &str) -> Result<(&str, &str), &'static str> {
    for name in POLICIES {
        let Some(after) = text.strip_prefix(name) else { continue };
        if !after.is_empty() && !after.starts_with([' ', ':', '=']) {
            continue;
        }
        let end = after.find(' ').map_or(text.len(), |at| name.len() + at);
        return Ok((&text[..end], &text[end..]));
    }
    Err("the policy is not known")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line =
            parse_numa_line("7f57406c7000 default anon=9766 dirty=9766 N0=8979 N1=787 kernelpagesize_kB=4").unwrap();
        assert_eq!(line.by_node, [(0, 8979 * 4096), (1, 787 * 4096)]);
        assert_eq!((line.policy.as_str(), line.page_bytes, line.anonymous_bytes), ("default", 4096, 9766 * 4096));
        let huge = "7f0000000000 interleave:0-3 file=/anon_hugepage\\040(deleted) huge dirty=4 mapmax=3 N0=2 N3=2 kernelpagesize_kB=2048";
        let huge = parse_numa_line(huge).unwrap();
        assert_eq!(huge.by_node, [(0, 4 << 20), (3, 4 << 20)]);
        assert!(huge.huge);
        assert_eq!((huge.policy.as_str(), huge.mapped_by_max), ("interleave:0-3", 3));
    }

    #[test]
    fn policies_with_blanks_and_flags_are_read() {
        for policy in [
            "weighted interleave:0,2",
            "prefer (many):0-1",
            "bind=static:1",
            "prefer:3",
            "local",
            "interleave=relative:0",
        ] {
            let line = parse_numa_line(&format!("7f0000000000 {policy} heap anon=1 N0=1 kernelpagesize_kB=4")).unwrap();
            assert_eq!(line.policy, policy);
            assert_eq!(line.present_bytes(), 4096);
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (line, why) in [
            ("7f00 sideways:0 N0=1 kernelpagesize_kB=4", "policy"),
            ("7f00 defaults N0=1 kernelpagesize_kB=4", "policy"),
            ("7f00 default N0=1", "size"),
            ("7f00 default N0=x kernelpagesize_kB=4", "number"),
            ("7f00 default shadow N0=1 kernelpagesize_kB=4", "word"),
            ("7f00 default N0=18446744073709551615 kernelpagesize_kB=4", "bytes"),
            ("7f00 default N0=1 kernelpagesize_kB=0", "size"),
            ("default N0=1", "address"),
            ("", "policy"),
        ] {
            let error = parse_numa_line(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        assert!(parse_numa_line("7f00 default newcounter=5 N0=1 kernelpagesize_kB=4").is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_safe(line in "[0-9a-fNk=: \\-]{0,20}(default|interleave:0|bind)?[ a-z0-9=N_B]{0,40}") {
            let _ = parse_numa_line(&line);
        }

        #[test]
        fn what_is_written_is_read(start in 0u64..1 << 47, nodes in proptest::collection::btree_map(0usize..1024, 1u64..1 << 30, 1..8)) {
            let counts: Vec<String> = nodes.iter().map(|(node, pages)| format!("N{node}={pages}")).collect();
            let line = format!("{start:08x} default anon=1 {} kernelpagesize_kB=4", counts.join(" "));
            let read = parse_numa_line(&line).unwrap();
            let expected: Vec<_> = nodes.iter().map(|(node, pages)| (*node, pages * 4096)).collect();
            prop_assert_eq!(read.by_node, expected);
            prop_assert_eq!(read.start, start);
        }
    }
}

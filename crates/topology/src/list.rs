//! Which numbers does `0-3,8` mean? The kernel's text form of sets of CPUs and nodes.

/// Highest number taken for a CPU or node. Linux' largest configuration is 8192 CPUs; a damaged file must not make us
/// allocate for a number of nineteen digits.
const HIGHEST: usize = 65_535;

/// Reads a list such as `0-3,8,10-11` (the kernel's `%*pbl`, Documentation/admin-guide/cputopology.rst): ascending,
/// without doubles. Empty text is the empty list. `None` if it is no list or names a number over 65535.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let text = text.trim();
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Some(numbers);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = parse_number(first)?;
        let last: usize = parse_number(last)?;
        if first > last || numbers.len() > HIGHEST {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

fn parse_number(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|number| *number <= HIGHEST)
}

/// Writes ascending numbers as the kernel does: `0-3,8,10-11`.
pub fn format_list(numbers: &[usize]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some((&first, _)) = rest.split_first() {
        let run = rest.iter().enumerate().take_while(|(i, n)| first.checked_add(*i) == Some(**n)).count();
        let last = rest[run - 1];
        parts.push(if run == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[run..];
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("3"), Some(vec![3]));
        for bad in ["3-1", "a", "1,", "-1", "1--2", "0-99999999999999999999", "70000"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn writing_and_reading_give_the_same(set in proptest::collection::btree_set(0usize..5000, 0..200)) {
            let numbers: Vec<usize> = set.into_iter().collect();
            prop_assert_eq!(parse_list(&format_list(&numbers)), Some(numbers));
        }

        #[test]
        fn any_text_is_safe(text in "[0-9,\\- ]{0,40}") {
            let _ = parse_list(&text);
        }
    }
}

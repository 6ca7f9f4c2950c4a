//! How many bytes does a person mean, and how long? Sizes and times with their unit spelled.

/// Reads a size such as `512MiB` or `1.5 GiB`; the unit may not be left out.
///
/// # Errors
/// What is wanted.
pub fn parse(text: &str) -> Result<u64, String> {
    homenode_memory::size::parse(text).map(|bytes| bytes as u64)
}

/// Reads a time such as `10s`, `500ms` or `5min`.
///
/// # Errors
/// What is wanted.
pub fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let number: u64 = number.parse().map_err(|_| "a whole number with a unit is wanted, e.g. 10s".to_owned())?;
    let ms = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let ms = ms.ok_or_else(|| format!("the unit {unit:?} is unknown; ms, s, min, h"))?;
    let ms = number.checked_mul(ms).filter(|ms| (1..=1 << 40).contains(ms));
    ms.map(std::time::Duration::from_millis).ok_or_else(|| "no time to wait".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_with_their_unit() {
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("1.5 gib"), Ok(3 << 29));
        assert_eq!(parse("2GB"), Ok(2_000_000_000));
        assert!(parse("3parsecs").unwrap_err().starts_with("unknown unit \"parsecs\""));
        assert_eq!(parse_time("10s").map(|time| time.as_millis()), Ok(10_000));
        for wrong in ["", "12", "GiB", "3parsecs", "-1MiB", "99999999999999TiB", "1e3MiB", "1..2B"] {
            assert!(parse(wrong).is_err(), "{wrong}");
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert!(parse_time("0s").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_safe(text in "\\PC{0,24}") {
            let _ = parse(&text);
            let _ = parse_time(&text);
        }
    }
}

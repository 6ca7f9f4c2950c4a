//! How many bytes does a person mean? Sizes with their unit spelled.

/// Units, each with its bytes. Decimal and binary ones are kept apart, as their names say.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Reads a size such as `512MiB` or `1.5 GiB`; the unit may not be left out.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let names = UNITS.map(|(name, _)| name).join(", ");
    let number: f64 = number.parse().map_err(|_| format!("a number with a unit is wanted ({names})"))?;
    let bytes = match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, bytes)) => *bytes,
        None if unit.is_empty() => return Err(format!("the unit is missing ({names})")),
        None => return Err(format!("unknown unit {unit:?} ({names})")),
    };
    let size = number * bytes as f64;
    // Beyond 2^53 a float skips whole numbers, and no machine has that much.
    if size > (1u64 << 53) as f64 { Err("more than any machine has".into()) } else { Ok(size as usize) }
}

/// Writes a size in the largest binary unit that it has at least one of.
pub fn show(bytes: usize) -> String {
    let (unit, one) = UNITS[..5].iter().rev().find(|(_, one)| bytes as u64 >= *one).copied().unwrap_or(UNITS[0]);
    let whole = bytes as f64 / one as f64;
    if whole.fract() == 0.0 { format!("{whole} {unit}") } else { format!("{whole:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse("512MiB"), Ok(512 << 20));
        assert_eq!(parse("1.5 gib"), Ok(3 << 29));
        assert_eq!(parse("2GB"), Ok(2_000_000_000));
        for wrong in ["", "12", "GiB", "3parsecs", "-1MiB", "1e3MiB", "99999999TiB", "1..2B"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("3parsecs").unwrap_err().starts_with("unknown unit \"parsecs\""));
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(show(512 << 20), "512 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show(7), "7 B");
        assert_eq!(show(0), "0 B");
    }
}

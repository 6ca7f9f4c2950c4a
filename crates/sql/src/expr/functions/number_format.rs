//! How is a number written by a pattern? to_char's numeric patterns (formatting.c, NUM_processor).

use homenode_types::{Decimal, Error, Result, SqlState, Type, ValueRef, round_to_scale};

/// A place of the pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// 9 or 0.
    Digit {
        zero: bool,
    },
    Group,
    Point,
    Literal(char),
    /// S, SG, MI, PL.
    Sign(Sign),
    /// TH or th.
    Ordinal {
        upper: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// Minus or plus, next to the digits.
    Anchored,
    Plain,
    Minus,
    Plus,
}

struct Pattern {
    places: Vec<Place>,
    fill: bool,
    /// Negative numbers in angle brackets.
    brackets: bool,
}

fn parse(pattern: &str) -> Result<Pattern> {
    let mut parsed = Pattern { places: Vec::new(), fill: true, brackets: false };
    let mut rest = pattern;
    let invalid = |message: &str| Error::new(SqlState::SYNTAX_ERROR, message);
    while let Some(first) = rest.chars().next() {
        let two = rest.get(..2).unwrap_or("").to_ascii_uppercase();
        let (place, length) = match (two.as_str(), first.to_ascii_uppercase()) {
            ("FM", _) => {
                parsed.fill = false;
                rest = &rest[2..];
                continue;
            }
            ("PR", _) => {
                parsed.brackets = true;
                rest = &rest[2..];
                continue;
            }
            ("MI", _) => (Place::Sign(Sign::Minus), 2),
            ("PL", _) => (Place::Sign(Sign::Plus), 2),
            ("SG", _) => (Place::Sign(Sign::Plain), 2),
            ("TH", _) => (Place::Ordinal { upper: rest.starts_with('T') }, 2),
            ("RN", _) => return Err(Error::unsupported("to_char with RN")),
            ("EE", _) => return Err(Error::unsupported("to_char with EEEE")),
            (_, 'V') => return Err(Error::unsupported("to_char with V")),
            (_, 'S') => (Place::Sign(Sign::Anchored), 1),
            (_, '9') => (Place::Digit { zero: false }, 1),
            (_, '0') => (Place::Digit { zero: true }, 1),
            (_, ',' | 'G') => (Place::Group, 1),
            (_, '.' | 'D') => {
                if parsed.places.contains(&Place::Point) {
                    return Err(invalid("multiple decimal points"));
                }
                (Place::Point, 1)
            }
            // The currency symbol of locale C is a blank.
            (_, 'L') => (Place::Literal(' '), 1),
            (_, '"') => {
                let end = rest[1..].find('"').map_or(rest.len(), |at| at + 1);
                parsed.places.extend(rest[1..end].chars().map(Place::Literal));
                rest = rest.get(end + 1..).unwrap_or("");
                continue;
            }
            _ => (Place::Literal(first), first.len_utf8()),
        };
        parsed.places.push(place);
        rest = &rest[length..];
    }
    Ok(parsed)
}

/// The number by the pattern. `42601` for a pattern that is none, `0A000` for RN, EEEE and V.
pub(super) fn number_to_char(number: Decimal, pattern: &str) -> Result<String> {
    let Pattern { places, fill, brackets } = parse(pattern)?;
    let point = places.iter().position(|place| *place == Place::Point).unwrap_or(places.len());
    let is_digit = |place: &&Place| matches!(place, Place::Digit { .. });
    let (before, after) =
        (places[..point].iter().filter(is_digit).count(), places[point..].iter().filter(is_digit).count());
    let rounded = round_to_scale(number, after.min(28) as i32)?;
    let shown = ValueRef::Numeric(rounded.abs()).to_text(Type::Numeric);
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    let whole = if whole == "0" { "" } else { whole };
    let overflow = whole.len() > before;
    let negative = rounded.is_sign_negative() && !rounded.is_zero();
    let fraction = format!("{fraction:0<after$}");
    // Under FM zeros at the end of what 9 stands for are left out.
    let decimals: Vec<&Place> = places[point..].iter().filter(is_digit).collect();
    let last_zero = decimals.iter().rposition(|place| **place == Place::Digit { zero: true });
    let kept = match fill {
        true => after,
        false => fraction.trim_end_matches('0').len().max(last_zero.map_or(0, |at| at + 1)),
    };
    let first_zero = places[..point].iter().filter(is_digit).position(|place| *place == Place::Digit { zero: true });
    // The first place that shows a digit: a given one, or zeros from the first 0 on.
    let mut from = (before - whole.len().min(before)).min(first_zero.unwrap_or(before));
    if from == before && after == 0 && before > 0 {
        // A zero shows at least one digit.
        from = before - 1;
    }
    // PL leaves the sign its own place.
    let own_sign = places.iter().any(|place| matches!(place, Place::Sign(sign) if *sign != Sign::Plus));
    let mut out = String::new();
    let mut sign = match (own_sign, brackets, negative) {
        (true, _, _) => None,
        (false, true, true) => Some("<"),
        (false, true, false) | (false, false, false) => Some(if fill { " " } else { "" }),
        (false, false, true) => Some("-"),
    };
    let anchored = places.iter().position(|place| *place == Place::Sign(Sign::Anchored));
    let leading = anchored.is_some_and(|at| !places[..at].iter().any(|place| is_digit(&place)));
    if leading {
        sign = Some(if negative { "-" } else { "+" });
    }
    let blank = if fill { " " } else { "" };
    let (mut digit, mut decimal) = (0, 0);
    for (at, place) in places.iter().enumerate() {
        match place {
            Place::Digit { .. } if at < point => {
                if digit >= from {
                    out.push_str(sign.take().unwrap_or(""));
                    let given = (digit + whole.len()).checked_sub(before).and_then(|place| whole.as_bytes().get(place));
                    out.push(if overflow { '#' } else { given.map_or('0', |byte| char::from(*byte)) });
                } else {
                    out.push_str(blank);
                }
                digit += 1;
            }
            Place::Digit { .. } => {
                if decimal < kept {
                    out.push(if overflow { '#' } else { char::from(fraction.as_bytes()[decimal]) });
                }
                decimal += 1;
            }
            Place::Group => out.push_str(if digit > from { "," } else { blank }),
            Place::Point => {
                out.push_str(sign.take().unwrap_or(""));
                if fill || kept > 0 || after > 0 {
                    out.push('.');
                }
            }
            Place::Literal(c) => out.push(*c),
            Place::Sign(Sign::Anchored) if leading => {}
            Place::Sign(Sign::Anchored | Sign::Plain) => out.push(if negative { '-' } else { '+' }),
            Place::Sign(Sign::Minus) => out.push_str(if negative { "-" } else { blank }),
            Place::Sign(Sign::Plus) => out.push_str(if negative { blank } else { "+" }),
            Place::Ordinal { upper } => {
                if !negative && after == 0 {
                    let suffix = super::to_char::ordinal_of(whole);
                    out.push_str(&if *upper { suffix.to_uppercase() } else { suffix.to_string() });
                }
            }
        }
    }
    if brackets {
        out.push_str(if negative { ">" } else { blank });
    }
    Ok(out)
}

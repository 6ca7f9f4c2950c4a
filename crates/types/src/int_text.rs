//! How are integers written as decimal text, fast? Two digits at a time from a table, no formatting machinery.

/// "00", "01", ... "99".
static PAIRS: [u8; 200] = {
    let mut pairs = [0u8; 200];
    let mut i = 0;
    while i < 100 {
        pairs[2 * i] = b'0' + (i / 10) as u8;
        pairs[2 * i + 1] = b'0' + (i % 10) as u8;
        i += 1;
    }
    pairs
};

/// Appends an unsigned integer as decimal text.
#[inline]
pub fn write_u64(mut n: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    while n >= 100 {
        let pair = 2 * (n % 100) as usize;
        n /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if n >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[2 * n as usize..2 * n as usize + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + n as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends an integer as decimal text.
#[inline]
pub fn write_i64(n: i64, out: &mut Vec<u8>) {
    if n < 0 {
        out.push(b'-');
    }
    write_u64(n.unsigned_abs(), out);
}

/// Appends `n` with at least `width` digits (zeros in front).
pub(crate) fn write_padded(n: u64, width: usize, out: &mut Vec<u8>) {
    let mut limit = 10u64;
    for _ in 1..width {
        if n < limit {
            let missing = width - digits_of(n);
            out.extend(std::iter::repeat_n(b'0', missing));
            break;
        }
        limit = limit.saturating_mul(10);
    }
    write_u64(n, out);
}

fn digits_of(n: u64) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_standard_library_writes_them() {
        for n in [0, 1, -1, 9, 10, 99, 100, -100, 12345, i32::MIN as i64, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_i64(n, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), n.to_string());
        }
        for (n, width, want) in [(7, 2, "07"), (12, 2, "12"), (123, 2, "123"), (5, 6, "000005")] {
            let mut out = Vec::new();
            write_padded(n, width, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}

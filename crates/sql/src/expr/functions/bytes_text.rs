//! How are bytes written as text? encode and decode: hex, base64, escape (PostgreSQL's encode.c).

use homenode_types::{Error, Result, SqlState, Type, Value};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line of base64 (RFC 2045).
const LINE: usize = 76;

fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn unknown(encoding: &str) -> Error {
    invalid(format!("unrecognized encoding: \"{encoding}\""))
}

/// The bytes in an encoding. `22023` for one that is not known.
pub(super) fn encode(bytes: &[u8], encoding: &str) -> Result<String> {
    match encoding.to_ascii_lowercase().as_str() {
        "hex" => Ok(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        "base64" => Ok(to_base64(bytes)),
        "escape" => Ok(bytes.iter().map(|&byte| escaped(byte)).collect()),
        _ => Err(unknown(encoding)),
    }
}

/// The bytes behind a text. `22023` for an unknown encoding and for what is not in it.
pub(super) fn decode(text: &str, encoding: &str) -> Result<Vec<u8>> {
    match encoding.to_ascii_lowercase().as_str() {
        "hex" => match Value::parse_text(&format!("\\x{text}"), Type::Bytea.into())? {
            Value::Bytea(bytes) => Ok(bytes),
            _ => Ok(Vec::new()),
        },
        "base64" => from_base64(text),
        "escape" => from_escape(text),
        _ => Err(unknown(encoding)),
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\\' => "\\\\".into(),
        0 | 0x80.. => format!("\\{byte:03o}"),
        other => char::from(other).to_string(),
    }
}

fn from_escape(text: &str) -> Result<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let octal =
            |place: usize, most: u8| bytes.get(at + place).filter(|b| (b'0'..=most).contains(b)).map(|b| b - b'0');
        match (byte, bytes.get(at + 1)) {
            (b'\\', Some(b'\\')) => {
                out.push(byte);
                at += 2;
            }
            (b'\\', _) => {
                let (Some(a), Some(b), Some(c)) = (octal(1, b'3'), octal(2, b'7'), octal(3, b'7')) else {
                    return Err(Error::new(
                        SqlState::INVALID_TEXT_REPRESENTATION,
                        "invalid input syntax for type bytea",
                    ));
                };
                out.push(a << 6 | b << 3 | c);
                at += 4;
            }
            (other, _) => {
                out.push(other);
                at += 1;
            }
        }
    }
    Ok(out)
}

fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + 4);
    let mut in_line = 0;
    for group in bytes.chunks(3) {
        if in_line == LINE {
            out.push('\n');
            in_line = 0;
        }
        let word = group.iter().chain(&[0, 0]).take(3).fold(0_usize, |word, byte| word << 8 | usize::from(*byte));
        for place in 0..4 {
            let sextet = word >> (18 - 6 * place) & 63;
            out.push(if place <= group.len() { char::from(BASE64[sextet]) } else { '=' });
        }
        in_line += 4;
    }
    out
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    let (mut word, mut count, mut padding) = (0_u32, 0, 0);
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for c in text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let value = match (c, u8::try_from(c).ok().and_then(|byte| BASE64.iter().position(|known| *known == byte))) {
            ('=', _) if count >= 2 => {
                padding += 1;
                0
            }
            ('=', _) => return Err(invalid("unexpected \"=\" while decoding base64 sequence".into())),
            (_, Some(value)) if padding == 0 => value as u32,
            _ => return Err(invalid(format!("invalid symbol \"{c}\" found while decoding base64 sequence"))),
        };
        word = word << 6 | value;
        count += 1;
        if count == 4 {
            out.extend_from_slice(&word.to_be_bytes()[1..4 - padding.min(2)]);
            (word, count) = (0, 0);
        }
    }
    if count > 0 {
        let error = invalid("invalid base64 end sequence".into());
        return Err(error.with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

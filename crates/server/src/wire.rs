//! What do the bytes mean? Frontend messages out of a byte stream, and the few backend messages that belong to the
//! session itself (rows and their descriptions are written by the SQL layer).
//!
//! Formats as in the PostgreSQL manual, part "Frontend/Backend Protocol", chapter "Message Formats". Nothing here
//! trusts a length that a client announces: a frame is taken when its bytes are there, and refused when its length
//! can't be right, before any memory is set aside for it.

use homenode_types::{Error, Result, SqlState};

/// Largest frame of a message that carries statements, parameters or rows, in bytes (length word included).
pub(crate) const LARGE_MESSAGE_BYTES: usize = 256 << 20;
/// Largest frame of any other message: PostgreSQL's `PQ_SMALL_MESSAGE_LIMIT` (libpq.h).
pub(crate) const SMALL_MESSAGE_BYTES: usize = 10_000;
/// Largest start-up packet: PostgreSQL's `MAX_STARTUP_PACKET_LENGTH` (pqcomm.h).
pub(crate) const STARTUP_PACKET_BYTES: usize = 10_000;

/// A frame found at the start of a buffer.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<'a> {
    /// A whole message; `bytes` of the buffer are used up by it.
    Message { tag: u8, body: &'a [u8], bytes: usize },
    /// The buffer has to grow to `need` bytes before there is more to say.
    Incomplete { need: usize },
}

fn violation(message: impl Into<String>) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, message)
}

/// Finds the start-up packet at the start of `input` (it has no tag; 0 stands for it).
pub(crate) fn startup_frame(input: &[u8]) -> Result<Frame<'_>> {
    let Some(&length) = input.first_chunk::<4>() else {
        return Ok(Frame::Incomplete { need: 4 });
    };
    let length = i32::from_be_bytes(length);
    let bytes = usize::try_from(length).unwrap_or(0);
    if !(8..=STARTUP_PACKET_BYTES).contains(&bytes) {
        return Err(violation("invalid length of startup packet"));
    }
    match input.get(4..bytes) {
        Some(body) => Ok(Frame::Message { tag: 0, body, bytes }),
        None => Ok(Frame::Incomplete { need: bytes }),
    }
}

/// Finds the message at the start of `input`. An error means that the stream can't be followed any further.
pub(crate) fn frame(input: &[u8]) -> Result<Frame<'_>> {
    let Some((&tag, rest)) = input.split_first() else {
        return Ok(Frame::Incomplete { need: 5 });
    };
    let limit = match tag {
        b'Q' | b'P' | b'B' | b'F' | b'd' => LARGE_MESSAGE_BYTES,
        b'E' | b'D' | b'C' | b'H' | b'S' | b'c' | b'f' | b'X' | b'p' => SMALL_MESSAGE_BYTES,
        _ => return Err(violation(format!("invalid frontend message type {tag}"))),
    };
    let Some(&length) = rest.first_chunk::<4>() else {
        return Ok(Frame::Incomplete { need: 5 });
    };
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
    if !(4..=limit).contains(&length) {
        return Err(violation("invalid message length"));
    }
    match input.get(5..1 + length) {
        Some(body) => Ok(Frame::Message { tag, body, bytes: 1 + length }),
        None => Ok(Frame::Incomplete { need: 1 + length }),
    }
}

/// Reads the fields of one message's body in order.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Fields<'a> {
        Fields { rest: body }
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(violation("insufficient data left in message"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn i16(&mut self) -> Result<i16> {
        let bytes = self.bytes(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A count of fields that follow, each of at least `field_bytes`: never more than the message can hold.
    pub(crate) fn count(&mut self, field_bytes: usize) -> Result<usize> {
        let count = usize::from(self.i16()? as u16);
        if count * field_bytes > self.rest.len() {
            return Err(violation("insufficient data left in message"));
        }
        Ok(count)
    }

    /// A zero-terminated string, which has to be UTF-8.
    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(violation("invalid string in message"));
        };
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        // Most names are empty.
        if text.is_empty() { Ok("") } else { utf8(text) }
    }

    /// A byte string with its length in front; `None` stands for NULL.
    pub(crate) fn sized(&mut self) -> Result<Option<&'a [u8]>> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| violation("invalid length in message"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(violation("invalid message format")) }
    }
}

/// The text of these bytes, or `22021` naming the first byte sequence that isn't UTF-8, as PostgreSQL says it.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|wrong| {
        let from = wrong.valid_up_to();
        let count = wrong.error_len().unwrap_or(bytes.len() - from);
        let shown: Vec<String> = bytes[from..from + count].iter().map(|byte| format!("0x{byte:02x}")).collect();
        Error::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    })
}

/// Appends a message whose body `fill` writes.
pub(crate) fn message(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // A zero byte would end the string early; there is none in what we write, except in a client's own words.
    out.extend(text.bytes().filter(|&byte| byte != 0));
    out.push(0);
}

pub(crate) fn authentication_ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"R\0\0\0\x08\0\0\0\0");
}

/// AuthenticationSASLContinue.
pub(crate) const SASL_CONTINUE: u32 = 11;
/// AuthenticationSASLFinal.
pub(crate) const SASL_FINAL: u32 = 12;

/// A message of the authentication.
pub(crate) fn authentication(out: &mut Vec<u8>, code: u32, data: &[u8]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// Asks the client to choose one of these mechanisms (AuthenticationSASL).
pub(crate) fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    let list: String = mechanisms.iter().flat_map(|name| [name, "\0"]).collect();
    authentication(out, 10, format!("{list}\0").as_bytes());
}

pub(crate) fn backend_key(out: &mut Vec<u8>, process_id: u32, secret: u32) {
    message(out, b'K', |out| {
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(&secret.to_be_bytes());
    });
}

/// Tells a client that asked for a newer minor version, or for options of the protocol, that we speak 3.0 without.
pub(crate) fn negotiate_version(out: &mut Vec<u8>, unknown_options: &[&str]) {
    message(out, b'v', |out| {
        out.extend_from_slice(&(3u32 << 16).to_be_bytes());
        out.extend_from_slice(&(unknown_options.len() as u32).to_be_bytes());
        for option in unknown_options {
            put_text(out, option);
        }
    });
}

pub(crate) fn ready_for_query(out: &mut Vec<u8>, transaction_status: u8) {
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, transaction_status]);
}

/// A message without a body: ParseComplete `1`, BindComplete `2`, CloseComplete `3`.
pub(crate) fn complete(out: &mut Vec<u8>, tag: u8) {
    out.extend_from_slice(&[tag, 0, 0, 0, 4]);
}

/// How bad an error is for the session: `Fatal` ends it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Severity {
    Error,
    Fatal,
}

pub(crate) fn error_response(out: &mut Vec<u8>, severity: Severity, error: &Error) {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let position = error.position.map(|position| position.to_string());
    let fields = [
        (b'S', Some(severity)),
        (b'V', Some(severity)),
        (b'C', Some(error.code.as_str())),
        (b'M', Some(error.message.as_str())),
        (b'D', error.detail.as_deref()),
        (b'H', error.hint.as_deref()),
        (b'W', error.context.as_deref()),
        (b'P', position.as_deref()),
        (b's', error.schema.as_deref()),
        (b't', error.table.as_deref()),
        (b'c', error.column.as_deref()),
        (b'n', error.constraint.as_deref()),
    ];
    message(out, b'E', |out| {
        for (field, text) in fields {
            if let Some(text) = text {
                out.push(field);
                put_text(out, text);
            }
        }
        out.push(0);
    });
}

/// The messages in a buffer of whole ones.
fn messages(buffer: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes(*rest.get(1..)?.first_chunk()?) as usize;
        let (message, after) = rest.split_at_checked(1 + length).filter(|_| length >= 4)?;
        rest = after;
        Some((message[0], &message[5..]))
    })
}

/// The tag of the last message in a buffer of whole ones.
pub(crate) fn last_tag(buffer: &[u8]) -> Option<u8> {
    messages(buffer).last().map(|(tag, _)| tag)
}

/// Whether a buffer of whole messages has an error in it that ends the session.
pub(crate) fn has_fatal(buffer: &[u8]) -> bool {
    messages(buffer).any(|(tag, body)| tag == b'E' && body.starts_with(b"SFATAL\0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_when_all_of_it_is_there() {
        let input = b"Q\0\0\0\x08abcX-";
        for end in 0..9 {
            let Ok(Frame::Incomplete { need }) = frame(&input[..end]) else { panic!("{end} bytes") };
            assert_eq!(need, if end < 5 { 5 } else { 9 });
        }
        assert_eq!(frame(input).unwrap(), Frame::Message { tag: b'Q', body: b"abcX", bytes: 9 });
    }

    #[test]
    fn lengths_that_cannot_be_right_end_the_stream() {
        for length in [i32::MIN, -1, 0, 3, i32::MAX, LARGE_MESSAGE_BYTES as i32 + 1] {
            let mut input = vec![b'Q'];
            input.extend_from_slice(&length.to_be_bytes());
            assert_eq!(frame(&input).unwrap_err().code, SqlState::PROTOCOL_VIOLATION, "{length}");
        }
        assert!(frame(b"S\0\x01\0\0").is_err());
        assert!(frame(b"?").is_err());
        for length in [-5, 0, 7, STARTUP_PACKET_BYTES as i32 + 1] {
            assert!(startup_frame(&length.to_be_bytes()).is_err(), "{length}");
        }
    }

    #[test]
    fn counts_are_bounded_by_the_message() {
        assert!(Fields::new(b"\xff\xff\0\0").count(2).is_err());
        assert_eq!(Fields::new(b"\0\x01\0\0").count(2).unwrap(), 1);
        assert_eq!(Fields::new(b"abc").text().unwrap_err().code, SqlState::PROTOCOL_VIOLATION);
    }

    #[test]
    fn text_that_is_not_utf8_is_named() {
        let error = utf8(b"ab\xe2\x28").unwrap_err();
        assert_eq!(error.code, SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        assert_eq!(error.message, "invalid byte sequence for encoding \"UTF8\": 0xe2");
    }

    #[test]
    fn messages_are_found_in_a_buffer() {
        let mut out = Vec::new();
        assert_eq!((last_tag(&out), has_fatal(&out)), (None, false));
        error_response(&mut out, Severity::Error, &Error::internal("a"));
        assert_eq!((last_tag(&out), has_fatal(&out)), (Some(b'E'), false));
        error_response(&mut out, Severity::Fatal, &Error::internal("b"));
        ready_for_query(&mut out, b'I');
        assert_eq!((last_tag(&out), has_fatal(&out)), (Some(b'Z'), true));
    }

    #[test]
    fn an_error_response_carries_its_fields() {
        let mut out = Vec::new();
        let error = Error::new(SqlState::SYNTAX_ERROR, "no").with_position(3);
        error_response(&mut out, Severity::Error, &error);
        assert_eq!(out, b"E\0\0\0\x21SERROR\0VERROR\0C42601\0Mno\0P3\0\0");
    }
}

//! How does MariaDB's protocol go, as much of it as is needed here? <https://mariadb.com/kb/en/clientserver-protocol/>: text queries,
//! and prepared statements with binary parameters and results.

use sha1::{Digest, Sha1};

use super::stream::Stream;
use super::{Address, ClientError, Kind, Session, TextRows, Value};

/// A connection.
#[derive(Debug)]
pub struct MariaDb {
    stream: Stream,
    output: Vec<u8>,
    /// The number that the next packet has to have.
    sequence: u8,
    /// The server's numbers for the prepared statements, and their parameters; BEGIN and the like go as text.
    statements: Vec<Statement>,
}

#[derive(Debug)]
enum Statement {
    Prepared(u32, Vec<Kind>),
    Text(String),
}

/// Bytes of a packet before its body: length and number.
const HEAD: usize = 4;

/// LONG_PASSWORD, CONNECT_WITH_DB, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH.
const CAPABILITIES: u32 = 1 | 1 << 3 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19;
/// utf8mb4_general_ci.
const CHARSET: u8 = 45;
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
/// ER_UNSUPPORTED_PS: a statement that can't be prepared.
const NOT_PREPARABLE: &str = "1295";

const CUT: ClientError = ClientError::Protocol("a packet ends too early");

impl MariaDb {
    /// Connects and logs in; unencrypted.
    ///
    /// # Errors
    /// [`ClientError`], also for a way of logging in that is not known here.
    pub fn connect(address: &Address) -> Result<MariaDb, ClientError> {
        let stream = address.open()?;
        let mut client = MariaDb { stream, output: Vec::new(), sequence: 0, statements: Vec::new() };
        client.log_in(address)?;
        Ok(client)
    }

    fn log_in(&mut self, address: &Address) -> Result<(), ClientError> {
        let greeting = Greeting::read(self.packet()?)?;
        let mut scramble = greeting.scramble;
        let reply = native_password(address.password.as_bytes(), &scramble);
        self.output.extend(CAPABILITIES.to_le_bytes());
        self.output.extend((1u32 << 30).to_le_bytes());
        self.output.push(CHARSET);
        self.output.extend([0; 23]);
        self.output.extend(address.user.as_bytes());
        self.output.push(0);
        self.output.push(reply.len() as u8);
        self.output.extend(&reply);
        self.output.extend(address.database.as_bytes());
        self.output.push(0);
        self.output.extend(b"mysql_native_password\0");
        self.flush()?;
        loop {
            let packet = self.packet()?;
            match packet.first() {
                Some(0x00) => return Ok(()),
                // Asks for another way: its name, then data for it.
                Some(0xfe) => {
                    let (name, data) = cstr(&packet[1..])?;
                    let reply = match name {
                        b"mysql_native_password" => {
                            scramble = data.strip_suffix(&[0]).unwrap_or(data).to_vec();
                            native_password(address.password.as_bytes(), &scramble)
                        }
                        // The server looks at who is at the other end of the Unix socket.
                        b"auth_socket" | b"unix_socket" => Vec::new(),
                        _ => {
                            return Err(ClientError::Protocol(
                                "the server wants a way of logging in other than mysql_native_password and unix_socket",
                            ));
                        }
                    };
                    self.output.extend(&reply);
                    self.flush()?;
                }
                _ => return Err(ClientError::Protocol("the answer to the log-in is not known")),
            }
        }
    }

    /// Sends what was written as one packet.
    fn flush(&mut self) -> Result<(), ClientError> {
        let length = u32::try_from(self.output.len()).ok().filter(|length| *length < 0xff_ffff);
        let length = length.ok_or(ClientError::Protocol("a statement of 16 MiB or more"))?;
        let mut head = length.to_le_bytes();
        head[3] = self.sequence;
        self.output.splice(0..0, head);
        self.stream.send(&self.output)?;
        self.output.clear();
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    fn command(&mut self, code: u8, body: &[u8]) -> Result<(), ClientError> {
        self.sequence = 0;
        self.output.push(code);
        self.output.extend(body);
        self.flush()
    }

    /// The next packet; the server's error is returned as one.
    fn packet(&mut self) -> Result<&[u8], ClientError> {
        let head = self.stream.peek(HEAD)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        if length == 0xff_ffff {
            return Err(ClientError::Protocol("a row of 16 MiB or more"));
        }
        self.sequence = head[3].wrapping_add(1);
        let body = self.stream.take(HEAD, HEAD + length)?;
        match body {
            [0xff, low, high, rest @ ..] => {
                let code = u16::from_le_bytes([*low, *high]).to_string();
                // `#` and five letters of SQLSTATE come first, once the greeting is over.
                let message = if rest.first() == Some(&b'#') { rest.get(6..).unwrap_or_default() } else { rest };
                Err(ClientError::Server { code, message: String::from_utf8_lossy(message).into_owned() })
            }
            _ => Ok(body),
        }
    }

    /// Reads an answer with or without rows; `each` hears every row's packet.
    fn answer(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), ClientError> {
        let first = self.packet()?;
        let columns = match first {
            [0x00, ..] => return Ok(()),
            [0xfb, ..] => return Err(ClientError::Protocol("a file was not expected to be asked for")),
            _ => length(first)?.0.ok_or(CUT)?,
        };
        for _ in 0..columns {
            self.packet()?;
        }
        self.end_of_list()?;
        loop {
            let packet = self.packet()?;
            if is_end(packet) {
                return Ok(());
            }
            each(packet);
        }
    }

    fn end_of_list(&mut self) -> Result<(), ClientError> {
        if is_end(self.packet()?) { Ok(()) } else { Err(ClientError::Protocol("the columns have no end")) }
    }

    fn text(&mut self, sql: &str, each: &mut dyn FnMut(&[u8])) -> Result<(), ClientError> {
        self.command(COM_QUERY, sql.as_bytes())?;
        self.answer(each)
    }
}

/// EOF: 0xfe in a packet too short to be a row that begins with an eight-byte length.
fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&0xfe) && packet.len() < 9
}

/// What the server says first.
#[derive(Debug)]
struct Greeting {
    scramble: Vec<u8>,
}

impl Greeting {
    fn read(packet: &[u8]) -> Result<Greeting, ClientError> {
        let Some((10, rest)) = packet.split_first() else {
            return Err(ClientError::Protocol("the server does not speak version 10 of the protocol"));
        };
        let (_version, rest) = cstr(rest)?;
        // Thread number; eight bytes of scramble; a zero; capabilities, charset, status, capabilities, length, ten reserved.
        let first = rest.get(4..12).ok_or(CUT)?;
        let second = rest.get(31..43).ok_or(CUT)?;
        Ok(Greeting { scramble: [first, second].concat() })
    }
}

/// `SHA1(password) xor SHA1(scramble + SHA1(SHA1(password)))`; nothing for no password.
fn native_password(password: &[u8], scramble: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mixed = Sha1::new().chain_update(scramble).chain_update(twice).finalize();
    once.iter().zip(mixed).map(|(one, other)| one ^ other).collect()
}

/// Bytes up to a zero, and what follows it.
fn cstr(bytes: &[u8]) -> Result<(&[u8], &[u8]), ClientError> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(CUT)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// A number of one to nine bytes (`None`: NULL), and what follows it.
fn length(bytes: &[u8]) -> Result<(Option<u64>, &[u8]), ClientError> {
    let (first, rest) = bytes.split_first().ok_or(CUT)?;
    let width = match first {
        0xfb => return Ok((None, rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return Ok((Some(u64::from(*first)), rest)),
    };
    let (number, rest) = rest.split_at_checked(width).ok_or(CUT)?;
    let mut all = [0; 8];
    all[..width].copy_from_slice(number);
    Ok((Some(u64::from_le_bytes(all)), rest))
}

/// The columns of a row of text; what is cut off is left out.
fn text_row(packet: &[u8]) -> Vec<Option<String>> {
    let mut row = Vec::new();
    let mut rest = packet;
    while let Ok((bytes, after)) = length(rest) {
        let Some(bytes) = bytes else {
            row.push(None);
            rest = after;
            continue;
        };
        let Some((value, after)) = usize::try_from(bytes).ok().and_then(|bytes| after.split_at_checked(bytes)) else {
            break;
        };
        row.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    row
}

/// `$1`, `$2`, ... become `?`: their order is that of their numbers.
fn with_question_marks(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        out.push('?');
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

impl Session for MariaDb {
    fn prepare(&mut self, sql: &str, kinds: &[Kind]) -> Result<usize, ClientError> {
        self.command(COM_STMT_PREPARE, with_question_marks(sql).as_bytes())?;
        let statement = match self.packet() {
            Ok([0x00, number @ ..]) => {
                let (id, counts) = number.split_first_chunk::<4>().ok_or(CUT)?;
                let id = u32::from_le_bytes(*id);
                let &[low, high, low2, high2, ..] = counts else { return Err(CUT) };
                for count in [u16::from_le_bytes([low2, high2]), u16::from_le_bytes([low, high])] {
                    for _ in 0..count {
                        self.packet()?;
                    }
                    if count > 0 {
                        self.end_of_list()?;
                    }
                }
                Statement::Prepared(id, kinds.to_vec())
            }
            Ok(_) => return Err(ClientError::Protocol("the answer to PREPARE is not known")),
            Err(ClientError::Server { code, .. }) if code == NOT_PREPARABLE && kinds.is_empty() => {
                Statement::Text(sql.to_owned())
            }
            Err(error) => return Err(error),
        };
        self.statements.push(statement);
        Ok(self.statements.len() - 1)
    }

    fn execute(&mut self, statement: usize, values: &[Value<'_>]) -> Result<u64, ClientError> {
        let mut rows = 0;
        match self.statements.get(statement) {
            None => return Err(ClientError::Protocol("no such statement")),
            Some(Statement::Text(sql)) => {
                let sql = sql.clone();
                self.text(&sql, &mut |_| rows += 1)?;
            }
            Some(Statement::Prepared(id, kinds)) => {
                if kinds.len() != values.len() {
                    return Err(ClientError::Protocol("another number of parameters than was prepared"));
                }
                self.sequence = 0;
                self.output.push(COM_STMT_EXECUTE);
                self.output.extend(id.to_le_bytes());
                // No cursor; executed once.
                self.output.extend([0, 1, 0, 0, 0]);
                if !values.is_empty() {
                    self.output.resize(self.output.len() + values.len().div_ceil(8), 0);
                    self.output.push(1);
                    // LONG is 3, VAR_STRING 253.
                    kinds
                        .iter()
                        .for_each(|kind| self.output.extend(if *kind == Kind::Int { [3, 0] } else { [253, 0] }));
                }
                for value in values {
                    match value {
                        Value::Int(number) => self.output.extend(number.to_le_bytes()),
                        Value::Text(text) => {
                            let short = u16::try_from(text.len()).map_err(|_| ClientError::Protocol("a long text"))?;
                            self.output.push(0xfc);
                            self.output.extend(short.to_le_bytes());
                            self.output.extend(text.as_bytes());
                        }
                    }
                }
                self.flush()?;
                self.answer(&mut |_| rows += 1)?;
            }
        }
        Ok(rows)
    }

    fn query(&mut self, sql: &str) -> Result<TextRows, ClientError> {
        let mut rows = Vec::new();
        self.text(sql, &mut |packet| rows.push(text_row(packet)))?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::client::Protocol;
    use crate::client::stream::pair;

    fn of(answer: &[u8]) -> MariaDb {
        let (stream, mut other) = pair();
        other.write_all(answer).unwrap();
        MariaDb { stream, output: Vec::new(), sequence: 0, statements: Vec::new() }
    }

    #[test]
    fn passwords_are_mixed_as_the_server_expects() {
        // The example of RFC 3174 for SHA1("abc") is the first half of the mixture.
        let reply = native_password(b"abc", b"01234567890123456789");
        let twice = Sha1::digest(Sha1::digest(b"abc"));
        let mixed = Sha1::new().chain_update(b"01234567890123456789").chain_update(twice).finalize();
        let back: Vec<u8> = reply.iter().zip(mixed).map(|(one, other)| one ^ other).collect();
        assert_eq!(back[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert!(native_password(b"", b"x").is_empty());
    }

    #[test]
    fn rows_and_errors_are_read() {
        let answer = [
            &[1, 0, 0, 1, 2][..],
            &[1, 0, 0, 2, b'a'],
            &[1, 0, 0, 3, b'b'],
            &[5, 0, 0, 4, 0xfe, 0, 0, 2, 0],
            &[4, 0, 0, 5, 2, b'4', b'2', 0xfb],
            &[5, 0, 0, 6, 0xfe, 0, 0, 2, 0],
            &[13, 0, 0, 1, 0xff, 0xbd, 0x04, b'#', b'4', b'0', b'0', b'0', b'1', b'd', b'e', b'a', b'd'],
        ];
        let mut client = of(&answer.concat());
        let mut rows = Vec::new();
        client.answer(&mut |packet| rows.push(text_row(packet))).unwrap();
        assert_eq!(rows, [[Some("42".to_owned()), None]]);
        let error = client.answer(&mut |_| {}).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(error.to_string(), "the server: dead (1213)");
    }

    #[test]
    fn parameters_become_question_marks() {
        assert_eq!(with_question_marks("update t set a = $1 where b = $12"), "update t set a = ? where b = ?");
    }

    proptest! {
        #[test]
        fn any_answer_is_safe(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let address = Address::parse(Protocol::MariaDb, "").unwrap();
            let _ = of(&bytes).log_in(&address);
            let _ = of(&bytes).answer(&mut |packet| drop(text_row(packet)));
            let _ = Greeting::read(&bytes);
        }
    }
}

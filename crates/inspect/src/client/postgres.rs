//! How does PostgreSQL's protocol go, as much of it as a load generator speaks? Version 3.0
//! (<https://www.postgresql.org/docs/current/protocol.html>): prepared statements with binary numbers, one Sync a statement.

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;

use super::stream::Stream;
use super::{Address, ClientError, Kind, Session, TextRows, Value};

/// A connection.
#[derive(Debug)]
pub struct Postgres {
    stream: Stream,
    output: BytesMut,
    /// Parameters of the prepared statements; a statement's name is its number.
    statements: Vec<Vec<Kind>>,
}

/// Bytes of a message before its body: type and length.
const HEAD: usize = 5;

impl Postgres {
    /// Connects and logs in; unencrypted.
    ///
    /// # Errors
    /// [`ClientError`], also for a way of logging in that is not known here.
    pub fn connect(address: &Address) -> Result<Postgres, ClientError> {
        let mut client = Postgres { stream: address.open()?, output: BytesMut::new(), statements: Vec::new() };
        let parameters = [("user", address.user.as_str()), ("database", address.database.as_str())];
        frontend::startup_message(parameters, &mut client.output)?;
        client.flush()?;
        client.log_in(address)?;
        client.until_ready(&mut |_, _| {})?;
        Ok(client)
    }

    fn log_in(&mut self, address: &Address) -> Result<(), ClientError> {
        const UNKNOWN: ClientError =
            ClientError::Protocol("the server wants a way of logging in that is not known here");
        let mut scram: Option<ScramSha256> = None;
        loop {
            let (tag, body) = self.message()?;
            if tag != b'R' || body.len() < 4 {
                return Err(ClientError::Protocol("an answer to the log-in is missing"));
            }
            let (method, data) = body.split_at(4);
            match u32::from_be_bytes(method.try_into().unwrap_or_default()) {
                0 => return Ok(()),
                3 => frontend::password_message(address.password.as_bytes(), &mut self.output)?,
                5 => {
                    let salt = data.try_into().map_err(|_| ClientError::Protocol("the salt is not four bytes"))?;
                    let hash = md5_hash(address.user.as_bytes(), address.password.as_bytes(), salt);
                    frontend::password_message(hash.as_bytes(), &mut self.output)?;
                }
                10 => {
                    if !data.split(|byte| *byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) {
                        return Err(UNKNOWN);
                    }
                    let begun = ScramSha256::new(address.password.as_bytes(), ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut self.output)?;
                    scram = Some(begun);
                }
                11 => {
                    let scram = scram.as_mut().ok_or(UNKNOWN)?;
                    scram.update(data)?;
                    frontend::sasl_response(scram.message(), &mut self.output)?;
                }
                12 => {
                    scram.as_mut().ok_or(UNKNOWN)?.finish(data)?;
                    continue;
                }
                _ => return Err(UNKNOWN),
            }
            self.flush()?;
        }
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        self.stream.send(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// The next message that is no notice; an error is returned as one.
    fn message(&mut self) -> Result<(u8, &[u8]), ClientError> {
        loop {
            let (tag, bytes) = self.head()?;
            if matches!(tag, b'N' | b'S' | b'A') {
                self.stream.take(HEAD, bytes)?;
                continue;
            }
            let body = self.stream.take(HEAD, bytes)?;
            return if tag == b'E' { Err(server_error(body)) } else { Ok((tag, body)) };
        }
    }

    /// Type and whole length of the next message.
    fn head(&mut self) -> Result<(u8, usize), ClientError> {
        let head = self.stream.peek(HEAD)?;
        let length = u32::from_be_bytes(head[1..HEAD].try_into().unwrap_or_default()) as usize;
        if length < 4 {
            return Err(ClientError::Protocol("a message is shorter than its own length"));
        }
        Ok((head[0], length + 1))
    }

    /// Reads up to ReadyForQuery; `each` hears every message. The first error is returned when all has been read.
    fn until_ready(&mut self, each: &mut dyn FnMut(u8, &[u8])) -> Result<(), ClientError> {
        let mut failed = None;
        loop {
            let (tag, bytes) = self.head()?;
            let body = self.stream.take(HEAD, bytes)?;
            match tag {
                b'Z' => return failed.map_or(Ok(()), Err),
                b'E' => failed = failed.or_else(|| Some(server_error(body))),
                b'G' | b'W' => return Err(ClientError::Protocol("a COPY was not expected")),
                _ => each(tag, body),
            }
        }
    }
}

/// The fields of an ErrorResponse: a letter and a text each.
fn server_error(body: &[u8]) -> ClientError {
    let field = |wanted: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&wanted));
        found.map_or(String::new(), |field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    ClientError::Server { code: field(b'C'), message: field(b'M') }
}

/// The columns of a DataRow; what is cut off is left out.
fn text_row(body: &[u8]) -> Vec<Option<String>> {
    let mut row = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let Ok(length) = usize::try_from(length) else {
            row.push(None);
            rest = after;
            continue;
        };
        let Some((value, after)) = after.split_at_checked(length) else { break };
        row.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    row
}

impl Session for Postgres {
    fn prepare(&mut self, sql: &str, kinds: &[Kind]) -> Result<usize, ClientError> {
        let number = self.statements.len();
        // 23 is int4; 0 lets the server infer it.
        let types = kinds.iter().map(|kind| if *kind == Kind::Int { 23 } else { 0 });
        frontend::parse(&number.to_string(), sql, types, &mut self.output)?;
        frontend::sync(&mut self.output);
        self.flush()?;
        self.until_ready(&mut |_, _| {})?;
        self.statements.push(kinds.to_vec());
        Ok(number)
    }

    fn execute(&mut self, statement: usize, values: &[Value<'_>]) -> Result<u64, ClientError> {
        let kinds = self.statements.get(statement).ok_or(ClientError::Protocol("no such statement"))?;
        let formats = kinds.iter().map(|kind| i16::from(*kind == Kind::Int));
        let write = |value: &Value<'_>, output: &mut BytesMut| {
            match value {
                Value::Int(number) => output.extend_from_slice(&number.to_be_bytes()),
                Value::Text(text) => output.extend_from_slice(text.as_bytes()),
            }
            Ok(IsNull::No)
        };
        // Results in binary, as sysbench asks for them.
        frontend::bind("", &statement.to_string(), formats, values.iter(), write, [1], &mut self.output)
            .map_err(|_| ClientError::Protocol("a parameter can't be written"))?;
        frontend::execute("", 0, &mut self.output)?;
        frontend::sync(&mut self.output);
        self.flush()?;
        let mut rows = 0;
        self.until_ready(&mut |tag, _| rows += u64::from(tag == b'D'))?;
        Ok(rows)
    }

    fn query(&mut self, sql: &str) -> Result<TextRows, ClientError> {
        frontend::query(sql, &mut self.output)?;
        self.flush()?;
        let mut rows = Vec::new();
        self.until_ready(&mut |tag, body| {
            if tag == b'D' {
                rows.push(text_row(body));
            }
        })?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::client::stream::pair;

    fn of(answer: &[u8]) -> Postgres {
        let (stream, mut other) = pair();
        other.write_all(answer).unwrap();
        Postgres { stream, output: BytesMut::new(), statements: Vec::new() }
    }

    #[test]
    fn rows_and_errors_are_read() {
        let mut answer = b"D\0\0\0\x11\0\x02\0\0\0\x0342x\xff\xff\xff\xff".to_vec();
        answer.extend(b"E\0\0\0\x19SERROR\0C40P01\0Mdead\0\0Z\0\0\0\x05I");
        let mut client = of(&answer);
        let mut rows = Vec::new();
        let error = client.until_ready(&mut |_, body| rows.push(text_row(body))).unwrap_err();
        assert_eq!(rows, [[Some("42x".to_owned()), None]]);
        assert!(error.is_retryable());
        assert_eq!(error.to_string(), "the server: dead (40P01)");
    }

    proptest! {
        #[test]
        fn any_answer_is_safe(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut client = of(&bytes);
            let address = Address::parse(crate::client::Protocol::Postgres, "").unwrap();
            let _ = client.log_in(&address);
            let mut client = of(&bytes);
            prop_assert!(client.until_ready(&mut |_, body| drop(text_row(body))).is_err() || bytes.contains(&b'Z'));
        }
    }
}

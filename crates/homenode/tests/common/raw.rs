//! What does the server answer to messages that no library would send? The protocol by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// One message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub tag: u8,
    pub body: Vec<u8>,
}

impl Answer {
    /// A field of ErrorResponse: `C` for SQLSTATE, `S` for severity, `M` for the message.
    pub fn field(&self, kind: u8) -> Option<String> {
        assert!(matches!(self.tag, b'E' | b'N'), "no error: {self:?}");
        self.body
            .split(|byte| *byte == 0)
            .find(|field| field.first() == Some(&kind))
            .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
    }

    /// The SQLSTATE of an ErrorResponse.
    pub fn code(&self) -> String {
        self.field(b'C').unwrap_or_default()
    }

    /// Columns of a DataRow as text.
    pub fn columns(&self) -> Vec<Option<String>> {
        assert_eq!(self.tag, b'D', "no row: {self:?}");
        let count = u16::from_be_bytes([self.body[0], self.body[1]]);
        let mut rest = &self.body[2..];
        (0..count)
            .map(|_| {
                let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
                rest = &rest[4..];
                let length = usize::try_from(length).ok()?;
                let (value, after) = rest.split_at(length);
                rest = after;
                Some(String::from_utf8_lossy(value).into_owned())
            })
            .collect()
    }
}

/// A connection without a library.
pub struct Raw {
    pub socket: TcpStream,
    pub process_id: u32,
    pub secret: u32,
}

impl Raw {
    /// Connects and says nothing yet.
    #[track_caller]
    pub fn open(port: u16) -> Raw {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("cannot connect");
        socket.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
        socket.set_write_timeout(Some(ANSWER_LIMIT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Raw { socket, process_id: 0, secret: 0 }
    }

    /// Connects and starts a session.
    #[track_caller]
    pub fn start(port: u16) -> Raw {
        let mut raw = Raw::open(port);
        raw.send(&startup());
        for answer in raw.until_ready() {
            match answer.tag {
                b'E' => panic!("no session: {:?}", answer.field(b'M')),
                b'K' => {
                    raw.process_id = u32::from_be_bytes(answer.body[..4].try_into().unwrap());
                    raw.secret = u32::from_be_bytes(answer.body[4..].try_into().unwrap());
                }
                _ => {}
            }
        }
        raw
    }

    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("cannot send");
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// The next message; nothing at the end of the connection.
    #[track_caller]
    pub fn receive(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        match self.socket.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            Err(error) => panic!("no answer: {error}"),
        }
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        assert!((4..1 << 30).contains(&length), "a message {:?} of length {length}", head[0] as char);
        let mut body = vec![0; length - 4];
        self.socket.read_exact(&mut body).expect("half a message");
        Some(Answer { tag: head[0], body })
    }

    /// All messages up to and with ReadyForQuery.
    #[track_caller]
    pub fn until_ready(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            let answer = self.receive().unwrap_or_else(|| panic!("the connection ended after {answers:?}"));
            answers.push(answer);
            if answers.last().unwrap().tag == b'Z' {
                return answers;
            }
        }
    }

    /// The tags of all messages up to and with ReadyForQuery, as text.
    #[track_caller]
    pub fn tags(&mut self) -> String {
        self.until_ready().iter().map(|answer| answer.tag as char).collect()
    }

    /// The SQLSTATE of the one error among the messages up to ReadyForQuery.
    #[track_caller]
    pub fn error_until_ready(&mut self) -> String {
        let answers = self.until_ready();
        let errors: Vec<&Answer> = answers.iter().filter(|answer| answer.tag == b'E').collect();
        assert_eq!(errors.len(), 1, "{answers:?}");
        errors[0].code()
    }

    /// Reads until the server closes; the last error's SQLSTATE if there was one.
    #[track_caller]
    pub fn until_closed(&mut self) -> Option<String> {
        let mut last = None;
        while let Some(answer) = self.receive() {
            if answer.tag == b'E' {
                last = Some(answer.code());
            }
        }
        last
    }

    /// Tells the server that nothing more comes, and returns all bytes that it still sends.
    pub fn finish(mut self) -> Vec<u8> {
        let _ = self.socket.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("the server doesn't close: {error}"),
            _ => rest,
        }
    }
}

/// A message with a tag.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A start-up packet.
pub fn startup() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// A simple query.
pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

/// Parse, without parameter types.
pub fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"].concat())
}

/// Bind with all values and results in one format: 0 is text, 1 is binary.
pub fn bind(portal: &str, statement: &str, format: u16, values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = [portal.as_bytes(), b"\0", statement.as_bytes(), b"\0"].concat();
    body.extend([0, 1]);
    body.extend(format.to_be_bytes());
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        match value {
            Some(value) => {
                body.extend((value.len() as u32).to_be_bytes());
                body.extend(*value);
            }
            None => body.extend(u32::MAX.to_be_bytes()),
        }
    }
    body.extend([0, 1]);
    body.extend(format.to_be_bytes());
    message(b'B', &body)
}

/// Describe: `S` a statement, `P` a portal.
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind], name.as_bytes(), b"\0"].concat())
}

/// Close: `S` a statement, `P` a portal.
pub fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind], name.as_bytes(), b"\0"].concat())
}

/// Execute, for at most `rows` rows (0: all).
pub fn execute(portal: &str, rows: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

/// Sync.
pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

//! How do whole packets come out of a socket?

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server that says nothing for so long has hung.
const PATIENCE: Duration = Duration::from_secs(120);
/// The largest packet that is believed.
const PACKET_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket and what has come out of it that was not asked for yet.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    buffer: Vec<u8>,
    /// What of the buffer is filled and was not taken.
    filled: std::ops::Range<usize>,
}

impl Stream {
    pub(super) fn tcp(host: &str, port: u16) -> io::Result<Stream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(PATIENCE))?;
                    return Ok(Stream::of(Socket::Tcp(socket)));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) fn unix(path: &str) -> io::Result<Stream> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Stream::of(Socket::Unix(socket)))
    }

    fn of(socket: Socket) -> Stream {
        Stream { socket, buffer: vec![0; 16 << 10], filled: 0..0 }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.write_all(bytes),
            Socket::Unix(socket) => socket.write_all(bytes),
        }
    }

    /// The next `bytes` bytes, without taking them.
    pub(super) fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if bytes > PACKET_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet that can't be that long"));
        }
        while self.filled.len() < bytes {
            if self.filled.start > 0 {
                self.buffer.copy_within(self.filled.clone(), 0);
                self.filled = 0..self.filled.len();
            }
            if self.buffer.len() < bytes {
                self.buffer.resize(bytes.next_power_of_two(), 0);
            }
            let free = &mut self.buffer[self.filled.end..];
            let read = match &mut self.socket {
                Socket::Tcp(socket) => socket.read(free),
                Socket::Unix(socket) => socket.read(free),
            };
            match read {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                Ok(read) => self.filled.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let text = format!("no answer for {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(&self.buffer[self.filled.start..self.filled.start + bytes])
    }

    /// Takes the next `bytes` bytes, all but the first `head` of which are returned.
    pub(super) fn take(&mut self, head: usize, bytes: usize) -> io::Result<&[u8]> {
        self.peek(bytes)?;
        let start = self.filled.start;
        self.filled.start += bytes;
        Ok(&self.buffer[start + head.min(bytes)..start + bytes])
    }
}

#[cfg(test)]
pub(super) fn pair() -> (Stream, UnixStream) {
    let (one, other) = UnixStream::pair().expect("a pair of sockets");
    (Stream::of(Socket::Unix(one)), other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_whole_however_they_are_cut() {
        let (mut stream, mut other) = pair();
        let bytes: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || {
            for piece in sent.chunks(777) {
                other.write_all(piece).unwrap();
            }
        });
        assert_eq!(stream.peek(3).unwrap(), &bytes[..3]);
        assert_eq!(stream.take(1, 3).unwrap(), &bytes[1..3]);
        assert_eq!(stream.take(0, 60_000).unwrap(), &bytes[3..60_003]);
        assert_eq!(stream.take(0, 100_000 - 60_003).unwrap(), &bytes[60_003..]);
        writer.join().unwrap();
        assert_eq!(stream.peek(1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(stream.peek(PACKET_BYTES_MAX + 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

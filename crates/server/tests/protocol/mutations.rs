//! Does the server survive any bytes? Good conversations, damaged at random, from a fixed seed.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use crate::double::{Client, Running, extended, message, query, sync};

/// Marsaglia's xorshift64: enough to spread damage about, the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn conversation() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 33, 0, 3, 0, 0];
    bytes.extend_from_slice(b"user\0a\0database\0postgres\0\0");
    bytes[3] = bytes.len() as u8;
    for part in [
        query("row"),
        extended("row"),
        message(b'D', b"S\0"),
        sync(),
        query("begin"),
        query("copy"),
        message(b'd', b"some row"),
        message(b'c', b""),
        extended("copy"),
        message(b'f', b"enough\0"),
        message(b'C', b"Pname\0"),
        message(b'H', b""),
        sync(),
        query("commit"),
        message(b'X', b""),
    ] {
        bytes.extend(part);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, random.below(256) as u8),
        }
    }
}

#[test]
fn damaged_conversations_end_and_leave_nothing_behind() {
    let server = Running::start(2, 100);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..1500 {
        let mut bytes = conversation();
        // The first one is whole, to show that it is a conversation.
        if round > 0 {
            damage(&mut bytes, &mut random);
        }
        let mut client = Client::raw(server.address);
        // The server may hang up while we still write.
        let cut = random.below(bytes.len());
        let _ = client.socket.write_all(&bytes[..cut]).and_then(|()| client.socket.write_all(&bytes[cut..]));
        let _ = client.socket.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        match client.socket.read_to_end(&mut answers) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "round {round}: {error}"),
        }
        assert!(round > 0 || answers.ends_with(b"Z\0\0\0\x05I"));
    }
    let mut client = server.connect();
    client.send(&query("row"));
    assert_eq!(client.tags_until(b'Z'), "DCZ");
    drop(client);
    server.wait_for(|seen| seen.closed.load(Ordering::SeqCst) == seen.opened.load(Ordering::SeqCst) as usize);
}

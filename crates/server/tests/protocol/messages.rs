//! What does a client see of the protocol? Byte for byte, against a double of the database.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;

use crate::double::{Client, Running, extended, message, query, sync};

#[test]
fn a_session_begins_and_ends() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&query("row"));
    assert_eq!(client.tags_until(b'Z'), "DCZ");
    client.send(&message(b'X', b""));
    assert!(client.is_closed());
    server.wait_for(|seen| seen.closed.load(Ordering::SeqCst) == 1);
    assert_eq!(server.seen.rolled_back.load(Ordering::SeqCst), 0);
}

#[test]
fn encryption_is_refused_and_the_client_goes_on() {
    let server = Running::start(1, 10);
    let mut client = Client::raw(server.address);
    for code in [80_877_103u32, 80_877_104] {
        client.send(&[&8u32.to_be_bytes()[..], &code.to_be_bytes()].concat());
        let mut answer = [0];
        client.socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"N");
    }
    client.send_startup(3 << 16, &[("user", "a"), ("database", "postgres")]);
    assert_eq!(client.tags_until(b'Z'), "RSKZ");
}

#[test]
fn a_newer_protocol_is_negotiated_down() {
    let server = Running::start(1, 10);
    let mut client = Client::raw(server.address);
    client.send_startup(3 << 16 | 2, &[("user", "a"), ("database", "postgres"), ("_pq_.x", "1")]);
    let (tag, body) = client.receive().unwrap();
    assert_eq!((tag, body.as_slice()), (b'v', &b"\0\x03\0\0\0\0\0\x01_pq_.x\0"[..]));
    assert_eq!(client.tags_until(b'Z'), "RSKZ");
}

#[test]
fn start_ups_that_cannot_be_served() {
    let server = Running::start(1, 1);
    let mut client = Client::raw(server.address);
    client.send_startup(3 << 16, &[("user", "a"), ("database", "shop")]);
    assert_eq!(client.error(), ("3D000".into(), true));
    assert!(client.is_closed());
    let mut client = Client::raw(server.address);
    client.send_startup(2 << 16, &[]);
    assert_eq!(client.error(), ("0A000".into(), true));
    let _open = server.connect();
    let mut client = Client::raw(server.address);
    client.send_startup(3 << 16, &[("user", "a"), ("database", "postgres")]);
    assert_eq!(client.error(), ("53300".into(), true));
    assert!(client.is_closed());
}

#[test]
fn after_an_error_everything_up_to_sync_is_left_out() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&[extended("row"), extended("fail"), extended("row"), sync(), extended("row"), sync()].concat());
    assert_eq!(client.tags_until(b'Z'), "12DCEZ");
    assert_eq!(client.tags_until(b'Z'), "12DCZ");
}

#[test]
fn a_failed_simple_query_ends_with_ready() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&[query("begin"), query("fail"), query("commit")].concat());
    assert_eq!(client.tags_until(b'Z'), "CZ");
    assert_eq!(client.error(), ("42601".into(), false));
    assert_eq!(client.receive().unwrap(), (b'Z', b"E".to_vec()));
    assert_eq!(client.tags_until(b'Z'), "CZ");
}

#[test]
fn messages_may_come_in_pieces() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    for byte in [extended("row"), sync(), query("row")].concat() {
        client.send(&[byte]);
    }
    assert_eq!(client.tags_until(b'Z'), "12DCZ");
    assert_eq!(client.tags_until(b'Z'), "DCZ");
}

#[test]
fn malformed_messages_end_the_session() {
    let server = Running::start(1, 10);
    for bytes in [&b"Q\x7f\xff\xff\xff"[..], b"Q\xff\xff\xff\xff", b"Q\0\0\0\x03", b"S\0\x10\0\0", b"!\0\0\0\x04"] {
        let mut client = server.connect();
        client.send(bytes);
        assert_eq!(client.error(), ("08P01".into(), true), "{bytes:?}");
        assert!(client.is_closed());
    }
    for bytes in [&b"\0\0\0\x02"[..], b"\x7f\0\0\0", b"\xff\xff\xff\xff"] {
        let mut client = Client::raw(server.address);
        client.send(bytes);
        assert_eq!(client.error(), ("08P01".into(), true), "{bytes:?}");
        assert!(client.is_closed());
    }
}

#[test]
fn malformed_fields_are_errors_of_one_message() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&message(b'Q', b"no end"));
    assert_eq!(client.error(), ("08P01".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
    client.send(&message(b'Q', b"\xc3\x28\0"));
    assert_eq!(client.error(), ("22021".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
    client.send(&[message(b'P', b"\0row\0\x7f\xff"), sync()].concat());
    assert_eq!(client.error(), ("08P01".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
    client.send(&[message(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xf0\0\0"), sync()].concat());
    assert_eq!(client.error(), ("08P01".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
    client.send(&message(b'F', b""));
    assert_eq!(client.error(), ("0A000".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
}

#[test]
fn copy_in_takes_rows_until_done() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&query("copy"));
    assert_eq!(client.tags_until(b'G'), "G");
    let row = message(b'd', &[b'r'; 100]);
    client.send(&row.repeat(10_000));
    client.send(&message(b'c', b""));
    assert_eq!(client.tags_until(b'Z'), "CZ");
    assert_eq!(server.seen.copied_bytes.load(Ordering::SeqCst), 1_000_000);
    // In the extended protocol the Sync sent along with Execute is ignored.
    client.send(&[extended("copy"), sync(), row, message(b'c', b""), sync()].concat());
    assert_eq!(client.tags_until(b'Z'), "12GCZ");
}

#[test]
fn a_copy_that_fails_leaves_the_session_usable() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(
        &[query("copy"), message(b'd', b"bad"), message(b'd', b"more"), message(b'c', b""), query("row")].concat(),
    );
    assert_eq!(client.tags_until(b'Z'), "GEZ");
    assert_eq!(client.tags_until(b'Z'), "DCZ");
    client.send(&[query("copy"), message(b'f', b"enough\0"), query("row")].concat());
    assert_eq!(client.tags_until(b'G'), "G");
    assert_eq!(client.error(), ("57014".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
    assert_eq!(client.tags_until(b'Z'), "DCZ");
    client.send(&[query("copy"), query("row"), query("row")].concat());
    assert_eq!(client.tags_until(b'G'), "G");
    assert_eq!(client.error(), ("08P01".into(), false));
    assert_eq!(client.tags_until(b'Z'), "Z");
    assert_eq!(client.tags_until(b'Z'), "DCZ");
}

#[test]
fn a_large_answer_waits_for_a_slow_reader() {
    let server = Running::start(1, 10);
    let mut slow = server.connect();
    slow.send(&query("rows 20000 1000"));
    // The worker is free for others although the answer can't be sent yet.
    let mut other = server.connect();
    other.send(&query("row"));
    assert_eq!(other.tags_until(b'Z'), "DCZ");
    assert_eq!(slow.tags_until(b'Z').len(), 20_002);
}

#[test]
fn a_client_that_only_sends_is_not_read_without_end() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.socket.set_nonblocking(true).unwrap();
    let batch = query("rows 1 10000").repeat(1000);
    let mut sent = 0;
    let mut quiet = 0;
    while quiet < 50 {
        match client.socket.write(&batch) {
            Ok(count) => {
                sent += count;
                quiet = 0;
            }
            Err(_) => {
                quiet += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        assert!(sent < 64 << 20, "the server reads on while nobody reads its answers");
    }
    client.socket.set_nonblocking(false).unwrap();
    assert_eq!(client.tags_until(b'Z'), "DCZ");
}

#[test]
fn a_waiting_session_holds_nobody_up_and_can_be_cancelled() {
    let server = Running::start(1, 10);
    let mut waiting = server.connect();
    waiting.send(&[query("row"), query("wait"), query("row")].concat());
    assert_eq!(waiting.tags_until(b'Z'), "DCZ", "the answer before the wait is not held back");
    let mut other = server.connect();
    other.send(&query("row"));
    assert_eq!(other.tags_until(b'Z'), "DCZ");
    for key in [[0; 8], waiting.key] {
        let mut cancel = Client::raw(server.address);
        cancel.send(&[&16u32.to_be_bytes()[..], &80_877_102u32.to_be_bytes(), &key].concat());
        assert!(cancel.is_closed());
    }
    assert_eq!(waiting.error(), ("57014".into(), false));
    assert_eq!(waiting.tags_until(b'Z'), "Z");
    assert_eq!(waiting.tags_until(b'Z'), "DCZ");
}

#[test]
fn timers_wake_a_worker_that_sleeps() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&query("nap"));
    assert_eq!(client.tags_until(b'Z'), "CZ");
}

#[test]
fn clients_that_vanish_are_rolled_back_at_once() {
    let server = Running::start(2, 10);
    let mut idle = server.connect();
    idle.send(&query("begin"));
    idle.tags_until(b'Z');
    drop(idle);
    let mut copying = server.connect();
    copying.send(&[query("copy"), message(b'd', b"row"), b"d\0\0".to_vec()].concat());
    copying.tags_until(b'G');
    drop(copying);
    let mut half_open = server.connect();
    half_open.send(&[query("begin"), query("wait")].concat());
    half_open.tags_until(b'Z');
    half_open.socket.shutdown(Shutdown::Write).unwrap();
    server.wait_for(|seen| seen.rolled_back.load(Ordering::SeqCst) == 3);
    assert_eq!(half_open.error(), ("57014".into(), false));
}

#[test]
fn what_was_sent_before_the_end_is_answered() {
    let server = Running::start(1, 10);
    let mut client = server.connect();
    client.send(&[query("row"), query("row")].concat());
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.tags_until(b'Z'), "DCZ");
    assert_eq!(client.tags_until(b'Z'), "DCZ");
    assert!(client.is_closed());
}

#[test]
fn a_panic_ends_one_session() {
    let server = Running::start(1, 10);
    let mut other = server.connect();
    let mut client = server.connect();
    client.send(&query("panic"));
    assert_eq!(client.error(), ("XX000".into(), true));
    assert!(client.is_closed());
    other.send(&query("row"));
    assert_eq!(other.tags_until(b'Z'), "DCZ");
    server.wait_for(|seen| seen.closed.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_stop_ends_idle_waiting_and_slow_sessions() {
    let mut server = Running::start(2, 10);
    let mut idle = server.connect();
    let mut waiting = server.connect();
    waiting.send(&query("wait"));
    let mut slow = server.connect();
    slow.send(&query("rows 20000 1000"));
    let _silent = Client::raw(server.address);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let start = std::time::Instant::now();
    server.stop();
    assert!(start.elapsed().as_secs() < 5);
    assert_eq!(idle.error(), ("57P01".into(), true));
    assert_eq!(waiting.error(), ("57P01".into(), true));
    assert!(idle.is_closed() && waiting.is_closed());
}

#[test]
fn connections_are_dealt_evenly_and_stay() {
    let server = Running::start(2, 100);
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&query("row"));
        assert_eq!(client.tags_until(b'Z'), "DCZ");
    }
    let threads = server.seen.threads.lock().unwrap();
    assert_eq!(threads.iter().filter(|name| *name == "worker-0").count(), 5);
}

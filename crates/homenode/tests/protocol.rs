//! What do malformed and unusual messages do? To the session: a clear error. To the server and everybody else: nothing.

mod common;

use std::time::{Duration, Instant};

use common::random::Random;
use common::raw::{self, Raw, bind, close, describe, execute, message, parse, query, startup, sync};
use common::{Server, one, rounds};

#[test]
fn claimed_lengths_take_no_memory() {
    let server = Server::start();
    server.assert_alive();
    let before = server.peak_memory_bytes();
    let mut open = Vec::new();
    // Each claims 1 GB or more and sends little of it.
    for tag in *b"QPBDECdpF" {
        for length in [0x7fff_ffff_u32, 0x4000_0000, 0x3fff_0000] {
            let mut raw = server.raw();
            raw.send(&[&[tag], &length.to_be_bytes()[..], &[b'x'; 1000]].concat());
            open.push(raw);
        }
    }
    server.assert_alive();
    drop(open);
    let grown = server.peak_memory_bytes() - before;
    assert!(grown < 64 << 20, "{} MiB for messages that never came", grown >> 20);
}

#[test]
fn impossible_lengths_end_the_session() {
    let server = Server::start();
    for bytes in
        [&b"Q\xff\xff\xff\xff"[..], b"Q\0\0\0\0", b"Q\0\0\0\x03", b"S\x7f\xff\xff\xff", b"S\0\x20\0\0", b"X\x80\0\0\0"]
    {
        let mut raw = server.raw();
        raw.send(bytes);
        let error = raw.until_closed();
        assert!(error.is_none() || error.as_deref() == Some("08P01"), "{bytes:?}: {error:?}");
    }
    // Start-up packets: too short, too long, absurd.
    for bytes in
        [&b"\0\0\0\0"[..], b"\0\0\0\x07", b"\0\x01\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let mut raw = Raw::open(server.port());
        raw.send(bytes);
        raw.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_ne!(raw.until_closed().as_deref(), Some("XX000"));
    }
    server.assert_alive();
}

#[test]
fn unknown_messages_end_the_session() {
    let server = Server::start();
    for tag in [b'!', 0, 0xff, b'Z', b'R'] {
        let mut raw = server.raw();
        raw.send(&message(tag, b"?"));
        assert_eq!(raw.until_closed().as_deref(), Some("08P01"), "{tag}");
    }
    server.assert_alive();
}

#[test]
fn start_up_packets_that_make_no_sense() {
    let server = Server::start();
    let packet = |body: &[u8]| [&(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
    for (body, code) in [
        (&b"\0\x02\0\0user\0postgres\0\0"[..], "0A000"),
        (b"\0\x63\0\0user\0postgres\0\0", "0A000"),
        (b"\0\x03\0\0\0", "28000"),
        (b"\0\x03\0\0user\0postgres\0database\0nowhere\0\0", "3D000"),
        (b"\0\x03\0\0user\0postgres\0database", "08P01"),
        (b"\0\x03\0\0user", "08P01"),
    ] {
        let mut raw = Raw::open(server.port());
        raw.send(&packet(body));
        if common::is_postgres() && code == "0A000" {
            // It answers to old versions in their own format.
            continue;
        }
        assert_eq!(raw.until_closed().as_deref(), Some(code), "{body:?}");
    }
    // Encryption is refused with one byte, and the session goes on without.
    let mut raw = Raw::open(server.port());
    raw.send(b"\0\0\0\x08\x04\xd2\x16\x2f");
    let mut answer = [0];
    std::io::Read::read_exact(&mut raw.socket, &mut answer).unwrap();
    assert_eq!(&answer, b"N");
    raw.send(&startup());
    assert!(raw.tags().starts_with('R'));
    server.assert_alive();
}

#[test]
fn an_error_skips_to_sync_and_the_session_goes_on() {
    let server = Server::start();
    let mut raw = server.raw();
    let all = |name: &str| [bind("", name, 0, &[]), describe(b'P', ""), execute("", 0)].concat();
    raw.send(&[parse("a", "select 1"), all("a"), parse("b", "selec 1"), all("b"), all("a"), sync()].concat());
    raw.send(&[all("a"), sync()].concat());
    assert_eq!(raw.tags(), "12TDCEZ");
    assert_eq!(raw.tags(), "2TDCZ");
    for (messages, code) in [
        (bind("", "nothing", 0, &[]), "26000"),
        (execute("nothing", 0), "34000"),
        (describe(b'S', "nothing"), "26000"),
        (describe(b'P', "nothing"), "34000"),
        (parse("a", "select 2"), "42P05"),
        (bind("", "a", 0, &[Some(b"1")]), "08P01"),
        (parse("", "select 1; select 2"), "42601"),
        (message(b'D', b"?a\0"), "08P01"),
        (message(b'C', b"?a\0"), "08P01"),
        (message(b'P', b"no end"), "08P01"),
        (message(b'B', b"\0a\0\0\x01"), "08P01"),
        (message(b'B', b"\0a\0\xff\xff\xff\xff"), "08P01"),
        (message(b'E', b"\0\0"), "08P01"),
        (message(b'P', b"\0select '\xff'\0\0\0"), "22021"),
        (message(b'P', b"\0select $1\0\0\x01\0\0\0\x63"), ""),
    ] {
        raw.send(&[messages.clone(), sync()].concat());
        let found = raw.error_until_ready();
        assert!(code.is_empty() || found == code, "{found}, not {code}: {messages:?}");
    }
    // Closing what isn't there is no error.
    raw.send(&[close(b'S', "nothing"), close(b'P', "nothing"), close(b'S', "a"), sync()].concat());
    assert_eq!(raw.tags(), "333Z");
    raw.send(&[all("a"), sync()].concat());
    assert_eq!(raw.error_until_ready(), "26000");
}

#[test]
fn binary_values_of_the_wrong_size() {
    let server = Server::start();
    let mut raw = server.raw();
    for (kind, good, bad) in [
        ("int2", &b"\0\x01"[..], &[&b""[..], b"\0", b"\0\0\0"][..]),
        ("int4", b"\0\0\0\x01", &[b"\0\0\0", b"\0\0\0\0\0\0\0\x01"]),
        ("int8", b"\0\0\0\0\0\0\0\x01", &[b"\0\0\0\x01", b"123456789"]),
        ("float8", b"\0\0\0\0\0\0\0\0", &[b"\0"]),
        ("bool", b"\x01", &[b"", b"\x01\x01"]),
        ("date", b"\0\0\0\0", &[b"\0\0", b"\0\0\0\0\0\0\0\0"]),
        ("timestamp", b"\0\0\0\0\0\0\0\0", &[b"\0\0\0\0"]),
        ("uuid", b"0123456789abcdef", &[b"0123456789abcde", b"0123456789abcdefg"]),
        (
            "numeric",
            b"\0\x01\0\0\0\0\0\0\0\x01",
            &[b"\0\x09\0\0\0\0\0\0\0\x01", b"\0\x01\0\0\x99\x99\0\0\0\x01", b"\0\x01\0\0\0\0\0\0\x7f\xff"],
        ),
        ("text", b"abc", &[b"\xff\xfe", b"a\0b", b"\xed\xa0\x80", b"\xc0\x80"]),
    ] {
        let text = format!("select $1::{kind}");
        raw.send(&[parse("", &text), bind("", "", 1, &[Some(good)]), execute("", 0), sync()].concat());
        assert_eq!(raw.tags(), "12DCZ", "{kind}");
        for value in bad {
            raw.send(&[parse("", &text), bind("", "", 1, &[Some(value)]), execute("", 0), sync()].concat());
            let code = raw.error_until_ready();
            assert!(["08P01", "22P03", "22021"].contains(&code.as_str()), "{kind} {value:?}: {code}");
        }
    }
    // A value's claimed length beyond the message, and below -1.
    for length in [6u32, 0x7fff_ffff, 0xffff_fffe] {
        let body = [b"\0\0\0\0\0\x01", &length.to_be_bytes()[..], b"abc\0\0"].concat();
        raw.send(&[parse("", "select $1::text"), message(b'B', &body), sync()].concat());
        assert_eq!(raw.error_until_ready(), "08P01");
    }
}

#[test]
fn portals_give_their_rows_in_portions() {
    let server = Server::start();
    let mut raw = server.raw();
    raw.send(&[query("begin"), parse("", "select * from generate_series(1, 5)"), bind("p", "", 0, &[])].concat());
    raw.send(&[execute("p", 2), execute("p", 2), execute("p", 2), execute("p", 2), sync()].concat());
    assert_eq!(raw.tags(), "CZ");
    assert_eq!(raw.tags(), "12DDsDDsDCCZ");
    raw.send(&[bind("p", "", 0, &[]), sync()].concat());
    assert_eq!(raw.error_until_ready(), "42P03");
}

/// Statements by name, each with the values bound to it.
type Pipeline<'a> = Vec<(&'a str, &'a [Option<&'a [u8]>])>;

/// Bind, Describe and Execute in a row are taken as one; with a Flush after each they are not.
#[test]
fn a_whole_query_is_answered_as_its_three_messages_are() {
    let server = Server::start();
    server.client().batch_execute("create table thing (n int primary key, w text, v numeric)").unwrap();
    let one: &[Option<&[u8]>] = &[Some(b"7")];
    let zero: &[Option<&[u8]>] = &[Some(b"0")];
    let answers = |apart: bool| {
        let mut raw = server.raw();
        let setup = "truncate thing; \
                     insert into thing select i, 'w' || i, i / 4.0 from generate_series(1, 20) as i";
        raw.send(&query(setup));
        raw.until_ready();
        let statements = [
            ("point", "select w, n, v from thing where n = $1::int"),
            ("range", "select n, w from thing where n between $1::int and 9 order by w"),
            ("join", "select a.w, b.w from thing a join thing b on b.n = a.n + 1 where a.n = $1::int"),
            ("insert", "insert into thing values ($1::int, 'new') returning n"),
            ("update", "update thing set w = w || '!' where n = $1::int"),
            ("delete", "delete from thing where n = $1::int"),
            ("divide", "select 10 / $1::int"),
            ("copy", "copy thing to stdout"),
            ("empty", ""),
            ("set", "set application_name = 'x'"),
        ];
        for (name, text) in statements {
            raw.send(&[parse(name, text), sync()].concat());
            assert_eq!(raw.tags(), "1Z", "{text}");
        }
        let mut all = Vec::new();
        // An unknown statement and wrong parameters among those that run, each alone and in a block, then three as one pipeline.
        let mut rounds: Vec<Pipeline<'_>> = Vec::new();
        for (name, _) in statements.iter().take(7) {
            let given: [&[Option<&[u8]>]; 8] = [
                one,
                zero,
                &[Some(b" +8 ")],
                &[Some(b"2147483648")],
                &[Some(b"seven")],
                &[Some(b"1\xff")],
                &[None],
                &[],
            ];
            rounds.extend(given.map(|values| vec![(*name, values)]));
        }
        rounds.extend([
            vec![("copy", &[][..])],
            vec![("empty", &[][..])],
            vec![("set", &[][..])],
            vec![("nobody", one)],
        ]);
        rounds.push(vec![("point", one), ("update", one), ("point", one)]);
        rounds.push(vec![("point", one), ("divide", zero), ("point", one)]);
        for block in [false, true] {
            for round in &rounds {
                let mut bytes = if block { query("begin") } else { Vec::new() };
                for (name, values) in round {
                    for part in [bind("", name, 0, values), describe(b'P', ""), execute("", 0)] {
                        bytes.extend(part);
                        if apart {
                            bytes.extend(message(b'H', b""));
                        }
                    }
                }
                // The portal is still there and has ended.
                bytes.extend([execute("", 0), sync()].concat());
                if block {
                    bytes.extend(query("rollback"));
                }
                raw.send(&bytes);
                for _ in 0..if block { 3 } else { 1 } {
                    all.push((round.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), raw.until_ready()));
                }
            }
        }
        all
    };
    for (together, apart) in answers(false).into_iter().zip(answers(true)) {
        assert_eq!(together, apart);
    }
}

#[test]
fn empty_queries_and_several_statements() {
    let server = Server::start();
    let mut raw = server.raw();
    raw.send(
        &[query(""), query(" ; ;"), query("-- nothing"), query("select 1; select 2, 3; set timezone = 'UTC'")].concat(),
    );
    assert_eq!(raw.tags(), "IZ");
    assert_eq!(raw.tags(), "IZ");
    assert_eq!(raw.tags(), "IZ");
    let tags = raw.tags().replace('S', "");
    assert_eq!(tags, "TDCTDCCZ");
    raw.send(&[parse("", ""), bind("", "", 0, &[]), describe(b'P', ""), execute("", 0), sync()].concat());
    assert_eq!(raw.tags(), "12nIZ");
}

#[test]
fn texts_that_are_long_or_deep() {
    let server = Server::start();
    let mut client = server.client();
    let long = "x".repeat(8 << 20);
    assert_eq!(one::<i32>(&mut client, &format!("select length('{long}')")), 8 << 20);
    assert_eq!(client.query_one("select length($1::text)", &[&long]).unwrap().get::<_, i32>(0), 8 << 20);
    let deep = 50_000;
    for text in [
        format!("select {}1{}", "(".repeat(deep), ")".repeat(deep)),
        format!("select {}1", "- ".repeat(deep)),
        format!("select {}true", "not ".repeat(deep)),
        format!("select 1{}", " + 1".repeat(deep)),
        format!("select {}1{}", "case when true then ".repeat(deep), " end".repeat(deep)),
        format!("select {}1{}", "(select ".repeat(deep), ")".repeat(deep)),
        format!("select {}1{}", "abs(".repeat(deep), ")".repeat(deep)),
        format!("select 1 where true{}", " and true".repeat(deep)),
        "(".repeat(1 << 20),
    ] {
        match server.client().simple_query(&text) {
            Ok(_) => {}
            Err(error) => {
                let code = common::code(&error).code();
                assert!(["54001", "42601", "54000"].contains(&code), "{}...: {error:?}", &text[..60]);
            }
        }
        server.assert_alive();
    }
    let many: Vec<String> = (0..5000).map(|n| n.to_string()).collect();
    let text = format!("select count(*) from generate_series(1, 10000) as n where n in ({})", many.join(","));
    assert_eq!(one::<i64>(&mut client, &text), 4999);
}

#[test]
fn half_open_connections_keep_nobody_out() {
    let server = Server::start();
    let mut idle = Vec::new();
    for bytes in [&b""[..], b"\0", b"\0\0\0\x30\0\x03\0\0user"] {
        for _ in 0..20 {
            let mut raw = Raw::open(server.port());
            raw.send(bytes);
            idle.push(raw);
        }
    }
    for bytes in [&b"Q"[..], b"Q\0\0", b"Q\0\0\x10\0select"] {
        for _ in 0..10 {
            let mut raw = server.raw();
            raw.send(bytes);
            idle.push(raw);
        }
    }
    let start = Instant::now();
    server.assert_alive();
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(idle);
    let mut client = server.client();
    common::wait_until("the sessions have to end", Duration::from_secs(20), || {
        one::<i64>(&mut client, "select count(*) from pg_stat_activity where datname = 'postgres'") == 1
    });
}

#[test]
fn a_pipeline_of_thousands() {
    let server = Server::start();
    let mut client = server.client();
    client.batch_execute("create table queue (n int primary key, w text)").unwrap();
    let mut raw = server.raw();
    let count = 5000u32;
    let mut bytes = parse("i", "insert into queue values ($1::int, 'row')");
    bytes.extend(parse("s", "select n, w from queue where n = $1::int"));
    for n in 0..count {
        bytes.extend(bind("", "i", 1, &[Some(&n.to_be_bytes())]));
        bytes.extend(execute("", 0));
        bytes.extend(bind("", "s", 1, &[Some(&n.to_be_bytes())]));
        bytes.extend(execute("", 0));
        if n % 100 == 99 {
            bytes.extend(sync());
        }
    }
    // Read while writing: neither side may block the other for good.
    let mut writer = raw.socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes).unwrap());
    for batch in 0..count / 100 {
        let tags = raw.tags();
        let expected = "2C2DC".repeat(100) + "Z";
        assert_eq!(if batch == 0 { &tags[2..] } else { &tags[..] }, expected);
    }
    sender.join().unwrap();
    assert_eq!(one::<i64>(&mut client, "select count(*) from queue"), i64::from(count));
}

/// A conversation that makes sense, as messages.
fn conversation(random: &mut Random) -> Vec<Vec<u8>> {
    let mut messages = vec![startup()];
    for _ in 0..1 + random.below(4) {
        match random.below(6) {
            0 => messages.push(query("select 1, 'two', null::int, 4.5")),
            1 => messages.extend([query("begin"), query("insert into scratch values (1, 'x')"), query("rollback")]),
            2 => messages.extend([
                parse("s", "select w from witness where n = $1::int"),
                describe(b'S', "s"),
                bind("", "s", 1, &[Some(b"\0\0\0\x05")]),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ]),
            3 => messages.extend([
                query("begin"),
                query("copy scratch from stdin"),
                message(b'd', b"1\tone\n2\tt"),
                message(b'd', b"wo\n\\N\t\\N\n"),
                message(b'c', b""),
                query("rollback"),
            ]),
            4 => messages.extend([
                parse("", "select $1::text, $2::int8, $3::numeric, $4::timestamp, $5::bool"),
                bind("p", "", 0, &[Some(b"text"), Some(b"-9"), Some(b"1.25"), Some(b"2020-01-02 03:04:05"), None]),
                execute("p", 1),
                close(b'P', "p"),
                close(b'S', ""),
                message(b'H', b""),
                sync(),
            ]),
            _ => messages.extend([
                query("select n, w from witness order by n limit 3"),
                query("selec"),
                message(b'f', b"no\0"),
            ]),
        }
    }
    messages.push(message(b'X', b""));
    messages
}

/// Damages a conversation in one to three places.
fn mutate(random: &mut Random, mut messages: Vec<Vec<u8>>) -> Vec<u8> {
    for _ in 0..1 + random.below(3) {
        let position = random.below(messages.len());
        let message = &mut messages[position];
        match random.below(9) {
            0 => {
                let bit = random.below(message.len() * 8);
                message[bit / 8] ^= 1 << (bit % 8);
            }
            1 => {
                let place = random.below(message.len());
                message[place] = random.next() as u8;
            }
            // The length, where it stands.
            2 => {
                let start = usize::from(position > 0);
                let length = *random.pick(&[0u32, 1, 3, 4, 5, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]);
                if message.len() >= start + 4 {
                    message[start..start + 4].copy_from_slice(&length.to_be_bytes());
                }
            }
            3 => {
                let length = random.below(message.len());
                message.truncate(length.max(1));
            }
            4 => {
                let place = random.below(message.len());
                let garbage: Vec<u8> = (0..1 + random.below(40)).map(|_| random.next() as u8).collect();
                message.splice(place..place, garbage);
            }
            5 => {
                let copy = message.clone();
                let place = random.below(messages.len());
                messages.insert(place, copy);
            }
            6 => {
                let other = random.below(messages.len());
                messages.swap(position, other);
            }
            7 if position > 0 => message[0] = *random.pick(b"QPBDECSHFdcfpX!"),
            // A body of another length with a length that fits: the fields inside don't.
            _ if position > 0 && message.len() > 5 => {
                let length = 5 + random.below(message.len() - 5);
                message.truncate(length);
                let length = (length as u32 - 1).to_be_bytes();
                message[1..5].copy_from_slice(&length);
            }
            _ => {}
        }
    }
    messages.concat()
}

/// Whatever the server sends has to be whole messages of known kinds.
#[track_caller]
fn assert_well_formed(mut bytes: &[u8], sent: &[u8]) {
    while bytes.first() == Some(&b'N') && bytes.get(1) != Some(&0) {
        // An answer to what has become a request for encryption.
        bytes = &bytes[1..];
    }
    if common::is_postgres() && bytes.starts_with(b"EFATAL:") {
        // It answers to old versions in their own format.
        return;
    }
    while !bytes.is_empty() && bytes != b"N" {
        assert!(bytes.len() >= 5, "{bytes:?} after {sent:?}");
        let (tag, length) = (bytes[0], u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize);
        assert!(b"RSKZTDCEN123nsItGvA".contains(&tag), "{:?} after {sent:?}", tag as char);
        assert!(length >= 4 && length < bytes.len(), "{:?} of {length} in {} after {sent:?}", tag as char, bytes.len());
        if tag == b'E' {
            let answer = raw::Answer { tag, body: bytes[5..length + 1].to_vec() };
            assert_eq!(answer.code().len(), 5, "{answer:?} after {sent:?}");
            assert_ne!(answer.code(), "XX000", "{answer:?} after {sent:?}");
        }
        bytes = &bytes[length + 1..];
    }
}

#[test]
fn thousands_of_damaged_conversations() {
    let server = Server::start();
    let mut client = server.client();
    client
        .batch_execute(
            "create table witness (n int primary key, w text); create table scratch (n int, w text);
             insert into witness select n, 'row ' || n::text from generate_series(1, 100) as n",
        )
        .unwrap();
    let mut random = Random::new(20_260_101);
    server.assert_alive();
    let memory_before = server.peak_memory_bytes();
    for batch in 0..rounds(40, 8) {
        for _ in 0..100 {
            let messages = conversation(&mut random);
            let bytes = mutate(&mut random, messages);
            let mut raw = Raw::open(server.port());
            // The server may close before it has read everything.
            let _ = raw.try_send(&bytes);
            let answers = raw.finish();
            assert_well_formed(&answers, &bytes);
        }
        assert!(server.status().is_none(), "the server ended in batch {batch}");
        server.assert_alive();
    }
    assert_eq!(one::<i64>(&mut client, "select count(*) from witness where w = 'row ' || n::text"), 100);
    let grown = server.peak_memory_bytes() - memory_before;
    assert!(grown < 128 << 20, "{} MiB grown", grown >> 20);
}

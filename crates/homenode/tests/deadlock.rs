//! Do circles of waiting transactions end? One of them fails with 40P01, the others go on.

mod common;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::random::Random;
use common::{Server, one, rounds};

fn server() -> Server {
    let server = Server::start();
    server
        .client()
        .batch_execute("create table account (n int primary key, v bigint not null); insert into account select n, 1000 from generate_series(1, 20) as n")
        .unwrap();
    server
}

/// `members` transactions, each of which locks its own row and then the next one's by `second`. Returns the SQLSTATEs.
fn circle(server: &Server, members: i32, second: &'static str) -> Vec<Option<String>> {
    let barrier = Arc::new(Barrier::new(members as usize));
    let threads: Vec<_> = (0..members)
        .map(|member| {
            let (port, barrier) = (server.port(), barrier.clone());
            thread::spawn(move || {
                let mut client = common::connect(port).unwrap();
                let mut transaction = client.transaction().unwrap();
                transaction.execute("update account set v = v - 1 where n = $1", &[&(member + 1)]).unwrap();
                barrier.wait();
                let next = (member + 1) % members + 1;
                match transaction.execute(second, &[&next]) {
                    Ok(_) => {
                        transaction.commit().unwrap();
                        None
                    }
                    Err(error) => Some(common::code(&error).code().to_owned()),
                }
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn circles_of_two_and_more() {
    let server = server();
    for second in ["update account set v = v + 1 where n = $1", "select * from account where n = $1 for update"] {
        for members in [2, 3, 7] {
            let start = Instant::now();
            let codes = circle(&server, members, second);
            let failed: Vec<&String> = codes.iter().flatten().collect();
            assert!(failed.iter().all(|code| *code == "40P01"), "{codes:?}");
            assert_eq!(failed.len(), 1, "{codes:?} by {second}");
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        }
    }
    let mut client = server.client();
    // All are free again.
    client.batch_execute("begin; update account set v = v; rollback").unwrap();
}

#[test]
fn the_error_says_what_it_is() {
    let server = server();
    let (mut one_side, mut other_side) = (server.client(), server.client());
    one_side.batch_execute("begin; update account set v = v + 1 where n = 1").unwrap();
    other_side.batch_execute("begin; update account set v = v + 1 where n = 2").unwrap();
    let waiter = thread::spawn(move || {
        let result = one_side.execute("update account set v = v + 1 where n = 2", &[]).map(|_| ());
        let _ = one_side.batch_execute("rollback");
        result
    });
    let result = other_side.execute("update account set v = v + 1 where n = 1", &[]).map(|_| ());
    other_side.batch_execute("rollback").unwrap();
    let error = match (waiter.join().unwrap(), result) {
        (Err(error), Ok(())) | (Ok(()), Err(error)) => error,
        both => panic!("{both:?}"),
    };
    let error = common::fails::<()>(Err(error), "40P01");
    assert_eq!(error.message(), "deadlock detected");
    assert_eq!(one::<i64>(&mut server.client(), "select sum(v)::bigint from account"), 20_000);
}

#[test]
fn unordered_transfers_all_get_through() {
    let server = server();
    let count = rounds(150, 30);
    let mut random = Random::new(7);
    let start = Instant::now();
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (port, mut random) = (server.port(), random.fork());
            thread::spawn(move || {
                let mut client = common::connect(port).unwrap();
                let mut victims = 0;
                for _ in 0..count {
                    let (from, to, third) =
                        (random.below(6) as i32 + 1, random.below(6) as i32 + 1, random.below(6) as i32 + 1);
                    loop {
                        let mut transaction = client.transaction().unwrap();
                        let steps = [(from, -2i64), (to, 1), (third, 1)];
                        let result = steps.iter().try_for_each(|(n, by)| {
                            transaction.execute("update account set v = v + $2 where n = $1", &[n, by]).map(|_| ())
                        });
                        match result.and_then(|()| transaction.commit()) {
                            Ok(()) => break,
                            Err(error) => assert_eq!(common::code(&error).code(), "40P01", "{error:?}"),
                        }
                        victims += 1;
                    }
                }
                victims
            })
        })
        .collect();
    let victims: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(one::<i64>(&mut server.client(), "select sum(v)::bigint from account"), 20_000, "{victims} deadlocks");
    assert!(start.elapsed() < Duration::from_secs(120), "{:?} with {victims} deadlocks", start.elapsed());
}

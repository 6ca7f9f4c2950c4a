//! Is every acknowledged commit there after `kill -9`, and nothing half-done? Writers that know what must be there, a server
//! that is killed at random moments, and a comparison after each start.
//!
//! `HOMENODE_KILL_ROUNDS` sets the number of kills; `bench/kill-loop` runs hundreds of them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::random::Random;
use common::{Server, Settings, one, rounds};
use postgres::{Client, Transaction};

const WRITERS: i32 = 4;
const ACCOUNTS: i32 = 100;
/// Keys of `item` for each writer.
const KEYS: i32 = 2000;
const BATCH_ROWS: i64 = 1500;

/// What a client believes of a transaction whose commit it has sent.
enum Fate {
    Acknowledged,
    /// The connection ended first: it is there entirely or not at all.
    Unknown,
    RolledBack,
}

/// A row of `item`.
type Item = (i32, String);

/// One writer's keys, and what they must hold.
struct Writer {
    number: i32,
    /// Number of the last transaction tried.
    seq: i64,
    random: Random,
    items: BTreeMap<i32, Item>,
    /// Transactions acknowledged.
    moved: BTreeSet<i64>,
    /// A transaction whose fate isn't known: its number, and the items should it be there.
    pending: Option<(i64, BTreeMap<i32, Item>)>,
}

impl Writer {
    /// Commits until the server goes away.
    fn write(&mut self, port: u16, commits: &AtomicU64) {
        let Ok(mut client) = common::connect(port) else { return };
        loop {
            self.seq += 1;
            let (seq, mut items) = (self.seq, self.items.clone());
            let fate = match self.transaction(&mut client, &mut items) {
                Ok(fate) => fate,
                Err(error) => match error.code().map(|code| code.code().to_owned()) {
                    Some(code) if code == "40P01" || code == "40001" => continue,
                    Some(code) if code != "57P01" => panic!("writer {}: {error:?}", self.number),
                    _ => return,
                },
            };
            match fate {
                Fate::Acknowledged => {
                    self.items = items;
                    self.moved.insert(seq);
                    commits.fetch_add(1, Ordering::Relaxed);
                }
                Fate::Unknown => {
                    self.pending = Some((seq, items));
                    return;
                }
                Fate::RolledBack => {}
            }
        }
    }

    fn transaction(&mut self, client: &mut Client, items: &mut BTreeMap<i32, Item>) -> Result<Fate, postgres::Error> {
        let mut transaction = client.transaction()?;
        for _ in 0..1 + self.random.below(5) {
            self.change_item(&mut transaction, items)?;
        }
        if self.random.below(10) == 0 {
            // What a savepoint takes back must not come back.
            let mut nested = transaction.savepoint("attempt")?;
            self.change_item(&mut nested, &mut items.clone())?;
            nested.rollback()?;
        }
        let (from, to) = (self.random.below(ACCOUNTS as usize) as i32, self.random.below(ACCOUNTS as usize) as i32);
        let amount = self.random.between(1, 100);
        for (id, by) in [
            (from.min(to), if from < to { -amount } else { amount }),
            (from.max(to), if from < to { amount } else { -amount }),
        ] {
            transaction.execute("update account set balance = balance + $2 where id = $1", &[&id, &by])?;
        }
        let text = "insert into movement (writer, seq, source, target, amount) values ($1, $2, $3, $4, $5)";
        transaction.execute(text, &[&self.number, &self.seq, &from, &to, &amount])?;
        if self.random.below(20) == 0 {
            transaction.rollback()?;
            return Ok(Fate::RolledBack);
        }
        match transaction.commit() {
            Ok(()) => Ok(Fate::Acknowledged),
            Err(error) if error.code().is_none() => Ok(Fate::Unknown),
            Err(error) => match common::code(&error).code() {
                // Whether the commit came before the end of the session, the message doesn't say.
                "57P01" => Ok(Fate::Unknown),
                _ => Err(error),
            },
        }
    }

    /// Inserts, changes or deletes one of this writer's keys.
    fn change_item(
        &mut self,
        transaction: &mut Transaction<'_>,
        items: &mut BTreeMap<i32, Item>,
    ) -> Result<(), postgres::Error> {
        let id = self.random.below(KEYS as usize) as i32 * WRITERS + self.number;
        let tag = self.random.below(50) as i32;
        // Now and then a row that its page has no room for.
        let length = if self.random.below(20) == 0 { 40_000 } else { 900 };
        let body = format!("{}{}", self.seq, "x".repeat(self.random.below(length)));
        let count = match (items.contains_key(&id), self.random.below(4)) {
            (true, 0) => {
                items.remove(&id);
                transaction.execute("delete from item where id = $1", &[&id])?
            }
            (true, _) => {
                items.insert(id, (tag, body.clone()));
                transaction.execute("update item set tag = $2, body = $3 where id = $1", &[&id, &tag, &body])?
            }
            (false, _) => {
                items.insert(id, (tag, body.clone()));
                transaction.execute("insert into item values ($1, $2, $3)", &[&id, &tag, &body])?
            }
        };
        assert_eq!(count, 1, "item {id} of writer {}", self.number);
        Ok(())
    }

    /// Compares with what the server has, and learns what became of the last transaction.
    fn check(&mut self, client: &mut Client) {
        let rows = client.query("select seq from movement where writer = $1", &[&self.number]).unwrap();
        let found: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(rows.len(), found.len(), "movements of writer {} twice", self.number);
        if let Some((seq, items)) = self.pending.take()
            && found.contains(&seq)
        {
            self.moved.insert(seq);
            self.items = items;
        }
        let lost: Vec<_> = self.moved.difference(&found).collect();
        let invented: Vec<_> = found.difference(&self.moved).collect();
        assert!(
            lost.is_empty() && invented.is_empty(),
            "writer {}: {lost:?} lost, {invented:?} never committed",
            self.number
        );
        let rows =
            client.query("select id, tag, body from item where id % $1 = $2", &[&WRITERS, &self.number]).unwrap();
        assert_same(&self.items, rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect(), self.number);
    }
}

#[track_caller]
fn assert_same(expected: &BTreeMap<i32, Item>, found: BTreeMap<i32, Item>, writer: i32) {
    if *expected == found {
        return;
    }
    let short = |item: Option<&Item>| item.map(|(tag, body)| (*tag, body[..body.len().min(12)].to_owned(), body.len()));
    let differences: Vec<_> = expected
        .keys()
        .chain(found.keys())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|id| expected.get(id) != found.get(id))
        .map(|id| (id, short(expected.get(id)), short(found.get(id))))
        .take(10)
        .collect();
    panic!("writer {writer}: (id, expected, found) {differences:?}");
}

/// Loads batches by COPY, and makes and drops tables: each of them in one transaction.
#[derive(Default)]
struct Bulk {
    next: i64,
    batches: BTreeSet<i64>,
    tables: BTreeSet<i64>,
    /// Batches and tables whose fate isn't known.
    pending: BTreeSet<i64>,
}

impl Bulk {
    fn write(&mut self, port: u16) {
        let Ok(mut client) = common::connect(port) else { return };
        loop {
            self.next += 1;
            let number = self.next;
            let result = match number % 3 {
                0 => copy_batch(&mut client, number),
                1 => make_table(&mut client, number),
                _ => match self.tables.first().copied() {
                    Some(old) => {
                        self.pending.insert(old);
                        let result = client.batch_execute(&format!("drop table made_{old}"));
                        if result.is_ok() {
                            self.pending.remove(&old);
                            self.tables.remove(&old);
                        }
                        result
                    }
                    None => Ok(()),
                },
            };
            match (result, number % 3) {
                (Ok(()), 0) => self.batches.insert(number),
                (Ok(()), 1) => self.tables.insert(number),
                (Ok(()), _) => true,
                (Err(error), _) => {
                    assert!(error.code().is_none_or(|code| code.code() == "57P01"), "{error:?}");
                    self.pending.insert(number);
                    return;
                }
            };
        }
    }

    fn check(&mut self, client: &mut Client) {
        let rows = client.query("select batch, count(*), sum(n)::bigint from bulk group by batch", &[]).unwrap();
        for row in &rows {
            let (count, sum): (i64, i64) = (row.get(1), row.get(2));
            assert_eq!(
                (count, sum),
                (BATCH_ROWS, BATCH_ROWS * (BATCH_ROWS - 1) / 2),
                "batch {} is half there",
                row.get::<_, i64>(0)
            );
        }
        let found: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        self.settle_and_compare("batch", found, |bulk| &mut bulk.batches);
        let text = "select relname from pg_class where relkind = 'r' and relname like 'made%'";
        let rows = client.query(text, &[]).unwrap();
        let tables: BTreeSet<i64> =
            rows.iter().map(|row| row.get::<_, &str>(0)["made_".len()..].parse().unwrap()).collect();
        for table in &tables {
            assert_eq!(one::<i64>(client, &format!("select count(*) from made_{table} where tag = n % 7")), 200);
            assert_eq!(one::<i64>(client, &format!("select count(*) from made_{table} where tag = 3")), 29);
        }
        self.settle_and_compare("table", tables, |bulk| &mut bulk.tables);
        self.pending.clear();
    }

    fn settle_and_compare(
        &mut self,
        what: &str,
        found: BTreeSet<i64>,
        expected: impl Fn(&mut Bulk) -> &mut BTreeSet<i64>,
    ) {
        for number in self.pending.clone() {
            if found.contains(&number) {
                expected(self).insert(number);
            } else {
                expected(self).remove(&number);
            }
        }
        assert_eq!(*expected(self), found, "{what}: those expected, those found");
    }
}

fn copy_batch(client: &mut Client, number: i64) -> Result<(), postgres::Error> {
    let mut transaction = client.transaction()?;
    let mut writer = transaction.copy_in("copy bulk from stdin")?;
    let lines: String = (0..BATCH_ROWS).map(|n| format!("{number}\t{n}\t{}\n", "y".repeat(n as usize % 50))).collect();
    // A failed write shows at the end too.
    let _ = writer.write_all(lines.as_bytes());
    writer.finish()?;
    transaction.commit()
}

fn make_table(client: &mut Client, number: i64) -> Result<(), postgres::Error> {
    client.batch_execute(&format!(
        "begin; create table made_{number} (n int primary key, tag int not null);
         insert into made_{number} select n, n % 7 from generate_series(1, 200) as n;
         create index on made_{number} (tag); commit"
    ))
}

fn check_all(server: &Server, writers: &mut [Writer], bulk: &mut Bulk) {
    let mut client = server.client();
    for writer in writers.iter_mut() {
        writer.check(&mut client);
    }
    bulk.check(&mut client);
    assert_eq!(one::<i64>(&mut client, "select sum(balance)::bigint from account"), i64::from(ACCOUNTS) * 1000);
    // Each account holds what the movements say.
    let mut balances = vec![1000i64; ACCOUNTS as usize];
    for row in client.query("select source, target, amount from movement", &[]).unwrap() {
        balances[row.get::<_, i32>(0) as usize] -= row.get::<_, i64>(2);
        balances[row.get::<_, i32>(1) as usize] += row.get::<_, i64>(2);
    }
    for row in client.query("select id, balance from account", &[]).unwrap() {
        assert_eq!(row.get::<_, i64>(1), balances[row.get::<_, i32>(0) as usize], "account {}", row.get::<_, i32>(0));
    }
    // The index on tag knows the same rows as the table.
    let expected = writers.iter().flat_map(|writer| &writer.items).fold(vec![0i64; 50], |mut tags, (_, (tag, _))| {
        tags[*tag as usize] += 1;
        tags
    });
    for (tag, count) in expected.into_iter().enumerate() {
        let found = client.query_one("select count(*) from item where tag = $1", &[&(tag as i32)]).unwrap();
        assert_eq!(found.get::<_, i64>(0), count, "items with tag {tag}");
    }
}

fn kill_rounds() -> usize {
    std::env::var("HOMENODE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(rounds(8, 3))
}

#[test]
fn acknowledged_commits_survive_kills() {
    // A pool smaller than the data, so that pages are written back all the time.
    let settings = Settings { pool: Some("16MB".into()), ..Settings::default() };
    let mut server = Server::with(settings.clone());
    server
        .client()
        .batch_execute(&format!(
            "create table account (id int primary key, balance bigint not null);
             insert into account select n, 1000 from generate_series(0, {ACCOUNTS} - 1) as n;
             create table movement (writer int, seq bigint, source int, target int, amount bigint, primary key (writer, seq));
             create table item (id int primary key, tag int not null, body text not null);
             create index item_tag on item (tag);
             create table bulk (batch bigint, n bigint, filler text, primary key (batch, n));
             create table ballast (n int primary key, filler text);
             insert into ballast select n, repeat('z', 1000) from generate_series(1, 20000) as n"
        ))
        .unwrap();
    let mut random = Random::new(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer {
            number,
            seq: 0,
            random: random.fork(),
            items: BTreeMap::new(),
            moved: BTreeSet::new(),
            pending: None,
        })
        .collect();
    let mut bulk = Bulk::default();
    let commits = Arc::new(AtomicU64::new(0));
    let count = kill_rounds();
    for round in 0..count {
        let before = commits.load(Ordering::Relaxed);
        let port = server.port();
        thread::scope(|scope| {
            for writer in &mut writers {
                let commits = commits.clone();
                scope.spawn(move || writer.write(port, &commits));
            }
            scope.spawn(|| bulk.write(port));
            if round % 4 == 1 {
                scope.spawn(move || {
                    // Fails when the server goes away first.
                    let _ = common::connect(port).map(|mut client| client.batch_execute("checkpoint"));
                });
            }
            // A moment after the first commit, mostly soon.
            common::wait_until("somebody has to commit", Duration::from_secs(30), || {
                commits.load(Ordering::Relaxed) > before || server.status().is_some()
            });
            let limit = if random.below(3) == 0 { 1500 } else { 300 };
            thread::sleep(Duration::from_millis(random.below(limit) as u64));
            server.kill();
        });
        if round % 3 == 2 {
            // Killed again while it recovers, or soon after.
            for _ in 0..random.below(4) {
                let again = Server::launch(server.data(), settings.clone());
                thread::sleep(Duration::from_millis(random.below(150) as u64));
                again.kill();
            }
        }
        server.restart();
        check_all(&server, &mut writers, &mut bulk);
        println!("round {round}: {} commits so far", commits.load(Ordering::Relaxed));
    }
    // Nothing is forgotten by an orderly stop, and the ballast has kept its content through all of it.
    server.stop();
    server.restart();
    check_all(&server, &mut writers, &mut bulk);
    let ballast = "select count(*) from ballast where filler = repeat('z', 1000)";
    assert_eq!(one::<i64>(&mut server.client(), ballast), 20_000);
}

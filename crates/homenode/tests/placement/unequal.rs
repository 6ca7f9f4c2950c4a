//! Does it hold on three nodes at unequal distances, and a far one without CPUs?

use super::*;

const NEAR: [i32; 3] = [0, 1, 2];

#[test]
#[ignore = "for ./vm"]
fn far_memory_is_used_only_when_named() {
    let server = server("96MiB", &[]);
    let mut client = server.client();
    insert_rows(&mut client, "t");
    assert_even(&pages_of(&mut client, "t"), &NEAR);
    let distances: String = one(&mut client, "select distances from homenode.topology where node = 0");
    assert_eq!(distances, "10 15 21 30");
    let cpus: String = one(&mut client, "select cpus from homenode.nodes where node = 3");
    assert_eq!(cpus, "");
    fails(client.query("select homenode.pin(pg_backend_pid(), 3)", &[]), "22023");
    drop((client, server));

    let server = super::server("96MiB", &["--pool-policy", "bind=3"]);
    let mut client = server.client();
    insert_rows(&mut client, "t");
    assert_even(&pages_of(&mut client, "t"), &[3]);
}

/// A table larger than the near tier: what cools goes to the far node instead of the file, what is used there returns.
#[test]
#[ignore = "for ./vm"]
fn pages_cool_in_far_memory_and_return() {
    let server = super::server("12MiB", &["--far-nodes", "auto", "--far-size", "64MiB"]);
    let mut client = server.client();
    insert_rows(&mut client, "t");
    let pages = pages_of(&mut client, "t");
    assert!(pages[&3] > 400 && pages.values().sum::<i64>() > 1200, "{pages:?}");
    let sums = "select sum(cooled)::bigint, sum(returned)::bigint, sum(read)::bigint, max(hit_rate)
                from homenode.far where tier = ";
    let sums = |client: &mut Client, tier: &str| -> (i64, i64, i64) {
        let row = client.query_one(&format!("{sums} '{tier}'"), &[]).unwrap();
        (row.get(0), row.get(1), row.get(2))
    };
    assert!(sums(&mut client, "far").0 > 400);
    let read = sums(&mut client, "near").2;
    // Some pages from all over the table are used all the time.
    let hot = client.prepare("select length(filler) from t where id = $1").unwrap();
    let returned = (0..600).any(|round| {
        for id in (500..45_000).step_by(1000) {
            client.query_one(&hot, &[&id]).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        round % 20 == 19 && sums(&mut client, "far").1 >= 16
    });
    assert!(returned, "{:?}", sums(&mut client, "far"));
    assert_eq!(one::<i64>(&mut client, "select count(*) from t where length(filler) = 384"), 45_000);
    let read = sums(&mut client, "near").2 - read;
    assert!(read < 200, "{read} pages were read from the file although both tiers hold all");
    let rows = client.query("explain (analyze, numa, costs off) select count(*) from t", &[]).unwrap();
    let text: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(text.iter().any(|line| line.contains(" near=") && line.contains(" far=")), "{text:?}");
    assert_eq!(one::<i64>(&mut client, "select count(*) from homenode.far where tier = 'far' and node = 3"), 1);
    server.stop();

    let full = refused("64MiB", &["--far-nodes", "3", "--far-size", "1GiB"]);
    assert!(full.contains("bytes cannot be bound (bind=3)"), "{full}");
    let unknown = refused("64MiB", &["--far-nodes", "8"]);
    assert!(unknown.contains("there is no node 8"), "{unknown}");
    let off = refused("64MiB", &["--far-nodes", "3", "--numa", "off"]);
    assert!(off.contains("--numa off"), "{off}");
}

#[test]
#[ignore = "for ./vm"]
fn what_does_not_fit_goes_to_the_nearest_node() {
    // Node 0 is nearer to node 1 than node 1 is to node 0; from node 1 the next is node 0, at 17.
    let server = server("1100MiB", &["--pool-policy", "preferred=1"]);
    let mut client = server.client();
    let frames = by_node(&mut client, &format!("{SHARED} where name like 'pool frames%' group by node"));
    assert_eq!(frames.keys().copied().collect::<Vec<_>>(), [0, 1], "{frames:?}");
}

/// A node without CPUs that could run anything is memory only. Runs last: the CPUs stay off.
#[test]
#[ignore = "for ./vm"]
fn when_a_nodes_cpus_are_off_it_is_left_alone() {
    for cpu in [2, 3] {
        fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "0").unwrap();
    }
    let server = server("96MiB", &[]);
    let mut client = server.client();
    insert_rows(&mut client, "t");
    let workers = by_node(&mut client, "select node, workers::bigint from homenode.nodes order by node");
    assert_eq!(workers.get(&1), Some(&0), "{workers:?}");
    assert_even(&pages_of(&mut client, "t"), &[0, 2]);
}

//! Does any damage to the files do more harm than a note? Missing, cut, swapped and overwritten files of real shapes.

use homenode_topology::{Capture, Topology, machines};
use proptest::prelude::*;

/// What every topology promises, however little could be read.
fn check(m: &Topology) {
    assert!(!m.nodes().is_empty() && !m.cpus().is_empty() && !m.memory_nodes().is_empty());
    assert!(!m.allowed_cpus().is_empty());
    for cpu in m.cpus() {
        assert!(m.node(cpu.node).unwrap().cpus.contains(&cpu.id));
        assert!(m.packages()[cpu.package].contains(&cpu.id));
        assert!(m.cores()[cpu.core].contains(&cpu.id));
        assert!(m.l3_groups()[cpu.l3_group].cpus.contains(&cpu.id));
        assert_eq!(m.l3_groups()[cpu.l3_group].node, cpu.node);
    }
    let by_node: usize = m.nodes().iter().map(|node| node.cpus.len()).sum();
    let by_l3: usize = m.l3_groups().iter().map(|group| group.cpus.len()).sum();
    assert_eq!((by_node, by_l3), (m.cpus().len(), m.cpus().len()));
    for node in m.nodes() {
        assert_eq!(m.nearest(node.id).first(), Some(&node.id));
    }
    assert!(m.describe().contains("CPU"));
}

fn without(capture: &Capture, gone: impl Fn(&str) -> bool) -> Capture {
    let mut left = Capture::default();
    capture.files().filter(|(path, _)| !gone(path)).for_each(|(path, text)| assert!(left.insert(path, text)));
    left
}

#[test]
fn the_running_machine_keeps_the_promises() {
    check(&Topology::discover());
}

#[test]
fn nothing_at_all_is_one_node_with_a_note() {
    let m = Topology::from_capture(Capture::default());
    check(&m);
    assert_eq!((m.nodes().len(), m.cpus().len()), (1, 1));
    assert!(!m.notes().is_empty());
}

#[test]
fn a_container_without_node_files_is_one_node() {
    for (name, text) in machines::ALL {
        let whole = Capture::from_bundle(text).unwrap();
        let m = Topology::from_capture(without(&whole, |path| path.starts_with("sys/devices/system/node")));
        check(&m);
        assert_eq!(m.nodes().len(), 1, "{name}");
        assert!(m.nodes()[0].memory_bytes > Some(1 << 30), "{name}: the memory comes from proc/meminfo");
        assert!(m.notes().iter().any(|note| note.path.ends_with("node/online")), "{name}");
        let bare = Topology::from_capture(without(&whole, |path| path.starts_with("sys/")));
        check(&bare);
        assert_eq!(bare.cpus().len(), m.cpus().len(), "{name}: counted from proc");
    }
}

#[test]
fn a_cpuset_is_respected() {
    let mut capture = Capture::from_bundle(machines::text("kunpeng-920").unwrap()).unwrap();
    capture.insert("proc/self/status", "Cpus_allowed_list:\t32-39\nMems_allowed_list:\t1\n");
    let m = Topology::from_capture(capture);
    assert_eq!(m.allowed_cpus(), (32..40).collect::<Vec<_>>());
    assert_eq!(m.memory_nodes().iter().map(|node| node.id).collect::<Vec<_>>(), [1]);
    assert!(m.is_uniform());
}

#[test]
fn unmeasurably_large_numbers_are_not_believed() {
    let mut capture = Capture::from_bundle(machines::text("skylake-2s").unwrap()).unwrap();
    capture.insert("sys/devices/system/node/online", "0-4294967295\n");
    capture.insert("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 99999999999999999999 kB\n");
    capture.insert("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 18446744073709551615 kB\n");
    let m = Topology::from_capture(capture);
    check(&m);
    assert_eq!(m.nodes().len(), 2);
    assert_eq!(m.nodes()[0].memory_bytes, None);
}

#[derive(Clone, Debug)]
enum Damage {
    Remove,
    Cut(usize),
    Text(String),
    Swap(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Remove),
        (0usize..40).prop_map(Damage::Cut),
        "[0-9,\\- kB:\\[\\]a-z\n]{0,30}".prop_map(Damage::Text),
        any::<String>().prop_map(Damage::Text),
        any::<usize>().prop_map(Damage::Swap),
    ]
}

fn damaged(text: &str, damages: &[(usize, Damage)]) -> Capture {
    let whole = Capture::from_bundle(text).unwrap();
    let mut files: Vec<(String, String)> = whole.files().map(|(p, t)| (p.to_owned(), t.to_owned())).collect();
    for (at, damage) in damages {
        if files.is_empty() {
            break;
        }
        let at = at % files.len();
        match damage {
            Damage::Remove => drop(files.swap_remove(at)),
            Damage::Cut(keep) => files[at].1 = files[at].1.chars().take(*keep).collect(),
            Damage::Text(text) => files[at].1.clone_from(text),
            Damage::Swap(other) => {
                let other = other % files.len();
                let text = std::mem::take(&mut files[at].1);
                files[at].1 = std::mem::replace(&mut files[other].1, text);
            }
        }
    }
    let mut capture = Capture::default();
    files.iter().for_each(|(path, text)| assert!(capture.insert(path, text)));
    capture
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn damaged_files_never_break_the_promises(
        which in 0..machines::ALL.len(),
        damages in proptest::collection::vec((any::<usize>(), damage()), 1..60),
    ) {
        check(&Topology::from_capture(damaged(machines::ALL[which].1, &damages)));
    }

    #[test]
    fn damaged_text_is_refused_or_read(which in 0..machines::ALL.len(), at in any::<prop::sample::Index>(), with in any::<String>()) {
        let text = machines::ALL[which].1;
        let mut cut = at.index(text.len());
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        if let Ok(m) = Topology::from_bundle(&format!("{}{with}{}", &text[..cut], &text[cut..])) {
            check(&m);
        }
        if let Ok(m) = Topology::from_bundle(&text[..cut]) {
            check(&m);
        }
    }

    #[test]
    fn any_text_is_refused_or_read(text in any::<String>()) {
        if let Ok(m) = Topology::from_bundle(&text) {
            check(&m);
        }
    }
}

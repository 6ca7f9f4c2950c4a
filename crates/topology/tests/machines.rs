//! Do the shipped machines say what their heads promise?

use homenode_topology::{Topology, machines};

fn machine(name: &str) -> Topology {
    let topology = Topology::from_bundle(machines::text(name).unwrap()).unwrap();
    assert_eq!(topology.notes(), [], "{name}");
    topology
}

#[test]
fn counts_are_right() {
    // name, nodes, packages, cores, CPUs, L3 groups, CPUs of an L3 group
    let expected = [
        ("laptop-8", 1, 1, 8, 16, 1, 16),
        ("skylake-2s", 2, 2, 20, 40, 2, 20),
        ("sapphire-rapids-2s-cxl", 3, 2, 48, 96, 2, 48),
        ("kunpeng-920", 4, 2, 128, 128, 4, 32),
        ("genoa-2s-nps4", 8, 2, 192, 384, 24, 16),
    ];
    assert_eq!(expected.len(), machines::ALL.len());
    for (name, nodes, packages, cores, cpus, l3_groups, of_group) in expected {
        let m = machine(name);
        assert_eq!(m.nodes().len(), nodes, "{name}");
        assert_eq!(m.packages().len(), packages, "{name}");
        assert_eq!(m.cores().len(), cores, "{name}");
        assert_eq!(m.cpus().len(), cpus, "{name}");
        assert_eq!(m.l3_groups().len(), l3_groups, "{name}");
        assert!(m.l3_groups().iter().all(|group| group.cpus.len() == of_group), "{name}");
        assert_eq!(m.is_uniform(), nodes == 1, "{name}");
        assert_eq!(m.allowed_cpus().len(), cpus, "{name}");
    }
}

#[test]
fn kunpeng_in_detail() {
    let m = machine("kunpeng-920");
    assert_eq!(m.nearest(3), [3, 2, 0, 1]);
    assert_eq!(m.distance(1, 3), Some(24));
    assert_eq!(m.distance(1, 4), None);
    assert_eq!(m.cpu(64).map(|cpu| (cpu.node, cpu.package)), Some((2, 1)));
    assert_eq!(m.node(2).map(|node| node.cpus.len()), Some(32));
    let at: Vec<_> = m.devices().iter().map(|device| (device.name.as_str(), device.node)).collect();
    assert_eq!(at, [("nvme0n1", Some(0)), ("nvme1n1", Some(2)), ("sda", Some(0))]);
    assert_eq!(m.model_name(), None);
}

#[test]
fn a_far_node_has_memory_and_no_cpus() {
    let m = machine("sapphire-rapids-2s-cxl");
    let far = m.node(2).unwrap();
    assert!(far.cpus.is_empty());
    assert_eq!(far.memory_bytes, Some(128 << 30));
    assert_eq!(far.memory_tier, Some(22));
    assert_eq!(far.interleave_weight, Some(1));
    assert_eq!(m.settings().demotion, Some(false));
    assert_eq!(m.memory_nodes().len(), 3);
}

#[test]
fn reserved_huge_pages_are_counted_by_node() {
    let m = machine("skylake-2s");
    let pools = &m.node(1).unwrap().huge_pages;
    assert_eq!(
        pools.iter().map(|pool| (pool.page_bytes, pool.total)).collect::<Vec<_>>(),
        [(2 << 20, 1024), (1 << 30, 0)]
    );
}

#[test]
fn the_text_form_is_stable() {
    for (name, text) in machines::ALL {
        let m = machine(name);
        let again = Topology::from_bundle(&m.capture().to_bundle("again")).unwrap();
        assert_eq!(m.capture(), again.capture(), "{name}");
        assert!(text.starts_with("# "), "{name} says what it was written from");
    }
}

#[test]
fn the_drawing_shows_what_matters() {
    let drawing = machine("sapphire-rapids-2s-cxl").describe();
    let expected = "\
Intel(R) Xeon(R) Gold 6442Y
3 nodes, 2 packages, 48 cores, 96 CPUs, 631.8 GiB

node         CPUs     memory       free  huge pages  devices
   0   0-23,48-71  251.9 GiB  156.2 GiB           -  nvme0n1
   1  24-47,72-95  251.9 GiB  156.2 GiB           -  nvme1n1
   2         none    128 GiB   79.4 GiB           -

2 L3 groups of 48 CPUs, 60 MiB

distances (the firmware's order of near and far; no times)
    0   1   2
0  10  21  14
1  21  10  24
2  14  24  10
";
    assert_eq!(drawing, expected);
}

//! What do regions do on the machine that runs the tests? Most have one node; what several nodes would do is shown by
//! telling a region of nodes that aren't there, which the kernel refuses.
#![cfg(not(homenode_lab))]

use homenode_memory::*;
use homenode_topology::{Topology, machines};

const MIB: usize = 1 << 20;

fn here() -> Topology {
    Topology::discover()
}

fn four_nodes() -> Topology {
    Topology::from_bundle(machines::text("kunpeng-920").unwrap()).unwrap()
}

fn region(bytes: usize, policy: Policy, huge: HugePages) -> Region {
    Region::new(bytes, &policy, huge, &here()).unwrap()
}

/// Fills and checks the first and last byte of every 4 KiB.
fn use_all(region: &Region) {
    let bytes = region.len();
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: inside the region, which this test alone uses.
        unsafe {
            let page = region.as_ptr().add(offset);
            assert_eq!((page.read(), page.add(4095).read()), (0, 0), "fresh memory is zero");
            page.write(offset as u8 | 1);
            page.add(4095).write(7);
        }
    }
}

#[test]
fn memory_is_zeroed_aligned_and_usable() {
    for huge in [HugePages::Off, HugePages::Try, HugePages::Transparent] {
        let region = region(5 * MIB + 1, Policy::Default, huge);
        assert_eq!(region.len(), 6 * MIB);
        assert_eq!(region.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        assert_eq!(region.placement(), Placement::NotNeeded);
        assert_eq!(region.pages() == PageKind::Small, huge == HugePages::Off);
        use_all(&region);
    }
}

#[test]
fn nothing_is_present_before_and_all_after_prefaulting() {
    for huge in [HugePages::Off, HugePages::Transparent] {
        let region = region(64 * MIB, Policy::Default, huge);
        let before = region.residency(0..region.len()).unwrap();
        assert_eq!((before.present_bytes(), before.absent_bytes), (0, 64 * MIB as u64));
        // SAFETY: the first byte of a region that this test alone uses.
        unsafe { region.as_ptr().write(42) };
        let done = region.prefault().unwrap();
        assert_eq!(done.bytes, 64 * MIB);
        assert!((1..=2).contains(&done.threads), "two pieces of 32 MiB");
        let after = region.residency(0..region.len()).unwrap();
        assert_eq!(after.present_bytes(), 64 * MIB as u64, "{after}");
        // SAFETY: as above.
        assert_eq!(unsafe { region.as_ptr().read() }, 42, "contents are kept");
    }
}

#[test]
fn residency_of_a_part_counts_that_part() {
    let region = region(8 * MIB, Policy::Default, HugePages::Off);
    for offset in [2 * MIB, 2 * MIB + 8192, 6 * MIB] {
        // SAFETY: inside the region, which this test alone uses.
        unsafe { region.as_ptr().add(offset).write(1) };
    }
    let middle = region.residency(2 * MIB..4 * MIB).unwrap();
    assert_eq!(middle.present_bytes(), 2 * 4096);
    assert_eq!(middle.absent_bytes, (2 * MIB - 2 * 4096) as u64);
    assert_eq!(region.residency(0..2 * MIB).unwrap().present_bytes(), 0);
}

#[test]
fn on_one_node_no_policy_is_asked_for() {
    if !here().is_uniform() {
        return;
    }
    let node = here().memory_nodes()[0].id;
    let policies = [
        Policy::Local,
        Policy::Interleave,
        Policy::WeightedInterleave,
        Policy::Bind(vec![node]),
        Policy::Preferred(node),
    ];
    for policy in policies {
        assert_eq!(region(2 * MIB, policy.clone(), HugePages::Off).placement(), Placement::NotNeeded, "{policy}");
        assert_eq!(set_thread_policy(&policy, &here()).unwrap(), Placement::NotNeeded);
    }
}

#[test]
fn nodes_that_are_not_there_are_refused_by_name() {
    for policy in [Policy::Preferred(77), Policy::Bind(vec![0, 77])] {
        match Region::new(MIB, &policy, HugePages::Off, &here()) {
            Err(MemoryError::NoSuchNode { node: 77, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn parts_have_policies_of_their_own() {
    let region = region(8 * MIB, Policy::Default, HugePages::Off);
    let node = here().memory_nodes()[0].id;
    let parts = region.split(2);
    assert_eq!(parts, [0..4 * MIB, 4 * MIB..8 * MIB]);
    region.place(parts[1].clone(), &Policy::Preferred(node)).unwrap();
    let placed: Vec<_> = region.placements().into_iter().map(|(range, policy, _)| (range, policy)).collect();
    assert_eq!(placed, [(0..4 * MIB, Policy::Default), (4 * MIB..8 * MIB, Policy::Preferred(node))]);
    region.prefault().unwrap();
    assert_eq!(region.residency(0..8 * MIB).unwrap().absent_bytes, 0);
}

#[test]
fn split_covers_the_region_without_gaps() {
    let region = region(14 * MIB, Policy::Default, HugePages::Off);
    for count in 1..12 {
        let parts = region.split(count);
        assert_eq!((parts[0].start, parts[count - 1].end), (0, region.len()));
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        let sizes: Vec<usize> = parts.iter().map(|part| part.len() / HUGE_PAGE_BYTES).collect();
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
    }
}

#[test]
fn a_refused_policy_leaves_usable_memory_unless_it_binds() {
    if here().nodes().len() > 1 {
        return;
    }
    // The topology promises node 3, the kernel doesn't have it.
    let region = Region::new(4 * MIB, &Policy::Preferred(3), HugePages::Off, &four_nodes()).unwrap();
    match region.placement() {
        Placement::Refused(Policy::Preferred(3), Refusal::NotUnderstood | Refusal::NotPermitted) => {}
        other => panic!("{other:?}"),
    }
    assert!(region.placement().to_string().starts_with("preferred=3 refused: "));
    use_all(&region);
    match Region::new(4 * MIB, &Policy::Bind(vec![2, 3]), HugePages::Off, &four_nodes()) {
        Err(MemoryError::Bind { policy: Policy::Bind(nodes), .. }) => assert_eq!(nodes, [2, 3]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn policies_that_the_kernel_takes_are_followed() {
    for policy in
        [Policy::Local, Policy::Interleave, Policy::WeightedInterleave, Policy::Bind(vec![0]), Policy::Preferred(0)]
    {
        let region = match Region::new(64 * MIB, &policy, HugePages::Off, &four_nodes()) {
            Ok(region) => region,
            // Containers forbid it.
            Err(MemoryError::Bind { refusal: Refusal::NotPermitted, .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        // Also pre-faults with a crew for each of four nodes, though pinning to CPUs that aren't there fails.
        region.prefault().unwrap();
        use_all(&region);
        match region.placement() {
            Placement::Applied(applied) => {
                assert!(applied == policy || (policy, applied) == (Policy::WeightedInterleave, Policy::Interleave));
                assert_eq!(region.residency(0..region.len()).unwrap().absent_bytes, 0);
            }
            Placement::Refused(_, Refusal::NotPermitted) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn moving_to_the_own_node_changes_nothing_and_absent_pages_stay_absent() {
    let region = region(4 * MIB, Policy::Default, HugePages::Off);
    // SAFETY: the first byte of a region that this test alone uses.
    unsafe { region.as_ptr().write(1) };
    let node = match region.residency(0..2 * MIB).unwrap().by_node.keys().next() {
        Some(node) => *node,
        None => panic!("a touched page is somewhere"),
    };
    match region.migrate(0..region.len(), node) {
        Ok(moved) => {
            assert_eq!((moved.there_bytes, moved.absent_bytes), (4096, (4 * MIB - 4096) as u64), "{moved:?}");
            assert!(moved.failed.is_empty());
        }
        Err(refusal) => assert_eq!(refusal, Refusal::NotPermitted),
    }
    assert!(region.migrate(0..region.len(), 999).is_err());
}

#[test]
fn required_huge_pages_are_there_or_an_error() {
    match Region::new(4 * MIB, &Policy::Default, HugePages::Require, &here()) {
        Ok(region) => {
            assert_eq!(region.pages(), PageKind::Reserved);
            region.prefault().unwrap();
            use_all(&Region::new(2 * MIB, &Policy::Default, HugePages::Try, &here()).unwrap());
            assert_eq!(region.residency(0..4 * MIB).unwrap().present_bytes(), 4 * MIB as u64);
        }
        Err(MemoryError::HugePages { bytes, .. }) => assert_eq!(bytes, 4 * MIB),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn more_than_the_address_space_is_an_error() {
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        assert!(matches!(Region::new(bytes, &Policy::Default, HugePages::Try, &here()), Err(MemoryError::Map { .. })));
    }
}

#[test]
#[should_panic(expected = "whole huge pages")]
fn parts_are_whole_huge_pages() {
    let _ = region(4 * MIB, Policy::Default, HugePages::Off).place(0..4096, &Policy::Local);
}

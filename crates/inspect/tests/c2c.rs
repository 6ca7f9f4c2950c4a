//! Are recordings of each vendor read alike? The texts say at their head that they are written by the documented format.

use std::path::Path;

use homenode_inspect::c2c::{Found, Line, What, line_page, lines, perf, table, to_part};

fn read(vendor: &str) -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/perf/{vendor}.txt"));
    let text = std::fs::read(&path).expect("the text is there");
    lines(&perf::read(&text[..], &path).expect("the text is understood"))
}

#[test]
fn intel_lines_are_grouped_by_physical_address_with_callers() {
    let lines = read("intel");
    assert_eq!(lines.len(), 2);
    // Two processes map the descriptor at different addresses.
    let descriptor = &lines[0];
    assert_eq!(
        (descriptor.address, descriptor.counts.records, &descriptor.cpus[..]),
        (0x10_07ee_4a80, 3, &[12, 33][..])
    );
    assert_eq!(descriptor.counts.found(Found::RemoteModified), 1);
    assert_eq!(descriptor.counts.found(Found::LocalModified), 1);
    assert_eq!((descriptor.counts.stores, descriptor.counts.store_misses), (1, 1));
    let place = &descriptor.places[&(0x10, 0x55d5_aaec_2f00)];
    assert_eq!(place.function, "BufferGetBlockNumber");
    // The block number is only read, the state beside it written: the talk's own fix.
    let part = to_part(descriptor).expect("something to part");
    assert_eq!((part.read, part.written, part.saved, part.of), (vec![0x10], vec![0x18], 2, 2));
    let lock = &lines[1].places[&(0, 0x55d5_aab2_0918)];
    assert_eq!(lock.callers, ["StartReadBuffer"]);
    assert!(line_page(&lines[1], None).contains("LWLockAcquire called by StartReadBuffer"));
}

#[test]
fn amd_and_arm_are_read_too() {
    let amd = read("amd");
    let contended = amd.iter().find(|line| line.address == 0x2_0000_2040).expect("the line");
    assert_eq!((contended.counts.modified(), contended.counts.stores), (1, 1));
    // Without a physical address a sample stands for its virtual line.
    assert!(amd.iter().any(|line| !line.is_physical && line.counts.found(Found::LocalMemory) == 1));
    let arm = read("arm");
    assert_eq!(arm[0].counts.found(Found::LocalModified), 1);
    assert_eq!(arm[0].counts.found(Found::RemoteModified), 1);
    assert_eq!(to_part(&arm[0]), None);
    assert!(table(&arm, 5, None).lines().all(|line| line.chars().count() < 160));
}

#[test]
fn what_was_done_is_told_by_words_of_any_vendor() {
    let path = Path::new("text");
    let text = "a 1/1 [0] 1.0: memory: 1000 2 |OP LOAD|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK N/A 7 2000 f 3000\n";
    let accesses = perf::read(text.as_bytes(), path).expect("the text is understood");
    assert_eq!(accesses[0].what, What::Load(Found::Unknown));
    assert_eq!((accesses[0].latency_cycles, accesses[0].instruction, accesses[0].physical), (7, 0x2000, 0x3000));
}

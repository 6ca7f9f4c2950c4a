//! Are recordings of each vendor read alike? The texts say at their head that they are written by the documented format.

use std::path::Path;

use homenode_inspect::c2c::{Found, Line, View, What, line_page, lines, perf, table, to_part};

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
    let part = to_part(descriptor, &View::cycles(None)).expect("something to part");
    assert_eq!((part.read, part.written, part.saved, part.of), (vec![0x10], vec![0x18], 2, 2));
    // Two loads of 3928 and 410 cycles would be hits.
    assert_eq!(part.saved_latency, 3928 + 410 - 2 * 5);
    let page = line_page(descriptor, &View::cycles(None));
    assert!(page.contains("predicted gain: 99.8% of the cycles"), "{page}");
    let lock = &lines[1].places[&(0, 0x55d5_aab2_0918)];
    assert_eq!(lock.by_count(), [(&["StartReadBuffer".to_owned()][..], 1)]);
    let page = line_page(&lines[1], &View::cycles(None));
    assert!(page.contains("LWLockAcquire called by (1 sampled)\n  100.0%  StartReadBuffer\n"), "{page}");
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
    assert_eq!(to_part(&arm[0], &View::cycles(None)), None);
    assert!(table(&arm, 5, &View::cycles(None)).lines().all(|line| line.chars().count() < 160));
}

#[test]
fn what_was_done_is_told_by_words_of_any_vendor() {
    let path = Path::new("text");
    let text = "a 1/1 [0] 1.0: memory: 1000 2 |OP LOAD|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK N/A 7 2000 f 3000\n";
    let accesses = perf::read(text.as_bytes(), path).expect("the text is understood");
    assert_eq!(accesses[0].what, What::Load(Found::Unknown));
    assert_eq!((accesses[0].latency_cycles, accesses[0].instruction, accesses[0].physical), (7, 0x2000, 0x3000));
}

/// A program whose structures are known. `take` reads through its first argument, `give` writes through its second.
const PROGRAM: &str = "
struct queue { long head; long tail; };
typedef struct { int kind; struct queue queues[3]; union { long state; int parts[2]; }; } Latch;
Latch Shared[4];
__attribute__((noinline)) long take(Latch *latch) { return latch->queues[1].tail; }
__attribute__((noinline)) void give(int much, Latch *latch) { latch->state += much; }
int main(int count, char **words) { give(count, &Shared[2]); return (int)take(&Shared[1]); }
";

/// perf's text for accesses of a compiled program.
fn sampled(program: &Path, data: &str, function: &str) -> String {
    let file = program.display();
    format!(
        "p 1/1 [0] 1.0: cpu/mem-loads/: 5000 {data} ({file}) 1 |OP LOAD|LVL L3 hit|SNP HitM|TLB N/A|LCK No|BLK N/A 30 401136 \
         {function} ({file}) 0\n"
    )
}

#[test]
fn offsets_are_named_as_fields_by_debug_information() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("homenode-c2c-fields-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    std::fs::write(&source, PROGRAM).expect("the source is written");
    for further in [["-gdwarf-4", "-gz=none"], ["-gdwarf-5", "-gz=zlib"]] {
        let mut compiler = std::process::Command::new("cc");
        compiler.args(["-O1", "-fcf-protection=none", "-o"]).arg(&program).args(further).arg(&source);
        // Linking Rust needs a compiler too, so there is one.
        assert!(compiler.status().expect("cc runs").success());
        let field = |data: &str, function: &str| {
            let text = sampled(&program, data, function);
            let mut accesses = perf::read(text.as_bytes(), Path::new("text")).expect("the text is understood");
            homenode_inspect::c2c::name_fields(&mut accesses);
            accesses[0].field.clone()
        };
        let unknown = "[unknown]";
        assert_eq!(field("Shared+0x78", "main+0x0").as_deref(), Some("Shared[1].state"), "{further:?}");
        assert_eq!(field("Shared+0x8", "main+0x0").as_deref(), Some("Shared[0].queues[0].head"));
        assert_eq!(field(unknown, "take+0x0").as_deref(), Some("Latch.queues[1].tail"));
        // Which of its few instructions writes is the compiler's choice.
        let written: Vec<String> = (0..12).filter_map(|at| field(unknown, &format!("give+{at:#x}"))).collect();
        assert!(written.contains(&"Latch.state".to_owned()), "{written:?}");
        assert_eq!(field("Shared+0x7000", "main+0x0"), None);
        assert_eq!(field(unknown, "nowhere+0x0"), None);
    }
    // Damaged debug information names nothing or something, and never more than that.
    let whole = std::fs::read(&program).expect("the program");
    let mut place = 12_345usize;
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..30 {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = place >> 20;
            let length = bytes.len();
            bytes[at % length] = (place >> 12) as u8;
        }
        std::fs::write(&program, &bytes).expect("the program is written");
        for (data, function) in [("Shared+0x78", "main+0x0"), ("[unknown]", "take+0x0")] {
            let text = sampled(&program, data, function);
            let mut accesses = perf::read(text.as_bytes(), Path::new("text")).expect("the text is understood");
            homenode_inspect::c2c::name_fields(&mut accesses);
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

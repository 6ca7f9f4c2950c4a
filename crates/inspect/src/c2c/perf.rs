//! What does `perf script` print about memory accesses? Its text, of Intel's PEBS, AMD's IBS and Arm's SPE.
//!
//! Recorded with `perf record -d --phys-data` (or `perf c2c record`) and printed with
//! `perf script -F comm,pid,tid,cpu,time,event,ip,sym,symoff,dso,addr,phys_addr,data_src,weight`: one line a sample, and with call
//! graphs (`-g`) one indented line a frame and then one with the physical address alone (so perf 6.1 prints page faults, the
//! one event with addresses that a virtual machine has). The data source is read from its words (tools/perf/util/mem-events.c,
//! perf_script__meminfo_scnprintf: `|OP LOAD|LVL L3 hit|SNP HitM|TLB ...`), which are the same on every vendor; its number
//! depends on the kernel's version.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::{Access, Found, Symbol, What};
use crate::InspectError;

/// The fields to ask `perf script` for.
pub const FIELDS: &str = "comm,pid,tid,cpu,time,event,ip,sym,symoff,dso,addr,phys_addr,data_src,weight";

/// Reads samples. Lines of other events, and comments, are passed over.
///
/// # Errors
/// [`InspectError::Format`] for a sample that is not understood; [`InspectError::Refused`] if there is none at all.
pub fn read(input: impl BufRead, path: &Path) -> Result<Vec<Access>, InspectError> {
    let mut reader = Reader { path: path.to_owned(), accesses: Vec::new(), open: false };
    for (index, line) in input.split(b'\n').enumerate() {
        let line = line.map_err(|error| InspectError::io(path, error))?;
        reader.line(index + 1, &String::from_utf8_lossy(&line))?;
    }
    if reader.accesses.is_empty() {
        return Err(InspectError::Refused(format!(
            "{} holds no samples of memory accesses; wanted is the output of: perf script -F {FIELDS}",
            path.display()
        )));
    }
    Ok(reader.accesses)
}

struct Reader {
    path: PathBuf,
    accesses: Vec<Access>,
    /// Whether frames that follow belong to the last access.
    open: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), InspectError> {
        if line.trim().is_empty() || line.starts_with('#') {
            self.open = false;
            return Ok(());
        }
        if line.starts_with(['\t', ' ']) && !line.contains('|') && self.open {
            self.frame(line);
            return Ok(());
        }
        match parse_sample(line) {
            Ok(Some(access)) => {
                self.accesses.push(access);
                self.open = true;
                Ok(())
            }
            Ok(None) => {
                self.open = false;
                Ok(())
            }
            Err(why) => Err(InspectError::format(&self.path, number, why, line)),
        }
    }

    /// `    55d5aaec PinBuffer+0x2c (/usr/lib/postgresql/15/bin/postgres)`: the first is the sampled instruction itself.
    fn frame(&mut self, line: &str) {
        let Some(access) = self.accesses.last_mut() else { return };
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| u64::from_str_radix(word, 16).ok()) else { return };
        let rest = line.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim());
        if rest.is_empty() {
            // Behind the frames comes the physical address of the data.
            access.physical = address;
            return;
        }
        let (function, symbol) = symbol(rest);
        if access.instruction == 0 || access.instruction == address && access.callers.is_empty() {
            access.instruction = address;
            access.function = function;
            access.code = symbol;
        } else {
            access.callers.push(function);
        }
    }
}

/// Reads a sample's line; `None` for an event that is no memory access.
///
/// # Errors
/// What of it is not understood.
pub fn parse_sample(line: &str) -> Result<Option<Access>, &'static str> {
    // The name may hold blanks: the first word of the form PID/TID ends it (`perf script` prints both, or one).
    let (command, pid, tid, rest) = head(line).ok_or("it doesn't begin with a name and PID/TID")?;
    let rest = rest.trim_start();
    let (cpu, rest) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or("there is no CPU")?;
    let cpu = cpu.trim().parse().map_err(|_| "the CPU is not a number")?;
    let (time, rest) = rest.trim_start().split_once(':').ok_or("there is no time")?;
    time.trim().parse::<f64>().map_err(|_| "the time is not a number")?;
    let (event, rest) = event(rest.trim_start()).ok_or("there is no event")?;
    if !is_memory_event(event) {
        return Ok(None);
    }
    let (addresses, source) = rest.split_once('|').ok_or("there is no data source")?;
    let addresses = addresses.trim();
    let (first, rest) = addresses.split_once(char::is_whitespace).unwrap_or((addresses, ""));
    let address = hex(Some(first)).ok_or("the data address is not a number")?;
    // Between the address and the number of the data source stands the data's symbol, where there is one.
    let data = rest.trim().rsplit_once(char::is_whitespace).and_then(|(name, _)| symbol(name.trim()).1);
    let (latency, after) = number(behind_words(source));
    let (instruction, after) = match after.split_once(char::is_whitespace) {
        Some((first, rest)) => (hex(Some(first)).unwrap_or(0), rest.trim_start()),
        None => (hex(Some(after)).unwrap_or(0), ""),
    };
    let (name, physical) = function_and_physical(after);
    let (function, code) = symbol(&name);
    let words = Words::of(source);
    let Some(what) = words.what(event) else {
        return Ok(None);
    };
    Ok(Some(Access {
        command: command.to_owned(),
        pid,
        tid,
        cpu,
        what,
        address,
        physical,
        latency_cycles: latency,
        instruction,
        function,
        callers: Vec::new(),
        code,
        data,
        field: None,
    }))
}

fn head(line: &str) -> Option<(&str, u32, u32, &str)> {
    let mut from = 0;
    loop {
        let start = from + line.get(from..)?.find(|c: char| !c.is_whitespace())?;
        let end = line[start..].find(char::is_whitespace).map_or(line.len(), |at| start + at);
        let word = &line[start..end];
        let ids = word.split_once('/').unwrap_or((word, word));
        if let (Ok(pid), Ok(tid), true) = (ids.0.parse(), ids.1.parse(), start > 0) {
            return Some((line[..start].trim(), pid, tid, &line[end..]));
        }
        from = end;
    }
}

/// The event's name up to its last colon: it may hold colons itself (`cpu/mem-loads,ldlat=30/P:`).
fn event(text: &str) -> Option<(&str, &str)> {
    let end = text.find(char::is_whitespace)?;
    let (event, rest) = text.split_at(end);
    Some((event.trim_end_matches(':'), rest.trim_start()))
}

/// Intel: mem-loads and mem-stores; AMD: ibs_op; Arm: arm_spe and its synthesized `memory`, `l1d-access` and the like.
fn is_memory_event(event: &str) -> bool {
    ["mem-loads", "mem-stores", "ibs_op", "arm_spe", "memory", "l1d", "llc", "remote-access"]
        .iter()
        .any(|known| event.contains(known))
        && !event.contains("mem-loads-aux")
}

fn hex(word: Option<&str>) -> Option<u64> {
    u64::from_str_radix(word?.trim_start_matches("0x"), 16).ok()
}

/// The number at the head of the text, and what follows it.
fn number(text: &str) -> (u64, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let is_whole = text[end..].is_empty() || text[end..].starts_with(char::is_whitespace);
    // An address that begins with digits is no weight: perf pads those with blanks and prints none of more than ten.
    match text[..end].parse() {
        Ok(number) if is_whole && end <= 7 => (number, text[end..].trim_start()),
        _ => (0, text),
    }
}

/// What follows the data source: the last of its words is `BLK` with its value, on older kernels `LCK` with its.
fn behind_words(source: &str) -> &str {
    let last = source.rsplit_once('|').map_or(source, |(_, last)| last).trim_start();
    let value = last.strip_prefix("BLK").or_else(|| last.strip_prefix("LCK")).unwrap_or(last).trim_start();
    // The values are N/A, Yes, No, Data, Addr, or several of them; numbers come after.
    let numbers = value.split_ascii_whitespace().find(|word| word.bytes().all(|byte| byte.is_ascii_hexdigit()));
    numbers.map_or("", |word| &value[word.as_ptr().addr() - value.as_ptr().addr()..])
}

/// `name+0x1c (/path/of/program)`: the name, and all of it where offset and program are there.
fn symbol(text: &str) -> (String, Option<Symbol>) {
    let (place, file) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((place, file)) => (place.trim(), Some(file)),
        None => (text.trim(), None),
    };
    let Some((name, offset)) = place.rsplit_once("+0x").and_then(|(name, offset)| Some((name, hex(Some(offset))?)))
    else {
        return (place.to_owned(), None);
    };
    let symbol = file.map(|file| Symbol { name: name.to_owned(), offset, file: file.to_owned() });
    (name.to_owned(), symbol)
}

/// The function's name may hold blanks (C++, Rust); the physical address is the last word.
fn function_and_physical(text: &str) -> (String, u64) {
    let text = text.trim();
    let (function, last) = text.rsplit_once(char::is_whitespace).unwrap_or(("", text));
    match hex(Some(last)) {
        Some(physical) => (function.trim().to_owned(), physical),
        None => (text.to_owned(), 0),
    }
}

/// The words of a data source: what was done, on which level it was found, what the snoop said.
struct Words<'a> {
    operation: &'a str,
    level: &'a str,
    snoop: &'a str,
}

impl<'a> Words<'a> {
    fn of(source: &'a str) -> Words<'a> {
        let mut words = Words { operation: "", level: "", snoop: "" };
        for part in source.split('|') {
            let part = part.trim();
            let value = |name: &str| part.strip_prefix(name).map(str::trim);
            if let Some(value) = value("OP ") {
                words.operation = value;
            } else if let Some(value) = value("LVL ") {
                words.level = value;
            } else if let Some(value) = value("SNP ") {
                words.snoop = value;
            }
        }
        words
    }

    fn what(&self, event: &str) -> Option<What> {
        let store = self.operation.contains("STORE") || self.operation.is_empty() && event.contains("store");
        let load = self.operation.contains("LOAD");
        if store && !load {
            let says = self.level.contains("L1");
            return Some(What::Store(says.then(|| self.level.contains("hit"))));
        }
        load.then(|| What::Load(self.found()))
    }

    /// As perf's own counting does it (tools/perf/util/mem-events.c, c2c_decode_stats): `HitM` is a modified line in another
    /// core; on Arm, which has no such flag, `Peer` is a line that another core supplied.
    fn found(&self) -> Found {
        let level = self.level.to_ascii_lowercase();
        let snoop = self.snoop.to_ascii_lowercase();
        let remote = level.contains("remote");
        let modified = snoop.contains("hitm") || snoop.contains("peer");
        let memory = level.contains("ram") || level.contains("pmem") || level.contains("cxl");
        match () {
            () if modified && remote => Found::RemoteModified,
            () if modified => Found::LocalModified,
            () if memory && remote => Found::RemoteMemory,
            () if memory => Found::LocalMemory,
            () if remote => Found::RemoteCache,
            () if level.contains("l1") || level.contains("l2") || level.contains("lfb") || level.contains("mhb") => {
                Found::Core
            }
            () if level.contains("l3") || level.contains("l4") || level.contains("any cache") => Found::LocalCache,
            () => Found::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTEL: &str = "        postgres 286004/286004 [012]  1234.567890: cpu/mem-loads,ldlat=30/P:     7ffd9212ea98        10668100842 \
        |OP LOAD|LVL Remote Any cache hit|SNP HitM|TLB L1 or L2 hit|LCK No|BLK  N/A      3928     55d5aaec2f00 BufferGetBlockNumber 1007ee4a98";

    #[test]
    fn a_line_of_intel_is_read() {
        let access = parse_sample(INTEL).unwrap().unwrap();
        assert_eq!((access.command.as_str(), access.pid, access.cpu), ("postgres", 286_004, 12));
        assert_eq!(access.what, What::Load(Found::RemoteModified));
        assert_eq!((access.address, access.physical), (0x7ffd_9212_ea98, 0x10_07ee_4a98));
        assert_eq!((access.latency_cycles, access.instruction), (3928, 0x55d5_aaec_2f00));
        assert_eq!(access.function, "BufferGetBlockNumber");
    }

    #[test]
    fn symbols_of_code_and_data_are_read() {
        let line = "p 1/1 [0] 1.0: cpu/mem-loads/: 5000 Shared+0x18 (/bin/p)   68100842 |OP LOAD|LVL L3 hit|SNP HitM|TLB N/A|LCK No|BLK N/A \
            30 401136 std::map<int, long>::find+0x2c (/usr/lib/a b.so) 1007ee4a98";
        let access = parse_sample(line).unwrap().unwrap();
        let symbol = |name: &str, offset, file: &str| Some(Symbol { name: name.into(), offset, file: file.into() });
        assert_eq!(access.data, symbol("Shared", 0x18, "/bin/p"));
        assert_eq!(access.code, symbol("std::map<int, long>::find", 0x2c, "/usr/lib/a b.so"));
        assert_eq!((access.function.as_str(), access.physical), ("std::map<int, long>::find", 0x10_07ee_4a98));
        // With call graphs the instruction, and then the physical address, are on lines of their own.
        let text = "p 1/1 [0] 1.0: cpu/mem-loads/: 5018 [unknown] (//anon)  1 |OP LOAD|LVL L3 hit|SNP HitM|TLB N/A|LCK No|BLK  N/A  30\n\
            \t    401136 take+0x4 (/bin/p)\n\t    401200 main+0x9 (/bin/p)\n      1007ee4a98\n";
        let access = &read(text.as_bytes(), Path::new("x")).unwrap()[0];
        assert_eq!((access.instruction, access.physical, access.latency_cycles), (0x40_1136, 0x10_07ee_4a98, 30));
        assert_eq!((access.code.clone(), access.data.clone()), (symbol("take", 4, "/bin/p"), None));
        assert_eq!(access.callers, ["main"]);
    }

    #[test]
    fn words_of_each_vendor_mean_the_same() {
        let found = |level, snoop| Words { operation: "LOAD", level, snoop }.found();
        assert_eq!(found("L3 hit", "HitM"), Found::LocalModified);
        assert_eq!(found("Remote Cache (1 hop) hit", "HitM"), Found::RemoteModified);
        assert_eq!(found("Remote core, same node Any cache hit", "N/A"), Found::RemoteCache);
        assert_eq!(found("L1 hit", "None"), Found::Core);
        assert_eq!(found("LFB/MAB hit", "None"), Found::Core);
        assert_eq!(found("Local RAM hit", "None"), Found::LocalMemory);
        assert_eq!(found("Remote RAM (1 hop) hit", "None"), Found::RemoteMemory);
        // Arm: a peer supplied it.
        assert_eq!(found("L3 hit", "Peer"), Found::LocalModified);
        assert_eq!(found("N/A", "N/A"), Found::Unknown);
    }

    #[test]
    fn other_events_are_passed_over_and_nonsense_is_refused() {
        let other = "postgres 1/1 [000] 1.0: cycles:P: 55d5aaec2f00 PinBuffer";
        assert_eq!(parse_sample(other), Ok(None));
        for line in [
            "",
            "postgres",
            "postgres 1/1 0 1.0: mem-loads: 1",
            "postgres 1/1 [0] x: mem-loads: 1",
            "postgres 1/1 [0] 1.0: mem-loads: zz |OP LOAD",
        ] {
            assert!(parse_sample(line).is_err(), "{line}");
        }
        let empty = read("# a comment\n".as_bytes(), Path::new("x"));
        assert!(empty.unwrap_err().to_string().contains("perf script -F"));
    }

    proptest! {
        #[test]
        fn damage_is_safe(at in 0usize..400, byte: u8, cut in 0usize..400) {
            let mut bytes = INTEL.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut % bytes.len());
            let _ = read(&bytes[..], Path::new("x"));
        }
    }
}

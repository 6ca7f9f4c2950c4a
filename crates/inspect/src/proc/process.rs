//! Which processes are there, and which belong together?

use std::fs;
use std::path::Path;

/// One process, as far as this user may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// The name that the kernel keeps (at most 15 bytes).
    pub name: String,
    /// Name of its program file without folders; empty if it may not be seen.
    pub program: String,
    /// When it started, in clock ticks after the machine did: with the number, it names a process for ever.
    pub started_ticks: u64,
    /// What it was started with, or what it calls itself since.
    pub command_line: String,
}

/// All processes, ascending by number. Those that end meanwhile are left out.
pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut all: Vec<Process> = pids.filter_map(process).collect();
    all.sort_unstable_by_key(|process| process.pid);
    all
}

/// Whether this process has a capability in force, by its number (include/uapi/linux/capability.h; 23 is CAP_SYS_NICE).
pub fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> number & 1 == 1)
}

/// Seconds of CPU time that a process has used, in its own code and in the kernel; `None` if it isn't there.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_cpu_ticks(&String::from_utf8_lossy(&stat)).map(|ticks| ticks as f64 / TICKS_A_SECOND)
}

/// What the kernel counts times in for user programs: USER_HZ, which is 100 on every machine (include/asm-generic/param.h).
const TICKS_A_SECOND: f64 = 100.0;

/// Fields 14 and 15 of proc_pid_stat(5).
fn parse_cpu_ticks(text: &str) -> Option<u64> {
    let mut rest = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let user: u64 = rest.nth(11)?.parse().ok()?;
    let system: u64 = rest.next()?.parse().ok()?;
    user.checked_add(system)
}

/// One process; `None` if it isn't there.
fn process(pid: u32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (name, parent, started_ticks) = parse_stat(&String::from_utf8_lossy(&stat))?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = program.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    // A program whose file was replaced (an upgrade) is still that program.
    let program = program.unwrap_or_default().trim_end_matches(" (deleted)").to_owned();
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ").trim().to_owned();
    Some(Process { pid, parent, name, program, started_ticks, command_line })
}

/// Name, parent and start out of `stat` (fields 2, 4 and 22 of proc_pid_stat(5)). The name is in parentheses and may hold any byte, parentheses too: the last one ends it.
fn parse_stat(text: &str) -> Option<(String, u32, u64)> {
    let open = text.find('(')?;
    let close = text.rfind(')').filter(|close| *close > open)?;
    let mut rest = text[close + 1..].split_ascii_whitespace();
    let parent = rest.nth(1)?.parse().ok()?;
    let started = rest.nth(17)?.parse().ok()?;
    Some((text[open + 1..close].to_owned(), parent, started))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn we_are_among_the_processes() {
        let all = processes();
        let this = all.iter().find(|process| process.pid == std::process::id()).unwrap();
        assert!(this.program.starts_with("homenode_inspect"), "{this:?}");
        assert!(this.parent > 0);
    }

    #[test]
    fn names_with_parentheses_are_read() {
        assert_eq!(
            parse_stat("12 (a) b (c)) S 7 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 4711 0"),
            Some(("a) b (c)".to_owned(), 7, 4711))
        );
        assert_eq!(parse_cpu_ticks("12 (a) b (c)) S 7 1 2 3 4 5 6 7 8 9 10 11 12 13 14"), Some(21));
        assert!(cpu_seconds(std::process::id()).is_some());
        assert_eq!(parse_stat("12 )x( S 7"), None);
        assert_eq!(parse_stat("12 (x) S"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[0-9a-zA-Z() ]{0,40}") {
            let _ = parse_stat(&text);
            let _ = parse_cpu_ticks(&text);
        }
    }
}

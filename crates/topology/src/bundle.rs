//! How is a machine's copy kept as one text? `path: content` lines, with files of equal content written once.
//!
//! ```text
//! # a comment
//! sys/devices/system/node/online: 0-1
//! sys/devices/system/cpu/cpu{0-3,8}/topology/physical_package_id: 0
//! proc/meminfo:
//! | MemTotal:       32614508 kB
//! | MemFree:        12023916 kB
//! ```
//!
//! A list in braces stands for one file per number, all with the same content. Every file's last line ends with a line feed.

use std::collections::BTreeMap;

use crate::{Capture, TopologyError, format_list, parse_list};

/// Files in one bundle, so that a few braces cannot ask for all memory. The largest Linux would show about 60,000.
const FILES_MAX: usize = 200_000;

const CPU_PREFIX: &str = "sys/devices/system/cpu/cpu";

impl Capture {
    /// Reads the text form of a machine.
    pub fn from_bundle(text: &str) -> Result<Capture, TopologyError> {
        let mut capture = Capture::default();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let error = |why| TopologyError::Bundle { line: index + 1, why };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, rest) = line.split_once(':').ok_or(error("a line is `path: content`, or a comment after #"))?;
            let mut content = String::new();
            if !rest.trim().is_empty() {
                content = format!("{}\n", rest.trim());
            }
            while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with('|')) {
                let more = &more[1..];
                content.push_str(more.strip_prefix(' ').unwrap_or(more));
                content.push('\n');
            }
            for path in expand(path.trim()).ok_or(error("the braces hold no list of numbers"))? {
                if capture.len() >= FILES_MAX {
                    return Err(error("more files than any machine has"));
                }
                if !capture.insert(&path, &content) {
                    return Err(error("the path is not a plain relative one"));
                }
            }
        }
        Ok(capture)
    }

    /// Writes the text form; `note` (who wrote it from what) becomes the comment at its head.
    pub fn to_bundle(&self, note: &str) -> String {
        let mut text: String = note.lines().map(|line| format!("# {line}\n")).collect();
        // Files of all CPUs are grouped by what follows the number, then by content.
        let mut of_cpus: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (path, content) in self.files() {
            match cpu_file(path) {
                Some((cpu, rest)) => of_cpus.entry((rest, content)).or_default().push(cpu),
                None => write_file(&mut text, path, content),
            }
        }
        for ((rest, content), mut cpus) in of_cpus {
            cpus.sort_unstable();
            let path = match cpus[..] {
                [one] => format!("{CPU_PREFIX}{one}{rest}"),
                _ => format!("{CPU_PREFIX}{{{}}}{rest}", format_list(&cpus)),
            };
            write_file(&mut text, &path, content);
        }
        text
    }
}

fn expand(path: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = path.split_once('{') else {
        return Some(vec![path.to_owned()]);
    };
    let (list, after) = rest.split_once('}')?;
    Some(parse_list(list)?.into_iter().map(|number| format!("{before}{number}{after}")).collect())
}

/// Splits the path of a CPU's file into the CPU's number and what follows it.
fn cpu_file(path: &str) -> Option<(usize, &str)> {
    let rest = path.strip_prefix(CPU_PREFIX)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number: usize = rest[..digits].parse().ok()?;
    let canonical = number.to_string().len() == digits && rest[digits..].starts_with('/') && number < 65_536;
    canonical.then_some((number, &rest[digits..]))
}

fn write_file(text: &mut String, path: &str, content: &str) {
    let mut lines = content.lines();
    match (lines.next(), lines.next()) {
        (None, _) => text.push_str(&format!("{path}:\n")),
        (Some(only), None) if only == only.trim() && !only.is_empty() => text.push_str(&format!("{path}: {only}\n")),
        _ => {
            text.push_str(&format!("{path}:\n"));
            content.lines().for_each(|line| text.push_str(&format!("| {line}\n")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_many_files() {
        let capture = Capture::from_bundle("# who\n\na/cpu{0-1,3}/b: 7\nm:\n| x: 1\n| y: 2\nempty:\n").unwrap();
        assert_eq!(capture.get("a/cpu3/b"), Some("7\n"));
        assert_eq!(capture.get("a/cpu2/b"), None);
        assert_eq!(capture.get("m"), Some("x: 1\ny: 2\n"));
        assert_eq!(capture.get("empty"), Some(""));
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, line) in
            [("x", 1), ("a: 1\n../b: 2", 2), ("a{: 1", 1), ("a{x}: 1", 1), ("| stray", 1), ("\n/abs: 1", 2)]
        {
            match Capture::from_bundle(text) {
                Err(TopologyError::Bundle { line: at, .. }) => assert_eq!(at, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_running_machine_survives_its_text_form() {
        let live = Capture::from_root(std::path::Path::new("/"));
        let again = Capture::from_bundle(&live.to_bundle("the machine of the test")).unwrap();
        assert!(live.files().eq(again.files()));
    }
}

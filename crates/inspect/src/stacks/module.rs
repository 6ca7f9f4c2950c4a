//! Which files is a process's code from, and how are their frames unwound? The unwind tables of each mapped program file.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module};
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

use crate::proc::Mapping;

type Bytes = Arc<[u8]>;

/// The parts of a program file that unwinding needs, kept once for all processes that map it.
#[derive(Clone, Debug)]
struct Tables {
    text: Option<(Range<u64>, Bytes)>,
    eh_frame: Option<(Range<u64>, Bytes)>,
    eh_frame_hdr: Option<(Range<u64>, Bytes)>,
    got: Option<Range<u64>>,
    /// Of each loaded segment that is code: offset in the file and address in the object's own numbering.
    code: Vec<(u64, u64)>,
}

/// Program files by path, read once.
#[derive(Debug, Default)]
pub(super) struct Files {
    known: HashMap<PathBuf, Option<Tables>>,
}

impl Files {
    /// The module for a mapping of code; `None` if its file can't be read (or isn't ELF): its frames end a stack.
    pub(super) fn module(&mut self, path: &PathBuf, mapping: &Mapping) -> Option<Module<Bytes>> {
        let tables = self.known.entry(path.clone()).or_insert_with(|| read(path)).as_ref()?;
        // Where the object's address 0 is: by the segment that this mapping begins in.
        let (offset, address) = tables.code.iter().rev().find(|(offset, _)| *offset <= mapping.offset)?;
        let own_start = address.checked_add(mapping.offset - offset)?;
        let base = mapping.start.checked_sub(own_start)?;
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: tables.text.as_ref().map(|(range, _)| range.clone()),
            text: tables.text.as_ref().map(|(_, bytes)| bytes.clone()),
            eh_frame_svma: tables.eh_frame.as_ref().map(|(range, _)| range.clone()),
            eh_frame: tables.eh_frame.as_ref().map(|(_, bytes)| bytes.clone()),
            eh_frame_hdr_svma: tables.eh_frame_hdr.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: tables.eh_frame_hdr.as_ref().map(|(_, bytes)| bytes.clone()),
            got_svma: tables.got.clone(),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(mapping.name.clone(), mapping.start..mapping.end, base, info))
    }
}

fn read(path: &PathBuf) -> Option<Tables> {
    tables(&fs::read(path).ok()?)
}

fn tables(bytes: &[u8]) -> Option<Tables> {
    let file = object::File::parse(bytes).ok()?;
    let section = |name: &str| {
        let section = file.section_by_name(name)?;
        let range = section.address()..section.address().checked_add(section.size())?;
        Some((range, Bytes::from(section.data().ok()?)))
    };
    let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0);
    let code = file.segments().filter(|segment| is_code(segment.flags()));
    Some(Tables {
        text: section(".text"),
        eh_frame: section(".eh_frame"),
        eh_frame_hdr: section(".eh_frame_hdr"),
        got: section(".got").map(|(range, _)| range),
        // The kernel maps whole pages: a segment's mapping begins at the page that it begins in.
        code: code.map(|segment| (segment.file_range().0 & !4095, segment.address() & !4095)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_damaged_program_file_is_safe(damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..40)) {
            // The head of a real one; the sections that its table names lie behind the end.
            let mut bytes = fs::read("/proc/self/exe").unwrap_or_default();
            bytes.truncate(1 << 16);
            for (at, byte) in damage {
                let at = usize::from(at) % bytes.len().max(1);
                if let Some(there) = bytes.get_mut(at) {
                    *there = byte;
                }
            }
            let _ = tables(&bytes);
        }
    }
}

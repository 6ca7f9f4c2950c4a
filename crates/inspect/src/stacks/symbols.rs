//! What is a frame called? Symbols and inlined functions out of the program files and their debug information.

use std::collections::{BTreeSet, HashMap};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::{Frame, Profile};

/// Names of each frame of a profile: the inlined functions innermost first, then the function itself.
pub fn names(profile: &Profile) -> HashMap<Frame, Vec<String>> {
    let frames: BTreeSet<Frame> =
        profile.running.keys().chain(profile.waiting.keys()).flat_map(|stack| stack.iter().copied()).collect();
    let mut names = HashMap::new();
    let symbolizer = Symbolizer::new();
    for (index, file) in profile.files.iter().enumerate() {
        let here: Vec<Frame> = frames.iter().filter(|frame| frame.file == Some(index)).copied().collect();
        let offsets: Vec<u64> = here.iter().map(|frame| frame.at).collect();
        let title = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let source = Source::Elf(Elf::new(file));
        // A file that is gone or damaged has no names: its frames are shown by place.
        let symbols = symbolizer.symbolize(&source, Input::FileOffset(&offsets)).unwrap_or_default();
        let mut symbols = symbols.into_iter();
        for frame in here {
            let found = match symbols.next() {
                Some(Symbolized::Sym(symbol)) => {
                    let inlined = symbol.inlined.iter().rev().map(|inlined| format!("{} (inlined)", inlined.name));
                    inlined.chain([symbol.name.to_string()]).collect()
                }
                _ => vec![format!("{title}+{:#x}", frame.at)],
            };
            names.insert(frame, found);
        }
    }
    for frame in frames.into_iter().filter(|frame| frame.file.is_none()) {
        names.insert(frame, vec![format!("{:#x}", frame.at)]);
    }
    names
}

//! Which field is it? The `struct.field` of an access, from the debug information of the program that made it.
//!
//! Two ways: the data is a variable that perf names with an offset, whose type has the field there; or the instruction goes through a
//! register in which, by the location lists, a pointer to a structure is at that moment, and its displacement is the field's
//! offset (as perf's own data-type profiling does since Linux 6.8). Where neither leads to one field there is none; nothing is
//! guessed. Debug information is looked for in the program and by build ID below `/usr/lib/debug`, as distributions put it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, Operation, RunTimeEndian, UnitOffset};
use object::{Architecture, CompressionFormat, Object, ObjectSection, ObjectSymbol};

use super::decode::{Operand, aarch64, x86_64};
use super::{Access, Symbol};

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;

/// What is asked of one program: whether it is data, the symbol, the offset; and the field, once it is known.
type Wanted = BTreeMap<(bool, String, u64), Option<String>>;

/// Types within types are followed so far.
const DEPTH: u32 = 24;

/// Names the fields of the accesses that have none yet, as far as the programs' debug information is on this machine.
pub fn name_fields(accesses: &mut [Access]) {
    let mut by_program: BTreeMap<String, Wanted> = BTreeMap::new();
    for access in accesses.iter().filter(|access| access.field.is_none()) {
        for (is_data, symbol) in symbols(access) {
            let key = (is_data, symbol.name.clone(), symbol.offset);
            by_program.entry(symbol.file.clone()).or_default().insert(key, None);
        }
    }
    for (file, wanted) in &mut by_program {
        // A program that isn't here, or has no debug information, names nothing.
        let _ = Program::read(Path::new(file)).and_then(|program| program.name(wanted));
    }
    for access in accesses.iter_mut().filter(|access| access.field.is_none()) {
        let found = symbols(access).find_map(|(is_data, symbol)| {
            by_program.get(&symbol.file)?.get(&(is_data, symbol.name.clone(), symbol.offset))?.clone()
        });
        access.field = found;
    }
}

/// What an access could be named by: the data's own symbol first.
fn symbols(access: &Access) -> impl Iterator<Item = (bool, &Symbol)> {
    let data = access.data.iter().map(|symbol| (true, symbol));
    data.chain(access.code.iter().map(|symbol| (false, symbol))).filter(|(_, symbol)| symbol.file.starts_with('/'))
}

/// A program's code and debug information.
struct Program {
    bytes: Vec<u8>,
    /// The file with debug information, if that is another one.
    debug: Option<Vec<u8>>,
}

impl Program {
    fn read(path: &Path) -> Option<Program> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&bytes[..]).ok()?;
        let debug = match file.section_by_name(".debug_info") {
            Some(_) => None,
            None => Some(fs::read(debug_file(file.build_id().ok()??)?).ok()?),
        };
        Some(Program { bytes, debug })
    }

    /// Fills in what can be named.
    fn name(&self, wanted: &mut Wanted) -> Option<()> {
        let code = object::File::parse(&self.bytes[..]).ok()?;
        let debug = object::File::parse(self.debug.as_deref().unwrap_or(&self.bytes)).ok()?;
        let functions = addresses(&code).into_iter().chain(addresses(&debug)).collect::<BTreeMap<_, _>>();
        let sections = gimli::DwarfSections::load(|id| Ok::<_, gimli::Error>(section(&debug, id.name()))).ok()?;
        let endian = if debug.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, endian));
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = dwarf.unit(header) else { continue };
            let look = Look { dwarf: &dwarf, unit: &unit };
            for ((is_data, name, offset), found) in wanted.iter_mut().filter(|(_, found)| found.is_none()) {
                *found = if *is_data {
                    look.variable(name, *offset)
                } else {
                    functions.get(name).and_then(|start| {
                        let address = start.checked_add(*offset)?;
                        look.in_unit(address).then(|| look.access(address, operand(&code, address)?)).flatten()
                    })
                };
            }
        }
        Some(())
    }
}

/// `/usr/lib/debug/.build-id/ab/cdef....debug`.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")))
}

/// Addresses of the functions, in the program's own numbering.
fn addresses(file: &object::File<'_>) -> BTreeMap<String, u64> {
    let functions =
        file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    functions.filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address()))).collect()
}

/// A section's bytes; compressed ones are unpacked.
fn section(file: &object::File<'_>, name: &str) -> Vec<u8> {
    /// More than any program's debug information: what claims to be larger is damaged.
    const UNPACKED_MAX: u64 = 8 << 30;
    let data = file.section_by_name(name).and_then(|section| section.compressed_data().ok());
    match data {
        Some(data) if data.format == CompressionFormat::None => data.data.to_vec(),
        Some(data) if data.format == CompressionFormat::Zlib && data.uncompressed_size <= UNPACKED_MAX => {
            let mut bytes = Vec::new();
            let unpacked =
                flate2::read::ZlibDecoder::new(data.data).take(data.uncompressed_size).read_to_end(&mut bytes);
            unpacked.map_or(Vec::new(), |_| bytes)
        }
        _ => Vec::new(),
    }
}

/// The memory operand of the instruction at an address.
fn operand(file: &object::File<'_>, address: u64) -> Option<Operand> {
    let section = file.sections().find(|s| (s.address()..s.address() + s.size()).contains(&address))?;
    let bytes = section.data_range(address, (section.address() + section.size() - address).min(15)).ok()??;
    match file.architecture() {
        Architecture::X86_64 => x86_64(bytes),
        Architecture::Aarch64 => aarch64(bytes),
        _ => None,
    }
}

/// Looks into one unit.
struct Look<'a, 'b> {
    dwarf: &'b gimli::Dwarf<Slice<'a>>,
    unit: &'b Unit<'a>,
}

impl<'a> Look<'a, '_> {
    fn in_unit(&self, address: u64) -> bool {
        let Ok(mut ranges) = self.dwarf.unit_ranges(self.unit) else { return false };
        while let Ok(Some(range)) = ranges.next() {
            if range.begin <= address && address < range.end {
                return true;
            }
        }
        false
    }

    fn contains(&self, entry: &Entry<'a>, address: u64) -> bool {
        let Ok(mut ranges) = self.dwarf.die_ranges(self.unit, entry) else { return false };
        while let Ok(Some(range)) = ranges.next() {
            if range.begin <= address && address < range.end {
                return true;
            }
        }
        false
    }

    fn name(&self, entry: &Entry<'a>) -> Option<String> {
        let value = entry.attr_value(gimli::DW_AT_name)?;
        Some(self.dwarf.attr_string(self.unit, value).ok()?.to_string_lossy().into_owned())
    }

    fn entry(&self, offset: UnitOffset) -> Option<Entry<'a>> {
        self.unit.header.entry(&self.unit.abbreviations, offset).ok()
    }

    /// What an attribute refers to, in this unit.
    fn reference(&self, entry: &Entry<'a>, name: gimli::DwAt) -> Option<UnitOffset> {
        match entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => Some(offset),
            AttributeValue::DebugInfoRef(offset) => offset.to_unit_offset(&self.unit.header),
            _ => None,
        }
    }

    /// An entry's type, its own or of what it is a copy of (inlined functions).
    fn type_of(&self, entry: &Entry<'a>) -> Option<UnitOffset> {
        self.reference(entry, gimli::DW_AT_type).or_else(|| {
            let origin = self.entry(self.reference(entry, gimli::DW_AT_abstract_origin)?)?;
            self.reference(&origin, gimli::DW_AT_type)
        })
    }

    /// The field of a variable of the whole program at an offset in it.
    fn variable(&self, name: &str, offset: u64) -> Option<String> {
        let mut entries = self.unit.header.entries(&self.unit.abbreviations);
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_variable || self.name(entry).as_deref() != Some(name) {
                continue;
            }
            let mut path = name.to_owned();
            self.descend(self.type_of(entry)?, offset, &mut path, DEPTH)?;
            return Some(path);
        }
        None
    }

    /// The field that the instruction at an address accesses through a pointer in a register.
    fn access(&self, address: u64, operand: Operand) -> Option<String> {
        let mut entries = self.unit.header.entries(&self.unit.abbreviations);
        // Blocks that don't contain the address are passed over with all that is in them.
        let mut skipped: Option<isize> = None;
        let mut found = None;
        while let Ok(Some(entry)) = entries.next_dfs() {
            if skipped.is_some_and(|depth| entry.depth() > depth) {
                continue;
            }
            skipped = None;
            match entry.tag() {
                // An entry without ranges may still hold blocks that have some (DWARF 5, 3.5): not followed.
                gimli::DW_TAG_subprogram | gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine
                    if !self.contains(entry, address) =>
                {
                    skipped = Some(entry.depth());
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                    let offset = self
                        .pointer_offset(entry, address, operand.base)
                        .and_then(|before| before.checked_add(operand.displacement));
                    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
                    // The innermost block that says something wins.
                    if let Some(field) = offset.and_then(|offset| self.pointee_field(entry, offset)) {
                        found = Some(field);
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// What has to be added to a variable's value to get what is in the register; `None` if it isn't there at that address.
    fn pointer_offset(&self, entry: &Entry<'a>, address: u64, register: u16) -> Option<i64> {
        let location = entry.attr_value(gimli::DW_AT_location)?;
        let expression = match location {
            AttributeValue::Exprloc(expression) => expression,
            other => {
                let mut list = self.dwarf.attr_locations(self.unit, other).ok()??;
                loop {
                    let part = list.next().ok()??;
                    if part.range.begin <= address && address < part.range.end {
                        break part.data;
                    }
                }
            }
        };
        let mut operations = expression.operations(self.unit.encoding());
        let first = operations.next().ok()??;
        let second = operations.next().ok()?;
        match (first, second) {
            (Operation::Register { register: at }, None) => (at.0 == register).then_some(0),
            // The variable is the register plus something: the register is the variable less that.
            (Operation::RegisterOffset { register: at, offset, .. }, Some(Operation::StackValue)) => {
                (at.0 == register && operations.next().ok()?.is_none()).then(|| offset.checked_neg()).flatten()
            }
            _ => None,
        }
    }

    /// The field at an offset of what a pointer points to.
    fn pointee_field(&self, variable: &Entry<'a>, offset: u64) -> Option<String> {
        let mut at = self.type_of(variable)?;
        for _ in 0..DEPTH {
            let entry = self.entry(at)?;
            match entry.tag() {
                gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                    let pointee = self.reference(&entry, gimli::DW_AT_type)?;
                    let mut path = self.structure_name(pointee)?;
                    // Elements of an array that is pointed to are alike.
                    let offset =
                        self.size(pointee, DEPTH).filter(|bytes| *bytes > 0).map_or(offset, |bytes| offset % bytes);
                    self.descend(pointee, offset, &mut path, DEPTH)?;
                    return Some(path);
                }
                tag if is_alias(tag) => at = self.reference(&entry, gimli::DW_AT_type)?,
                _ => return None,
            }
        }
        None
    }

    /// A structure's name, or that of the alias by which it is known; `None` for anything else.
    fn structure_name(&self, mut at: UnitOffset) -> Option<String> {
        let mut alias = None;
        for _ in 0..DEPTH {
            let entry = self.entry(at)?;
            match entry.tag() {
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                    return self.name(&entry).or(alias);
                }
                tag if is_alias(tag) => {
                    alias = alias.or_else(|| self.name(&entry));
                    at = self.reference(&entry, gimli::DW_AT_type)?;
                }
                _ => return None,
            }
        }
        None
    }

    /// Adds `.member` and `[]` down to what lies at the offset; `None` if nothing does.
    fn descend(&self, at: UnitOffset, offset: u64, path: &mut String, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let entry = self.entry(at)?;
        match entry.tag() {
            tag if is_alias(tag) => self.descend(self.reference(&entry, gimli::DW_AT_type)?, offset, path, depth),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let (name, inner, rest) = self.member(at, offset, depth)?;
                if let Some(name) = name {
                    path.push('.');
                    path.push_str(&name);
                }
                self.descend(inner, rest, path, depth)
            }
            gimli::DW_TAG_array_type => {
                let element = self.reference(&entry, gimli::DW_AT_type)?;
                let bytes = self.size(element, depth).filter(|bytes| *bytes > 0)?;
                // An array without a length (a structure's last member) goes on as far as it is used.
                if self.elements(at).is_some_and(|count| offset / bytes >= count) {
                    return None;
                }
                path.push_str(&format!("[{}]", offset / bytes));
                self.descend(element, offset % bytes, path, depth)
            }
            _ => (offset < self.size(at, depth).unwrap_or(0)).then_some(()),
        }
    }

    /// The member of a structure that holds the offset: its name (none if it has none), its type, and the offset in it.
    fn member(&self, structure: UnitOffset, offset: u64, depth: u32) -> Option<(Option<String>, UnitOffset, u64)> {
        let mut tree = self.unit.header.entries_tree(&self.unit.abbreviations, Some(structure)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let member = child.entry();
            if !matches!(member.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance) {
                continue;
            }
            let Some(inner) = self.reference(member, gimli::DW_AT_type) else { continue };
            let begin = match member.attr_value(gimli::DW_AT_data_member_location) {
                Some(value) => value.udata_value(),
                // Bit fields say bits; members of unions nothing.
                None => member
                    .attr_value(gimli::DW_AT_data_bit_offset)
                    .map_or(Some(0), |bits| Some(bits.udata_value()? / 8)),
            };
            let Some(rest) = begin.and_then(|begin| offset.checked_sub(begin)) else { continue };
            if rest < self.size(inner, depth).unwrap_or(0) {
                return Some((self.name(member), inner, rest));
            }
        }
        None
    }

    fn size(&self, at: UnitOffset, depth: u32) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let entry = self.entry(at)?;
        if let Some(bytes) = entry.attr_value(gimli::DW_AT_byte_size).and_then(|value| value.udata_value()) {
            return Some(bytes);
        }
        match entry.tag() {
            tag if is_alias(tag) => self.size(self.reference(&entry, gimli::DW_AT_type)?, depth),
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type => {
                Some(u64::from(self.unit.encoding().address_size))
            }
            gimli::DW_TAG_array_type => {
                let element = self.size(self.reference(&entry, gimli::DW_AT_type)?, depth)?;
                self.elements(at)?.checked_mul(element)
            }
            _ => None,
        }
    }

    /// How many elements an array has, over all its dimensions.
    fn elements(&self, array: UnitOffset) -> Option<u64> {
        let mut tree = self.unit.header.entries_tree(&self.unit.abbreviations, Some(array)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut count = 1u64;
        while let Ok(Some(child)) = children.next() {
            let range = child.entry();
            if range.tag() != gimli::DW_TAG_subrange_type {
                continue;
            }
            let number = |name| range.attr_value(name).and_then(|value: AttributeValue<Slice<'a>>| value.udata_value());
            let own = number(gimli::DW_AT_count).or_else(|| number(gimli::DW_AT_upper_bound)?.checked_add(1));
            count = count.checked_mul(own?)?;
        }
        Some(count)
    }
}

/// Whether a type only gives another one a name or a quality.
fn is_alias(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_restrict_type
    )
}

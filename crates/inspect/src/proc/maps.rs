//! Which address ranges does a process have? `/proc/PID/maps` (Documentation/filesystems/proc.rst), line by line.

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether writes are seen by other mappings of the object (`MAP_SHARED`).
    pub shared: bool,
    /// Where in the object it begins, in bytes.
    pub offset: u64,
    /// Device of the object's file system, major and minor.
    pub device: (u32, u32),
    /// The object's inode; 0 for private anonymous memory.
    pub inode: u64,
    /// What the kernel calls it: a path, `[heap]`, or nothing.
    pub name: String,
}

impl Mapping {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Reads one line, without its line feed.
///
/// # Errors
/// What of it is not known.
pub fn parse_maps_line(line: &str) -> Result<Mapping, &'static str> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (start, end) = word().split_once('-').ok_or("it doesn't begin with a range")?;
    let (start, end) = (hex(start)?, hex(end)?);
    if start > end {
        return Err("the range ends before it begins");
    }
    let permissions = word().as_bytes();
    let &[read, write, execute, sharing] = permissions else {
        return Err("the permissions are not four letters");
    };
    let known = matches!((read, write, execute), (b'r' | b'-', b'w' | b'-', b'x' | b'-'));
    if !known || !matches!(sharing, b's' | b'p') {
        return Err("the permissions are not understood");
    }
    let offset = hex(word())?;
    let (major, minor) = word().split_once(':').ok_or("the device is not two numbers")?;
    let device = (hex32(major)?, hex32(minor)?);
    let inode = word().parse().map_err(|_| "the inode is not a number")?;
    Ok(Mapping {
        start,
        end,
        writable: write == b'w',
        executable: execute == b'x',
        shared: sharing == b's',
        offset,
        device,
        inode,
        name: rest.trim_start_matches(' ').to_owned(),
    })
}

fn hex(text: &str) -> Result<u64, &'static str> {
    // from_str_radix would take a sign.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("a number is not hexadecimal");
    }
    u64::from_str_radix(text, 16).map_err(|_| "a number is not hexadecimal")
}

fn hex32(text: &str) -> Result<u32, &'static str> {
    u32::try_from(hex(text)?).map_err(|_| "a device number is too large")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "7f57406c7000-7f5742ced000 rw-s 00001000 00:01 1027                       /dev/zero (deleted)";
        let mapping = parse_maps_line(line).unwrap();
        assert_eq!((mapping.start, mapping.bytes()), (0x7f57_406c_7000, 0x262_6000));
        assert!(mapping.shared && mapping.writable && !mapping.executable);
        assert_eq!((mapping.device, mapping.inode, mapping.offset), ((0, 1), 1027, 4096));
        assert_eq!(mapping.name, "/dev/zero (deleted)");
        assert_eq!(parse_maps_line("00400000-00401000 ---p 00000000 00:00 0 ").unwrap().name, "");
    }

    #[test]
    fn other_forms_are_refused() {
        for line in [
            "",
            "x",
            "2-1 r--p 0 00:00 0",
            "1-2 r--q 0 00:00 0",
            "1-2 r--p",
            "1-2 r--p 0 0 0",
            "+1-2 r--p 0 00:00 0",
            "1-2 r--p 0 00:00 x",
            "1-2 r--p 0 00:fffffffff 1",
        ] {
            assert!(parse_maps_line(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_safe(line in "[0-9a-f \\-:rwxsp/]{0,60}") {
            if let Ok(mapping) = parse_maps_line(&line) {
                prop_assert!(mapping.start <= mapping.end);
            }
        }

        #[test]
        fn what_is_written_is_read(start in 0u64..1 << 47, bytes in 0u64..1 << 46, inode: u64, shared: bool, name in "[a-z/ ]{0,20}") {
            let name = name.trim();
            let sharing = if shared { 's' } else { 'p' };
            let line = format!("{start:08x}-{:08x} rw-{sharing} 00000000 fd:01 {inode} {name}", start + bytes);
            let mapping = parse_maps_line(&line).unwrap();
            prop_assert_eq!((mapping.start, mapping.bytes(), mapping.inode), (start, bytes, inode));
            prop_assert_eq!((mapping.shared, mapping.name.as_str()), (shared, name));
        }
    }
}

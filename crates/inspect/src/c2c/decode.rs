//! Which memory does an instruction name? Base register and displacement of its memory operand, out of its bytes.
//!
//! x86-64 (Intel SDM, volume 2, chapter 2: instruction format) and AArch64 (Arm ARM, C4.1: loads and stores). Only as much as is needed to
//! know where in an object an access goes; what is not understood is `None`, never a guess.

/// A memory operand: `displacement(base)`, perhaps with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The base register, by its DWARF number.
    pub base: u16,
    /// Added to it, in bytes.
    pub displacement: i64,
}

/// DWARF numbers of the x86-64 registers in the order in which instructions number them (System V ABI, figure 3.36).
const X86: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The memory operand of the x86-64 instruction at the head of the bytes.
pub fn x86_64(bytes: &[u8]) -> Option<Operand> {
    let mut rest = bytes;
    let mut rex = 0;
    loop {
        let (byte, after) = rest.split_first()?;
        match byte {
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 => rest = after,
            0x40..=0x4f => {
                (rex, rest) = (*byte, after);
                break;
            }
            _ => break,
        }
    }
    let (opcode, mut rest) = rest.split_first()?;
    match opcode {
        0x0f => {
            let (second, after) = rest.split_first()?;
            rest = match second {
                0x38 | 0x3a => after.get(1..)?,
                // Jumps, system calls, CPUID and the like have no memory operand in their form.
                0x05..=0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0x80..=0x8f | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => {
                    return None;
                }
                _ => after,
            };
        }
        // VEX: three bytes carry the extensions of REX, inverted; two bytes only that of the register.
        0xc4 => {
            let (first, after) = rest.split_first()?;
            rex = (!first >> 5) & 7;
            rest = after.get(2..)?;
        }
        0xc5 => rest = rest.get(2..)?,
        0x63
        | 0x69
        | 0x6b
        | 0x80..=0x8f
        | 0xc0
        | 0xc1
        | 0xc6
        | 0xc7
        | 0xd0..=0xd3
        | 0xd8..=0xdf
        | 0xf6
        | 0xf7
        | 0xfe
        | 0xff => {}
        0x00..=0x3f if opcode & 7 < 4 => {}
        _ => return None,
    }
    modrm(rest, rex)
}

fn modrm(bytes: &[u8], rex: u8) -> Option<Operand> {
    let (modrm, mut rest) = bytes.split_first()?;
    let (mode, mut base) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return None;
    }
    // Where only a base and no displacement is said, register 5 means something else.
    let mut has_base = !(mode == 0 && base == 5);
    if base == 4 {
        let (sib, after) = rest.split_first()?;
        (base, rest) = (sib & 7, after);
        has_base = !(mode == 0 && base == 5);
    }
    let displacement = match mode {
        1 => i64::from(*rest.first()? as i8),
        2 => i64::from(i32::from_le_bytes(*rest.first_chunk()?)),
        _ => 0,
    };
    let base = X86[usize::from(base | (rex & 1) << 3)];
    has_base.then_some(Operand { base, displacement })
}

/// The memory operand of the AArch64 instruction at the head of the bytes.
pub fn aarch64(bytes: &[u8]) -> Option<Operand> {
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let base = (word >> 5 & 31) as u16;
    let signed = |value: u32, bits: u32| i64::from((value << (32 - bits)) as i32 >> (32 - bits));
    let size = word >> 30;
    let displacement = match word >> 24 & 0x3f {
        // Load or store of one register, unsigned offset in units of the access; vector registers of 16 bytes have their own size.
        0b11_1001 => i64::from(word >> 10 & 0xfff) << size,
        0b11_1101 => i64::from(word >> 10 & 0xfff) << (size | (word >> 23 & 1) << 2),
        // Unscaled and pre-indexed offsets, register offsets (no constant), atomics of Armv8.1 (no offset).
        0b11_1000 | 0b11_1100 => match (word >> 21 & 1, word >> 10 & 3) {
            (0, 0 | 3) => signed(word >> 12 & 0x1ff, 9),
            (0, _) | (1, 0) => 0,
            _ => return None,
        },
        // Pairs of general registers: offset in units of 4 or 8 bytes; post-indexed ones access the base itself.
        0b10_1001 => signed(word >> 15 & 0x7f, 7) << (2 + (word >> 31)),
        0b10_1000 if word >> 23 & 1 == 1 => 0,
        // Exclusive, acquire and release accesses, compare and swap: the base alone.
        0b00_1000 => 0,
        _ => return None,
    };
    Some(Operand { base, displacement })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(base: u16, displacement: i64) -> Option<Operand> {
        Some(Operand { base, displacement })
    }

    #[test]
    fn x86_operands_are_read() {
        // Encodings as GNU as makes them.
        assert_eq!(x86_64(&[0x48, 0x8b, 0x47, 0x10]), at(5, 0x10), "mov 0x10(%rdi),%rax");
        assert_eq!(x86_64(&[0x8b, 0x06]), at(4, 0), "mov (%rsi),%eax");
        assert_eq!(x86_64(&[0x49, 0x8b, 0x44, 0x24, 0x18]), at(12, 0x18), "mov 0x18(%r12),%rax");
        assert_eq!(x86_64(&[0xf0, 0x41, 0x0f, 0xb1, 0x55, 0x08]), at(13, 8), "lock cmpxchg %edx,0x8(%r13)");
        assert_eq!(x86_64(&[0xf0, 0x0f, 0xc1, 0x83, 0x00, 0x01, 0, 0]), at(3, 0x100), "lock xadd %eax,0x100(%rbx)");
        assert_eq!(x86_64(&[0x48, 0x8b, 0x44, 0xc8, 0xf8]), at(0, -8), "mov -0x8(%rax,%rcx,8),%rax");
        assert_eq!(x86_64(&[0xc5, 0xf9, 0x6f, 0x42, 0x20]), at(1, 0x20), "vmovdqa 0x20(%rdx),%xmm0");
        assert_eq!(x86_64(&[0xc4, 0xc1, 0x7a, 0x6f, 0x40, 0x10]), at(8, 0x10), "vmovdqu 0x10(%r8),%xmm0");
        assert_eq!(x86_64(&[0x48, 0x8b, 0x05, 1, 2, 3, 0]), None, "relative to the instruction");
        assert_eq!(x86_64(&[0x48, 0x89, 0xc3]), None, "mov %rax,%rbx");
        assert_eq!(x86_64(&[0xc3]), None, "ret");
        assert_eq!(x86_64(&[0xe8, 1, 2, 3, 4]), None, "call");
    }

    #[test]
    fn arm_operands_are_read() {
        let of = |word: u32| aarch64(&word.to_le_bytes());
        assert_eq!(of(0xf940_0c20), at(1, 24), "ldr x0, [x1, #24]");
        assert_eq!(of(0xb900_0a62), at(19, 8), "str w2, [x19, #8]");
        assert_eq!(of(0xf85f_8043), at(2, -8), "ldur x3, [x2, #-8]");
        assert_eq!(of(0xa941_0820), at(1, 16), "ldp x0, x2, [x1, #16]");
        assert_eq!(of(0xc85f_fc20), at(1, 0), "ldaxr x0, [x1]");
        assert_eq!(of(0xb8e1_0040), at(2, 0), "ldaddal w1, w0, [x2]");
        assert_eq!(of(0xd65f_03c0), None, "ret");
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = x86_64(&bytes);
            let _ = aarch64(&bytes);
        }
    }
}

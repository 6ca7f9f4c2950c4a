//! What does a record look like?
//!
//! Little-endian, starting at a multiple of 8:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | LSN: the record's own position |
//! | 8 | 4 | bits 0..23 payload length, bit 23 "has a durable mark", bits 24..32 kind |
//! | 12 | 4 | CRC-32C of bytes 8.. with this field as zero, xor [`position_mix`] of LSN and salt |
//! | 16 | 8 | durable mark, only if bit 23 is set: an LSN up to which the log was durable |
//! | 16 or 24 | n | payload |
//! | | 0..7 | zeros up to a multiple of 8 |
//!
//! The LSN is both stored and mixed into the checksum, with the salt of the segment, so that no
//! stale byte of a recycled segment, and no byte of an earlier life of the log that recovery cut
//! off, can pass as a record. It is mixed in last, because it is known only after the reservation:
//! everything else of the checksum is computed before, when nobody waits for it.
//!
//! The durable mark is what lets a reader tell damage from a torn tail: a valid record that says
//! "durable up to D" proves that an invalid one before D had been acknowledged.

use crate::Lsn;

/// Bytes before the payload (and before the mark, if there is one).
pub const HEADER_BYTES: usize = 16;
/// Bytes of the durable mark.
pub const MARK_BYTES: usize = 8;
/// Records start at multiples of this.
pub const ALIGN: usize = 8;
/// The largest payload the format can express.
pub const MAX_PAYLOAD: usize = (1 << 23) - 1;

const MARKED: u32 = 1 << 23;

/// The part of a header that is known before the record's position is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// What the record means to the engine.
    pub kind: u8,
    /// Bytes of payload.
    pub payload: usize,
    /// Whether a durable mark follows the header.
    pub marked: bool,
}

impl Shape {
    /// Bytes 8..12 of the header.
    #[inline]
    pub fn encode(self) -> u32 {
        debug_assert!(self.payload <= MAX_PAYLOAD);
        (u32::from(self.kind) << 24) | if self.marked { MARKED } else { 0 } | (self.payload as u32 & (MARKED - 1))
    }

    /// The inverse of [`Shape::encode`]; every word is some shape.
    #[inline]
    pub fn decode(word: u32) -> Shape {
        Shape { kind: (word >> 24) as u8, payload: (word & (MARKED - 1)) as usize, marked: word & MARKED != 0 }
    }

    /// Bytes of header and mark.
    #[inline]
    pub fn prefix_bytes(self) -> usize {
        HEADER_BYTES + if self.marked { MARK_BYTES } else { 0 }
    }

    /// Bytes of the whole record in the stream, with padding.
    #[inline]
    pub fn total_bytes(self) -> usize {
        (self.prefix_bytes() + self.payload).next_multiple_of(ALIGN)
    }
}

/// What is xored into a record's checksum: 32 bits that depend on every bit of position and salt.
#[inline]
pub fn position_mix(lsn: Lsn, salt: u64) -> u32 {
    // Fibonacci hashing: the high half of the product depends on all bits below it.
    ((lsn ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// The checksum of a record before its position is mixed in.
#[inline]
pub fn checksum(shape: Shape, mark: Lsn, parts: &[&[u8]]) -> u32 {
    let mut head = [0u8; 8 + MARK_BYTES];
    head[..4].copy_from_slice(&shape.encode().to_le_bytes());
    head[8..].copy_from_slice(&mark.to_le_bytes());
    let mut crc = crc32c::crc32c(&head[..shape.prefix_bytes() - 8]);
    for part in parts {
        crc = crc32c::crc32c_append(crc, part);
    }
    let padding = shape.total_bytes() - shape.prefix_bytes() - shape.payload;
    crc32c::crc32c_append(crc, &[0; ALIGN][..padding])
}

/// A small record put together before its position is known: one run of whole words, so that the
/// checksum is one call over aligned bytes, and little is left to do after the reservation.
#[repr(align(8))]
pub(crate) struct Image([u8; Image::BYTES]);

impl Image {
    /// The largest record, header included, that is put together this way.
    pub(crate) const BYTES: usize = 256;

    /// Header without LSN and checksum, mark, payload, padding; and the checksum without its mix.
    #[inline]
    pub(crate) fn new(shape: Shape, mark: Lsn, parts: &[&[u8]]) -> (Image, u32) {
        let mut image = Image([0; Image::BYTES]);
        image.0[8..12].copy_from_slice(&shape.encode().to_le_bytes());
        if shape.marked {
            image.0[HEADER_BYTES..HEADER_BYTES + MARK_BYTES].copy_from_slice(&mark.to_le_bytes());
        }
        let mut at = shape.prefix_bytes();
        for part in parts {
            image.0[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let crc = crc32c::crc32c(&image.0[8..shape.total_bytes()]);
        (image, crc)
    }

    /// Fills in what was not known before; the whole record.
    #[inline]
    pub(crate) fn seal(&mut self, header: Header) -> &[u8] {
        let [first, second] = header.words();
        self.0[..8].copy_from_slice(&first.to_le_bytes());
        self.0[8..HEADER_BYTES].copy_from_slice(&second.to_le_bytes());
        &self.0[..header.shape.total_bytes()]
    }
}

/// A header as read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The position that the record says it has.
    pub lsn: Lsn,
    /// The checksum as stored.
    pub crc: u32,
    /// Kind, length, mark.
    pub shape: Shape,
}

impl Header {
    /// Reads a header; checks nothing.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Header {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Header { lsn: u64::from(word(0)) | u64::from(word(4)) << 32, crc: word(12), shape: Shape::decode(word(8)) }
    }

    /// The two words of the header as they lie in the log.
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        [self.lsn, u64::from(self.shape.encode()) | u64::from(self.crc) << 32]
    }
}

/// Checks a whole record (header, mark, payload, padding) that should lie at `lsn`.
///
/// Returns the header and the mark (0 without one); `None` if it is not a valid record.
pub fn verify(lsn: Lsn, salt: u64, bytes: &[u8]) -> Option<(Header, Lsn)> {
    let header = Header::decode(bytes.first_chunk()?);
    if header.lsn != lsn || bytes.len() < header.shape.total_bytes() {
        return None;
    }
    let word = u64::from(header.shape.encode());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&word.to_le_bytes()), &bytes[16..header.shape.total_bytes()]);
    if crc ^ position_mix(lsn, salt) != header.crc {
        return None;
    }
    let mark = if header.shape.marked { Lsn::from_le_bytes(*bytes[HEADER_BYTES..].first_chunk()?) } else { 0 };
    Some((header, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_survive_encoding() {
        for payload in [0, 1, 100, 1 << 20, MAX_PAYLOAD] {
            for marked in [false, true] {
                let shape = Shape { kind: 0xA5, payload, marked };
                assert_eq!(Shape::decode(shape.encode()), shape);
                assert_eq!(shape.total_bytes() % ALIGN, 0);
            }
        }
    }

    #[test]
    fn an_image_has_the_checksum_of_its_parts() {
        let bytes: Vec<u8> = (0..200).collect();
        for (a, b) in [(0, 0), (1, 2), (8, 13), (100, 100)] {
            for marked in [false, true] {
                let shape = Shape { kind: 3, payload: a + b, marked };
                let parts = [&bytes[..a], &bytes[..b]];
                assert_eq!(Image::new(shape, 99, &parts).1, checksum(shape, 99, &parts));
            }
        }
    }

    #[test]
    fn positions_and_salts_change_the_checksum() {
        let salt = 0x1234_5678_9abc_def0;
        for bit in 3..63 {
            assert_ne!(position_mix(65536, salt), position_mix(65536 ^ (1 << bit), salt), "{bit}");
            assert_ne!(position_mix(65536, salt), position_mix(65536, salt ^ (1 << bit)), "{bit}");
        }
    }
}

//! MD5 (RFC 1321), for `md5()`; not for anything that must be secret.

/// Per-round shift amounts.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest as 32 hex digits.
pub(super) fn hex(data: &[u8]) -> String {
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(data.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        round(&mut state, block);
    }
    state.iter().flat_map(|word| word.to_le_bytes()).map(|b| format!("{b:02x}")).collect()
}

fn round(state: &mut [u32; 4], block: &[u8]) {
    let word = |i: usize| u32::from_le_bytes([block[4 * i], block[4 * i + 1], block[4 * i + 2], block[4 * i + 3]]);
    let [mut a, mut b, mut c, mut d] = *state;
    for i in 0..64 {
        let (mix, at) = match i / 16 {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
            2 => (b ^ c ^ d, (3 * i + 5) % 16),
            _ => (c ^ (b | !d), (7 * i) % 16),
        };
        // The constants are the sines of the step numbers (RFC 1321, section 3.4).
        let constant = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mix).wrapping_add(constant).wrapping_add(word(at));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

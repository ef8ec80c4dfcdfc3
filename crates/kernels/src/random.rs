//! Random words as a function of a counter and a key: the one generator of the workspace.
//!
//! Philox-4x32 with ten rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a keyed
//! bijection of a 128-bit counter. There is no state: any word can be drawn by any thread in any order, and what a draw
//! is for stands in its counter. The rounds are written once more by registers in [`dropout`](crate::dropout), which draws words by the million.

/// Philox-4x32-10: four random words for a counter and a key.
pub fn philox(mut c: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    for key in keys(key) {
        let [a, b] = [MULTIPLIERS[0] as u64 * c[0] as u64, MULTIPLIERS[1] as u64 * c[2] as u64];
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
    }
    c
}

/// What the two multiplied words of a counter are multiplied by.
pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// The keys of the ten rounds.
#[inline(always)]
pub(crate) fn keys([a, b]: [u32; 2]) -> impl Iterator<Item = [u32; 2]> {
    (0..10u32).map(move |round| {
        [a.wrapping_add(round.wrapping_mul(0x9E37_79B9)), b.wrapping_add(round.wrapping_mul(0xBB67_AE85))]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the generator (Random123, `kat_vectors`).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}

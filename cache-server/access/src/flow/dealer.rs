//! Shuffle sharding: the few queues of a priority level that one flow may use.
//!
//! Source: apiserver `util/shufflesharding`.

/// Bits of a hash that may be used: with more, the last card of a hand would not be evenly distributed.
pub(super) const HASH_BITS_MAX: u32 = 60;

/// Largest hand that [`HASH_BITS_MAX`] allows: of a deck of as many cards.
pub(super) const HAND_MAX: usize = 15;

/// Returns the bits of a hash that dealing `hand` of `deck` cards consumes.
pub(super) fn entropy_bits(deck: u32, hand: u32) -> u32 {
    let bits = (f64::from(deck).log2() * f64::from(hand)).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
    let bits = bits as u32;
    bits
}

/// Calls `pick` with each card of the hand that `hash` deals: different numbers below `deck`.
pub(super) fn deal(deck: u32, hand: u32, mut hash: u64, mut pick: impl FnMut(usize)) {
    let mut remainders = [0_u64; HAND_MAX];
    for at in 0..(hand as usize).min(HAND_MAX) {
        let cards = u64::from(deck).saturating_sub(at as u64).max(1);
        // The card's place among those left in the deck.
        let mut card = hash % cards;
        hash /= cards;
        remainders[at] = card;
        for before in remainders[..at].iter().rev() {
            if card >= *before {
                card += 1;
            }
        }
        pick(usize::try_from(card).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand(deck: u32, size: u32, hash: u64) -> Vec<usize> {
        let mut hand = Vec::new();
        deal(deck, size, hash, |card| hand.push(card));
        hand
    }

    #[test]
    fn entropy_is_estimated_as_in_kube_apiserver() {
        assert_eq!(entropy_bits(1024, 6), 60);
        assert_eq!(entropy_bits(512, 8), 72);
        assert_eq!(entropy_bits(128, 6), 42);
        assert_eq!(entropy_bits(1, 1), 0);
    }

    #[test]
    fn hands_have_different_cards_of_the_deck() {
        let mut random = fastrand::Rng::with_seed(1);
        for (deck, size) in [(4, 4), (8, 8), (10, 10), (12, 12), (128, 8), (256, 7), (512, 6), (1, 1), (9, 1)] {
            for _ in 0..1_000 {
                let mut hand = hand(deck, size, random.u64(..));
                hand.sort_unstable();
                hand.dedup();
                assert_eq!(hand.len(), size as usize, "{deck} {size}");
                assert!(hand.iter().all(|&card| card < deck as usize));
            }
        }
    }

    /// Goal: every hand is as likely as any other. Method: all hashes below the number of hands deal each hand once.
    #[test]
    fn each_hand_is_dealt_equally_often() {
        for (deck, size, hands) in [(5_u32, 2_u32, 20_u64), (6, 3, 120), (50, 3, 117_600)] {
            let mut dealt: Vec<_> = (0..hands).map(|hash| hand(deck, size, hash)).collect();
            dealt.sort_unstable();
            dealt.dedup();
            assert_eq!(dealt.len() as u64, hands);
        }
    }
}

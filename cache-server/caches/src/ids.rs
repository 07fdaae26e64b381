//! Random identifiers: uids of objects and requests, and generated names. They are unique, not secret.
//!
//! Source: apiserver `storage/names/generate.go`.

use uuid::{Builder, Uuid};

/// A generated name is at most this many bytes of its base, and then the random part.
const BASE_BYTES_MAX: usize = 58;

/// Length of the random part of a generated name.
const RANDOM_BYTES: usize = 5;

/// Alphabet of random name parts. No vowels and no digits that resemble them, so that a name never spells a word.
pub const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns a random UUID: version 4, variant 1 of RFC 9562. Cost: no system call, unlike `Uuid::new_v4`.
pub fn uuid() -> Uuid {
    uuid_of(fastrand::u128(..))
}

/// Returns the UUID of random bits; six of them are overwritten by version and variant.
pub const fn uuid_of(bits: u128) -> Uuid {
    Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

/// Returns a random name that begins with `base`, cut if it is too long.
pub fn generated_name(base: &str) -> String {
    let start = &base[..base.floor_char_boundary(BASE_BYTES_MAX)];
    let random = (0..RANDOM_BYTES).map(|_| char::from(NAME_ALPHABET[fastrand::usize(..NAME_ALPHABET.len())]));
    start.chars().chain(random).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_of_version_four() {
        for _ in 0..100 {
            let uid = uuid().to_string();
            let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
            assert_eq!(&uid[14..15], "4", "{uid}");
            assert!("89ab".contains(&uid[19..20]), "{uid}");
        }
    }

    #[test]
    fn generated_names_are_short_and_spell_nothing() {
        let name = generated_name("job-");
        assert!(name.len() == 9 && name.starts_with("job-"), "{name}");
        assert!(name.bytes().skip(4).all(|byte| NAME_ALPHABET.contains(&byte)), "{name}");
        assert_eq!(generated_name(&"a".repeat(100)).len(), 63);
        assert!(generated_name(&"ä".repeat(50)).starts_with(&"ä".repeat(29)));
    }
}

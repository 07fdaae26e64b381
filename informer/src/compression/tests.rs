//! The packer alone: round trips, memory kept between objects, and when a new dictionary is trained.

use super::*;

/// Objects of one kind: they share words that no other kind has, and differ in numbers.
fn object(kind: &str, number: usize) -> Vec<u8> {
    let mut words = fastrand::Rng::with_seed(kind.len() as u64);
    let words: Vec<String> = (0..40).map(|_| format!("\"{:016x}\"", words.u64(..))).collect();
    let uid = format!("{:016x}", (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let metadata = format!(r#"{{"name":"{kind}-{number}","uid":"{uid}"}}"#);
    format!(r#"{{"kind":"Pod","metadata":{metadata},"spec":[{}]}}"#, words.join(",")).into_bytes()
}

fn is_packed(body: &Body) -> bool {
    matches!(body, Body::Packed(_))
}

fn unpacked(body: &Body) -> Vec<u8> {
    body.json().into_owned()
}

#[test]
fn packs_unpack_to_the_bytes_they_were_made_of_and_are_much_shorter() {
    let mut packer = Packer::new();
    let mut stored = Vec::new();
    for number in 0..2_000 {
        let json = object("web", number);
        stored.push((packer.keep(&json, None), json));
    }
    assert!(stored[..SAMPLE_OBJECTS_MAX - 1].iter().all(|(body, _)| !is_packed(body)), "the sample");
    assert!(stored[SAMPLE_OBJECTS_MAX..].iter().all(|(body, _)| is_packed(body)));
    assert!(packer.learned(false) && !packer.learned(false), "told once");
    for (body, json) in &stored {
        assert_eq!(unpacked(body), *json);
        assert_eq!(body.json_bytes(), json.len());
    }
    let (packed, plain) = stored[SAMPLE_OBJECTS_MAX..]
        .iter()
        .fold((0, 0), |(packed, plain), (body, json)| (packed + body.stored_bytes(), plain + json.len()));
    assert!(packed * 5 < plain, "{packed} of {plain}");
}

/// Goal: any bytes survive the round trip. Method: input unlike the sample, empty input, and megabytes.
#[test]
fn whatever_is_kept_comes_back() {
    let mut packer = Packer::new();
    for number in 0..SAMPLE_OBJECTS_MAX {
        packer.keep(&object("web", number), None);
    }
    let mut random = fastrand::Rng::with_seed(1);
    let noise = |random: &mut fastrand::Rng, bytes| (0..bytes).map(|_| random.u8(..)).collect::<Vec<u8>>();
    for json in
        [Vec::new(), b"{}".to_vec(), noise(&mut random, 5_000), vec![b'a'; 3 << 20], noise(&mut random, 1 << 20)]
    {
        assert_eq!(unpacked(&packer.keep(&json, None)), json);
    }
    assert!(packer.scratch.capacity() <= SCRATCH_KEEP_BYTES, "{}", packer.scratch.capacity());
    assert!(!is_packed(&packer.keep(b"{}", None)), "a pack is never longer than what it holds");
}

#[test]
fn few_objects_are_a_dictionary_too_when_initial_state_is_complete() {
    let mut packer = Packer::new();
    assert!(!packer.learned(true), "nothing came");
    for number in 0..SAMPLE_OBJECTS_MIN - 1 {
        assert!(!is_packed(&packer.keep(&object("web", number), None)));
    }
    packer.keep(&object("web", 100), None);
    assert!(is_packed(&packer.keep(&object("web", 101), None)));

    let mut packer = Packer::new();
    let json = object("web", 0);
    packer.keep(&json, None);
    assert!(packer.learned(true));
    let body = packer.keep(&json, None);
    assert!(is_packed(&body) && unpacked(&body) == json);
}

/// Goal: a dictionary that no longer pays is replaced, and freed with its last pack. Method: objects of another kind
/// after many of the first; a `Weak` of the first dictionary.
#[test]
fn other_objects_get_another_dictionary_and_the_old_one_goes_with_its_packs() {
    let mut packer = Packer::new();
    let mut number = 0;
    let mut keep = |packer: &mut Packer, kind: &str, count: usize| {
        let bodies: Vec<(Body, Vec<u8>)> = (0..count)
            .map(|_| {
                number += 1;
                let json = object(kind, number);
                (packer.keep(&json, None), json)
            })
            .collect();
        bodies
    };
    let first = keep(&mut packer, "web", PATIENCE_OBJECTS + 2 * SAMPLE_OBJECTS_MAX);
    let dictionary = Arc::downgrade(&packer.dictionary.as_ref().unwrap().decoder);
    assert!(packer.sample.is_none(), "it pays");
    keep(&mut packer, "batch", WINDOW_OBJECTS + SAMPLE_OBJECTS_MAX + WINDOW_OBJECTS);
    assert!(!Arc::ptr_eq(&packer.dictionary.as_ref().unwrap().decoder, &dictionary.upgrade().unwrap()));
    for (body, json) in &first {
        assert_eq!(unpacked(body), *json, "packs of the first dictionary are still read by it");
    }
    drop(first);
    assert!(dictionary.upgrade().is_none());
}

/// Goal: incompressible input causes few trainings. Method: random objects for four doublings.
#[test]
fn what_cannot_be_packed_is_not_trained_on_for_ever() {
    let mut packer = Packer::new();
    let mut random = fastrand::Rng::with_seed(1);
    let mut trainings = 0;
    for _ in 0..16 * PATIENCE_OBJECTS {
        let json: Vec<u8> = (0..random.usize(20..40)).map(|_| random.u8(..)).collect();
        packer.keep(&json, None);
        trainings += usize::from(packer.learned(false));
    }
    assert!(trainings <= 5, "{trainings}");
}

/// Goal: every sample yields a dictionary, and none breaks the packer. Method: empty, equal, tiny and one-byte inputs,
/// in the smallest and largest numbers allowed.
#[test]
fn the_poorest_samples_do_no_harm() {
    let same: Vec<u8> = object("web", 1);
    for json in [&b""[..], b"{}", b"7", &same, &[0xFF; 3], &vec![b'a'; SAMPLE_OBJECT_BYTES_MAX]] {
        for count in [1, 2, 5, SAMPLE_OBJECTS_MIN, SAMPLE_OBJECTS_MAX + 5] {
            let mut packer = Packer::new();
            for complete in [false, true] {
                for _ in 0..count {
                    assert_eq!(unpacked(&packer.keep(json, None)), json);
                }
                packer.learned(complete);
            }
            assert_eq!(unpacked(&packer.keep(&same, None)), same, "{count} of {} bytes", json.len());
        }
    }
}

/// Goal: any thread can unpack, even after the packing thread has ended. Method: many readers at once.
#[test]
fn packs_are_read_by_many_threads() {
    let made = std::thread::spawn(|| {
        let mut packer = Packer::new();
        let objects: Vec<Vec<u8>> = (0..2 * SAMPLE_OBJECTS_MAX).map(|number| object("web", number)).collect();
        objects.into_iter().map(|json| (packer.keep(&json, None), json)).collect::<Vec<_>>()
    });
    let made = made.join().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| made.iter().for_each(|(body, json)| assert_eq!(unpacked(body), *json)));
        }
    });
}

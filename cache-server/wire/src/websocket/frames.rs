//! Encodes the frames that the server sends: a header of two to ten bytes before shared bytes.
//!
//! Source: RFC 6455, section 5.2.

use bytes::{Bytes, BytesMut};
use watch_cache::Slices;

use super::Code;

/// Flag in the first byte of a frame that is a whole message.
const LAST: u8 = 0x80;

/// Frame types, in the first byte.
pub(super) const TEXT: u8 = 0x1;
pub(super) const CLOSE: u8 = 0x8;
pub(super) const PING: u8 = 0x9;
pub(super) const PONG: u8 = 0xa;

/// Longest payload whose length fits into the second byte. Control frames must not be longer.
pub(super) const SHORT_BYTES_MAX: usize = 125;

/// Values of the second byte that announce a length in the next two or eight bytes.
pub(super) const LENGTH_IN_TWO: u8 = 126;
pub(super) const LENGTH_IN_EIGHT: u8 = 127;

/// Pushes each line of `lines` into `out` as one message, including its newline, as kube-apiserver does.
pub(super) fn push_lines(lines: Slices, out: &mut Slices) {
    let mut headers = headers_of(&lines);
    out.reserve(lines.len() + headers.len() / 2);
    let mut begins = true;
    for slice in lines {
        if begins {
            let length = header_len(&headers);
            out.push(headers.split_to(length));
        }
        begins = ends_line(&slice);
        out.push(slice);
    }
}

/// Encodes the headers of all lines into one buffer: one allocation per batch.
fn headers_of(lines: &Slices) -> Bytes {
    let (mut headers, mut length) = (BytesMut::new(), 0);
    for slice in lines.iter() {
        length += slice.len();
        if ends_line(slice) {
            header(TEXT, std::mem::take(&mut length), &mut headers);
        }
    }
    debug_assert_eq!(length, 0, "a batch ends with a line");
    if length > 0 {
        header(TEXT, length, &mut headers);
    }
    headers.freeze()
}

/// Returns true if a line ends here. Lines are JSON without white space, so only the end of a slice can be a newline.
fn ends_line(slice: &Bytes) -> bool {
    slice.ends_with(b"\n")
}

fn header(kind: u8, length: usize, out: &mut BytesMut) {
    out.extend_from_slice(&[LAST | kind]);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if length <= SHORT_BYTES_MAX => out.extend_from_slice(&[short]),
        (_, Ok(length)) => {
            out.extend_from_slice(&[LENGTH_IN_TWO]);
            out.extend_from_slice(&length.to_be_bytes());
        }
        (_, Err(_)) => {
            out.extend_from_slice(&[LENGTH_IN_EIGHT]);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Returns the length of the header that `headers` begins with.
fn header_len(headers: &[u8]) -> usize {
    match headers.get(1) {
        Some(&LENGTH_IN_TWO) => 4,
        Some(&LENGTH_IN_EIGHT) => 10,
        Some(_) => 2,
        None => 0,
    }
}

/// Returns a pong with the ping's payload.
pub(super) fn pong(payload: &[u8]) -> Bytes {
    control(PONG, payload)
}

/// Returns the close frame.
pub(super) fn close(code: Option<Code>) -> Bytes {
    code.map_or_else(|| control(CLOSE, &[]), |code| control(CLOSE, &code.0.to_be_bytes()))
}

fn control(kind: u8, payload: &[u8]) -> Bytes {
    debug_assert!(payload.len() <= SHORT_BYTES_MAX, "longer control frames are refused when they come");
    let mut out = BytesMut::with_capacity(2 + payload.len());
    header(kind, payload.len(), &mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use bytes::Buf as _;

    use super::*;

    fn slices(parts: &[&str]) -> Slices {
        let mut slices = Slices::new();
        for part in parts {
            slices.push(Bytes::copy_from_slice(part.as_bytes()));
        }
        slices
    }

    #[test]
    fn each_line_is_a_message_however_it_is_cut_into_slices() {
        let mut out = Slices::new();
        push_lines(slices(&["{", "one", "}\n", "two\n", "th", "ree\n"]), &mut out);
        let sent = out.copy_to_bytes(out.remaining());
        assert_eq!(&sent[..], b"\x81\x06{one}\n\x81\x04two\n\x81\x06three\n");
    }

    #[test]
    fn lengths_take_as_few_bytes_as_they_can() {
        for (length, expected) in [
            (0, &[0x81, 0][..]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (0xffff, &[0x81, 126, 0xff, 0xff]),
            (0x1_0000, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut out = BytesMut::new();
            header(TEXT, length, &mut out);
            assert_eq!((&out[..], header_len(&out)), (expected, expected.len()), "{length}");
        }
    }

    #[test]
    fn lines_of_every_length_have_their_own_header() {
        let long = "x".repeat(70_000) + "\n";
        let middle = "y".repeat(300) + "\n";
        let mut out = Slices::new();
        push_lines(slices(&["a\n", &long, &middle, "b\n"]), &mut out);
        let sent = out.copy_to_bytes(out.remaining());
        let expected = [
            b"\x81\x02a\n\x81\x7f\0\0\0\0\0\x01\x11\x71".as_slice(),
            long.as_bytes(),
            b"\x81\x7e\x01\x2d",
            middle.as_bytes(),
            b"\x81\x02b\n",
        ];
        assert!(sent == expected.concat());
    }

    #[test]
    fn control_frames_carry_what_they_must() {
        assert_eq!(&pong(b"x")[..], b"\x8a\x01x");
        assert_eq!(&close(Some(Code::NORMAL))[..], b"\x88\x02\x03\xe8");
        assert_eq!(&close(None)[..], b"\x88\x00");
    }
}

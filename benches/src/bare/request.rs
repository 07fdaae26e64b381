//! Requests of the load tool, found by their bytes.

use memchr::memmem;

/// A whole request.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Path without its query, and the query.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Finds the first request; `None` if it is not whole, or none.
    pub(super) fn find(bytes: &'a [u8]) -> Option<Self> {
        let head_end = memmem::find(bytes, b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&bytes[..head_end]).ok()?;
        let mut words = head.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let length = if method == "GET" { 0 } else { content_length(head) };
        let body = bytes.get(head_end..head_end + length)?;
        Some(Self { method, path, query, body })
    }
}

fn content_length(head: &str) -> usize {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    value.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_once_it_is_whole() {
        let text = b"PATCH /api/v1/pods/a?x=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /";
        for cut in 0..text.len() - 5 {
            assert!(Request::find(&text[..cut]).is_none(), "{cut}");
        }
        let found = Request::find(text).unwrap();
        assert_eq!((found.method, found.path, found.query), ("PATCH", "/api/v1/pods/a", "x=1"));
        assert_eq!(found.body, b"abc");
    }
}

//! Classifies a request for the proxy, and rewrites its head for the server.

/// Kind of read of the observed collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A list, or its first page.
    List,
    /// A further page.
    Page,
    /// A watch that begins with initial state.
    InitialWatch,
    /// A watch that resumes from a position.
    Watch,
    /// Any request that does not read the collection.
    Other,
}

/// A request.
#[derive(Debug)]
pub(super) struct ProxiedRequest {
    /// Method, path and query.
    pub(super) line: String,
    /// Kind of read.
    pub(super) read: Read,
    /// True if it requests a WebSocket.
    pub(super) upgrades: bool,
    headers: Vec<String>,
}

impl ProxiedRequest {
    /// Parses the head of a request.
    pub(super) fn parse(head: &str, collection: &str) -> Self {
        let mut lines = head.lines();
        let line = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
        let headers: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let read = read_of(&line, collection);
        let upgrades = headers.iter().any(|header| header.eq_ignore_ascii_case("upgrade: websocket"));
        Self { line, read, upgrades, headers }
    }

    /// The head to send to the server: one request per connection (a WebSocket is that already). `legacy_discovery`
    /// requests the older discovery form, `ends_soon` a watch of two seconds. Adds the token.
    pub(super) fn forwarded(&self, legacy_discovery: bool, ends_soon: bool, token: Option<&str>) -> String {
        let mut head = if ends_soon { ending_soon(&self.line) } else { self.line.clone() };
        head.push_str(" HTTP/1.1\r\n");
        for header in &self.headers {
            let name = header.split(':').next().unwrap_or_default().to_ascii_lowercase();
            if name == "accept" && legacy_discovery && header.contains("APIGroupDiscoveryList") {
                head.push_str("Accept: application/json\r\n");
            } else if name != "connection" || self.upgrades {
                head.push_str(header);
                head.push_str("\r\n");
            }
        }
        if let Some(token) = token {
            head.push_str("Authorization: Bearer ");
            head.push_str(token);
            head.push_str("\r\n");
        }
        head.push_str(if self.upgrades { "\r\n" } else { "Connection: close\r\n\r\n" });
        head
    }
}

fn read_of(line: &str, collection: &str) -> Read {
    let Some(target) = line.strip_prefix("GET ") else { return Read::Other };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path.rsplit('/').next() != Some(collection) {
        return Read::Other;
    }
    let of = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).find(|value| !value.is_empty())
    };
    let is = |name: &str| of(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"));
    match (is("watch"), of("resourceVersion")) {
        (false, _) if of("continue").is_some() => Read::Page,
        (false, _) => Read::List,
        (true, None | Some("0")) => Read::InitialWatch,
        (true, Some(_)) if is("sendInitialEvents") => Read::InitialWatch,
        (true, Some(_)) => Read::Watch,
    }
}

fn ending_soon(line: &str) -> String {
    let (path, query) = line.split_once('?').unwrap_or((line, ""));
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("timeoutSeconds="));
    let query: Vec<&str> = kept.chain(["timeoutSeconds=2"]).collect();
    format!("{path}?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_told_apart() {
        for (query, expected) in [
            ("", Read::List),
            ("?limit=500&resourceVersion=0", Read::List),
            ("?limit=5&continue=abc", Read::Page),
            ("?watch=true", Read::InitialWatch),
            ("?resourceVersion=0&watch=true", Read::InitialWatch),
            ("?resourceVersion=5&sendInitialEvents=true&watch=1", Read::InitialWatch),
            ("?resourceVersion=5&watch=1", Read::Watch),
            ("?resourceVersion=5&watch=false", Read::List),
        ] {
            assert_eq!(read_of(&format!("GET /api/v1/namespaces/n/pods{query}"), "pods"), expected, "{query}");
        }
        assert_eq!(read_of("GET /api/v1/pods/a?watch=true", "pods"), Read::Other);
        assert_eq!(read_of("POST /api/v1/pods", "pods"), Read::Other);
    }

    #[test]
    fn a_request_is_passed_on_with_a_connection_of_its_own() {
        let head = "GET /a?watch=1&timeoutSeconds=300 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n";
        let asked = ProxiedRequest::parse(head, "a");
        let expected = "GET /a?watch=1&timeoutSeconds=2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        assert_eq!(asked.forwarded(false, true, None), expected);
        let upgrade = "GET /a?watch=1 HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let asked = ProxiedRequest::parse(upgrade, "a");
        assert!(asked.upgrades);
        let with_token = upgrade.replace("\r\n\r\n", "\r\nAuthorization: Bearer t\r\n\r\n");
        assert_eq!(asked.forwarded(false, false, Some("t")), with_token);
        assert_eq!(asked.forwarded(false, false, None), upgrade);
    }
}

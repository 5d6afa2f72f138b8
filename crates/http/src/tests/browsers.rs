use super::*;

fn rules() -> BrowserRules {
    BrowserRules {
        own: "node-1:8080".into(),
        hosts: vec!["node-1".into(), "node-2".into(), "localhost".into()],
        addresses: true,
        origins: vec!["https://console.example:9000".into()],
    }
}

const MISDIRECTED: Result<RequestOrigin, OriginRefusal> = Err(OriginRefusal::Misdirected);
const FOREIGN: Result<RequestOrigin, OriginRefusal> = Err(OriginRefusal::Foreign);

fn judged(host: Option<&str>, origin: Option<&str>, site: Option<&str>) -> Result<RequestOrigin, OriginRefusal> {
    let [host, origin, site] = [host, origin, site].map(|value| value.map(str::as_bytes));
    rules().judge(OriginHeaders { host, origin, site })
}

#[test]
fn a_name_that_is_not_the_nodes_own_was_made_to_point_here() {
    for own in [
        "node-1:8080",
        "NODE-1",
        "node-2:1",
        "localhost:9",
        "node-1.:8080",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[::1]",
    ] {
        assert_eq!(judged(Some(own), None, None), Ok(RequestOrigin::Own), "{own}");
    }
    for other in [
        "evil.example",
        "node-1.evil.example:8080",
        "node-3",
        "",
        ":8080",
        "node-1:",
        "node-1:x",
        "node-1:8080:1",
        "127.0.0.1.evil.example",
        "127.1",
        "[::1",
        "[evil]",
        "[::1]x",
        "[::1]:",
        "node-1@evil.example",
        "node-1:123456",
        "..",
        "\u{e9}",
    ] {
        assert_eq!(judged(Some(other), None, None), MISDIRECTED, "{other}");
    }
    assert_eq!(judged(None, None, None), Ok(RequestOrigin::Own), "HTTP/1.0 need not name anybody");
    let without = BrowserRules { addresses: false, ..rules() };
    let host = OriginHeaders { host: Some(b"127.0.0.1:8080"), ..OriginHeaders::default() };
    assert!(without.judge(host).is_err());
    for listed in ["127.0.0.1", "[::1]", "::1"] {
        let named = BrowserRules { hosts: vec![listed.into()], ..without.clone() };
        let hosts = [&b"127.0.0.1:8080"[..], b"[::1]", b"10.0.0.1"];
        let headers = hosts.map(|host| OriginHeaders { host: Some(host), ..OriginHeaders::default() });
        let judged = headers.map(|headers| named.judge(headers).is_ok());
        assert_eq!(judged, [listed.contains('.'), listed.contains(':'), false], "{listed}");
    }
}

#[test]
fn a_page_may_use_the_node_if_it_is_the_nodes_own_or_allowed() {
    let (host, allowed) = (Some("127.0.0.1:8080"), "https://console.example:9000");
    let of = |origin: &str| judged(host, Some(origin), None);
    assert_eq!(of(allowed), Ok(RequestOrigin::Allowed));
    assert_eq!(of("http://127.0.0.1:8080"), Ok(RequestOrigin::Own));
    assert_eq!(of("https://127.0.0.1:8080"), Ok(RequestOrigin::Own), "behind a proxy");
    for foreign in [
        "http://127.0.0.1:9000",
        "http://127.0.0.1",
        "http://evil.example",
        "null",
        "",
        "https://console.example",
        "http://console.example:9000",
        "https://console.example:9000.evil.example",
        "file://",
        "127.0.0.1:8080",
        "http://node-1:8080",
    ] {
        assert_eq!(of(foreign), FOREIGN, "{foreign}");
    }
    // The origin decides where it is given, since a browser that sends both has the same in mind.
    assert_eq!(judged(host, Some(allowed), Some("cross-site")), Ok(RequestOrigin::Allowed));
}

#[test]
fn without_an_origin_the_browser_says_whether_the_page_is_of_another_site() {
    let of = |site: &str| judged(Some("localhost:8080"), None, Some(site));
    assert_eq!((of("cross-site"), of("same-site")), (FOREIGN, FOREIGN));
    assert_eq!((of("same-origin"), of("none")), (Ok(RequestOrigin::Own), Ok(RequestOrigin::Own)));
}

//! What a web page could have the browser that shows it do with a node.

use crate::support::{Cluster, entity};

#[test]
fn a_rebound_name_and_a_page_on_another_port_reach_nothing() {
    let cluster = Cluster::start(1);
    let address = cluster.node(0).address.to_string();
    cluster.client(0).put(&entity("k"), b"<script>alert(1)</script>");
    let mut client = cluster.client(0);
    let mut ask = |head: String| {
        client.write(head.as_bytes()).unwrap();
        client.receive(head.split(' ').next().unwrap()).unwrap()
    };
    let data = ["/v0/entity?id=k", "/v0/entities?start=a"];
    let pages = ["/v0/cluster", "/v0/backup", "/v0/scrub", "/v0/repair", "/metrics", "/livez"];
    for path in data.iter().chain(&pages) {
        for method in ["GET", "PUT", "POST", "DELETE", "OPTIONS"] {
            let rebound = ask(format!("{method} {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
            assert_eq!(rebound.status, 421, "{method} {path}");
            let page =
                ask(format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://127.0.0.1:9\r\n\r\n"));
            assert_eq!(page.status, 403, "{method} {path}");
            assert_eq!(page.header("access-control-allow-origin"), None);
            let image =
                ask(format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nSec-Fetch-Site: same-site\r\n\r\n"));
            assert_eq!(image.status, 403, "{method} {path}");
        }
    }
    assert!(!cluster.node(0).data_dir.join("backup").exists());
    // A value is no page of the node, whatever its type.
    let own = ask(format!("GET {} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n\r\n", entity("k")));
    assert_eq!((own.status, own.header("x-content-type-options")), (200, Some("nosniff")));
    assert_eq!(own.header("content-security-policy"), Some("sandbox; default-src 'none'"));
    assert_eq!(own.header("cross-origin-resource-policy"), Some("same-origin"));
}

#[test]
fn an_allowed_name_and_an_allowed_page_may_use_the_node() {
    let settings = [
        ("KVORUM_HTTP_ALLOWED_HOSTS", "auto,kvorum.example.com"),
        ("KVORUM_HTTP_ALLOWED_ORIGINS", "https://console.example.com"),
    ];
    let cluster = Cluster::with(1, &settings);
    let mut client = cluster.client(0);
    let mut ask = |head: &str| {
        client.write(head.as_bytes()).unwrap();
        client.receive("GET").unwrap()
    };
    assert_eq!(ask("GET /livez HTTP/1.1\r\nHost: kvorum.example.com\r\n\r\n").status, 200);
    let page = ask("GET /livez HTTP/1.1\r\nHost: localhost\r\nOrigin: https://console.example.com\r\n\r\n");
    assert_eq!((page.status, page.header("access-control-allow-origin")), (200, Some("https://console.example.com")));
    assert_eq!(ask("GET /livez HTTP/1.1\r\nHost: other.example.com\r\n\r\n").status, 421);
}

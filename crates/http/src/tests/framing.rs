//! Heads and bodies that two readers would read in two ways (RFC 9112, 11.2): none of them may hide a request from one
//! of them.

use super::{settings, with};

/// What would be stored if the rest of a request were taken for another.
const HIDDEN: &str = "PUT /v0/entity?id=hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nh";

#[test]
fn what_can_be_read_in_two_ways_is_refused_and_the_connection_ends() {
    with(settings(), |node| async move {
        let put = "PUT /v0/entity?id=k HTTP/1.1\r\n";
        let chunks = format!("Host: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n{HIDDEN}");
        let with = |fields: &str| format!("{put}{fields}\r\n\r\nabc{HIDDEN}");
        let requests = [
            ("two lengths", with("Host: x\r\nContent-Length: 3\r\nContent-Length: 4")),
            ("two lengths in one line", with("Host: x\r\nContent-Length: 3, 4")),
            ("a length with a sign", with("Host: x\r\nContent-Length: +3")),
            ("a folded line", with("Host: x\r\nContent-Length: 3\r\nA: b\r\n c")),
            ("a space before the colon", with("Host: x\r\nContent-Length : 3")),
            ("a bare CR", with("Host: x\r\nContent-Length: 3\r\nA: b\rTransfer-Encoding: chunked")),
            ("a NUL", with("Host: x\r\nContent-Length: 3\r\nA: b\0c")),
            ("a bare LF in a chunk's size", format!("{put}{chunks}")),
        ];
        for (what, request) in requests {
            let mut client = node.connect().await;
            client.send(request).await;
            let answer = client.answer(false).await;
            assert_eq!(answer.status, 400, "{what}: {answer:?}");
            assert_eq!(client.rest().await, b"", "{what}: the rest is not taken for a request");
        }
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn a_length_beside_chunks_does_not_count_and_ends_the_connection() {
    with(settings(), |node| async move {
        let (length, chunked) = ("Content-Length: 4", "Transfer-Encoding: chunked");
        for fields in [[length, chunked], [chunked, length]] {
            let fields = fields.join("\r\n");
            let mut client = node.connect().await;
            let head = format!("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
            client.send(format!("{head}3\r\nabc\r\n0\r\n\r\n{HIDDEN}")).await;
            let answer = client.answer(false).await;
            assert_eq!(client.rest().await, b"", "{fields}: the rest is not taken for a request");
            assert!([201, 400].contains(&answer.status), "{fields}: {answer:?}");
            let stored = (answer.status == 201).then(|| b"abc".to_vec());
            assert_eq!(node.entities.value(b"k"), stored, "{fields}");
            assert_eq!(node.entities.value(b"hidden"), None);
        }
    });
}

#[test]
fn a_coding_behind_chunked_is_refused() {
    with(settings(), |node| async move {
        let in_two_lines = ["chunked", "identity"].join("\r\nTransfer-Encoding: ");
        for codings in ["chunked, identity", &in_two_lines, "identity", "chunked, chunked"] {
            let mut client = node.connect().await;
            let head = format!("PUT /v0/entity?id=k HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {codings}\r\n\r\n");
            client.send(format!("{head}3\r\nabc\r\n0\r\n\r\n")).await;
            let answer = client.answer(false).await;
            assert!([400, 501].contains(&answer.status), "{codings}: {answer:?}");
        }
        assert_eq!(node.entities.requests.get(), 0);
    });
}

#[test]
fn a_request_has_one_host() {
    with(settings(), |node| async move {
        for hosts in ["A: b", "Host: x\r\nHost: x", "Host: x\r\nHost: y"] {
            let mut client = node.connect().await;
            client.send(format!("PUT /v0/entity?id=k HTTP/1.1\r\n{hosts}\r\nContent-Length: 1\r\n\r\nx")).await;
            let answer = client.answer(false).await;
            assert_eq!(answer.status, 400, "{hosts}");
            client.assert_alive().await;
        }
        assert_eq!(node.entities.requests.get(), 0);
    });
}

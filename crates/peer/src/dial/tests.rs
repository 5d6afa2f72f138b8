#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use kvorum_core::node::DirectoryId;
use tokio::io::DuplexStream;

use super::*;

fn hello() -> Hello {
    Hello {
        cluster: 1,
        url: "http://a:1".to_owned(),
        directory: DirectoryId(2),
        founding: 3,
        epoch: 1,
        deadline_ms: 4,
        run: kvorum_storage::data_dir::Run { id: kvorum_storage::data_dir::RunId(5), recovered: 6 },
        remembers: None,
        nonce: None,
        proofs: Vec::new(),
    }
}

/// What a handshake ends in when the peer answers with these bytes, at most `step` at a time, and closes.
fn answered(answer: &str, step: usize) -> Result<(Hello, BytesMut), ConnectError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut stream, peer) = tokio::io::duplex(step);
        let ours = hello();
        let play = async |mut peer: DuplexStream| {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                peer.read_buf(&mut request).await.unwrap();
            }
            let _unread = peer.write_all(answer.as_bytes()).await;
        };
        let shake = async {
            let ended = shake_hands(&mut stream, &ours, "a:1").await;
            drop(stream);
            ended
        };
        tokio::join!(shake, play(peer)).0
    })
}

#[test]
fn a_refusal_is_reported_by_the_problems_detail_however_it_arrives() {
    let detail = "the peer has another layout: ".to_owned() + &"say why ".repeat(30);
    let body = serde_json::json!({ "type": "urn:t", "title": "Not A Peer", "status": 409, "detail": detail });
    let body = body.to_string();
    let answer = format!("HTTP/1.1 409 Conflict\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(answered(&answer, 50).unwrap_err().to_string(), format!("refused: 409: {detail}"));
}

#[test]
fn a_refusal_that_is_no_problem_is_reported_as_it_is_within_bounds() {
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nwhat?";
    assert_eq!(answered(answer, 50).unwrap_err().to_string(), "refused: 404: what?");
    // It ends before its length.
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 50\r\n\r\nwhat?";
    assert_eq!(answered(answer, 50).unwrap_err().to_string(), "refused: 404: what?");
    let endless = format!("HTTP/1.1 500 No\r\nContent-Length: 999999999\r\n\r\n{}", "x".repeat(100_000));
    let text = answered(&endless, 50).unwrap_err().to_string();
    assert_eq!(text, format!("refused: 500: {}", "x".repeat(500)));
}

#[test]
fn what_follows_a_handshake_is_kept() {
    let mut answer = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
    for (name, value) in &hello().headers() {
        answer.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    let (theirs, behind) = answered(&format!("{answer}\r\n!"), 4096).unwrap();
    assert_eq!((theirs, &behind[..]), (hello(), &b"!"[..]));
}

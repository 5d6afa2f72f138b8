//! Requests and frames that are wrong, drawn at random, with what they must be answered.

use bytes::{BufMut, BytesMut};
use kvorum_core::frame::{CHUNK_BYTES, Frame, HEADER_BYTES, Message, NO_EPOCH, encode};
use kvorum_core::quorum::Wanted;
use kvorum_core::{Hlc, Key};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::http::{entity, request};
use super::random::Random;

/// A key that no request may store anything for.
pub const NEVER: &str = "never-stored";

fn pick<'a, T: ?Sized>(random: &mut Random, of: &[&'a T]) -> &'a T {
    of[random.below(of.len() as u64) as usize]
}

fn noise(random: &mut Random, length_max: u64) -> Vec<u8> {
    let length = random.below(length_max) as usize;
    random.bytes(length)
}

/// Characters that keep a request line in one piece, whatever they mean in a query.
fn text(random: &mut Random, length_max: u64) -> String {
    let letters = b"abcidackfromreplicas0123456789=&%+/?;:@!$()*,~-._'";
    (0..random.below(length_max)).map(|_| char::from(letters[random.below(letters.len() as u64) as usize])).collect()
}

/// A whole request whose head is HTTP and whose content is wrong, and the status that says so. It does not cost
/// the connection.
pub fn bad_request(random: &mut Random) -> (Vec<u8>, u16) {
    let never = entity(NEVER);
    let method = pick(random, &["GET", "PUT", "DELETE"]);
    let number = random.below(1_000);
    let plain = |target: String| (request(method, &target, &[], (method == "PUT").then_some(b"never".as_slice())), 400);
    match random.below(14) {
        0 => plain(format!("/v0/entity?{}", text(random, 60).replace("id=", "is="))),
        1 => plain("/v0/entity?id=".to_owned()),
        2 => plain(format!("{never}&id={number}")),
        3 => plain(format!("{never}&{}=1", pick(random, &["acks", "ID", "replica", "%69%64", "TTL"]))),
        4 => plain(format!("{never}{}", pick(random, &["%", "%4", "%zz", "%-1", "+%+"]))),
        5 => plain(entity(vec![b'k'; 2_049 + number as usize])),
        6 => {
            plain(format!("{never}&ack={}", pick(random, &["0", "4", "-1", "", "1e0", "99999999999999999999", "%00"])))
        }
        7 => {
            plain(format!("{never}&from={}", pick(random, &["0", "4", "-1", "", "x", "99999999999999999999", "1%20"])))
        }
        8 => plain(format!("{never}&{}", pick(random, &["ack=3&from=2", "replicas=3/2", "replicas=1", "replicas=/"]))),
        9 => plain(format!("{never}&replicas=1/1&ack=1")),
        10 => plain(format!("/{}", text(random, 40).replace('?', "_"))),
        11 => {
            let method = pick(random, &["POST", "BREW", "PATCH", "get", "OPTIONS"]);
            (request(method, &never, &[], Some(&noise(random, 300))), 405)
        }
        12 => (request("PUT", &never, &[("If-Match", "\"1\"")], Some(&noise(random, 300))), 501),
        _ => {
            let query = pick(random, &["", "start=", "start=a&end=", "start=a&start=b", "from=1"]);
            (request("GET", &format!("/v0/entities?{query}"), &[], None), 400)
        }
    }
}

/// Bytes that begin like a request, or do not: what comes of them is a refusal or a close, or an answer if chance
/// left them whole. They ask for nothing but reads.
pub fn bad_head(random: &mut Random) -> Vec<u8> {
    let sound = request("GET", &entity(NEVER), &[("X-Some", "thing"), ("Accept", "*/*")], None);
    match random.below(6) {
        0 => noise(random, 400),
        1 => [&sound[..random.below(sound.len() as u64) as usize], &noise(random, 40)].concat(),
        2 | 3 => {
            let mut bytes = sound;
            for _ in 0..1 + random.below(6) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            // No mutation makes an order out of it.
            bytes.splice(..3, b"GET".iter().copied());
            bytes
        }
        4 => {
            let headers = noise(random, 200).iter().map(|byte| format!("{byte}: {byte}\r\n")).collect::<String>();
            format!("GET / HTTP/1.1\r\n{}{headers}\r\n", text(random, 30)).into_bytes()
        }
        _ => {
            let line = pick(
                random,
                &[
                    "GET",
                    "GET /",
                    "GET / HTTP/3.0",
                    "\u{0}",
                    "PRI * HTTP/2.0\r\n\r\nSM",
                    "GET  / HTTP/1.1",
                    " ",
                    "GET http://[::1 HTTP/1.1",
                    "CONNECT a:1 HTTP/1.1",
                    "GET * HTTP/1.1",
                    "G\u{e9}T / HTTP/1.1",
                ],
            );
            format!("{line}\r\n\r\n").into_bytes()
        }
    }
}

/// A PUT whose body does not fit its head: never a `201`. The write side is shut behind it.
pub fn bad_body(random: &mut Random) -> Vec<u8> {
    let head = |rest: &str| format!("PUT {} HTTP/1.1\r\nHost: localhost\r\n{rest}\r\n\r\n", entity(NEVER)).into_bytes();
    let body = noise(random, 2_000);
    match random.below(6) {
        0 => [head(&format!("Content-Length: {}", body.len() + 1)), body].concat(),
        1 => {
            let length = pick(random, &["-1", "x", "", "1, 2", "0x10", "99999999999999999999999", "+5"]);
            [head(&format!("Content-Length: {length}")), body].concat()
        }
        2 => [head("Content-Length: 3\r\nContent-Length: 4"), body].concat(),
        3 => {
            let size = pick(random, &["zz", "-1", "", "ffffffffffffffffff", "5\n", "5 5"]);
            [head("Transfer-Encoding: chunked"), format!("{size}\r\n").into_bytes(), body].concat()
        }
        4 => {
            let chunk = format!("{:x}\r\n", body.len() + 1).into_bytes();
            [head("Transfer-Encoding: chunked"), chunk, body, b"xx\r\n0\r\n\r\n".to_vec()].concat()
        }
        _ => [head(pick(random, &["Content-Length: 8388609", "Transfer-Encoding: gzip"])), body].concat(),
    }
}

/// A header of a handshake, and a value that it must not have.
pub fn bad_hello(random: &mut Random) -> (&'static str, String) {
    let numbers = [
        "kvorum-cluster",
        "kvorum-directory",
        "kvorum-founding",
        "kvorum-deadline-ms",
        "kvorum-run",
        "kvorum-recovered",
    ];
    let number = random.next();
    match random.below(4) {
        0 => (pick(random, &numbers), format!("z{}", text(random, 200))),
        1 => (
            pick(random, &numbers),
            pick(random, &["", "-1", "fffffffffffffffffffffffffffffffff0", "0x1", "é", "1 2"]).to_owned(),
        ),
        2 => (pick(random, &["kvorum-cluster", "kvorum-founding"]), format!("{number:016x}")),
        _ => ("kvorum-node", format!("http://{number:x}{}", "n".repeat(random.below(4_000) as usize))),
    }
}

/// A frame of any content with a right checksum.
fn sealed(random: &mut Random, opcode: u8, flags: u8, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u32(payload.len() as u32);
    out.put_u64(random.next());
    out.put_slice(&[opcode, flags]);
    out.put_u64(NO_EPOCH);
    out.put_u64(random.next());
    let sum = xxh3_64_with_seed(&out, xxh3_64(payload));
    out.put_u32(sum as u32);
    out.put_slice(payload);
    out
}

/// What a question that a replica cannot take seriously is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Corrupt,
    Nothing,
    Pong,
}

/// A frame with a right checksum, a clock from anywhere and a senseless content, which its opcode allows. The
/// answer bears the frame's id.
pub fn senseless_frame(random: &mut Random, id: u64) -> (BytesMut, Expected) {
    let key = Key::new([NEVER.as_bytes(), &random.bytes(8)].concat().into()).unwrap();
    let (message, expected) = match random.below(4) {
        0 | 1 => {
            let (repair, non_voting) = (random.below(2) == 0, random.below(2) == 0);
            (Message::Store { key, record: noise(random, 600).into(), repair, non_voting }, Expected::Corrupt)
        }
        2 => (
            Message::Read {
                key,
                wanted: [Wanted::Record, Wanted::Version][usize::from(random.below(2) == 0)],
                non_voting: true,
            },
            Expected::Nothing,
        ),
        _ => (Message::Ping { wall_ms: random.next() }, Expected::Pong),
    };
    let mut out = BytesMut::new();
    assert!(
        encode(&Frame { id, epoch: NO_EPOCH, hlc: Hlc::from_raw(random.next()), message }, &mut out).is_none(),
        "it is small"
    );
    (out, expected)
}

/// Something for which a connection is closed.
pub fn bad_frame(random: &mut Random) -> BytesMut {
    let payload = noise(random, 300);
    let (store, read, repair) = (1, 2, 7);
    match random.below(10) {
        // Chunks of two messages, of which none goes on as it must.
        9 if random.below(20) == 0 => {
            let chunk = random.bytes(CHUNK_BYTES);
            let mut chunks = sealed(random, store, 1, &chunk);
            chunks.extend_from_slice(&sealed(random, store, 1, &chunk));
            chunks.extend_from_slice(&sealed(random, store, 1, &payload));
            chunks
        }
        0 | 9 => {
            let mut frame = sealed(random, read, 0, &payload);
            let at = 4 + random.below(frame.len() as u64 - 4) as usize;
            frame[at] ^= 1 << random.below(8);
            frame
        }
        1 => sealed(random, 15 + (payload.len() % 200) as u8, 0, &payload),
        2 => sealed(random, 0, 0, &payload),
        3 => {
            let flags = *pick(random, &[&1, &2, &16, &128, &255]);
            sealed(random, read, flags, &payload)
        }
        // A key longer than what there is, none, or one over the limit.
        4 => sealed(random, store, 0, &[&[0xff, 0xff], payload.as_slice()].concat()),
        5 => {
            let length = *pick(random, &[&0, &2_049, &60_000]);
            sealed(random, read, 0, &vec![b'k'; length])
        }
        // Round numbers in postcard are at most ten bytes long.
        6 => {
            let kind = random.below(7) as u8;
            sealed(random, repair, 0, &[&[kind], [0xff; 12].as_slice(), &payload].concat())
        }
        // An answer where questions belong.
        7 => sealed(random, 3 + (payload.len() % 2) as u8, 0, &[3, 1]),
        // A length over the limit; the rest need not come.
        _ => {
            let mut header = BytesMut::new();
            header.put_u32(CHUNK_BYTES as u32 + 1 + random.next() as u32 % 1_000_000);
            header.put_slice(&random.bytes(HEADER_BYTES - 4));
            header
        }
    }
}

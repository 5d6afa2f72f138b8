//! Constant-rate load for `bench/degraded`: an open loop, so that a slow answer delays no later request's schedule.
//!
//! Latency counts from the time at which a request *should* have been sent: if all connections are busy then, the
//! wait is part of it (no coordinated omission). Prints one line of JSON; a refused or failed request is an error
//! and its time counts, too.
//!
//! `rate HOST:PORT PUT|GET REQUESTS_PER_SECOND SECONDS CONNECTIONS KEYS VALUE_BYTES`

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

struct Load {
    address: String,
    method: String,
    /// Time between two requests.
    interval: Duration,
    requests: u64,
    keys: u64,
    value: String,
    begin: Instant,
    /// The next request to be sent, by whichever connection is free.
    next: AtomicU64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, method, rate, seconds, connections, keys, value_bytes] = arguments.as_slice() else {
        bail!("rate HOST:PORT PUT|GET REQUESTS_PER_SECOND SECONDS CONNECTIONS KEYS VALUE_BYTES");
    };
    let (rate, seconds): (u64, u64) = (rate.parse()?, seconds.parse()?);
    let load = Load {
        address: address.clone(),
        method: method.clone(),
        interval: Duration::from_secs(1) / u32::try_from(rate)?,
        requests: rate * seconds,
        keys: keys.parse()?,
        value: "v".repeat(value_bytes.parse()?),
        begin: Instant::now(),
        next: AtomicU64::new(0),
    };
    let connections: usize = connections.parse()?;
    let results: Vec<(Vec<Duration>, u64)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..connections).map(|_| scope.spawn(|| work(&load))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let errors: u64 = results.iter().map(|(_, errors)| errors).sum();
    let mut latencies: Vec<Duration> = results.into_iter().flat_map(|(latencies, _)| latencies).collect();
    latencies.sort_unstable();
    report(&load, &latencies, errors)
}

fn report(load: &Load, latencies: &[Duration], errors: u64) -> Result<()> {
    let at = |permille: usize| latencies.get((latencies.len() * permille / 1000).min(latencies.len() - 1));
    let micros = |permille| at(permille).map(Duration::as_micros).context("no request was sent");
    println!(
        "{{\"requests\": {}, \"seconds\": {:.3}, \"errors\": {errors}, \"p50_us\": {}, \"p90_us\": {}, \
         \"p99_us\": {}, \"p999_us\": {}, \"max_us\": {}}}",
        latencies.len(),
        load.begin.elapsed().as_secs_f64(),
        micros(500)?,
        micros(900)?,
        micros(990)?,
        micros(999)?,
        micros(1000)?,
    );
    Ok(())
}

/// One connection: takes the next request, waits for its time, sends it, waits for its answer.
fn work(load: &Load) -> (Vec<Duration>, u64) {
    let (mut latencies, mut errors) = (Vec::new(), 0);
    let mut stream = None;
    loop {
        let number = load.next.fetch_add(1, Ordering::Relaxed);
        if number >= load.requests {
            return (latencies, errors);
        }
        let due = load.begin + load.interval * u32::try_from(number).expect("fewer than 2^32 requests");
        thread::sleep(due.saturating_duration_since(Instant::now()));
        match exchange(load, &mut stream, number) {
            Ok(200 | 201) => {}
            Ok(_) | Err(_) => errors += 1,
        }
        latencies.push(due.elapsed());
    }
}

fn exchange(load: &Load, stream: &mut Option<TcpStream>, number: u64) -> io::Result<u16> {
    let mut connected = match stream.take() {
        Some(connected) => connected,
        None => connect(&load.address)?,
    };
    // Spread over the keys without a pattern.
    let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % load.keys;
    let (method, value) = (load.method.as_str(), if load.method == "PUT" { load.value.as_str() } else { "" });
    let length = if method == "PUT" { format!("Content-Length: {}\r\n", value.len()) } else { String::new() };
    let request = format!("{method} /v0/entity?id=key{key:08} HTTP/1.1\r\nHost: bench\r\n{length}\r\n{value}");
    connected.write_all(request.as_bytes())?;
    let status = answer(&mut connected)?;
    *stream = Some(connected);
    Ok(status)
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Reads a whole answer with a `Content-Length`, and gives its status.
fn answer(stream: &mut TcpStream) -> io::Result<u16> {
    let mut received = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece)?;
        received.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some((status, length)) = whole(&received)
            && received.len() >= length
        {
            return Ok(status);
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Status and length of the answer, once its head is there.
fn whole(received: &[u8]) -> Option<(u16, usize)> {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(received.get(..end)?).ok()?.to_ascii_lowercase();
    let status = head.get(9..12)?.parse().ok()?;
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
    Some((status, end + length.unwrap_or(0)))
}

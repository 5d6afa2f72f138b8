#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::time::Duration;

use tokio::task::LocalSet;

use super::*;

const DELAY: Duration = Duration::from_millis(150);

/// A slow end and a plain one.
async fn pair(faults: &Arc<Faults>) -> (SlowTcp, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (SlowTcp::new(near, faults.clone()), far)
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Arc<Faults>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(20), test(Arc::default())).await.expect("it ends");
    });
}

async fn read(far: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    far.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn what_is_written_is_late_and_in_order_also_what_follows_a_delay_that_was_undone() {
    run(|faults| async move {
        let (near, mut far) = pair(&faults).await;
        assert_eq!(near.try_write(b"a").unwrap(), 1);
        assert_eq!(read(&mut far, 1).await, b"a");
        faults.obey("slow 150").unwrap();
        let begun = Instant::now();
        assert_eq!(near.try_write(b"b").unwrap(), 1);
        faults.obey("slow 0").unwrap();
        assert_eq!(near.try_write(b"c").unwrap(), 1);
        assert_eq!(read(&mut far, 2).await, b"bc");
        assert!(begun.elapsed() >= DELAY, "{:?}", begun.elapsed());
        poll_fn(|context| near.poll_write_ready(context)).await.unwrap();
        assert_eq!(near.try_write(b"d").unwrap(), 1);
        assert_eq!(read(&mut far, 1).await, b"d");
    });
}

#[test]
fn what_waits_is_bounded_and_all_of_it_arrives() {
    run(|faults| async move {
        let (near, mut far) = pair(&faults).await;
        faults.obey("slow 150").unwrap();
        let (total, chunk) = (3 * WAITING_BYTES_MAX, vec![7; 1 << 20]);
        let reader = tokio::task::spawn_local(async move { read(&mut far, total).await });
        let (mut written, mut was_full) = (0, false);
        while written < total {
            match near.try_write(&chunk) {
                Ok(count) => written += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert_eq!(near.waiting.bytes.get(), WAITING_BYTES_MAX);
                    was_full = true;
                    poll_fn(|context| near.poll_write_ready(context)).await.unwrap();
                }
            }
        }
        assert!(was_full);
        assert!(reader.await.unwrap().iter().all(|byte| *byte == 7));
    });
}

#[test]
fn an_end_fails_what_is_written_later() {
    run(|faults| async move {
        let (near, far) = pair(&faults).await;
        faults.obey("slow 10").unwrap();
        near.try_write(b"a").unwrap();
        near.shutdown();
        drop(far);
        while near.try_write(b"b").is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

//! Takes connections, as long as there are seats.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::api::Entities;
use crate::connection;
use crate::error::Shed;
use crate::io;
use crate::metrics::count;
use crate::shard::HttpShard;
use crate::watch::ConnectionWatch;

/// Connections over the limit that are answered at a time; more than these are just closed.
const REFUSALS_MAX: usize = 64;

/// Serves `stream` in a task of the current `LocalSet`, which ends with the connection; over the limit of connections
/// it is refused and closed. Cancel safe: returns at once.
pub fn serve_connection<E: Entities>(stream: TcpStream, shard: Rc<HttpShard<E>>) {
    // Answers are small and written whole; a failure shows at the first read.
    let _ = stream.set_nodelay(true);
    count(&shard.parts.metrics.connections_total);
    let refusal = if shard.draining.get() {
        Some(Shed::Draining)
    } else {
        (shard.connections.borrow().len() >= shard.settings.connections_max).then_some(Shed::Connections)
    };
    match refusal {
        None => {
            let watch = Rc::new(ConnectionWatch::new(shard.now()));
            let slot = shard.slot(&watch);
            tokio::task::spawn_local(async move {
                connection::run(stream, watch, Rc::clone(&slot.shard)).await;
            });
        }
        Some(reason) => shard.refuse(stream, reason),
    }
}

impl<E: Entities> HttpShard<E> {
    fn slot(self: &Rc<Self>, watch: &Rc<ConnectionWatch>) -> ConnectionSlot<E> {
        let number = self.connections.borrow_mut().insert(Rc::clone(watch));
        count(&self.parts.metrics.connections);
        ConnectionSlot { shard: Rc::clone(self), number }
    }

    /// Answers 503 on a connection that there is no slot for.
    fn refuse(self: Rc<Self>, stream: TcpStream, reason: Shed) {
        let error = self.shed(reason);
        if self.refusals.get() >= REFUSALS_MAX {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        tokio::task::spawn_local(async move {
            let watch = Rc::new(ConnectionWatch::new(self.now()));
            let wire = io::Socket::new(stream, Rc::clone(&watch), self.shared());
            let goodbye = connection::farewell(&wire, &watch, &self, Some(error));
            // What has no slot is not swept.
            let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
            self.refusals.set(self.refusals.get() - 1);
        });
    }
}

/// A place among the shard's connections, given up when the connection's task ends.
struct ConnectionSlot<E> {
    shard: Rc<HttpShard<E>>,
    number: usize,
}

impl<E> Drop for ConnectionSlot<E> {
    fn drop(&mut self) {
        self.shard.connections.borrow_mut().remove(self.number);
        self.shard.parts.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        self.shard.gone.notify_waiters();
    }
}

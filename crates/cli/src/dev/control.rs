//! The way in to a running `dev`: its socket's connections and its console give orders here, and the supervisor, which
//! alone has the nodes, takes them one after the other.

use kvorum_console::LabControl;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// Orders that wait.
const WAITING_MAX: usize = 16;

/// Gives orders. Clones give them to the same cluster, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct DevControl {
    orders: mpsc::Sender<AwaitedOrder>,
}

/// An order, and who waits for the answer.
#[derive(Debug)]
pub(crate) struct AwaitedOrder {
    pub(crate) line: String,
    pub(crate) answer: oneshot::Sender<Value>,
}

impl DevControl {
    /// With what the supervisor takes orders from.
    pub(crate) fn new() -> (Self, mpsc::Receiver<AwaitedOrder>) {
        let (orders, taken) = mpsc::channel(WAITING_MAX);
        (Self { orders }, taken)
    }

    /// Has an order carried out: `{"ok":true,"nodes":[…]}` with the nodes after it, or `{"ok":false,"error":"…"}`.
    pub(crate) async fn order(&self, line: &str) -> Value {
        let (answer, answered) = oneshot::channel();
        // What cannot be sent, or is dropped, has no answer.
        let _ = self.orders.send(AwaitedOrder { line: line.to_owned(), answer }).await;
        answered.await.unwrap_or_else(|_| stopping())
    }
}

impl LabControl for DevControl {
    fn order(&self, line: &str) -> String {
        let (answer, answered) = oneshot::channel();
        let _ = self.orders.blocking_send(AwaitedOrder { line: line.to_owned(), answer });
        answered.blocking_recv().unwrap_or_else(|_| stopping()).to_string()
    }
}

fn stopping() -> Value {
    refusal("`kvorum dev` is stopping")
}

/// The answer to an order that was not carried out.
pub(crate) fn refusal(why: &str) -> Value {
    json!({"ok": false, "error": why})
}

//! What a run is to do.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};

use serde::Deserialize;

/// How the server is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProtocolName {
    /// kvorum's HTTP/1.1, with `ack=2&from=3`.
    Http,
    /// etcd's gRPC over HTTP/2. Reads are linearizable.
    Grpc,
    /// Redis' RESP2. Each `SET` is followed by `WAIT 1`.
    Resp,
}

/// What is sent. Each connection sends its next request when it has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// Each key is written once. `seconds` is the limit.
    Fill,
    /// Values are written until the time is over.
    Put,
    /// Values are read until the time is over.
    Get,
}

impl Task {
    pub(crate) fn writes(self) -> bool {
        self != Self::Get
    }
}

/// One run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) protocol: ProtocolName,
    /// All connections go there.
    pub(crate) address: SocketAddr,
    pub(crate) task: Task,
    pub(crate) connections: NonZeroUsize,
    /// Keys are drawn evenly from this many.
    pub(crate) keys: NonZeroU64,
    pub(crate) value_bytes: usize,
    /// Before anything is measured; a fill has none.
    pub(crate) warmup_seconds: u64,
    /// Measured time.
    pub(crate) seconds: NonZeroU64,
    /// What keys and values follow from.
    pub(crate) seed: u64,
    /// The servers' processes, whose processor time is reported.
    pub(crate) processes: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::{Plan, ProtocolName, Task};

    const PLAN: &str = r#"{"protocol":"resp","address":"127.0.0.1:1","task":"get","connections":2,"keys":3,
        "value_bytes":4,"warmup_seconds":0,"seconds":5,"seed":6,"processes":[7]}"#;

    #[test]
    fn a_plan_is_read_from_json() {
        let plan: Plan = serde_json::from_str(PLAN).unwrap();
        assert_eq!((plan.protocol, plan.task), (ProtocolName::Resp, Task::Get));
    }

    #[test]
    fn a_plan_with_an_unknown_name_or_without_keys_is_refused() {
        for (good, bad) in [("resp", "memcached"), (r#""keys":3"#, r#""keys":0"#), ("seed", "seeds")] {
            assert!(serde_json::from_str::<Plan>(&PLAN.replace(good, bad)).is_err(), "{bad}");
        }
    }
}

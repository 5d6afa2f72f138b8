//! Clients: each asks through random nodes about random keys, one request at a time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_base::value_memory::{Body, LargeValues};
use kvorum_core::Version;
use kvorum_core::quorum::{Acks, majority};
use kvorum_replication::coordinator::{Coordinator, Looked, Refused};
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::history::{Action, Outcome, key};
use crate::invariants::answered;
use crate::machine::Machine;
use crate::world::{KeyPlan, World};

/// Now and then a value is so much longer than its number: its frame goes in chunks.
const PADDING_BYTES: usize = 70 * 1024;

/// One client. Runs until the faults end.
pub async fn run(world: Rc<World>, number: u64) {
    let mut chance = Chance::new(world.seed, 1000 + number);
    while world.trace.now() < world.faults_end {
        tokio::time::sleep(chance.millis(world.plan_think_ms.clone())).await;
        let up: Vec<&Rc<Machine>> = world.machines.iter().filter(|machine| machine.is_up()).collect();
        if up.is_empty() {
            continue;
        }
        let machine = Rc::clone(up[chance.index(up.len())]);
        let key = world.draw_key(&mut chance);
        let action = match chance.weighted(&[(48, 'r'), (44, 'w'), (8, 'd')]) {
            'r' => Action::Get,
            'w' => Action::Put(world.next_value()),
            _ => Action::Delete,
        };
        let acks = acks(&mut chance, world.keys[key], action, world.machines.len());
        let padding = if chance.happens(15) { PADDING_BYTES } else { 0 };
        // Some clients go away before they are answered.
        let patience = chance.happens(30).then(|| chance.millis(1..100));
        request(&world, &machine, key, acks, action, padding, patience).await;
    }
}

fn acks(chance: &mut Chance, key: KeyPlan, action: Action, nodes: usize) -> Acks {
    let (from, ack) = if key.is_quorum {
        let q = majority(key.from);
        // The majority mostly, sometimes more.
        let more = if chance.happens(200) { chance.below(u64::from(key.from - q) + 1) } else { 0 };
        (key.from, u64::from(q) + more)
    } else {
        let nodes = u8::try_from(nodes).expect("few nodes");
        let any = u8::try_from(1 + chance.below(u64::from(nodes))).expect("few nodes");
        let from = if action == Action::Get { any } else { key.from };
        (from, 1 + chance.below(u64::from(from)))
    };
    Acks::new(u8::try_from(ack).expect("few nodes"), from).expect("1 to from")
}

/// Makes one request, and writes it and its answer down.
pub async fn request(
    world: &Rc<World>,
    machine: &Rc<Machine>,
    number: usize,
    acks: Acks,
    action: Action,
    padding: usize,
    patience: Option<Duration>,
) -> usize {
    let begin = world.trace.now();
    let id = world.history.borrow_mut().begin(machine.index, number, acks, action, begin);
    let key = key(world.seed, number);
    let (send, receive) = oneshot::channel();
    let pauses = machine.pauses.get();
    let answering = world.clone();
    let spawned = machine.spawn(|coordinator, large_values| async move {
        let outcome = ask(&coordinator, &large_values, key, acks, action, padding).await;
        answering.history.borrow_mut().end(id, outcome);
        let _ = send.send(());
    });
    let Some(request) = spawned else {
        world.history.borrow_mut().end(id, Outcome::Refused);
        return id;
    };
    let answered = match patience {
        Some(patience) => tokio::time::timeout(patience, receive).await.ok().and_then(Result::ok),
        None => receive.await.ok(),
    };
    if answered.is_none() {
        request.abort();
    }
    let operation = world.history.borrow().operations[id].clone();
    world.trace.event(&format!("key {number}: {operation}"));
    if answered.is_some() && pauses == machine.pauses.get() {
        let took = world.trace.now() - begin;
        world.violated(answered::check(&operation, took, world.plan.deadline, world.disk_ms_max));
    }
    id
}

async fn ask(
    coordinator: &Coordinator,
    large_values: &Arc<LargeValues>,
    key: kvorum_core::Key,
    acks: Acks,
    action: Action,
    padding: usize,
) -> Outcome {
    let written = match action {
        Action::Put(value) => {
            let mut bytes = format!("{value} ").into_bytes();
            bytes.resize(bytes.len() + padding, b'.');
            let Ok(charge) = large_values.charge(bytes.len()) else { return Outcome::Refused };
            let body = Body::new(Bytes::from(bytes), charge);
            coordinator.put(key, acks, None, body, false).await
        }
        Action::Delete => coordinator.delete(key, acks, false).await,
        Action::Get => {
            return match coordinator.get(key, acks, false).await {
                Ok(found) => Outcome::Found(value(&found.value)),
                Err(refused) => refusal(&refused),
            };
        }
    };
    written.map_or_else(|refused| refusal(&refused), |written| Outcome::Written(written.version))
}

fn refusal(refused: &Refused) -> Outcome {
    match refused {
        Refused::NotEnough { .. } => Outcome::Unknown,
        Refused::Overloaded | Refused::Behind | Refused::CannotWrite | Refused::Fenced | Refused::NotServing => {
            Outcome::Refused
        }
    }
}

fn value(looked: &Looked) -> Option<(u64, Version)> {
    let Looked::Record(record) = looked else { return None };
    if record.is_tombstone() {
        return None;
    }
    let payload = record.payload();
    let text = std::str::from_utf8(&payload).expect("only such values were written");
    let value = text.split(' ').next().and_then(|number| number.parse().ok());
    Some((value.expect("only such values were written"), record.version()))
}

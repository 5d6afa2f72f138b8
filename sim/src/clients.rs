//! Clients: each asks through random nodes about random keys, one request at a time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kvorum_base::value_memory::{Body, Charge, LargeValues};
use kvorum_core::quorum::{Expiry, Held, Quorum, majority};
use kvorum_replication::coordinator::batch::{BatchAction, BatchOperation};
use kvorum_replication::coordinator::{Coordinator, NewValue, Outcome, ReadResult, Refused, WithReceipt};
use tokio::sync::oneshot;

use crate::chance::SimRandom;
use crate::history::{ClientAction, ClientOutcome, key, value_of};
use crate::invariants::answered;
use crate::invariants::expiry::{self, ReadOfEnding};
use crate::machine::Machine;
use crate::scans;
use crate::time::true_ms;
use crate::world::{KeyPlan, World};

/// Now and then a value is so much longer than its number: its frame goes in chunks.
const PADDING_BYTES: usize = 70 * 1024;

/// Longest that a value lives which ends: shorter than a run.
const TTL_S_MAX: u64 = 6;
/// How far a node's clock may be from the true time once all is well.
const CLOCKS_AGREE: Duration = Duration::from_secs(2);

/// One client. Runs until the faults end.
pub async fn run(world: Rc<World>, number: u64) {
    let mut chance = SimRandom::new(world.seed, 1000 + number);
    while world.trace.now() < world.faults_end {
        tokio::time::sleep(chance.millis(world.plan_think_ms.clone())).await;
        let up: Vec<&Rc<Machine>> = world.machines.iter().filter(|machine| machine.is_up()).collect();
        if up.is_empty() {
            continue;
        }
        let machine = Rc::clone(up[chance.index(up.len())]);
        if chance.happens(40) {
            scans::scan(&world, &mut chance).await;
            continue;
        }
        if chance.happens(60) {
            batch(&world, &machine, &mut chance).await;
            continue;
        }
        let key = world.draw_key(&mut chance);
        let action = match chance.weighted(&[(48, 'r'), (44, 'w'), (8, 'd')]) {
            'r' => ClientAction::Get,
            'w' if chance.happens(300) => {
                let seconds = u32::try_from(1 + chance.below(TTL_S_MAX)).expect("a few");
                ClientAction::PutFor(world.next_value(), seconds)
            }
            'w' => ClientAction::Put(world.next_value()),
            _ => ClientAction::Delete,
        };
        let quorum = quorum(&mut chance, world.keys[key], action, world.machines.len());
        let padding = if chance.happens(15) { PADDING_BYTES } else { 0 };
        // Some clients go away before they are answered.
        let patience = chance.happens(30).then(|| chance.millis(1..100));
        request(&world, &machine, key, quorum, action, padding, patience).await;
    }
}

/// Many requests at once, each about another key and written down by itself.
async fn batch(world: &Rc<World>, machine: &Rc<Machine>, chance: &mut SimRandom) {
    let begin = world.trace.now();
    let (mut ids, mut asked) = (Vec::new(), Vec::new());
    for number in 0..world.keys.len() {
        if !chance.happens(500) {
            continue;
        }
        let action = match chance.weighted(&[(45, 'r'), (45, 'w'), (10, 'd')]) {
            'r' => ClientAction::Get,
            'w' if chance.happens(300) => ClientAction::PutFor(world.next_value(), 2),
            'w' => ClientAction::Put(world.next_value()),
            _ => ClientAction::Delete,
        };
        let quorum = quorum(chance, world.keys[number], action, world.machines.len());
        ids.push(world.history.borrow_mut().begin(machine.index, number, quorum, action, begin));
        asked.push((key(world.seed, number), quorum, action));
    }
    let (answering, begun) = (world.clone(), ids.clone());
    let (send, receive) = oneshot::channel();
    let spawned = machine.spawn(|coordinator, _| async move {
        let operations = asked.into_iter().map(|(key, quorum, action)| BatchOperation {
            key,
            quorum,
            action: match action {
                ClientAction::Put(value) => BatchAction::Put(new_value(value, None, 0, None)),
                ClientAction::PutFor(value, seconds) => BatchAction::Put(new_value(value, Some(seconds), 0, None)),
                ClientAction::Delete => BatchAction::Delete,
                ClientAction::Get => BatchAction::Get,
            },
        });
        let outcomes = coordinator.batch(operations.collect()).await;
        for (place, id) in begun.into_iter().enumerate() {
            let outcome = match &outcomes {
                Err(refused) => refusal(refused),
                Ok(outcomes) => match &outcomes[place] {
                    Err(refused) => refusal(refused),
                    Ok(Outcome::Written(written)) => ClientOutcome::Written(written.version),
                    Ok(Outcome::Found(found)) => read(found).0,
                },
            };
            answering.history.borrow_mut().end(id, outcome);
        }
        let _ = send.send(());
    });
    match spawned {
        // Some go away before they are answered.
        Some(request) if chance.happens(30) => {
            let _ = tokio::time::timeout(chance.millis(1..100), receive).await;
            request.abort();
        }
        Some(_) => _ = receive.await,
        None => ids.iter().for_each(|id| world.history.borrow_mut().end(*id, ClientOutcome::Refused)),
    }
    for id in ids {
        let operation = world.history.borrow().operations[id].clone();
        world.trace.event(&format!("of a batch, key {}: {operation}", operation.key));
    }
}

fn new_value(value: u64, ttl_s: Option<u32>, padding: usize, charge: Option<Charge>) -> NewValue<'static> {
    NewValue { body: Body::new(value_bytes(value, padding).into(), charge), content_type: None, ttl_s }
}

fn value_bytes(value: u64, padding: usize) -> Vec<u8> {
    let mut bytes = format!("{value} ").into_bytes();
    bytes.resize(bytes.len() + padding, b'.');
    bytes
}

fn quorum(chance: &mut SimRandom, key: KeyPlan, action: ClientAction, nodes: usize) -> Quorum {
    let (from, ack) = if key.is_quorum {
        let q = majority(key.from);
        // The majority mostly, sometimes more.
        let more = if chance.happens(200) { chance.below(u64::from(key.from - q) + 1) } else { 0 };
        (key.from, u64::from(q) + more)
    } else {
        let nodes = u8::try_from(nodes).expect("few nodes");
        let any = u8::try_from(1 + chance.below(u64::from(nodes))).expect("few nodes");
        let from = if action == ClientAction::Get { any } else { key.from };
        (from, 1 + chance.below(u64::from(from)))
    };
    Quorum::new(u8::try_from(ack).expect("few nodes"), from).expect("1 to from")
}

/// Makes one request, and writes it and its answer down.
pub async fn request(
    world: &Rc<World>,
    machine: &Rc<Machine>,
    number: usize,
    quorum: Quorum,
    action: ClientAction,
    padding: usize,
    patience: Option<Duration>,
) -> usize {
    let begin = world.trace.now();
    let id = world.history.borrow_mut().begin(machine.index, number, quorum, action, begin);
    let key = key(world.seed, number);
    let (send, receive) = oneshot::channel();
    let pauses = machine.pauses.get();
    let answering = world.clone();
    let spawned = machine.spawn(|coordinator, large_values| async move {
        let (outcome, expires_ms) = ask(&coordinator, &large_values, key, quorum, action, padding).await;
        answering.history.borrow_mut().end(id, outcome);
        if let Some(expires_ms) = expires_ms {
            let (began_ms, ended_ms) = (true_ms(begin), true_ms(answering.trace.now()));
            // A clock may be off by as much as is allowed, and the hybrid clock ahead of it by as much again; one that
            // is off by more is not noticed at once.
            let slack = if answering.is_healed.get() { CLOCKS_AGREE } else { answering.plan.skew_max * 4 };
            answering.violated(expiry::check(outcome, ReadOfEnding { expires_ms, began_ms, ended_ms, slack }));
        }
        let _ = send.send(());
    });
    let Some(request) = spawned else {
        world.history.borrow_mut().end(id, ClientOutcome::Refused);
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
    quorum: Quorum,
    action: ClientAction,
    padding: usize,
) -> (ClientOutcome, Option<u64>) {
    let put = async |key, value: u64, ttl_s| {
        let charge = large_values.charge(value_bytes(value, padding).len()).map_err(|_| Refused::Overloaded)?;
        coordinator.put(key, quorum, new_value(value, ttl_s, padding, charge), WithReceipt::No).await
    };
    let written = match action {
        ClientAction::Put(value) => put(key, value, None).await,
        ClientAction::PutFor(value, seconds) => put(key, value, Some(seconds)).await,
        ClientAction::Delete => coordinator.delete(key, quorum, WithReceipt::No).await,
        ClientAction::Get => {
            return match coordinator.get(key, quorum, WithReceipt::No).await {
                Ok(found) => read(&found),
                Err(refused) => (refusal(&refused), None),
            };
        }
    };
    (written.map_or_else(|refused| refusal(&refused), |written| ClientOutcome::Written(written.version)), None)
}

fn refusal(refused: &Refused) -> ClientOutcome {
    match refused {
        Refused::NotEnough { .. } => ClientOutcome::Unknown,
        Refused::Overloaded | Refused::Behind | Refused::CannotWrite | Refused::Fenced | Refused::NotServing => {
            ClientOutcome::Refused
        }
    }
}

/// What was found, and when it ends.
fn read(found: &ReadResult) -> (ClientOutcome, Option<u64>) {
    let Held::Record(record) = &found.value else { return (ClientOutcome::Found(None), None) };
    let outcome = match (value_of(record), found.expiry) {
        (Some((value, version)), Expiry::Passed) => ClientOutcome::Ended(value, version),
        (value, _) => ClientOutcome::Found(value),
    };
    (outcome, record.expires_ms())
}

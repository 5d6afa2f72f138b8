//! Clients that scan the cluster. For each key that is written with the scan's `from` the scan is a read: of the value
//! that it gave, or that there was none. So the checker of linearizability sees that every key which did not change
//! while a scan ran is in it, with its value. Here it is seen that none comes twice, or out of order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use kvorum_core::Record;
use kvorum_core::quorum::{Quorum, majority};
use kvorum_core::scan::page::ScanValues;
use kvorum_replication::cluster_scan::{ClusterScan, OnMissing, ScanSpec, ScanStep, ScannedContent};
use tokio::sync::oneshot;

use crate::chance::SimRandom;
use crate::history::{ClientAction, ClientOutcome, key, value_of};
use crate::machine::Machine;
use crate::world::World;

/// A scan that is broken off is taken up again so often, each time through any node.
const PARTS_MAX: usize = 4;

/// How far one part came, and how it ended.
#[derive(Default)]
struct ScanPart {
    found: BTreeMap<Bytes, ClientOutcome>,
    position: Option<Bytes>,
    is_whole: bool,
    violation: Option<String>,
}

/// One scan, in parts.
pub(crate) async fn scan(world: &Rc<World>, chance: &mut SimRandom) {
    let quorum_keys: Vec<usize> = (0..world.keys.len()).filter(|number| world.keys[*number].is_quorum).collect();
    let Some(&number) = quorum_keys.get(chance.index(quorum_keys.len().max(1))) else { return };
    let from = world.keys[number].from;
    let quorum = Quorum::new(majority(from), from).expect("a majority");
    let mut numbers: Vec<usize> = quorum_keys.into_iter().filter(|number| world.keys[*number].from == from).collect();
    numbers.sort_by_key(|number| key(world.seed, *number));
    // Half of them have the providers do work.
    let values = if number % 2 == 0 { ScanValues::Wanted } else { ScanValues::Derived(Bytes::new()) };
    let mut start = Bytes::new();
    for _ in 0..PARTS_MAX {
        let up: Vec<&Rc<Machine>> = world.machines.iter().filter(|machine| machine.is_up()).collect();
        if up.is_empty() {
            return;
        }
        let machine = Rc::clone(up[chance.index(up.len())]);
        let begin = world.trace.now();
        let ids: Vec<usize> = numbers
            .iter()
            .map(|number| world.history.borrow_mut().begin(machine.index, *number, quorum, ClientAction::Get, begin))
            .collect();
        let part = run_part(&machine, quorum, start.clone(), values.clone()).await;
        let position = if part.is_whole { None } else { part.position.clone() };
        let is_passed = |name: &[u8]| part.is_whole || position.as_ref().is_some_and(|position| name <= &**position);
        for (number, id) in numbers.iter().zip(&ids) {
            let name = key(world.seed, *number);
            let name = name.as_bytes();
            let outcome = match part.found.get(name) {
                Some(outcome) => *outcome,
                None if *start <= *name && is_passed(name) => ClientOutcome::Found(None),
                None => ClientOutcome::Refused,
            };
            world.history.borrow_mut().end(*id, outcome);
        }
        world.trace.event(&format!(
            "scan: {} found, whole: {}, at {:?}",
            part.found.len(),
            part.is_whole,
            part.position
        ));
        if let Some(violation) = part.violation {
            world.violated(Err(violation));
        }
        if part.is_whole {
            return;
        }
        if let Some(position) = part.position {
            start = [&position[..], &[0]].concat().into();
        }
    }
}

async fn run_part(machine: &Machine, quorum: Quorum, start: Bytes, values: ScanValues) -> ScanPart {
    let part: Rc<RefCell<ScanPart>> = Rc::default();
    let (send, receive) = oneshot::channel::<()>();
    let writing = Rc::clone(&part);
    let spawned = machine.spawn_on(|shard| {
        let scanner = Rc::clone(&shard.scanner);
        async move {
            let spec = ScanSpec { start, end: None, quorum, values, on_missing: OnMissing::End };
            if let Ok(mut scan) = ClusterScan::open(&scanner, spec) {
                while take(&mut scan, &writing).await {}
            }
            drop(send);
        }
    });
    if spawned.is_some() {
        // The process may die: what the scan has given until then stands.
        let _ = receive.await;
    }
    part.take()
}

/// Takes the next step; whether others follow.
async fn take(scan: &mut ClusterScan, part: &RefCell<ScanPart>) -> bool {
    let step = scan.next().await;
    let mut part = part.borrow_mut();
    let has_more = matches!(step, ScanStep::Record(_) | ScanStep::Passed);
    match step {
        ScanStep::Record(found) => {
            let name = Bytes::copy_from_slice(found.key.as_bytes());
            if part.position.as_ref().is_some_and(|last| *last >= name) {
                part.violation = Some(format!("scanned: {name:?} comes behind {:?}", part.position));
            }
            let record = match found.content {
                ScannedContent::Record(record) => Some(record),
                ScannedContent::Derived(derived) => derived.and_then(|bytes| Record::decode(&found.key, bytes).ok()),
                ScannedContent::Version => None,
            };
            part.found.insert(name, ClientOutcome::Found(value_of(&record.expect("values are wanted"))));
            part.position = scan.position().cloned();
        }
        ScanStep::Passed => part.position = scan.position().cloned(),
        ScanStep::End => part.is_whole = true,
        ScanStep::Missing(_) => {}
    }
    has_more
}

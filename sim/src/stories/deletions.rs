//! Deletions and nodes that missed them: rounds in which some keys are written, a node goes away, these keys are
//! deleted, the others compact and compare, and the node comes back, as it was or with an older disk. No deleted key
//! comes back, and all of what is deleted is dropped in the end.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kvorum_peer::membership::VoteState;
use kvorum_storage::Store;

use super::{ask, cut, expect, others};
use crate::chance::SimRandom;
use crate::history::{ClientAction, key};
use crate::machine::{Crash, Machine};
use crate::run::simulate;
use crate::world::World;

/// Rounds of one seed.
pub const ROUNDS: u64 = 10;
/// Pongs have shown all others how far a node has got.
const HEARD: Duration = Duration::from_secs(3);
/// After the return of the node everything is dropped within this time. A node with an older disk counts again only
/// when the clocks are past everything that it may have lost.
const FORGOTTEN_MAX: Duration = Duration::from_secs(120);

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeletionsDone {
    /// Rounds.
    pub rounds: u64,
    /// Of these, rounds after which the node had an older disk.
    pub restored: u64,
    /// Keys deleted while a replica of theirs was away.
    pub deleted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    Crashed,
    Restored,
    Paused,
    CutOff,
}

/// Plays [`ROUNDS`] rounds.
///
/// # Errors
/// What came back, or was never dropped, or any other violation.
pub fn run(seed: u64) -> Result<DeletionsDone, String> {
    simulate(seed, move |directory| story(seed, directory)).unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

async fn story(seed: u64, directory: PathBuf) -> Result<DeletionsDone, String> {
    let world = Rc::new(World::calm(seed, &directory));
    world.start().await;
    let mut chance = SimRandom::new(seed, 4);
    let mut done = DeletionsDone::default();
    let mut result = Ok(());
    while done.rounds < ROUNDS && result.is_ok() {
        result = round(&world, &mut chance, &mut done).await.and_then(|()| world.violation().map_or(Ok(()), Err));
    }
    world.stop();
    result.map(|()| done).map_err(|what| format!("round {}: {what}", done.rounds))
}

async fn round(world: &Rc<World>, chance: &mut SimRandom, done: &mut DeletionsDone) -> Result<(), String> {
    let keys: Vec<usize> = (0..world.keys.len()).filter(|_| chance.happens(600)).collect();
    for &number in &keys {
        ask(world, chance, number, ClientAction::Put(world.next_value()), &world.machines).await?;
    }
    let machine = Rc::clone(chance.pick(&world.machines));
    // Else the last one, which may have what was deleted in an earlier round and is dropped.
    if chance.happens(500) || machine.backup_sequence().is_none() {
        machine.back_up();
    }
    // Beyond the backup: otherwise no peer's note shows it.
    for &number in &keys {
        ask(world, chance, number, ClientAction::Put(world.next_value()), &world.machines).await?;
    }
    tokio::time::sleep(HEARD).await;
    let absence = *chance.pick(&[Absence::Crashed, Absence::Restored, Absence::Paused, Absence::CutOff]);
    let others = others(world, &machine);
    leave(world, &machine, absence);
    for &number in &keys {
        ask(world, chance, number, ClientAction::Delete, &others).await?;
        done.deleted += 1;
    }
    for _ in 0..chance.below(6) {
        tokio::time::sleep(chance.millis(100..20_000)).await;
        others.iter().for_each(|other| other.disk().compact().expect("memory takes all"));
        others[0].want_round();
    }
    done.restored += u64::from(come_back(world, &machine, absence));
    for number in 0..world.keys.len() {
        expect(ask(world, chance, number, ClientAction::Get, &world.machines).await?, None, number)?;
    }
    forget(world).await?;
    for number in 0..world.keys.len() {
        for machine in &world.machines {
            let through = [machine.clone()];
            expect(ask(world, chance, number, ClientAction::Get, &through).await?, None, number)?;
        }
    }
    done.rounds += 1;
    Ok(())
}

fn leave(world: &World, machine: &Rc<Machine>, absence: Absence) {
    world.trace.event(&format!("node {} goes: {absence:?}", machine.index));
    match absence {
        Absence::Crashed => machine.crash(Crash::Process),
        Absence::Restored => machine.crash(Crash::Power),
        Absence::Paused => machine.pause(),
        Absence::CutOff => cut(world, machine, true),
    }
}

/// Whether it came back with an older disk: only if all others have notes that it once held more.
fn come_back(world: &World, machine: &Rc<Machine>, absence: Absence) -> bool {
    world.trace.event(&format!("node {} comes back", machine.index));
    let mut is_restored = false;
    match absence {
        Absence::Crashed => machine.start(),
        Absence::Restored => {
            let others = others(world, machine);
            is_restored = machine.backup_sequence().is_some_and(|sequence| {
                others.iter().all(|other| other.remembers(machine).is_some_and(|heard| heard > sequence))
            });
            if is_restored {
                machine.restore();
            }
            machine.start();
        }
        Absence::Paused => machine.resume(),
        Absence::CutOff => cut(world, machine, false),
    }
    is_restored
}

/// Waits until no disk has anything of any key, and all nodes vote.
async fn forget(world: &Rc<World>) -> Result<(), String> {
    let begin = world.trace.now();
    let remains = || {
        let all = world.machines.iter().flat_map(|machine| (0..world.keys.len()).map(move |number| (machine, number)));
        let mut held = all.filter_map(|(machine, number)| {
            let record = machine.disk().held(&key(world.seed, number))?;
            Some((machine.index, number, record.version(), record.is_tombstone()))
        });
        held.next()
    };
    let all_vote = || world.machines.iter().all(|machine| machine.vote_state() == Some(VoteState::Voting));
    while remains().is_some() || !all_vote() {
        if world.trace.now() - begin > FORGOTTEN_MAX {
            return Err(format!(
                "held still (node, key, version, is deletion): {:?}; all vote: {}",
                remains(),
                all_vote()
            ));
        }
        world.machines[0].want_round();
        tokio::time::sleep(Duration::from_secs(2)).await;
        for machine in &world.machines {
            machine.disk().compact().expect("memory takes all");
            machine.note_rebuilt();
        }
    }
    Ok(())
}

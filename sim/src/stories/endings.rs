//! Values that end: rounds in which a clock is ahead, the value ends by it, and all nodes restart with right clocks: it
//! has ended for good. In other rounds all nodes compare and compact what they hold: a value is there until its end, and
//! behind it nothing is left.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kvorum_storage::Store;

use super::{ask, expect, others};
use crate::chance::SimRandom;
use crate::history::{ClientAction, key};
use crate::machine::Crash;
use crate::run::simulate;
use crate::world::World;

/// Rounds of one seed.
pub const ROUNDS: u64 = 4;
/// Within what clocks may differ, of 5 s.
const AHEAD_MS: i64 = 4000;
/// The clock that is ahead gets there before the others' bounds do.
const SHORT_S: u32 = 6;
/// Longer than anything here takes.
const LONG_S: u32 = 600;
const LOOK: Duration = Duration::from_millis(100);
/// A value has ended, and is gone, within this time.
const ENDED_MAX: Duration = Duration::from_secs(60);

/// Plays [`ROUNDS`] rounds.
///
/// # Errors
/// What was there again, or for too long, or not for long enough, or any other violation.
pub fn run(seed: u64) -> Result<(), String> {
    simulate(seed, move |directory| story(seed, directory)).unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

async fn story(seed: u64, directory: PathBuf) -> Result<(), String> {
    let world = Rc::new(World::calm(seed, &directory));
    world.start().await;
    let mut chance = SimRandom::new(seed, 8);
    let mut result = Ok(());
    for number in 0..ROUNDS {
        result = if number % 2 == 0 {
            ended_for_good(&world, &mut chance).await
        } else {
            there_until_its_end(&world, &mut chance).await
        };
        result = result.and_then(|()| world.violation().map_or(Ok(()), Err));
        if let Err(what) = result {
            result = Err(format!("round {number}: {what}"));
            break;
        }
    }
    world.stop();
    result
}

async fn ended_for_good(world: &Rc<World>, chance: &mut SimRandom) -> Result<(), String> {
    let number = chance.index(world.keys.len());
    let fast = Rc::clone(chance.pick(&world.machines));
    fast.time.set_wall(AHEAD_MS);
    let put = ClientAction::PutFor(world.next_value(), SHORT_S);
    ask(world, chance, number, put, &others(world, &fast)).await?;
    let begin = world.trace.now();
    let through = [fast.clone()];
    while ask(world, chance, number, ClientAction::Get, &through).await?.is_some() {
        if world.trace.now() - begin > ENDED_MAX {
            return Err(format!("key {number} never ends"));
        }
        tokio::time::sleep(LOOK).await;
    }
    world.machines.iter().for_each(|machine| machine.crash(Crash::Process));
    fast.time.set_wall(0);
    world.machines.iter().for_each(|machine| machine.start());
    for _ in 0..3 {
        expect(ask(world, chance, number, ClientAction::Get, &world.machines).await?, None, number)?;
    }
    Ok(())
}

async fn there_until_its_end(world: &Rc<World>, chance: &mut SimRandom) -> Result<(), String> {
    let (stays, ends) = (0, 1);
    let value = world.next_value();
    ask(world, chance, stays, ClientAction::PutFor(value, LONG_S), &world.machines).await?;
    ask(world, chance, ends, ClientAction::PutFor(world.next_value(), 1), &world.machines).await?;
    let begin = world.trace.now();
    let is_held = |number| world.machines.iter().any(|machine| machine.disk().held(&key(world.seed, number)).is_some());
    while is_held(ends) {
        if world.trace.now() - begin > ENDED_MAX {
            return Err(format!("key {ends} takes space for ever"));
        }
        chance.pick(&world.machines).want_round();
        tokio::time::sleep(chance.millis(100..3000)).await;
        world.machines.iter().for_each(|machine| machine.disk().compact().expect("memory takes all"));
        expect(ask(world, chance, stays, ClientAction::Get, &world.machines).await?, Some(value), stays)?;
    }
    expect(ask(world, chance, ends, ClientAction::Get, &world.machines).await?, None, ends)?;
    ask(world, chance, stays, ClientAction::Delete, &world.machines).await.map(drop)
}

//! Lost disks and who misses them: rounds in which every key is written while one replica is cut off, a replica that
//! acknowledged it loses its disk, and as soon as that one votes again the last that has everything is cut off. What
//! was acknowledged is there.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kvorum_node::membership::Standing;

use super::{ask, cut, expect, others};
use crate::chance::Chance;
use crate::history::Action;
use crate::world::{World, simulate};

/// Rounds of one seed.
pub const ROUNDS: u64 = 5;
/// A node votes again within this time.
const VOTES_MAX: Duration = Duration::from_secs(60);
const ROUND_INTERVAL: Duration = Duration::from_millis(300);

/// Plays [`ROUNDS`] rounds.
///
/// # Errors
/// What was lost, or that a node never voted again, or any other violation.
pub fn run(seed: u64) -> Result<(), String> {
    simulate(seed, move |directory| story(seed, directory)).unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

async fn story(seed: u64, directory: PathBuf) -> Result<(), String> {
    let world = Rc::new(World::calm(seed, &directory));
    world.start().await;
    let mut chance = Chance::new(seed, 6);
    let mut result = Ok(());
    for number in 0..ROUNDS {
        result = round(&world, &mut chance).await.and_then(|()| world.violation().map_or(Ok(()), Err));
        if let Err(what) = result {
            result = Err(format!("round {number}: {what}"));
            break;
        }
    }
    world.stop();
    result
}

async fn round(world: &Rc<World>, chance: &mut Chance) -> Result<(), String> {
    let mut machines = world.machines.clone();
    chance.shuffle(&mut machines);
    let (missing, loser, keeper) = (&machines[0], &machines[1], &machines[2]);
    cut(world, missing, true);
    let mut expected = Vec::new();
    for number in 0..world.keys.len() {
        expected.push(world.next_value());
        ask(world, chance, number, Action::Put(expected[number]), &others(world, missing)).await?;
    }
    loser.crash(chance.happens(500));
    loser.wipe();
    cut(world, missing, false);
    tokio::time::sleep(chance.millis(1..1000)).await;
    loser.start();
    let begin = world.trace.now();
    while loser.standing() != Some(Standing::Voting) {
        if world.trace.now() - begin > VOTES_MAX {
            return Err(format!("node {} never votes again", loser.index));
        }
        missing.want_round();
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    loser.note_rebuilt();
    cut(world, keeper, true);
    let result = read_all(world, chance, &expected, &others(world, keeper)).await;
    cut(world, keeper, false);
    result
}

async fn read_all(
    world: &Rc<World>,
    chance: &mut Chance,
    expected: &[u64],
    through: &[Rc<crate::machine::Machine>],
) -> Result<(), String> {
    for (number, value) in expected.iter().enumerate() {
        expect(ask(world, chance, number, Action::Get, through).await?, Some(*value), number)?;
    }
    Ok(())
}

//! Lost disks and what misses them: rounds in which every key is written while one replica is cut off, a replica that
//! acknowledged it loses its disk, and as soon as that one votes again the last that has everything is cut off. What
//! was acknowledged is there. In every other round the last one has in the meantime got something newer that reached no
//! other: then that or what was acknowledged is there.
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kvorum_core::quorum::Quorum;
use kvorum_peer::membership::VoteState;

use super::{ask, cut, expect, others};
use crate::chance::SimRandom;
use crate::clients;
use crate::history::ClientAction;
use crate::machine::Crash;
use crate::run::simulate;
use crate::world::World;

/// Rounds of one seed.
pub const ROUNDS: u64 = 5;
/// A node votes again within this time.
const VOTES_MAX: Duration = Duration::from_secs(60);
/// A node that lost its disk votes again only when the clocks are past what it may have acknowledged: 5 s, and what
/// a round lies behind. So long after the loss a clock that is ahead timestamps what is too new for that round.
const BEFORE_NEWER: Duration = Duration::from_millis(1500);
const AHEAD_MS: i64 = 4000;
const NEWER_KEYS: usize = 2;
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
    let mut chance = SimRandom::new(seed, 6);
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

async fn round(world: &Rc<World>, chance: &mut SimRandom) -> Result<(), String> {
    let mut machines = world.machines.clone();
    chance.shuffle(&mut machines);
    let (missing, loser, keeper) = (&machines[0], &machines[1], &machines[2]);
    cut(world, missing, true);
    let mut expected = Vec::new();
    for number in 0..world.keys.len() {
        expected.push(world.next_value());
        ask(world, chance, number, ClientAction::Put(expected[number]), &others(world, missing)).await?;
    }
    loser.crash(if chance.happens(500) { Crash::Process } else { Crash::Power });
    loser.wipe();
    cut(world, missing, false);
    tokio::time::sleep(chance.millis(1..1000)).await;
    loser.start();
    let mut newer = vec![None; expected.len()];
    if chance.happens(500) {
        tokio::time::sleep(BEFORE_NEWER).await;
        keeper.time.set_wall(AHEAD_MS);
        cut(world, keeper, true);
        for (number, newer) in newer.iter_mut().enumerate().take(NEWER_KEYS) {
            let value = world.next_value();
            let quorum = Quorum::new(2, 3).expect("two of three");
            clients::request(world, keeper, number, quorum, ClientAction::Put(value), 0, None).await;
            *newer = Some(value);
        }
        cut(world, keeper, false);
    }
    let begin = world.trace.now();
    while loser.vote_state() != Some(VoteState::Voting) {
        if world.trace.now() - begin > VOTES_MAX {
            return Err(format!("node {} never votes again", loser.index));
        }
        missing.want_round();
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    loser.note_rebuilt();
    cut(world, keeper, true);
    let through = others(world, keeper);
    for (number, (expected, newer)) in expected.into_iter().zip(newer).enumerate() {
        let found = ask(world, chance, number, ClientAction::Get, &through).await?;
        if found.is_none() || found != newer {
            expect(found, Some(expected), number)?;
        }
    }
    cut(world, keeper, false);
    keeper.time.set_wall(0);
    Ok(())
}

//! Stories: faults in an order that chance seldom brings, again and again, with other details each time.

pub mod deletions;
pub mod endings;
pub mod losses;
pub mod strangers;

use std::rc::Rc;
use std::time::Duration;

use kvorum_core::quorum::{Quorum, majority};

use crate::chance::SimRandom;
use crate::clients;
use crate::history::{ClientAction, ClientOutcome};
use crate::machine::Machine;
use crate::world::World;

/// A request that a fault may refuse is made again so often.
const ATTEMPTS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(200);

/// Asks at a majority, through any of these nodes, until it is answered; the value that a read finds.
async fn ask(
    world: &Rc<World>,
    chance: &mut SimRandom,
    number: usize,
    action: ClientAction,
    through: &[Rc<Machine>],
) -> Result<Option<u64>, String> {
    let from = world.keys[number].from;
    let quorum = Quorum::new(majority(from), from).expect("a majority");
    for _ in 0..ATTEMPTS_MAX {
        let id = clients::request(world, chance.pick(through), number, quorum, action, 0, None).await;
        let outcome = world.history.borrow().operations[id].outcome;
        match outcome {
            ClientOutcome::Ended(..) => return Ok(None),
            ClientOutcome::Found(found) => return Ok(found.map(|(value, _)| value)),
            ClientOutcome::Written(_) => return Ok(None),
            ClientOutcome::Refused | ClientOutcome::Unknown => tokio::time::sleep(PAUSE).await,
        }
    }
    Err(format!("{action:?} of key {number} is refused for ever"))
}

fn expect(found: Option<u64>, expected: Option<u64>, number: usize) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("key {number} should be {expected:?} and is {found:?}")) }
}

fn others(world: &World, machine: &Machine) -> Vec<Rc<Machine>> {
    world.machines.iter().filter(|other| other.index != machine.index).cloned().collect()
}

/// Cuts a node off from all others, or connects it again.
fn cut(world: &World, machine: &Machine, is_cut: bool) {
    for other in others(world, machine) {
        for (from, to) in [(machine.index, other.index), (other.index, machine.index)] {
            if is_cut { world.network.cut(from, to) } else { world.network.join(from, to) }
        }
    }
}

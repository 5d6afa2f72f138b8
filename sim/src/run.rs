//! One seed is one run.
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use kvorum_core::quorum::{Quorum, majority};
use tokio::runtime::RngSeed;

use crate::history::ClientAction;
use crate::invariants::{amnesia, answered, bounded, converged};
use crate::tasks::task_set;
use crate::trace::TraceText;
use crate::world::{LOOK_INTERVAL, RunReport, World};
use crate::{clients, faults};

/// How long everything is left alone before the last look: clocks that were ahead are caught up with, and half
/// of a connection that has lost its other half is noticed.
const REST: Duration = Duration::from_secs(25);

/// Runs one seed.
///
/// # Panics
/// If the simulator itself is broken, or the machine has no room for temporary files.
#[must_use]
pub fn run(seed: u64, text: TraceText) -> RunReport {
    simulate(seed, |directory| live(seed, text, directory)).unwrap_or_else(|panic| RunReport {
        seed,
        trace_hash: 0,
        faults: 0,
        disturbed: 0,
        requests: 0,
        succeeded: 0,
        layouts: 0,
        violation: Some(format!("panic: {panic}")),
    })
}

/// Has `story` happen in simulated time, with a directory for the nodes' files.
///
/// # Errors
/// The message of a panic.
pub(crate) fn simulate<T, F: Future<Output = T>>(seed: u64, story: impl FnOnce(PathBuf) -> F) -> Result<T, String> {
    let directory = temporary(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&seed.to_be_bytes()))
        .build()
        .expect("a runtime without I/O needs nothing");
    let tasks = task_set();
    let ran = catch_unwind(AssertUnwindSafe(|| tasks.block_on(&runtime, story(directory.clone()))));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(tasks)));
    let _ = std::fs::remove_dir_all(&directory);
    ran.map_err(|panic| message(&*panic).to_owned())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// In memory where there is such a place; of this process alone.
fn temporary(seed: u64) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let thread = format!("{:?}", std::thread::current().id());
    parent.join(format!("kvorum-sim-{}-{thread}-{seed}", std::process::id()))
}

async fn live(seed: u64, text: TraceText, directory: PathBuf) -> RunReport {
    let world = Rc::new(World::new(seed, text, &directory));
    world.start().await;
    tokio::task::spawn_local(look(world.clone()));
    let clients = u64::try_from(world.clients).expect("few clients");
    let clients: Vec<_> =
        (0..clients).map(|number| tokio::task::spawn_local(clients::run(world.clone(), number))).collect();
    faults::run(world.clone()).await;
    for client in clients {
        // A client waits for answers of a paused node until everything is healed.
        let _ = tokio::time::timeout(Duration::from_secs(8), client).await;
    }
    world.heal().await;
    tokio::time::sleep(REST).await;
    // Before the last rounds, which would make up for what a defect has left.
    read_all(&world).await;
    world.converge().await;
    world.check_all();
    let report = world.report();
    world.stop();
    report
}

/// Reads and writes every key through every node.
async fn read_all(world: &Rc<World>) {
    for number in 0..world.keys.len() {
        let plan = world.keys[number];
        if !plan.is_quorum || !world.has_quorum(number, plan) {
            continue;
        }
        let quorum = Quorum::new(majority(plan.from), plan.from).expect("a majority");
        let get = std::iter::repeat_n(ClientAction::Get, world.machines.len());
        let writer = &world.machines[number % world.machines.len()];
        let put = [(ClientAction::Put(world.next_value()), writer)];
        for (action, machine) in get.clone().zip(&world.machines).chain(put).chain(get.zip(&world.machines)) {
            let id = clients::request(world, machine, number, quorum, action, 0, None).await;
            let operation = world.history.borrow().operations[id].clone();
            // A round may have fenced a write that was under way.
            if world.plan.fence_lag >= world.plan.deadline || action == ClientAction::Get {
                world.violated(answered::check_at_the_end(&operation));
            }
        }
    }
}

/// Looks all the time at what must hold all the time.
async fn look(world: Rc<World>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        for machine in &world.machines {
            let checked =
                machine.with(|process| bounded::check(&world.plan, process, world.clients * world.keys.len() + 1));
            world.violated(checked.unwrap_or(Ok(())));
            world.violated(amnesia::check(machine));
            let checked = world.layouts.borrow_mut().check(machine);
            world.violated(checked);
        }
        for number in 0..world.keys.len() {
            world.violated(converged::check_watermark(world.seed, number, &world.plan.layout, &world.machines));
        }
    }
}

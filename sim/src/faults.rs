//! What goes wrong, and for how long.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use kvorum_core::chain::Ballot;
use kvorum_core::layout::{Layout, MemberNode, WantedNode};
use kvorum_storage::Store;
use kvorum_storage::memory::Fault;

use crate::chance::SimRandom;
use crate::history::key;
use crate::machine::{Crash, Loss, Machine};
use crate::network::Noise;
use crate::world::World;

#[derive(Clone, Copy, Debug)]
enum FaultKind {
    Crash,
    CrashSome,
    CrashAll,
    Pause,
    Partition,
    OneWay,
    Swizzle,
    Noise,
    SlowLink,
    ClockJump,
    SlowDisk,
    FullDisk,
    FailedSync,
    Wipe,
    Restore,
    Layouts,
}

/// How often each is drawn.
const KINDS: [(u64, FaultKind); 16] = [
    (16, FaultKind::Crash),
    (4, FaultKind::CrashSome),
    (3, FaultKind::CrashAll),
    (10, FaultKind::Pause),
    (10, FaultKind::Partition),
    (10, FaultKind::OneWay),
    (5, FaultKind::Swizzle),
    (14, FaultKind::Noise),
    (10, FaultKind::SlowLink),
    (10, FaultKind::ClockJump),
    (5, FaultKind::SlowDisk),
    (3, FaultKind::FullDisk),
    (4, FaultKind::FailedSync),
    (3, FaultKind::Wipe),
    (4, FaultKind::Restore),
    (12, FaultKind::Layouts),
];

/// Makes faults, one after another and some at once, until their time is over.
pub async fn run(world: Rc<World>) {
    let mut chance = SimRandom::new(world.seed, 3);
    while world.trace.now() < world.faults_end {
        tokio::time::sleep(chance.millis(50..1500)).await;
        let kind = chance.weighted(&KINDS);
        if let Some(what) = make(&world, &mut chance, kind) {
            world.faults.set(world.faults.get() + 1);
            world.trace.event(&format!("fault: {kind:?} {what}"));
        }
        background(&world, &mut chance);
    }
}

/// No faults, but what makes the rare paths less rare: cold records, and backups to restore.
fn background(world: &World, chance: &mut SimRandom) {
    for machine in &world.machines {
        if chance.happens(300) {
            machine.make_cold(&key(world.seed, chance.index(world.keys.len())));
        }
        if chance.happens(200) {
            machine.disk().compact().expect("memory takes all");
        }
        if chance.happens(60) && machine.loss.get() == Loss::None && machine.has_voted() {
            machine.back_up();
        }
    }
}

/// Makes one fault, if it can be now, and sees to its end; returns where.
fn make(world: &Rc<World>, chance: &mut SimRandom, kind: FaultKind) -> Option<String> {
    let machine = Rc::clone(chance.pick(&world.machines));
    let (nodes, target) = (world.machines.len(), format!("node {}", machine.index));
    match kind {
        FaultKind::Crash => crash(world, chance, &machine, 0..5000, Between::Nothing)?,
        FaultKind::CrashSome => {
            let some: Vec<_> = world.machines.iter().filter(|_| chance.happens(500)).cloned().collect();
            for machine in some {
                crash(world, chance, &machine, 0..3000, Between::Nothing);
            }
        }
        FaultKind::CrashAll => {
            for machine in &world.machines {
                crash(world, chance, machine, 0..1000, Between::Nothing);
            }
        }
        FaultKind::Pause => {
            machine.pause();
            after(world, chance.millis(50..4000), move |_| machine.resume());
        }
        FaultKind::Partition => {
            let side: Vec<bool> = (0..nodes).map(|_| chance.happens(500)).collect();
            let apart = pairs(nodes).filter(|(from, to)| side[*from] != side[*to]).collect();
            return cut(world, chance, apart);
        }
        FaultKind::OneWay => {
            let mut some: Vec<_> = pairs(nodes).collect();
            some.retain(|(from, _)| *from == machine.index || chance.happens(100));
            return cut(world, chance, some);
        }
        FaultKind::Swizzle => swizzle(world, chance),
        FaultKind::Noise => return noise(world, chance),
        FaultKind::SlowLink => {
            let slow = Noise::none(1 + chance.below(400));
            let (from, to) = (machine.index, chance.index(nodes));
            world.network.set_noise(from, to, slow);
            after(world, chance.millis(500..6000), move |world| world.network.set_noise(from, to, world.network.usual));
        }
        FaultKind::ClockJump => return jump(world, chance, &machine),
        FaultKind::SlowDisk => {
            machine.set_disk_ms(10 + chance.below(millis(world.disk_ms_max) - 10));
            after(world, chance.millis(300..4000), move |_| machine.set_disk_ms(2));
        }
        FaultKind::FullDisk => {
            machine.set_fault(Fault::DiskFull);
            after(world, chance.millis(300..4000), move |_| machine.set_fault(Fault::None));
        }
        FaultKind::FailedSync => {
            let survives = chance.happens(500);
            machine.set_fault(Fault::SyncFails { survives });
            let down = chance.millis(0..1000);
            after(world, chance.millis(300..3000), move |world| {
                end_for(world, &machine, Crash::Process, down, Between::Nothing);
            });
        }
        FaultKind::Wipe => return lose(world, chance, &machine, Between::Wipe),
        FaultKind::Restore => return lose(world, chance, &machine, Between::Restore),
        FaultKind::Layouts => return propose(world, chance),
    }
    Some(target)
}

/// Some nodes want another layout at once, each its own: with another pace, or one that opens a step or ends it.
fn propose(world: &World, chance: &mut SimRandom) -> Option<String> {
    let some: Vec<_> = world.machines.iter().filter(|_| chance.happens(400)).collect();
    for machine in &some {
        machine.spawn_on(|shard| {
            let (proposer, layout) = (shard.proposer(), shard.membership.layout());
            let wanted = match chance.below(3) {
                0 => Some(layout.with_pace(Some(1 + chance.below(1 << 20)))),
                1 => reweighted(&layout, chance),
                _ => layout.abort(),
            };
            async move {
                // What has become of it is seen in the layouts.
                if let Some(wanted) = wanted {
                    let _ = proposer.propose(wanted, Ballot::NONE).await;
                }
            }
        });
    }
    (!some.is_empty()).then(|| format!("{} nodes", some.len()))
}

/// Begins to move keys, unless that is under way.
fn reweighted(layout: &Layout, chance: &mut SimRandom) -> Option<Layout> {
    let mut wanted = |node: &MemberNode| WantedNode {
        directory: node.directory,
        weight: u16::try_from(1 + chance.below(3)).expect("small"),
        ..WantedNode::at(&node.url)
    };
    let wanted: Vec<_> = layout.nodes().iter().map(&mut wanted).collect();
    let plan = layout.plan_for(chance.bits(), &wanted, BTreeSet::new()).ok()?;
    layout.open(plan).ok()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a short time")
}

fn pairs(nodes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..nodes).flat_map(move |from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// Does something later, unless everything was healed meanwhile.
fn after(world: &Rc<World>, delay: Duration, then: impl FnOnce(&Rc<World>) + 'static) {
    let world = world.clone();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(delay).await;
        if !world.is_healed.get() {
            then(&world);
        }
    });
}

/// What happens to a machine between two runs of its process.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Wipe,
    Restore,
}

fn crash(
    world: &Rc<World>,
    chance: &mut SimRandom,
    machine: &Rc<Machine>,
    down_ms: std::ops::Range<u64>,
    between: Between,
) -> Option<()> {
    let down = chance.millis(down_ms);
    let crash = if chance.happens(600) { Crash::Process } else { Crash::Power };
    end_for(world, machine, crash, down, between)
}

fn end_for(world: &Rc<World>, machine: &Rc<Machine>, crash: Crash, down: Duration, between: Between) -> Option<()> {
    if !machine.is_up() {
        return None;
    }
    machine.crash(crash);
    match between {
        Between::Nothing => {}
        Between::Wipe => machine.wipe(),
        Between::Restore => machine.restore(),
    }
    let machine = machine.clone();
    after(world, down, move |world| {
        if !machine.is_up() {
            machine.start();
            world.trace.event(&format!("node {} starts", machine.index));
        }
    });
    Some(())
}

/// A disk is lost, or replaced by a backup that all others have notes beyond. Of a minority only, so that there is
/// something left to find, and not of a node that has none yet.
fn lose(world: &Rc<World>, chance: &mut SimRandom, machine: &Rc<Machine>, between: Between) -> Option<String> {
    let lost = world.machines.iter().filter(|other| other.loss.get() != Loss::None && other.index != machine.index);
    let others = || world.machines.iter().filter(|other| other.index != machine.index);
    if (lost.count() + 1) * 2 >= world.machines.len() || !machine.has_voted() || !machine.is_up() {
        return None;
    }
    if let Between::Restore = between {
        let sequence = machine.backup_sequence()?;
        // The promise is no greater: a peer without a note of what came after the backup cannot miss it.
        let know_better = |other: &Rc<Machine>| other.remembers(machine).is_some_and(|heard| heard > sequence);
        // And a key with a single replica is read there before any handshake.
        let is_alone = world.keys.iter().any(|key| key.is_quorum && key.from == 1);
        if machine.loss.get() != Loss::None || is_alone || !others().all(know_better) {
            return None;
        }
    }
    crash(world, chance, machine, 0..2000, between)?;
    Some(format!("node {}", machine.index))
}

fn cut(world: &Rc<World>, chance: &mut SimRandom, links: Vec<(usize, usize)>) -> Option<String> {
    if links.is_empty() {
        return None;
    }
    links.iter().for_each(|(from, to)| world.network.cut(*from, *to));
    let text = format!("{links:?}");
    after(world, chance.millis(200..6000), move |world| {
        links.iter().for_each(|(from, to)| world.network.join(*from, *to));
    });
    Some(text)
}

/// Clogs some links one after another, and lets them go on in another order.
fn swizzle(world: &Rc<World>, chance: &mut SimRandom) {
    let mut links: Vec<_> = pairs(world.machines.len()).filter(|_| chance.happens(400)).collect();
    chance.shuffle(&mut links);
    for (from, to) in links {
        let (begin, length) = (chance.millis(0..1000), chance.millis(100..3000));
        after(world, begin, move |world| world.network.clog(from, to));
        after(world, begin + length, move |world| world.network.unclog(from, to));
    }
}

/// All links become bad for a while.
fn noise(world: &Rc<World>, chance: &mut SimRandom) -> Option<String> {
    let mild = Noise {
        drop_permille: *chance.pick(&[0, 10, 50, 200]),
        double_permille: *chance.pick(&[0, 20, 200]),
        stray_permille: *chance.pick(&[0, 100, 500]),
        delay_ms: 1 + chance.below(30),
        stray_ms: *chance.pick(&[5, 50, 500, 2500]),
    };
    let storm = Noise { drop_permille: 150, double_permille: 400, stray_permille: 600, delay_ms: 10, stray_ms: 400 };
    let noise = if chance.happens(400) { storm } else { mild };
    let set = |world: &World, noise| {
        pairs(world.machines.len()).for_each(|(from, to)| world.network.set_noise(from, to, noise));
    };
    set(world, noise);
    after(world, chance.millis(1000..6000), move |world| set(world, world.network.usual));
    Some(format!("{noise:?}"))
}

/// A wall clock is set wrong: mostly within what is allowed.
fn jump(world: &Rc<World>, chance: &mut SimRandom, machine: &Rc<Machine>) -> Option<String> {
    let allowed = i64::try_from(world.plan.skew_max.as_millis()).expect("a short time");
    let most = if chance.happens(300) { 3 * allowed } else { allowed };
    let span = u64::try_from(2 * most).expect("a positive time");
    let offset_ms = i64::try_from(chance.below(span)).expect("a short time") - most;
    machine.time.set_wall(offset_ms);
    Some(format!("node {} is {offset_ms} ms ahead", machine.index))
}

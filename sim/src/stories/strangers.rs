//! Strangers: what calls a node in the name of another, with a hello and frames as that would send them. It takes no
//! vote, is not remembered, moves no clock far, raises no watermark before a node has summed up what it holds, and where
//! there is a secret it stores nothing.
//!
//! In a third of the seeds there is no secret, in another third there is one, and in the rest the stranger has stolen
//! it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kvorum_core::frame::{Frame, Message, NO_EPOCH, encode};
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_core::partitions::PartitionSet;
use kvorum_core::repair::RoundId;
use kvorum_core::repair::wire::RoundRequest;
use kvorum_core::{Hlc, Incarnation, Record, Version};
use kvorum_peer::dial::{Dial, Dialled};
use kvorum_peer::handshake::{Hello, PeerMemory};
use kvorum_peer::membership::{NOTES_INTERVAL, VoteState};
use kvorum_peer::proof::ClusterSecret;
use kvorum_storage::data_dir::RunId;
use kvorum_storage::{Store, Tier};

use super::{cut, others};
use crate::calls::{self, Guard};
use crate::chance::SimRandom;
use crate::clients;
use crate::history::{ClientAction, key};
use crate::machine::{Crash, Machine, Process};
use crate::run::simulate;
use crate::world::World;

/// What the stranger knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    /// There is no secret.
    Open,
    /// There is one, which it does not know.
    Outside,
    /// It has stolen it.
    Thief,
}

/// A call is answered, refused or lost within this time.
const CALL_MAX: Duration = Duration::from_secs(1);
/// What a call or a frame brings about is there after this.
const EFFECT: Duration = Duration::from_secs(3);
/// What the disk takes at most for each step, usually and where it is slow.
const DISK_MS: u64 = 2;
const SLOW_DISK_MS: u64 = 2000;
/// How far ahead of all clocks the stranger's is, within what clocks may differ.
const AHEAD_MS: u64 = 50_000;
/// How far a frame may move a clock, and what that clock goes on meanwhile.
const MOVED_MAX_MS: u64 = 5_000 + 1_000;

/// Plays the story.
///
/// # Errors
/// What the stranger has changed.
pub fn run(seed: u64) -> Result<(), String> {
    simulate(seed, move |directory| story(seed, directory)).unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

async fn story(seed: u64, directory: PathBuf) -> Result<(), String> {
    let kinds = [Stranger::Open, Stranger::Outside, Stranger::Thief];
    let stranger = kinds[usize::try_from(seed % 3).expect("a remainder")];
    let guard = if stranger == Stranger::Open { Guard::Open } else { Guard::Secret };
    let world = Rc::new(World::guarded(seed, &directory, guard));
    let result = acts(&world, stranger).await;
    world.stop();
    result
}

async fn acts(world: &Rc<World>, stranger: Stranger) -> Result<(), String> {
    let mut chance = SimRandom::new(world.seed, 7);
    introductions(world).await?;
    world.begin().await;
    world.violation().map_or(Ok(()), Err)?;
    for machine in &world.machines {
        hellos(world, &mut chance, machine, stranger).await?;
        frames(world, &mut chance, machine, stranger).await?;
    }
    older_copy(world, &mut chance).await?;
    world.violation().map_or(Ok(()), Err)
}

/// A new node that its peers do not reach is not known to them, whatever it reaches itself.
async fn introductions(world: &Rc<World>) -> Result<(), String> {
    tokio::task::spawn_local(world.network.clone().run());
    world.machines.iter().for_each(Machine::start);
    let newcomer = &world.machines[0];
    world.network.listen(newcomer.index, None);
    tokio::time::sleep(EFFECT).await;
    if newcomer.vote_state() != Some(VoteState::Unconfirmed) {
        return Err("a new node votes, though no peer has registered it".to_owned());
    }
    newcomer.crash(Crash::Process);
    newcomer.start();
    Ok(())
}

/// What a handshake may say of the victim, none of which is true.
fn lies(chance: &mut SimRandom, victim: &Machine) -> [Option<PeerMemory>; 3] {
    let own = victim.with(|process| process.shard.membership.directory()).expect("it runs");
    let run = RunId(chance.below(u64::MAX));
    let other = DirectoryId(own.0 ^ 1);
    [
        Some(PeerMemory { directory: other, run, sequence: 1 }),
        Some(PeerMemory { directory: own, run, sequence: u64::MAX }),
        None,
    ]
}

/// A hello in the name of another node, as that would say it.
fn hello(world: &World, chance: &mut SimRandom, victim: &Machine, remembers: Option<PeerMemory>) -> Hello {
    let name = chance.pick(&others(world, victim)).clone();
    let victim = NodeId(u32::try_from(victim.index).expect("few nodes"));
    let ours = name.with(|process| Hello::ours(&process.shard.membership, 1000, victim)).expect("it runs");
    Hello { remembers, ..ours }
}

async fn call(
    world: &World,
    victim: &Machine,
    mut hello: Hello,
    secret: Option<&ClusterSecret>,
) -> Option<(Dialled, Option<Bytes>)> {
    hello.nonce = secret.map(ClusterSecret::nonce).or(hello.nonce);
    let dialler = world.network.dialler(world.machines.len(), world.plan.urls.clone());
    let dialled = tokio::time::timeout(CALL_MAX, dialler.dial(victim.url(), &hello)).await.ok()?.ok()?;
    let proof = secret.and_then(|secret| secret.check_answer(&hello, &dialled.hello).ok().flatten());
    Some((dialled, proof))
}

/// The secret, if the stranger has it.
fn stolen(victim: &Machine, stranger: Stranger) -> Option<Arc<ClusterSecret>> {
    (stranger == Stranger::Thief).then(|| calls::secret(Guard::Secret, victim.index)).flatten()
}

async fn hellos(
    world: &Rc<World>,
    chance: &mut SimRandom,
    victim: &Rc<Machine>,
    stranger: Stranger,
) -> Result<(), String> {
    let secret = stolen(victim, stranger);
    let remembered: Vec<Option<u64>> = world.machines.iter().map(|machine| victim.remembers(machine)).collect();
    for lie in lies(chance, victim) {
        let hello = hello(world, chance, victim, lie);
        let _connection = call(world, victim, hello, secret.as_deref()).await;
        tokio::time::sleep(EFFECT).await;
        if victim.vote_state() != Some(VoteState::Voting) {
            return Err(format!("node {} has lost its vote to a call that says {lie:?}", victim.index));
        }
    }
    for (machine, before) in world.machines.iter().zip(remembered) {
        if victim.remembers(machine) < before {
            return Err(format!("node {} remembers less of node {}", victim.index, machine.index));
        }
    }
    Ok(())
}

/// A question of a round, as its driver would ask it of all nodes at once.
fn round(driver: usize, until: Hlc, ask: impl FnOnce(RoundId) -> RoundRequest) -> Message {
    let driver = NodeId(u32::try_from(driver).expect("few nodes"));
    Message::Repair(ask(RoundId { until, driver }).encode())
}

fn begin(round: RoundId) -> RoundRequest {
    RoundRequest::Begin { round }
}

fn end(round: RoundId) -> RoundRequest {
    RoundRequest::End { round, proven: PartitionSet::all(), restored: PartitionSet::all() }
}

/// Frames that come together, with the clock that they show.
fn send(dialled: &Dialled, frames: impl IntoIterator<Item = (Hlc, Message)>) {
    let mut out = BytesMut::new();
    for (hlc, message) in frames {
        assert!(encode(&Frame { id: 1, epoch: NO_EPOCH, hlc, message }, &mut out).is_none(), "it is small");
    }
    // What it does not take is lost.
    let _written = dialled.transport.try_write(&out);
}

fn clock(machine: &Machine) -> (Hlc, u64) {
    machine.with(|process| (process.shard.clock.reading(), process.shard.clock.wall_ms())).expect("it runs")
}

async fn frames(
    world: &Rc<World>,
    chance: &mut SimRandom,
    victim: &Rc<Machine>,
    stranger: Stranger,
) -> Result<(), String> {
    let secret = stolen(victim, stranger);
    let watermarks = victim.disk().gc_watermarks().bounds();
    let (_, wall_ms) = clock(victim);
    let (now, ahead) = (Hlc::from_millis(wall_ms), Hlc::from_millis(wall_ms + AHEAD_MS));
    let mut hello = hello(world, chance, victim, None);
    // Without the secret something stands in for a nonce, and for its proof.
    hello.nonce = (stranger == Stranger::Outside).then_some([7; 32]);
    let name = world.plan.urls.iter().position(|url| *url == hello.url).expect("a node of the cluster");
    let others = |index: &usize| *index != name && *index != victim.index;
    let another = (0..world.machines.len()).find(others).expect("three nodes");
    let unknown = key(world.seed, 1_000);
    let version = Version { hlc: now, incarnation: Incarnation(7) };
    let record = Record::value(&unknown, version, 1, None, b"stranger").bytes().clone();
    let store = Message::Store { key: unknown.clone(), record, repair: true, non_voting: false };
    if let Some((dialled, proof)) = call(world, victim, hello, secret.as_deref()).await {
        let proof = proof.or_else(|| (stranger == Stranger::Outside).then(|| Bytes::from(vec![7; 32])));
        let first = proof.map(|proof| (now, Message::Proof(proof)));
        // A round of another, which is not of this connection.
        let rest = [(ahead, Message::Ping { wall_ms }), (now, store), (now, round(another, now, begin))];
        send(&dialled, first.into_iter().chain(rest));
        tokio::time::sleep(EFFECT).await;
        // And one of its own, whose end comes before what the node holds is summed up: the disk is slow. One that waits
        // for that is as good as a peer, without a secret or with a stolen one.
        victim.set_disk_ms(SLOW_DISK_MS);
        let until = Hlc::from_millis(wall_ms + 1);
        let asked = [round(another, now, end), round(name, until, begin), round(name, until, end)];
        send(&dialled, asked.map(|message| (until, message)));
        tokio::time::sleep(EFFECT).await;
        victim.set_disk_ms(DISK_MS);
        tokio::time::sleep(EFFECT).await;
    }
    let (reading, wall_ms) = clock(victim);
    if reading.millis() > wall_ms + MOVED_MAX_MS {
        return Err(format!("a frame has moved the clock of node {} to {reading:?}", victim.index));
    }
    if victim.disk().gc_watermarks().bounds() != watermarks {
        return Err(format!("a frame has raised watermarks of node {}", victim.index));
    }
    let is_stored = victim.disk().get(&unknown, Tier::Disk).is_ok_and(|held| held.is_some());
    if is_stored && stranger == Stranger::Outside {
        return Err(format!("node {} has stored what a stranger sent", victim.index));
    }
    Ok(())
}

/// A node goes back to an older copy, and outgrows what a peer remembers of it before they meet. That peer does not
/// count it, even where it cannot be dialled itself.
async fn older_copy(world: &Rc<World>, chance: &mut SimRandom) -> Result<(), String> {
    let (node, peer) = (&world.machines[0], &world.machines[1]);
    let write = async |through: &Rc<Machine>, chance: &mut SimRandom, count: usize| {
        for number in 0..count {
            let number = number % world.keys.len();
            let quorum = kvorum_core::quorum::Quorum::new(1, world.keys[number].from).expect("one of some");
            let value = world.next_value();
            clients::request(world, through, number, quorum, ClientAction::Put(value), chance.index(10), None).await;
        }
    };
    node.back_up();
    write(node, chance, 20).await;
    // The peer has written down how far the node had got.
    tokio::time::sleep(NOTES_INTERVAL + EFFECT).await;
    let sequence = peer.remembers(node).unwrap_or_default();
    if node.backup_sequence().is_none_or(|backup| backup >= sequence) {
        return Ok(());
    }
    node.crash(Crash::Process);
    node.restore();
    cut(world, node, true);
    node.start();
    for _ in 0..10 {
        write(node, chance, 10).await;
        if node.with(|process| process.shard.replica.sequence() > sequence + 1) == Some(true) {
            break;
        }
    }
    node.crash(Crash::Process);
    // Calls to the peer are refused, and it calls the node.
    peer.crash(Crash::Process);
    peer.start();
    world.network.listen(peer.index, None);
    for other in others(world, node).iter().filter(|other| other.index != peer.index) {
        other.crash(Crash::Process);
    }
    cut(world, node, false);
    node.start();
    tokio::time::sleep(EFFECT).await;
    let target = NodeId(u32::try_from(node.index).expect("few nodes"));
    let links = |process: &Process| process.shard.membership.peer(target).links.load(Ordering::Relaxed);
    if node.vote_state() == Some(VoteState::Voting) && peer.with(links).is_some_and(|links| links > 0) {
        return Err("a node is counted without what its peer knows that it had".to_owned());
    }
    Ok(())
}

//! A replica that has lost what it acknowledged must not vote: the handshakes of whole clusters, with real
//! data directories and without sockets.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use std::path::Path;

use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::chain::{Ballot, ChainAnswer, ChainRequest};
use kvorum_core::layout::Layout;
use kvorum_core::node::DirectoryId;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_peer::handshake::{Hello, PeerMemory, register_peer};
use kvorum_peer::membership::{Membership, RemembersUs, VoteState};
use kvorum_storage::data_dir::{ClusterId, DataDir, RunId};
use tempfile::TempDir;

fn url(node: usize) -> String {
    format!("http://node-{node}:8080")
}

/// Starts a node of `n` whose store was recovered up to a sequence.
fn start(n: usize, node: usize, directory: &Path, recovered: u64) -> Membership {
    let layout = Layout::fixed_at((0..n).map(url)).unwrap();
    let own = layout.nodes().iter().position(|member| member.url == url(node)).unwrap();
    let cluster = ClusterId(7);
    let data_dir = DataDir::open(directory, cluster).unwrap();
    let rebuilding = data_dir.rebuilding().unwrap();
    let acceptor = Acceptor::new(NodeId(own as u32), data_dir.id(), layout);
    Membership::new(acceptor, data_dir, recovered, rebuilding, 60_000)
}

/// `caller` connects to `called`. Whether it counts what comes over the connection; nothing if it is refused one.
fn connect(caller: &Membership, called: &Membership) -> Option<bool> {
    let id = |of: &Membership, who: &Membership| of.node_by_url(&who.own_state().url).unwrap();
    let request = Hello::ours(caller, 1, id(caller, called)).headers();
    let answer = Hello::ours(called, 1, id(called, caller)).headers();
    let read =
        |headers: &hyper::HeaderMap| Hello::parse(|name| headers.get(name).map(|value| value.as_bytes())).unwrap();
    let is_accuser = read(&request).is_accuser(called);
    (!is_accuser).then(|| register_peer(caller, id(caller, called), &read(&answer)).unwrap())
}

/// `called` answers a ping of `caller`.
fn pong(caller: &Membership, called: &Membership, sequence: u64) {
    let id = |of: &Membership, who: &Membership| of.node_by_url(&who.own_state().url).unwrap();
    let is_remembered = called.remembers(id(called, caller), caller.directory());
    let remembers = if is_remembered { RemembersUs::Yes } else { RemembersUs::NotYet };
    caller.note_sequence(id(caller, called), called.run().id, sequence, remembers);
}

/// Both connect to each other, and receive each other's pong. What is refused at first is not once the other has
/// called.
fn meet(one: &Membership, other: &Membership) {
    let is_connected = connect(one, other).is_some();
    connect(other, one).unwrap();
    assert!(is_connected || connect(one, other).is_some());
    for (caller, called) in [(one, other), (other, one)] {
        pong(caller, called, called.run().recovered);
    }
}

fn directories(n: usize) -> Vec<TempDir> {
    (0..n).map(|_| tempfile::tempdir().unwrap()).collect()
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A node, and its peer, which has received that its store is durable up to 100.
fn heard_of_100(directories: &[TempDir]) -> (Membership, Membership) {
    let [peer, node] = [0, 1].map(|node| start(2, node, directories[node].path(), 0));
    meet(&peer, &node);
    pong(&peer, &node, 100);
    (peer, node)
}

fn votes(node: &Membership) -> bool {
    node.vote_state() == VoteState::Voting
}

#[test]
fn a_new_directory_votes_once_a_majority_of_the_others_knows_it() {
    for (n, needed) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)] {
        let directories = directories(n);
        let nodes: Vec<Membership> = (0..n).map(|node| start(n, node, directories[node].path(), 0)).collect();
        for met in 0..n {
            assert_eq!(votes(&nodes[0]), met >= needed, "{met} of {n}");
            assert_eq!(nodes[0].awaited().is_none(), met >= needed);
            if let Some(awaited) = nodes[0].awaited() {
                assert!(awaited.starts_with(&format!("registered by {met} of the {needed} peers needed")), "{awaited}");
                assert!((1..n).all(|node| awaited.contains(&url(node)) == (node > met)), "{awaited}");
            }
            if met + 1 < n {
                meet(&nodes[0], &nodes[met + 1]);
            }
        }
    }
}

#[test]
fn a_peer_that_may_not_remember_this_directory_has_not_met_it() {
    let directories = directories(2);
    let nodes: Vec<Membership> = (0..2).map(|node| start(2, node, directories[node].path(), 0)).collect();
    connect(&nodes[0], &nodes[1]);
    pong(&nodes[0], &nodes[1], 0);
    assert!(!votes(&nodes[0]), "node 1 was called, and remembers nothing for that");
    connect(&nodes[1], &nodes[0]);
    assert!(votes(&nodes[1]), "the answer has shown that node 0 remembers it");
    assert!(!votes(&nodes[0]));
    pong(&nodes[0], &nodes[1], 0);
    assert!(votes(&nodes[0]));
}

#[test]
fn what_a_caller_says_takes_no_vote_gives_none_and_is_not_remembered() {
    let directories = directories(3);
    let nodes: Vec<Membership> = (0..3).map(|node| start(3, node, directories[node].path(), 0)).collect();
    let id = |who: usize| nodes[0].node_by_url(&url(who)).unwrap();
    let lie = |remembers| {
        let hello = Hello { remembers, ..Hello::ours(&nodes[1], 1, nodes[1].node_by_url(&url(0)).unwrap()) };
        hello.is_accuser(&nodes[0])
    };
    let memory = |directory, sequence| Some(PeerMemory { directory, run: RunId(9), sequence });
    assert!(!lie(memory(nodes[0].directory(), 0)) && !votes(&nodes[0]), "nobody is known for having said so");
    meet(&nodes[0], &nodes[1]);
    meet(&nodes[0], &nodes[2]);
    let before = nodes[0].remembered(id(1));
    assert!(lie(memory(nodes[0].directory(), u64::MAX)) && lie(memory(DirectoryId(5), 0)), "it gets no connection");
    assert!(votes(&nodes[0]) && nodes[0].remembered(id(1)) == before);
    // The node itself is not refused for what was said in its name.
    assert_eq!((connect(&nodes[1], &nodes[0]), connect(&nodes[0], &nodes[1])), (Some(true), Some(true)));
}

#[test]
fn a_wiped_node_does_not_vote_with_the_help_of_one_it_never_met() {
    // Nodes 0 and 2 of three are a quorum, and node 1 has connected to neither. Node 2 is wiped while 0 is away.
    let directories = directories(3);
    let third = start(3, 2, directories[2].path(), 0);
    meet(&start(3, 0, directories[0].path(), 0), &third);
    assert!(!votes(&third), "its peers have not registered it yet");
    drop(third);
    let fresh = tempfile::tempdir().unwrap();
    let wiped = start(3, 2, fresh.path(), 0);
    let never_met = start(3, 1, directories[1].path(), 0);
    meet(&wiped, &never_met);
    assert!(!votes(&wiped) && !votes(&never_met), "acknowledged writes would vanish");
    meet(&wiped, &start(3, 0, directories[0].path(), 0));
    assert_eq!(wiped.vote_state(), VoteState::Rebuilding, "node 0 remembers");
    drop(wiped);
    assert_eq!(start(3, 2, fresh.path(), 0).vote_state(), VoteState::Rebuilding, "nor after a restart");
}

#[test]
fn a_new_directory_is_confirmed_beside_a_peer_that_lost_its_own() {
    // Node 2 is killed before it has written down that it is known; then node 0 loses its disk.
    let directories = directories(3);
    let start_all = || (0..3).map(|node| start(3, node, directories[node].path(), 0)).collect::<Vec<Membership>>();
    let nodes = start_all();
    (0..3).for_each(|one| (0..one).for_each(|other| meet(&nodes[one], &nodes[other])));
    assert!(nodes.iter().all(votes));
    nodes[1].write_notes_once().unwrap();
    drop(nodes);
    let fresh = tempfile::tempdir().unwrap();
    let [wiped, kept] = [start(3, 0, fresh.path(), 0), start(3, 1, directories[1].path(), 0)];
    let killed = start(3, 2, directories[2].path(), 0);
    meet(&killed, &wiped);
    assert!(!votes(&killed), "the wiped one has no note of it");
    assert!(
        killed
            .awaited()
            .unwrap()
            .starts_with("registered by 1 of the 2 peers needed, of which 1 rebuild; waiting for: ")
    );
    meet(&killed, &kept);
    assert!(votes(&killed), "one that remembers has seen no other directory");
    assert_eq!(wiped.vote_state(), VoteState::Rebuilding);
}

#[test]
fn a_node_that_has_voted_votes_after_a_restart_without_meeting_anybody() {
    let directories = directories(3);
    let nodes: Vec<Membership> = (0..3).map(|node| start(3, node, directories[node].path(), 0)).collect();
    meet(&nodes[0], &nodes[1]);
    meet(&nodes[0], &nodes[2]);
    nodes[0].stop_notes();
    nodes[0].write_notes();
    drop(nodes);
    assert!(votes(&start(3, 0, directories[0].path(), 0)));
}

#[test]
fn a_run_that_begins_with_less_than_was_heard_of_the_one_before_loses_its_vote() {
    for (recovered, lost) in [(0, true), (99, true), (100, false), (150, false)] {
        for restarts in [false, true] {
            for it_calls in [false, true] {
                let directories = directories(2);
                let (peer, node) = heard_of_100(&directories);
                pong(&peer, &node, 40);
                drop(node);
                let peer = if restarts {
                    peer.stop_notes();
                    peer.write_notes();
                    drop(peer);
                    start(2, 0, directories[0].path(), 0)
                } else {
                    peer
                };
                let node = start(2, 1, directories[1].path(), recovered);
                if lost && !it_calls {
                    assert_eq!(connect(&peer, &node), None, "{recovered}: not before the node has called itself");
                    assert!(votes(&node), "{recovered}: a call takes no vote");
                }
                for _ in 0..2 {
                    assert_eq!(connect(&node, &peer), Some(true));
                    assert_eq!(connect(&peer, &node), Some(!lost), "{recovered}");
                    assert_eq!(node.vote_state() == VoteState::Rebuilding, lost, "{recovered}");
                    // What it does from now on makes up for nothing.
                    pong(&peer, &node, 1_000);
                }
                assert!(votes(&peer));
            }
        }
    }
}

#[test]
fn an_older_copy_that_has_outgrown_the_original_while_nobody_looked_has_no_vote() {
    let directories = directories(2);
    let copied = tempfile::tempdir().unwrap();
    let copy = copied.path().join("copy");
    let peer = start(2, 0, directories[0].path(), 0);
    let original = start(2, 1, directories[1].path(), 0);
    meet(&peer, &original);
    original.write_notes_once().unwrap();
    drop(original);
    copy_directory(directories[1].path(), &copy);
    // The original goes on, in another run too.
    for sequence in [60, 100] {
        let node = start(2, 1, directories[1].path(), sequence - 20);
        meet(&peer, &node);
        pong(&peer, &node, sequence);
    }
    // The copy starts while the peer is away, and stores more than the original ever had.
    for recovered in [40, 150, 200] {
        assert!(votes(&start(2, 1, &copy, recovered)), "no peer has a later note");
    }
    let node = start(2, 1, &copy, 250);
    connect(&node, &peer);
    assert_eq!(node.vote_state(), VoteState::Rebuilding);
    drop(node);
    assert_eq!(start(2, 1, &copy, 300).vote_state(), VoteState::Rebuilding);
}

#[test]
fn a_peer_that_was_away_for_many_runs_accuses_nobody_of_what_was_not_lost() {
    let directories = directories(2);
    let (peer, node) = heard_of_100(&directories);
    drop(node);
    for recovered in 100..500 {
        drop(start(2, 1, directories[1].path(), recovered));
    }
    let node = start(2, 1, directories[1].path(), 500);
    assert_eq!(connect(&node, &peer), Some(true));
    assert_eq!(connect(&peer, &node), Some(true));
    assert!(votes(&node));
}

#[test]
fn a_handshake_that_only_the_peer_has_seen_does_not_make_it_forget() {
    let directories = directories(2);
    let (peer, node) = heard_of_100(&directories);
    drop(node);
    let node = start(2, 1, directories[1].path(), 120);
    let id = peer.node_by_url(&node.own_state().url).unwrap();
    let hello = Hello::ours(&node, 1, node.node_by_url(&peer.own_state().url).unwrap());
    let before = peer.remembered(id);
    assert!(register_peer(&peer, id, &hello).unwrap());
    assert_eq!(peer.remembered(id).map(|note| (note.run, note.sequence)), before.map(|note| (note.run, note.sequence)));
    pong(&peer, &node, 130);
    assert_eq!(peer.remembered(id).map(|note| (note.run, note.sequence)), Some((node.run().id, 130)));
}

#[test]
fn a_run_that_goes_on_is_not_measured_by_where_it_began() {
    let directories = directories(2);
    let (peer, node) = heard_of_100(&directories);
    peer.stop_notes();
    peer.write_notes();
    drop(peer);
    let peer = start(2, 0, directories[0].path(), 0);
    assert_eq!(connect(&node, &peer), Some(true));
    assert_eq!(connect(&peer, &node), Some(true));
    assert!(votes(&peer) && votes(&node));
}

/// Both connect to each other, and receive each other's pong.
fn meet_and_ping(one: &Membership, other: &Membership, stored: u64) {
    meet(one, other);
    let id = one.node_by_url(&other.own_state().url).unwrap();
    if other.is_rebuilt() {
        one.note_rebuilt(id, other.directory(), other.run(), other.sequence(stored));
    }
    pong(one, other, other.sequence(stored));
    [one, other].into_iter().for_each(|node| node.write_notes_once().unwrap());
}

/// What a node is that has lost something, and what becomes of what others remember of it.
#[test]
fn what_was_made_good_is_no_reproach_to_any_later_run_and_what_was_lost_since_is() {
    for is_wiped in [false, true] {
        let outer = tempfile::tempdir().unwrap();
        let place = |name: &str| outer.path().join(name);
        let peer = start(2, 0, &place("peer"), 0);
        let node = start(2, 1, &place("node"), 0);
        meet_and_ping(&peer, &node, 40);
        drop(node);
        copy_directory(&place("node"), &place("before"));
        meet_and_ping(&peer, &start(2, 1, &place("node"), 40), 100);
        drop(peer);
        copy_directory(&place("peer"), &place("older peer"));

        // It comes back with less, and gets everything back.
        let (path, stored) = if is_wiped { (place("new"), 0) } else { (place("before"), 40) };
        let peer = start(2, 0, &place("peer"), 0);
        let node = start(2, 1, &path, stored);
        connect(&node, &peer);
        assert_eq!(node.vote_state(), VoteState::Rebuilding);
        assert!(!node.is_rebuilt());
        node.restore(&PartitionSet::all(), stored + 5).unwrap();
        assert!(votes(&node) && node.is_rebuilt());
        meet_and_ping(&peer, &node, stored + 10);
        assert!(votes(&node));
        drop(node);
        copy_directory(&path, &place("after"));

        // In later runs too, that does not count against it: not at a peer that has it, and not at one with an older
        // disk.
        let node = start(2, 1, &path, stored + 20);
        let older_peer = start(2, 0, &place("older peer"), 0);
        connect(&older_peer, &node);
        assert!(votes(&node) && node.is_rebuilt());
        meet_and_ping(&older_peer, &node, stored + 20);
        assert_eq!(connect(&older_peer, &node), Some(true), "it has received that the node is rebuilt");
        meet_and_ping(&peer, &node, stored + 30);
        assert!(votes(&node));
        drop((node, older_peer));
        let older_peer = start(2, 0, &place("older peer"), 0);
        assert_eq!(connect(&older_peer, &start(2, 1, &path, stored + 30)), Some(true), "nor after its own restart");

        // What it has lost since is another matter, even where it is less than what was lost at first.
        let copy = start(2, 1, &place("after"), stored + 10);
        connect(&copy, &peer);
        assert_eq!(copy.vote_state(), VoteState::Rebuilding, "it had got to {}", stored + 30);
    }
}

#[test]
fn a_node_that_dies_while_its_rebuilding_is_noted_as_ended_rebuilds_anew_and_then_votes() {
    let outer = tempfile::tempdir().unwrap();
    let place = |name: &str| outer.path().join(name);
    let (wiped, rebuilt) = (place("wiped"), place("wiped").join("REBUILT"));
    let peer = start(2, 0, &place("peer"), 0);
    meet_and_ping(&peer, &start(2, 1, &place("node"), 0), 100);
    let node = start(2, 1, &wiped, 0);
    connect(&node, &peer);
    assert_eq!(node.vote_state(), VoteState::Rebuilding);

    // Where it counts from cannot be made durable: then it has no vote, nor after a restart.
    std::fs::create_dir(&rebuilt).unwrap();
    node.restore(&PartitionSet::all(), 5).unwrap_err();
    assert!(node.vote_state() == VoteState::Rebuilding && !node.is_rebuilt());
    assert!(wiped.join("REBUILDING").exists(), "or a peer that remembers less would let it vote");
    drop(node);
    std::fs::remove_dir(&rebuilt).unwrap();
    let node = start(2, 1, &wiped, 5);
    connect(&node, &peer);
    assert_eq!(node.vote_state(), VoteState::Rebuilding);
    copy_directory(&wiped, &place("between"));
    node.restore(&PartitionSet::all(), 6).unwrap();
    assert!(votes(&node));
    drop(node);

    // It was durable, and that the rebuilding has ended was not: the directory of a node that died between the two.
    std::fs::copy(&rebuilt, place("between").join("REBUILT")).unwrap();
    let node = start(2, 1, &place("between"), 6);
    assert!(node.vote_state() == VoteState::Rebuilding && !node.is_rebuilt());
    meet_and_ping(&peer, &node, 7);
    assert_eq!(node.vote_state(), VoteState::Rebuilding);
    node.restore(&PartitionSet::all(), 8).unwrap();
    assert!(votes(&node) && node.is_rebuilt());
    meet_and_ping(&peer, &node, 9);
    assert_eq!(connect(&peer, &node), Some(true));
    drop(node);
    let node = start(2, 1, &place("between"), 9);
    assert_eq!(connect(&peer, &node), Some(true), "nor is it reproached with anything later");
    assert!(votes(&node));
}

#[test]
fn a_layout_of_others_is_not_taken_over_nor_a_ballot_that_none_could_outbid() {
    let dir = TempDir::new().unwrap();
    let node = start(2, 0, dir.path(), 0);
    let known = node.layout();
    let paced = |layout: &Layout| layout.with_pace(Some(1));
    let founded_apart = paced(&Layout::fixed_at((1..3).map(url)).unwrap());
    let ask = |request| node.answer_layout(request).unwrap();
    assert_eq!(ask(ChainRequest::Learn { value: founded_apart.clone() }), ChainAnswer::NotNext);
    let ballot = Ballot { counter: 1, directory: DirectoryId(9) };
    assert_eq!(ask(ChainRequest::Prepare { ballot, parent: founded_apart }), ChainAnswer::NotNext);
    let last = Ballot { counter: u64::MAX, ..ballot };
    assert_eq!(ask(ChainRequest::Prepare { ballot: last, parent: Layout::clone(&known) }), ChainAnswer::NotNext);
    assert!(node.recover_vote(last).is_none(), "it does not vote on data yet");
    assert_eq!(node.epoch(), known.epoch());
    node.note_epoch(NodeId(1), u64::MAX);
    assert_eq!(ask(ChainRequest::Learn { value: paced(&known) }), ChainAnswer::Known);
    assert_eq!(node.epoch(), known.epoch() + 1);
    drop(node);
    let data_dir = DataDir::open(dir.path(), ClusterId(7)).unwrap();
    assert_eq!(data_dir.acceptor().unwrap().unwrap().chosen().epoch(), known.epoch() + 1, "it is kept");
}

//! What was received from a peer is written down, whichever thread asks for it and when; stopping writes the rest.

use std::path::Path;
use std::sync::Arc;

use kvorum_base::interleavings::check;
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::layout::Layout;
use kvorum_core::node::DirectoryId;
use kvorum_core::node::NodeId;
use kvorum_storage::data_dir::{ClusterId, DataDir, Run, RunId};
use shuttle::thread;
use tempfile::TempDir;

use crate::membership::{Membership, RemembersUs};

const OTHER: NodeId = NodeId(1);
const CLUSTER: ClusterId = ClusterId(7);

/// In memory, where there is such a file system.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn url(node: u32) -> String {
    format!("http://node-{node}:8080")
}

/// Node 0 of two, after a handshake with the other.
fn start(directory: &Path) -> Arc<Membership> {
    let layout = Layout::fixed_at((0..2).map(url)).unwrap();
    let data_dir = DataDir::open(directory, CLUSTER).unwrap();
    let membership =
        Arc::new(Membership::new(Acceptor::new(NodeId(0), data_dir.id(), layout), data_dir, 0, None, 60_000));
    assert!(membership.register_peer(OTHER, DirectoryId(9), run(0), RemembersUs::Yes).unwrap());
    membership
}

fn run(recovered: u64) -> Run {
    Run { id: RunId(5), recovered }
}

#[test]
fn what_was_heard_of_a_peer_is_written_down_and_no_wake_up_is_missed() {
    check(40, || {
        let directory = directory();
        let membership = start(directory.path());
        let writer = {
            let membership = Arc::clone(&membership);
            thread::spawn(move || membership.write_notes())
        };
        let shards: Vec<_> = [10, 20]
            .into_iter()
            .map(|sequence| {
                let membership = Arc::clone(&membership);
                thread::spawn(move || {
                    membership.note_sequence(OTHER, RunId(5), sequence, RemembersUs::Yes);
                    membership.write_notes_now();
                    // A connection of another shard, made meanwhile, which received less.
                    membership.register_peer(OTHER, DirectoryId(9), run(sequence / 2), RemembersUs::Yes).unwrap();
                })
            })
            .collect();
        shards.into_iter().for_each(|shard| shard.join().unwrap());
        while membership.wants_notes() {
            thread::yield_now();
        }
        membership.note_sequence(OTHER, RunId(5), 30, RemembersUs::Yes);
        membership.stop_notes();
        writer.join().unwrap();
        let opened = Arc::into_inner(membership).expect("nobody else has it").data_path().to_owned();
        let written = DataDir::open(&opened, CLUSTER).unwrap().remembered(OTHER).unwrap();
        assert_eq!((written.sequence, written.knows_us), (30, true));
    });
}

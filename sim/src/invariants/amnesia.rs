//! A replica that lost what it acknowledged does not vote.

use kvorum_peer::membership::VoteState;

use crate::machine::{Loss, Machine};

/// Looks at one machine at one moment.
///
/// # Errors
/// If it votes with an empty disk in the place of one that voted before.
pub fn check(machine: &Machine) -> Result<(), String> {
    machine.note_rebuilt();
    if machine.loss.get() == Loss::Wiped && machine.vote_state() == Some(VoteState::Voting) {
        return Err(format!("amnesia: node {} lost its disk and votes", machine.index));
    }
    Ok(())
}

/// Looks at one machine once it has connected to the others, all of which have notes beyond its backup.
///
/// # Errors
/// If it votes.
pub fn check_at_the_end(machine: &Machine) -> Result<(), String> {
    machine.note_rebuilt();
    if machine.loss.get() != Loss::None && machine.vote_state() == Some(VoteState::Voting) {
        return Err(format!("amnesia: node {} has an old disk and votes", machine.index));
    }
    Ok(())
}

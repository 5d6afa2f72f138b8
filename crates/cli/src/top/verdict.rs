//! What a second's figures mean, in words.

use super::sample::TopNode;
use crate::output::grouped;

/// Replicas of a key where no node has said how many there are.
const FROM_DEFAULT: usize = 3;

/// What works, what one more loss would do, and who is behind.
pub(super) fn verdict(nodes: &[TopNode], from: Option<u64>) -> String {
    let members: Vec<&TopNode> = nodes.iter().filter(|node| !["foreign", "not-kvorum"].contains(&node.state)).collect();
    let is_lost = |node: &&&TopNode| ["silent", "not ready", "rebuilding"].contains(&node.state);
    let lost: Vec<&&TopNode> = members.iter().filter(is_lost).collect();
    if members.iter().all(|node| node.state == "silent") {
        return "no node answers".to_owned();
    }
    let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(FROM_DEFAULT).clamp(1, members.len());
    let mut parts = vec![of_quorum(from, members.len(), lost.len())];
    parts.extend(lost.iter().map(|node| format!("{} is {}", node.name, node.state)));
    for node in members.iter().filter(|node| node.hints > 0) {
        let (hints, seconds) = (grouped(node.hints), node.hints_oldest_s);
        parts.push(format!("{} is behind by {hints} hints, {seconds:.0} s", node.name));
    }
    parts.join("; ")
}

/// What is true of every key, wherever its replicas are.
fn of_quorum(from: usize, nodes: usize, lost: usize) -> String {
    let required = from / 2 + 1;
    let spare = from - required;
    let quorum = format!("reads and writes at {required}/{from}");
    match spare.checked_sub(lost) {
        Some(0) => format!("{quorum} work; one more loss stops them"),
        Some(1) => format!("{quorum} work; one node may be lost"),
        Some(left) => format!("{quorum} work; {left} nodes may be lost"),
        None if nodes == from => format!("{quorum} FAIL: {lost} of {nodes} nodes do not take part"),
        None => {
            format!("{quorum} FAIL for keys of which {} replicas or more are among the {lost} lost nodes", spare + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TopNode, verdict};

    fn node(name: &str, state: &'static str, hints: u64) -> TopNode {
        TopNode { name: name.into(), state, trouble: None, stats: None, hints, hints_oldest_s: 40.2 }
    }

    fn of(states: &[&'static str], from: u64) -> String {
        let nodes: Vec<TopNode> =
            ["a", "b", "c", "d", "e"].into_iter().zip(states).map(|(name, state)| node(name, state, 0)).collect();
        verdict(&nodes, Some(from))
    }

    #[test]
    fn the_verdict_says_what_works_and_what_one_more_loss_would_do() {
        assert_eq!(of(&["up"; 3], 3), "reads and writes at 2/3 work; one node may be lost");
        let text = of(&["up", "up", "silent"], 3);
        assert_eq!(text, "reads and writes at 2/3 work; one more loss stops them; c is silent");
        let text = of(&["up", "rebuilding", "silent"], 3);
        assert_eq!(text, "reads and writes at 2/3 FAIL: 2 of 3 nodes do not take part; b is rebuilding; c is silent");
        let text = of(&["up", "up", "up", "silent", "not ready"], 3);
        assert!(text.starts_with("reads and writes at 2/3 FAIL for keys of which 2 replicas or more"), "{text}");
        assert_eq!(of(&["up"; 5], 5), "reads and writes at 3/5 work; 2 nodes may be lost");
        assert_eq!(of(&["up"], 1), "reads and writes at 1/1 work; one more loss stops them");
        assert_eq!(of(&["silent"; 3], 3), "no node answers");
        assert_eq!(of(&["up", "up", "old", "foreign"], 3), "reads and writes at 2/3 work; one node may be lost");
    }

    #[test]
    fn who_is_behind_is_named_with_how_much_and_since_when() {
        let nodes = [node("a", "up", 0), node("b", "up", 0), node("c", "up", 14_203)];
        let text = verdict(&nodes, Some(3));
        assert!(text.ends_with("; c is behind by 14,203 hints, 40 s"), "{text}");
    }
}

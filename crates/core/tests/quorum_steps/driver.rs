//! What a step needs besides operations: layouts spread, nodes bar, a pass copies, and the chain goes on.

use kvorum_core::Record;

use crate::history::{FrameBody, StepHistory};
use crate::layouts::{KeyLayout, NODES, Nodes, count, cover, members, needed};
use crate::without::Without;

/// Lists of the nodes where the key belongs, and the newest of them at those where it will belong.
#[derive(Clone, Debug)]
pub struct SourcePass {
    epoch: usize,
    sources: Nodes,
    listed: Nodes,
    newest: Option<Record>,
    is_given: bool,
    /// They have stored it, or hold something newer.
    synced: Nodes,
}

impl StepHistory {
    fn newest_epoch(&self) -> usize {
        self.chain.len() - 1
    }

    /// One move, whatever it is. With `at_will` steps open and abort as well.
    pub fn change_layouts(&mut self, at_will: bool) {
        let layout = self.chain[self.newest_epoch()];
        match self.chance.below(12) {
            0 => self.install(),
            1 => self.inform_coordinator(),
            2 => self.bar(layout),
            3 => self.begin_pass(layout),
            4 => self.give(layout),
            5 => self.flip(layout),
            6 if at_will => self.abort(layout),
            7 if at_will => self.open(layout),
            8.. if self.settings.steps_are_driven => self.drive(layout, at_will),
            _ => {}
        }
    }

    /// What comes next in the step, so that many are carried out.
    fn drive(&mut self, layout: KeyLayout, at_will: bool) {
        let epoch = self.newest_epoch();
        if layout.next.is_none() {
            if at_will {
                self.open(layout);
            }
        } else if members(layout.now).any(|node| self.nodes[node].bar < epoch) && self.chance.happens(600) {
            self.bar(layout);
        } else if !self.passes.iter().any(|pass| pass.epoch == epoch) {
            self.begin_pass(layout);
        } else if self.chance.happens(500) {
            self.give(layout);
        } else {
            self.flip(layout);
        }
    }

    fn install(&mut self) {
        let node = self.chance.index(NODES);
        let behind = self.newest_epoch() - self.nodes[node].installed;
        if behind > 0 {
            self.nodes[node].installed += 1 + self.chance.index(behind);
            let installed = self.nodes[node].installed;
            self.note(|| format!("{node} installs epoch {installed}"));
        }
    }

    fn inform_coordinator(&mut self) {
        let coordinator = self.chance.index(self.epochs.len());
        let behind = self.newest_epoch() - self.epochs[coordinator];
        if behind > 0 {
            self.epochs[coordinator] += 1 + self.chance.index(behind);
            let known = self.epochs[coordinator];
            self.note(|| format!("coordinator {coordinator} knows epoch {known}"));
        }
    }

    /// A node where the key belongs takes its bar, once it has installed the step.
    fn bar(&mut self, layout: KeyLayout) {
        let epoch = self.newest_epoch();
        let nodes: Vec<usize> = members(layout.now).collect();
        let node = self.chance.pick(&nodes);
        if layout.next.is_none() || self.without == Without::Bar {
            return;
        }
        let replica = &mut self.nodes[node];
        if replica.installed < epoch && self.chance.happens(500) {
            replica.installed = epoch;
        }
        if replica.installed >= epoch && replica.bar < epoch {
            replica.bar = epoch;
            self.note(|| format!("{node} bars what is before epoch {epoch}"));
        }
    }

    fn barred(&self, layout: KeyLayout) -> Nodes {
        let epoch = self.newest_epoch();
        set_of(members(layout.now).filter(|node| self.nodes[*node].bar >= epoch))
    }

    /// Asks so many voters for their lists that every majority has one of them.
    fn begin_pass(&mut self, layout: KeyLayout) {
        if layout.next.is_none() || self.chance.happens(500) {
            return;
        }
        let bars_count = !matches!(self.without, Without::Bar | Without::ListAfterBar);
        let barred = if bars_count { self.barred(layout) } else { layout.now };
        let voters = set_of(members(barred).filter(|node| !self.nodes[*node].lacks_sync(&self.chain)));
        let required = if self.without == Without::Sources { 1 } else { cover(layout.now) };
        if count(voters) < required {
            return;
        }
        let mut sources = voters;
        while count(sources) > required && self.chance.happens(700) {
            let nodes: Vec<usize> = members(sources).collect();
            sources &= !(1 << self.chance.pick(&nodes));
        }
        let (epoch, pass) = (self.newest_epoch(), self.passes.len());
        self.passes.push(SourcePass { epoch, sources, listed: 0, newest: None, is_given: false, synced: 0 });
        self.happened.passes += 1;
        self.note(|| format!("pass {pass} of epoch {epoch} lists {sources:05b}"));
        members(sources).for_each(|node| self.send(pass, node, FrameBody::List));
    }

    /// What the finished passes of this step have found goes to all nodes where the key will belong.
    fn give(&mut self, layout: KeyLayout) {
        let Some(next) = layout.next else { return };
        for number in 0..self.passes.len() {
            let pass = &mut self.passes[number];
            if pass.is_given || pass.listed != pass.sources || pass.epoch + 1 != self.chain.len() {
                continue;
            }
            pass.is_given = true;
            let newest = pass.newest.clone();
            for node in members(next) {
                self.send(number, node, FrameBody::Give { newest: newest.clone() });
            }
        }
    }

    /// A frame of a pass arrives.
    pub fn pass_on(&mut self, node: usize, of: usize, body: FrameBody) {
        let epoch = self.passes[of].epoch;
        match body {
            FrameBody::List => {
                let replica = &mut self.nodes[node];
                replica.installed = replica.installed.max(epoch);
                let record = replica.record.clone();
                let version = record.as_ref().map(Record::version);
                self.note(|| format!("pass {of}: {node} lists {version:?}"));
                self.send(of, node, FrameBody::Listed { record });
            }
            FrameBody::Listed { record } => {
                let pass = &mut self.passes[of];
                pass.listed |= 1 << node;
                let version = |record: &Option<Record>| record.as_ref().map(Record::version);
                if version(&record) > version(&pass.newest) {
                    pass.newest = record;
                }
            }
            FrameBody::Give { newest } => {
                let times = (self.now, self.settings.deadline);
                if self.nodes[node].sync(newest.as_ref(), epoch, &self.chain, times) {
                    self.note(|| format!("pass {of}: {node} is synced"));
                    self.send(of, node, FrameBody::Given);
                }
            }
            FrameBody::Given => self.passes[of].synced |= 1 << node,
            _ => unreachable!("no frame of a pass"),
        }
    }

    /// The step ends in its new set, if every majority of the old one has become one of the new.
    fn flip(&mut self, layout: KeyLayout) {
        let Some(next) = layout.next else { return };
        let epoch = self.newest_epoch();
        let passes = self.passes.iter().filter(|pass| pass.epoch == epoch);
        let synced = passes.fold(0, |nodes, pass| nodes | pass.synced) & next;
        let is_barred = count(self.barred(layout)) >= cover(layout.now) || self.without == Without::Bar;
        let missing = count(layout.now & !next) + count(synced & layout.now);
        let is_synced = count(synced) + needed(layout.now).saturating_sub(missing) >= needed(next);
        let may_flip = is_barred && (is_synced || self.without == Without::SyncBeforeFlip);
        if may_flip && self.chance.happens(400) {
            self.chain.push(KeyLayout::stable(next));
            self.happened.flips += 1;
            self.note(|| format!("epoch {}: flips to {next:05b}, synced {synced:05b}", epoch + 1));
        }
    }

    fn abort(&mut self, layout: KeyLayout) {
        if layout.next.is_some() && self.chance.happens(60) {
            self.chain.push(KeyLayout::stable(layout.now));
            self.happened.aborts += 1;
            let epoch = self.newest_epoch();
            self.note(|| format!("epoch {epoch}: aborted, {:05b}", layout.now));
        }
    }

    fn open(&mut self, layout: KeyLayout) {
        let begun = self.chain.len() / 2;
        if layout.next.is_some() || begun >= self.settings.steps_max || !self.chance.happens(150) {
            return;
        }
        if let Some(step) = layout.step(&mut self.chance) {
            self.chain.push(step);
            let epoch = self.newest_epoch();
            self.note(|| format!("epoch {epoch}: {:05b} to {:05b}", step.now, step.next.unwrap_or_default()));
        }
    }
}

fn set_of(nodes: impl Iterator<Item = usize>) -> Nodes {
    nodes.fold(0, |set, node| set | 1 << node)
}

//! Scans: the merge against a plain join, the verdict against the read machine, pages against every truncation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, missing_docs)]

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_core::key::PartitionId;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::read::{Clocks, Read, ReadCommand};
use kvorum_core::quorum::{Expiry, Held, Quorum, Rank, ReadAnswer, ReplicaSet, Wanted};
use kvorum_core::scan::merge::{MergeStep, OutOfPlace, ScanMerge};
use kvorum_core::scan::page::{NotAPage, PageQuestion, ScanEntry, ScanHolding, ScanPage, ScanValues};
use kvorum_core::scan::plan::{NodePart, ScanPlan};
use kvorum_core::scan::verdict::{CoverAnswer, ScanVerdict, verdict};
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use proptest::prelude::*;

fn key(name: &str) -> Key {
    Key::new(Bytes::copy_from_slice(name.as_bytes())).unwrap()
}

fn version(millis: u64) -> Version {
    if millis == 0 { Version::ZERO } else { Version { hlc: Hlc::from_millis(millis), incarnation: Incarnation(7) } }
}

fn value(name: &str, millis: u64) -> ScanEntry {
    let record = Record::value(&key(name), version(millis), 3, None, b"value");
    ScanEntry { key: key(name), holding: ScanHolding::Record(record.bytes().clone()) }
}

fn layout(nodes: u8) -> Layout {
    Layout::fixed_at((0..nodes).map(|number| format!("http://node-{number}:8080"))).unwrap()
}

// ---- the plan

#[test]
fn each_partition_has_the_first_replicas_that_are_there_and_its_primary_provides() {
    let layout = layout(5);
    let quorum = Quorum::new(2, 3).unwrap();
    for gone in [None, Some(NodeId(0)), Some(NodeId(4))] {
        let plan = ScanPlan::new(&layout, quorum, |node, _| Some(node) != gone);
        assert!(plan.missing().is_empty(), "two of three are there");
        for partition in PartitionId::all() {
            let there: Vec<NodeId> =
                layout.preference_list(partition).iter().copied().take(3).filter(|node| Some(*node) != gone).collect();
            let cover: Vec<NodeId> = plan.cover(partition).iter().map(|member| member.node).collect();
            assert_eq!(cover, there[..2]);
            for (place, node) in cover.iter().enumerate() {
                let part = plan.part(*node);
                let is_in = (part.provides.contains(partition), part.witnesses.contains(partition));
                assert_eq!(is_in, (place == 0, place == 1));
            }
        }
    }
}

#[test]
fn partitions_with_too_few_replicas_are_missing_and_nobody_is_asked_for_them() {
    let layout = layout(3);
    let plan = ScanPlan::new(&layout, Quorum::new(2, 2).unwrap(), |node, _| node != NodeId(1));
    let lacks = |partition: &PartitionId| layout.preference_list(*partition)[..2].contains(&NodeId(1));
    assert_eq!(*plan.missing(), PartitionId::all().filter(lacks).collect::<PartitionSet>());
    assert!(plan.missing().iter().all(|partition| plan.cover(partition).is_empty()));
    assert!(plan.part(NodeId(1)).is_empty() && !plan.part(NodeId(0)).is_empty());
}

// ---- pages

fn pages() -> Vec<ScanPage> {
    let ending = Record::expiring(&key("c"), version(5), 3, Some(99), Some(b"text/plain"), b"");
    let entries = vec![
        value("a", 7),
        ScanEntry { key: key("b"), holding: ScanHolding::Deletion { version: version(8), from: 1 } },
        ScanEntry { key: key("c"), holding: ScanHolding::Record(ending.bytes().clone()) },
        ScanEntry {
            key: key("d"),
            holding: ScanHolding::Value { version: version(9), from: 128, expires_ms: Some(u64::MAX) },
        },
        ScanEntry { key: key("e"), holding: ScanHolding::Value { version: version(9), from: 2, expires_ms: None } },
        ScanEntry { key: key("f"), holding: ScanHolding::Damaged },
        ScanEntry {
            key: key("g"),
            holding: ScanHolding::Derived { version: version(9), from: 2, expires_ms: None, derived: "row".into() },
        },
    ];
    let (gc_watermark, frontier) = (version(3), Some(key("gz")));
    vec![
        ScanPage::default(),
        ScanPage { entries: entries.clone(), gc_watermark, frontier: None },
        ScanPage { entries, gc_watermark, frontier: frontier.clone() },
        ScanPage { entries: vec![], gc_watermark, frontier },
    ]
}

#[test]
fn a_page_survives_its_bytes_and_no_truncation_is_another_page() {
    for page in pages() {
        let bytes = page.encode();
        assert_eq!(ScanPage::decode(bytes.clone()), Ok(page.clone()));
        // Without an end of its own a page may be cut behind an entry: the frame around it is checked.
        let cut = (0..bytes.len()).filter(|end| ScanPage::decode(bytes.slice(..*end)).is_ok()).count();
        assert_eq!(cut, page.entries.len(), "only between entries");
    }
}

#[test]
fn a_page_whose_keys_do_not_ascend_or_lie_behind_its_frontier_is_none() {
    let page = |names: [&str; 2], frontier: Option<&str>| ScanPage {
        entries: names.map(|name| value(name, 1)).to_vec(),
        gc_watermark: Version::ZERO,
        frontier: frontier.map(key),
    };
    assert!(ScanPage::decode(page(["a", "b"], Some("b")).encode()).is_ok());
    for wrong in [page(["b", "a"], None), page(["a", "a"], None), page(["a", "b"], Some("aa"))] {
        assert_eq!(ScanPage::decode(wrong.encode()), Err(NotAPage));
    }
}

#[test]
fn a_question_survives_its_bytes_and_nothing_shorter_or_longer_is_one() {
    let part =
        NodePart { provides: PartitionSet::all(), witnesses: PartitionSet::from_iter([PartitionId::new(7).unwrap()]) };
    for (start, end, values) in [
        ("", None, ScanValues::Wanted),
        ("a", Some("b"), ScanValues::LeftOut),
        ("a", None, ScanValues::Derived("work".into())),
    ] {
        let question = PageQuestion {
            start: Bytes::from(start),
            end: end.map(Bytes::from),
            values,
            bytes_max: 7,
            part: part.clone(),
        };
        let bytes = question.encode();
        assert_eq!(PageQuestion::decode(bytes.clone()), Ok(question));
        assert!((0..bytes.len()).all(|end| PageQuestion::decode(bytes.slice(..end)).is_err()));
        assert!(PageQuestion::decode([&bytes[..], &[0]].concat().into()).is_err());
    }
}

proptest! {
    #[test]
    fn no_bytes_confuse_a_page(bytes: Vec<u8>) {
        let _ = ScanPage::decode(bytes.clone().into());
        let _ = PageQuestion::decode(bytes.into());
    }
}

// ---- the merge

/// What each of some nodes holds, and how many records its pages look at. The boolean: whether the node was asked for
/// the key's partition.
type Universe = Vec<(BTreeMap<u8, (u64, bool)>, usize)>;

fn universe() -> impl Strategy<Value = Universe> {
    let node = (proptest::collection::btree_map(0_u8..40, (1_u64..5, any::<bool>()), 0..25), 1_usize..6);
    proptest::collection::vec(node, 1..5)
}

fn name(number: u8) -> String {
    format!("k{number:03}")
}

/// The pages of one node: some of the records it looks at were not asked for.
fn pages_of(held: &BTreeMap<u8, (u64, bool)>, size: usize) -> Vec<ScanPage> {
    let all: Vec<_> = held.iter().collect();
    let mut pages: Vec<ScanPage> = all
        .chunks(size)
        .map(|chunk| ScanPage {
            entries: chunk.iter().filter(|(_, (_, asked))| *asked).map(|(at, (v, _))| value(&name(**at), *v)).collect(),
            gc_watermark: Version::ZERO,
            frontier: chunk.last().map(|(at, _)| key(&name(**at))),
        })
        .collect();
    match pages.last_mut() {
        Some(last) => last.frontier = None,
        None => pages.push(ScanPage::default()),
    }
    pages
}

proptest! {
    #[test]
    fn the_merge_is_a_join_by_key(nodes in universe()) {
        let mut pages: Vec<_> = nodes.iter().map(|(held, size)| pages_of(held, *size).into_iter()).collect();
        let mut merge = ScanMerge::new((0..nodes.len() as u32).map(NodeId));
        let mut merged = Vec::new();
        loop {
            match merge.step() {
                MergeStep::Key(next) => {
                    let held = next.holdings.iter().map(|holding| holding.holding.clone()).collect::<Vec<_>>();
                    merged.push((next.key.clone(), held));
                    if let Some(passed) = merge.passed() {
                        prop_assert!(*passed >= next.key, "what was given is passed");
                    }
                }
                MergeStep::Await => {
                    let awaited: Vec<NodeId> = merge.awaited().map(|(node, _)| node).collect();
                    prop_assert!(!awaited.is_empty(), "it waits for nothing");
                    for node in awaited {
                        merge.push(node, pages[node.0 as usize].next().unwrap(), Hlc::ZERO).unwrap();
                    }
                }
                MergeStep::End => break,
            }
        }
        let asked = |(held, _): &(BTreeMap<u8, (u64, bool)>, usize), at: u8| {
            held.get(&at).filter(|(_, asked)| *asked).map(|(v, _)| value(&name(at), *v).holding)
        };
        let joined: Vec<_> = (0..40)
            .map(|at| (key(&name(at)), nodes.iter().map(|node| asked(node, at)).collect::<Vec<_>>()))
            .filter(|(_, held)| held.iter().any(Option::is_some))
            .collect();
        prop_assert_eq!(merged, joined);
        prop_assert!(pages.iter_mut().all(|pages| pages.next().is_none()), "all pages were taken");
    }
}

#[test]
fn a_page_out_of_place_is_refused_and_changes_nothing() {
    let page = |names: &[&str], frontier: Option<&str>| ScanPage {
        entries: names.iter().map(|name| value(name, 1)).collect(),
        gc_watermark: Version::ZERO,
        frontier: frontier.map(key),
    };
    let mut merge = ScanMerge::new([NodeId(0), NodeId(1)]);
    assert_eq!(merge.push(NodeId(2), ScanPage::default(), Hlc::ZERO), Err(OutOfPlace), "of a stranger");
    merge.push(NodeId(0), page(&["b"], Some("c")), Hlc::ZERO).unwrap();
    assert_eq!(merge.push(NodeId(0), page(&["d"], None), Hlc::ZERO), Err(OutOfPlace), "it was not awaited");
    merge.push(NodeId(1), page(&[], Some("bb")), Hlc::ZERO).unwrap();
    assert!(matches!(merge.step(), MergeStep::Key(_)));
    assert_eq!(merge.passed(), Some(&key("bb")), "nobody has looked further");
    assert_eq!(merge.push(NodeId(0), page(&["c"], None), Hlc::ZERO), Err(OutOfPlace), "it has looked there");
    assert_eq!(merge.push(NodeId(0), page(&[], Some("c")), Hlc::ZERO), Err(OutOfPlace), "it looks at nothing");
    merge.push(NodeId(0), page(&["d"], None), Hlc::ZERO).unwrap();
    assert_eq!(merge.step(), MergeStep::Await, "the other may hold what is before");
    assert_eq!(merge.passed(), None);
    merge.push(NodeId(1), page(&[], None), Hlc::ZERO).unwrap();
    assert!(matches!(merge.step(), MergeStep::Key(_)));
    assert_eq!(merge.step(), MergeStep::End);
    assert_eq!(merge.push(NodeId(1), page(&["e"], None), Hlc::ZERO), Err(OutOfPlace), "behind its end");
}

// ---- the verdict

const END: u64 = 50;

/// What a replica of a cover may say of the key: by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Absent { watermark: u64 },
    Value { at: u64, from: u8, ends: bool },
    Deletion { at: u64, from: u8 },
}

fn everything(from: u8) -> Vec<Says> {
    let mut all: Vec<Says> = [0, 15, 60].map(|watermark| Says::Absent { watermark }).to_vec();
    for stored in [1, from, from + 1] {
        all.push(Says::Value { at: 10, from: stored, ends: false });
        all.push(Says::Value { at: 10, from: stored, ends: true });
        all.push(Says::Deletion { at: 10, from: stored });
    }
    all.push(Says::Value { at: 20, from, ends: false });
    all
}

fn record_of(says: Says) -> Option<Record> {
    let key = key("k");
    match says {
        Says::Absent { .. } => None,
        Says::Value { at, from, ends } => {
            Some(Record::expiring(&key, version(at), from, ends.then_some(END), None, b"v"))
        }
        Says::Deletion { at, from } => Some(Record::tombstone(&key, version(at), from)),
    }
}

fn holding_of(says: Says, is_provider: bool) -> Option<ScanHolding> {
    let record = record_of(says)?;
    let (version, from) = (record.version(), record.from());
    Some(match (record.is_tombstone(), is_provider) {
        (true, _) => ScanHolding::Deletion { version, from },
        (false, true) => ScanHolding::Record(record.bytes().clone()),
        (false, false) => ScanHolding::Value { version, from, expires_ms: record.expires_ms() },
    })
}

/// What a read that asks these replicas answers at once, if it does: the version of a value, or that there is none.
fn read_at_once(quorum: Quorum, cover: &[(u8, Says, Hlc)], own: Hlc) -> Option<Option<Version>> {
    let ranks: ReplicaSet = cover.iter().map(|(rank, _, _)| Rank(*rank)).collect();
    let mut read = Read::new(quorum, ranks, Rank(cover[0].0));
    let mut commands = Vec::new();
    read.start(&mut |_| {});
    for (place, (rank, says, clock)) in cover.iter().enumerate() {
        let answer = match (record_of(*says), *says) {
            (None, Says::Absent { watermark }) => {
                ReadAnswer::Held(Held::Absent { gc_watermark: Version::last_of(version(watermark).hlc) })
            }
            (Some(record), _) if place == 0 => ReadAnswer::Held(Held::Record(record)),
            (Some(record), _) => ReadAnswer::Version { version: record.version(), from: record.from() },
            (None, _) => unreachable!("what is not absent is a record"),
        };
        let clocks = Clocks { replica: *clock, own: &|| own };
        read.on_read(Rank(*rank), answer, clocks, &mut |command| commands.push(command));
    }
    // A record that only a witness has is fetched first: a scan knows of a deletion that it is one.
    if let [ReadCommand::Ask { rank, wanted: Wanted::Record }] = commands[..]
        && let Some((_, says, clock)) = cover.iter().find(|(other, _, _)| Rank(*other) == rank)
    {
        commands.clear();
        let clocks = Clocks { replica: *clock, own: &|| own };
        let record = record_of(*says).expect("it is known to have one");
        read.on_read(rank, ReadAnswer::Held(Held::Record(record)), clocks, &mut |command| commands.push(command));
    }
    let [ReadCommand::Done(held, expiry)] = &commands[..] else { return None };
    Some(match held {
        Held::Record(record) if !record.is_tombstone() && *expiry == Expiry::Ahead => Some(record.version()),
        _ => None,
    })
}

#[test]
fn what_a_scan_decides_by_itself_a_read_of_the_same_replicas_would_have_answered() {
    let (mut sent, mut skipped, mut left) = (0, 0, 0);
    for (ack, from) in [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)] {
        let quorum = Quorum::new(ack, from).unwrap();
        // Which replicas are there: any `ack` of `from`, in the order of their ranks.
        for set in (0..1_u8 << from).filter(|set| set.count_ones() == u32::from(ack)) {
            let ranks: Vec<u8> = (0..from).filter(|rank| set >> rank & 1 == 1).collect();
            let choices = everything(from);
            for choice in 0..choices.len().pow(u32::from(ack)) {
                let says = |place: usize| choices[choice / choices.len().pow(place as u32) % choices.len()];
                for clocks in 0..1_u8 << (ack + 1) {
                    let clock = |place: usize| Hlc::from_millis(if clocks >> place & 1 == 1 { END } else { END - 1 });
                    let own = clock(usize::from(ack));
                    let cover: Vec<(u8, Says, Hlc)> =
                        ranks.iter().enumerate().map(|(place, rank)| (*rank, says(place), clock(place))).collect();
                    let holdings: Vec<_> =
                        cover.iter().enumerate().map(|(place, (_, says, _))| holding_of(*says, place == 0)).collect();
                    let answers: Vec<CoverAnswer<'_>> = cover
                        .iter()
                        .zip(&holdings)
                        .map(|((rank, says, clock), holding)| CoverAnswer {
                            rank: Rank(*rank),
                            holding: holding.as_ref(),
                            gc_watermark: match says {
                                Says::Absent { watermark } => Version::last_of(version(*watermark).hlc),
                                _ => Version::ZERO,
                            },
                            clock: *clock,
                        })
                        .collect();
                    let expected = read_at_once(quorum, &cover, own);
                    match verdict(quorum, &answers, || own) {
                        ScanVerdict::Send => {
                            sent += 1;
                            let provided = record_of(cover[0].1).map(|record| record.version());
                            assert_eq!(expected, Some(provided), "{quorum:?} {cover:?}");
                        }
                        ScanVerdict::Skip => {
                            skipped += 1;
                            assert_eq!(expected, Some(None), "{quorum:?} {cover:?}");
                        }
                        ScanVerdict::Read => left += 1,
                    }
                }
            }
        }
    }
    println!("sent {sent}, skipped {skipped}, left to a read {left}");
    assert!(sent > 100 && skipped > 100 && left > 100);
}

#[test]
fn where_all_replicas_agree_no_read_is_needed() {
    let quorum = Quorum::new(2, 3).unwrap();
    let now = Hlc::from_millis(END - 1);
    for says in [Says::Value { at: 10, from: 3, ends: false }, Says::Value { at: 10, from: 3, ends: true }] {
        let witness = holding_of(says, false);
        let derived = witness.clone().map(|held| match held {
            ScanHolding::Value { version, from, expires_ms } => {
                ScanHolding::Derived { version, from, expires_ms, derived: "row".into() }
            }
            other => other,
        });
        // A record, what was derived of it, and its version alone say the same.
        for provider in [holding_of(says, true), derived, witness.clone()] {
            let answer =
                |rank: u8, holding| CoverAnswer { rank: Rank(rank), holding, gc_watermark: Version::ZERO, clock: now };
            let cover = [answer(0, provider.as_ref()), answer(1, witness.as_ref())];
            assert_eq!(verdict(quorum, &cover, || now), ScanVerdict::Send, "{provider:?}");
        }
    }
    let gone = holding_of(Says::Deletion { at: 10, from: 3 }, false);
    let answer = |rank, holding, gc_watermark| CoverAnswer { rank: Rank(rank), holding, gc_watermark, clock: now };
    let below = [answer(0, gone.as_ref(), Version::ZERO), answer(1, None, version(15))];
    assert_eq!(verdict(quorum, &below, || now), ScanVerdict::Skip, "dropped below the watermark");
    let damaged = ScanHolding::Damaged;
    let with_damage = [answer(0, Some(&damaged), Version::ZERO), answer(1, None, version(15))];
    assert_eq!(verdict(quorum, &with_damage, || now), ScanVerdict::Read);
}

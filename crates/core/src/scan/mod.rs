//! Scans over the whole cluster: every key of a range that the cluster holds, once, in the order of its bytes.
//!
//! A node holds all of its partitions in one space, ordered by key. So each node scans the range and leaves out what it
//! was not asked for. [`plan`] assigns each partition `ack` replicas that are there: one is its *provider* and gives
//! records, the others are *witnesses* and give versions. Nodes answer in pages ([`page`]). [`merge`] puts the pages
//! together by key: a key is decided when every node of the plan has passed it. [`verdict`] says what to do with it:
//! send the provider's record, skip it, or ask for it by an ordinary read.
//!
//! Why it is right. A record is sent only where the replicas of its partition's cover agree in a way in which a read
//! that had asked them would have answered the same (`quorum::read`); everything else is left to that read. Each
//! answer of a cover was true at some moment during the scan. So each key is answered as a read at that `ack` and
//! `from` would have answered it at some moment of the scan. A key that does not change while the scan runs is in it
//! exactly once: no page leaves out a key between its ends.
//!
//! Pure: who asks for pages, and when, is the coordinator's.

pub mod merge;
pub mod page;
pub mod plan;
pub mod verdict;

//! The ids of requests between nodes, as far as connections distinguish them.

/// Ids with this high half are of work in the background. No request of a client has one, and none that is for no
/// request.
const BACKGROUND: u64 = 1;

/// The id of a request of background work.
#[must_use]
pub fn background_id(number: u32) -> u64 {
    BACKGROUND << 32 | u64::from(number)
}

/// The number that [`background_id`] was made of; none if it was not.
#[must_use]
#[inline]
pub fn background_number(id: u64) -> Option<u32> {
    (id >> 32 == BACKGROUND).then(|| u32::try_from(id & u64::from(u32::MAX)).expect("32 bits"))
}

//! What threads share here, in orders of their steps that a checker chooses: see `kvorum_base::interleavings`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod commit;
mod hints;
mod mailbox;

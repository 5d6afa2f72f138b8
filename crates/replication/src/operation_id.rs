//! What frames and tokens call a request: its slot, its generation and its round.

/// Names a request and a round of it, in frames and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(u64);

impl OperationId {
    pub(crate) fn new(slot: usize, generation: u32, round: u8) -> Self {
        let slot = u64::try_from(slot).expect("a slot is a small number") & 0xffff_ffff;
        Self(u64::from(generation & 0x00ff_ffff) << 40 | u64::from(round) << 32 | slot)
    }

    /// As a frame carries it.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(crate) fn with_round(self, round: u8) -> Self {
        Self(self.0 & !(0xff << 32) | u64::from(round) << 32)
    }

    pub(crate) fn slot(self) -> usize {
        usize::try_from(self.0 & 0xffff_ffff).expect("32 bits fit")
    }

    pub(crate) fn round(self) -> u8 {
        u8::try_from(self.0 >> 32 & 0xff).expect("eight bits")
    }

    pub(crate) fn generation(self) -> u32 {
        u32::try_from(self.0 >> 40).expect("24 bits")
    }
}

//! kvorum's node: store, replica, peers, coordinator, HTTP.

pub mod config;
pub mod node {
    //! The node as a whole.

    /// Why a node did not start.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    pub struct StartError(pub String);

    /// Runs a node until it is told to stop.
    ///
    /// # Errors
    /// Why it did not start.
    pub fn run(config: crate::config::Config) -> Result<(), StartError> {
        Err(StartError(format!("{} cannot serve yet", config.own)))
    }
}

//! An order to a running `dev`: `VERB`, then the node's number, then perhaps how much.

/// What may be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DevOrder {
    Status,
    Kill(u16),
    Pause(u16),
    Resume(u16),
    Start(u16),
    /// Milliseconds.
    Slow(u16, u32),
    /// Seconds.
    Skew(u16, i32),
}

/// As the nodes have them.
pub(crate) const SLOW_MS_MAX: u32 = 10_000;
pub(crate) const SKEW_S_MAX: i32 = 3_600;

impl DevOrder {
    /// # Errors
    /// What the line should have been.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |word: &str| {
            word.parse::<u16>().map_err(|_| format!("{word:?} is no node: nodes are numbered from 1; see `status`"))
        };
        Ok(match words.as_slice() {
            ["status"] => Self::Status,
            ["kill", node] => Self::Kill(number(node)?),
            ["pause", node] => Self::Pause(number(node)?),
            ["resume", node] => Self::Resume(number(node)?),
            ["start", node] => Self::Start(number(node)?),
            ["slow", node, ms] => {
                let allowed = ms.parse().ok().filter(|ms| *ms <= SLOW_MS_MAX);
                let ms = allowed.ok_or_else(|| format!("`slow N MS` takes 0 to {SLOW_MS_MAX} ms; 0 undoes"))?;
                Self::Slow(number(node)?, ms)
            }
            ["skew", node, seconds] => {
                let allowed = seconds.parse().ok().filter(|s| (-SKEW_S_MAX..=SKEW_S_MAX).contains(s));
                let wrong = || format!("`skew N SECONDS` takes -{SKEW_S_MAX} to {SKEW_S_MAX} s; 0 undoes");
                Self::Skew(number(node)?, allowed.ok_or_else(wrong)?)
            }
            _ => {
                let orders = "`kill N`, `pause N`, `resume N`, `start N`, `slow N MS`, `skew N SECONDS` and `status`";
                return Err(format!("orders are {orders}; N counts from 1"));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_their_words_and_bounds() {
        assert_eq!(DevOrder::parse(" kill  2\n"), Ok(DevOrder::Kill(2)));
        assert_eq!(DevOrder::parse("slow 1 10000"), Ok(DevOrder::Slow(1, 10_000)));
        assert_eq!(DevOrder::parse("skew 3 -3600"), Ok(DevOrder::Skew(3, -3600)));
        assert_eq!(DevOrder::parse("status"), Ok(DevOrder::Status));
        for bad in ["", "kill", "kill x", "kill 1 2", "slow 1", "slow 1 10001", "skew 1 3601", "skew 1 x", "stop 1"] {
            assert!(DevOrder::parse(bad).is_err(), "{bad}");
        }
    }
}

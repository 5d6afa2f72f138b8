//! What a node counts: one answer of its `/v0/stats`, as far as series are computed from it.

use serde_json::Value;

/// Some of a metric's values, by their labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Select {
    /// Without `kvorum_`.
    pub(crate) metric: &'static str,
    /// Each label with what its value must be: [`matches`].
    pub(crate) labels: &'static [(&'static str, &'static str)],
}

/// One answer of `/v0/stats`. What is missing in it is zero.
#[derive(Clone, Debug)]
pub(crate) struct NodeStats {
    document: Value,
}

/// Whether a label's value is wanted: alternatives between `|`, where `.` is any character; behind `!`, everything else.
pub(crate) fn matches(wanted: &str, value: &str) -> bool {
    if let Some(unwanted) = wanted.strip_prefix('!') {
        return !matches(unwanted, value);
    }
    let is_one = |pattern: &str| {
        pattern.chars().count() == value.chars().count()
            && pattern.chars().zip(value.chars()).all(|(want, is)| want == '.' || want == is)
    };
    wanted.split('|').any(is_one)
}

impl NodeStats {
    /// The document, if it is one of a node.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        let is_whole = member(&document, "cluster").is_string()
            && member(&document, "uptime_s").is_number()
            && member(&document, "metrics").is_object();
        is_whole.then_some(Self { document })
    }

    /// All of it.
    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    pub(crate) fn cluster(&self) -> &str {
        member(&self.document, "cluster").as_str().unwrap_or_default()
    }

    pub(crate) fn uptime_s(&self) -> f64 {
        number(member(&self.document, "uptime_s"))
    }

    /// The node's wall clock.
    pub(crate) fn at_s(&self) -> f64 {
        number(member(&self.document, "at_ms")) / 1000.0
    }

    /// The values that are selected, in no order.
    pub(crate) fn values(&self, select: Select) -> Vec<f64> {
        match member(member(&self.document, "metrics"), select.metric) {
            Value::Array(rows) => {
                let names = member(member(&self.document, "labels"), select.metric);
                rows.iter().filter_map(|row| row_value(row, names, select.labels).map(number)).collect()
            }
            single => single.as_f64().into_iter().collect(),
        }
    }

    /// How often each bucket was hit, over all histograms that are selected; the last is for what is over all bounds.
    pub(crate) fn buckets(&self, select: Select) -> Vec<f64> {
        let mut buckets = vec![0.0; self.bounds().len() + 1];
        let last = buckets.len() - 1;
        let histogram = member(member(&self.document, "histograms"), select.metric);
        for row in member(histogram, "values").as_array().into_iter().flatten() {
            let pairs = row_value(row, member(histogram, "labels"), select.labels).and_then(Value::as_array);
            for pair in pairs.into_iter().flatten().filter_map(Value::as_array) {
                let [index, count] = pair.as_slice() else { continue };
                let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
                if let Some(bucket) = index.and_then(|index| buckets.get_mut(index.min(last))) {
                    *bucket += number(count);
                }
            }
        }
        buckets
    }

    /// The upper ends of the buckets.
    pub(crate) fn bounds(&self) -> Vec<f64> {
        member(&self.document, "bounds").as_array().into_iter().flatten().map(number).collect()
    }
}

/// A member of an object; null where there is none.
pub(crate) fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// The last member of a row, if its labels, the first ones, are those that are wanted. A histogram's row has its sum in
/// between.
fn row_value<'a>(row: &'a Value, names: &Value, wanted: &[(&str, &str)]) -> Option<&'a Value> {
    let row = row.as_array()?;
    let names = names.as_array().map_or(&[][..], Vec::as_slice);
    let is_wanted = |(name, want): &(&str, &str)| {
        let at = names.iter().position(|known| known.as_str() == Some(name));
        // A label that a node does not know, such as one of an older version, is empty.
        let value = at.and_then(|at| row.get(at)).and_then(Value::as_str).unwrap_or_default();
        matches(want, value)
    };
    wanted.iter().all(is_wanted).then(|| row.last()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"cluster":"00000000000000aa","uptime_s":12,"at_ms":5000,
        "metrics":{"plain":3,"requests_total":[["GET","200",12],["GET","503",1],["PUT","201",3]],"peers":[[0,4],[1,5]]},
        "labels":{"requests_total":["method","status"],"peers":["peer"]},
        "bounds":[1,2,4],
        "histograms":{"h":{"labels":["method"],"values":[["GET",900,[[0,5],[2,1]]],["PUT",9,[[3,2]]]]},
                      "bare":{"labels":[],"values":[[7,[[1,3]]]]}}}"#;

    fn select(metric: &'static str, labels: &'static [(&'static str, &'static str)]) -> Select {
        Select { metric, labels }
    }

    #[test]
    fn values_are_found_by_their_labels() {
        let stats = NodeStats::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(stats.values(select("plain", &[])), [3.0]);
        assert_eq!(stats.values(select("requests_total", &[("method", "GET")])), [12.0, 1.0]);
        assert_eq!(stats.values(select("requests_total", &[("status", "2..")])), [12.0, 3.0]);
        assert_eq!(stats.values(select("requests_total", &[("status", "!2..|404")])), [1.0]);
        assert_eq!(stats.values(select("peers", &[])), [4.0, 5.0]);
        assert!(stats.values(select("missing", &[])).is_empty());
    }

    #[test]
    fn buckets_are_summed_over_what_is_selected() {
        let stats = NodeStats::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(stats.buckets(select("h", &[])), [5.0, 0.0, 1.0, 2.0]);
        assert_eq!(stats.buckets(select("h", &[("method", "PUT")])), [0.0, 0.0, 0.0, 2.0]);
        assert_eq!(stats.buckets(select("bare", &[])), [0.0, 3.0, 0.0, 0.0]);
        assert_eq!(stats.buckets(select("missing", &[])), [0.0; 4]);
    }

    #[test]
    fn what_is_no_document_of_a_node_is_none() {
        for text in ["", "ok", "{}", "[]", r#"{"cluster":"a","uptime_s":"1","metrics":{}}"#, r#"{"metrics":{}}"#] {
            assert!(NodeStats::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn a_document_of_odd_shapes_is_read_as_far_as_it_goes() {
        let text = r#"{"cluster":"a","uptime_s":1,"metrics":{"m":[[],7,["GET"],[null,2]]},"labels":7,"bounds":[true],
            "histograms":{"h":{"values":[[1],[[[9,9],[-1,2],[]]]]}}}"#;
        let stats = NodeStats::parse(text.as_bytes()).unwrap();
        assert_eq!(stats.values(select("m", &[])), [0.0, 2.0]);
        assert_eq!(stats.buckets(select("h", &[])), [0.0, 9.0]);
    }
}

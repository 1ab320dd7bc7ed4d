//! Formats counters as JSON and as Prometheus text.

use std::fmt::Write;

use serde_json::{Map, Value};

/// The type of a counter, in Prometheus's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

struct Sample {
    /// The metric that it belongs to, and its own name, which differ in histograms.
    family: String,
    name: String,
    kind: Kind,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Collects counters. Names look like `backend_packets`: lower-case letters, digits, underscores; other characters become underscores.
///
/// ```
/// use nf_runtime::CounterSink;
/// let mut out = CounterSink::new("l4lb");
/// out.counter("packets", &[("backend", "10.0.0.1")], 7);
/// assert_eq!(out.json()["packets{backend=\"10.0.0.1\"}"], 7);
/// assert_eq!(out.text(), "# TYPE nf_packets counter\nnf_packets{kind=\"l4lb\",backend=\"10.0.0.1\"} 7\n");
/// ```
pub struct CounterSink {
    kind: String,
    samples: Vec<Sample>,
}

impl CounterSink {
    /// Creates a sink for a network function of this kind.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            samples: Vec::new(),
        }
    }

    /// Adds a value that only grows.
    pub fn counter(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.add((name, ""), Kind::Counter, labels, value as f64);
    }

    /// Adds a value that goes up and down.
    pub fn gauge(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.add((name, ""), Kind::Gauge, labels, value);
    }

    /// Adds the counts of a faster table that carries this many flows.
    pub fn offload(&mut self, flows: usize, totals: &nf_offload::Totals) {
        self.gauge("offload_flows", &[], flows as f64);
        self.counter("offload_packets", &[], totals.packets);
        self.counter("offload_bytes", &[], totals.bytes);
        self.gauge("offload_share", &[], totals.share);
        self.counter("offload_installs", &[], totals.installs);
        self.counter("offload_removals", &[], totals.removals);
        for (why, count) in nf_offload::Refused::ALL.iter().zip(totals.refused) {
            self.counter("offload_refused", &[("reason", why.name())], count);
        }
    }

    /// Adds a distribution: `counts` of the values up to each of `bounds` and above those before it, one more for all others, and the values' sum.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let bounds = bounds.iter().map(f64::to_string);
        let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
        let mut total = 0;
        for (bound, count) in bounds.zip(counts) {
            total += count;
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.add((name, "_bucket"), Kind::Histogram, &labels, total as f64);
        }
        self.add((name, "_sum"), Kind::Histogram, labels, sum);
        self.add((name, "_count"), Kind::Histogram, labels, total as f64);
    }

    fn add(&mut self, (name, part): (&str, &str), kind: Kind, labels: &[(&str, &str)], value: f64) {
        let labels = labels
            .iter()
            .map(|(key, value)| (identifier(key), (*value).to_owned()))
            .collect();
        self.samples.push(Sample {
            family: identifier(name),
            name: identifier(name) + part,
            kind,
            labels,
            value,
        });
    }

    /// Returns `{"name{label=\"value\"}": number}`.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut map = Map::new();
        for sample in &self.samples {
            let labels = labels_text(sample.labels.iter());
            map.insert(format!("{}{labels}", sample.name), number(sample.value));
        }
        Value::Object(map)
    }

    /// Returns Prometheus's text format, version 0.0.4: `nf_` before every name, the kind as a label, all samples of a name together.
    #[must_use]
    pub fn text(&self) -> String {
        let mut names: Vec<(&str, Kind)> = Vec::new();
        for sample in &self.samples {
            if names.iter().all(|(name, _)| *name != sample.family) {
                names.push((&sample.family, sample.kind));
            }
        }
        let kind = ("kind".to_owned(), self.kind.clone());
        let mut text = String::new();
        for (name, what) in names {
            let what = match what {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(text, "# TYPE nf_{name} {what}");
            for sample in self.samples.iter().filter(|sample| sample.family == name) {
                let labels = labels_text(std::iter::once(&kind).chain(&sample.labels));
                let _ = writeln!(text, "nf_{}{labels} {}", sample.name, sample.value);
            }
        }
        text
    }
}

/// Writes whole numbers without a decimal point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && (0.0..9e15).contains(&value) {
        Value::from(value as u64)
    } else {
        Value::from(value)
    }
}

fn identifier(name: &str) -> String {
    name.chars()
        .map(|each| {
            if each.is_ascii_alphanumeric() {
                each.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect()
}

fn labels_text<'a>(labels: impl Iterator<Item = &'a (String, String)>) -> String {
    let pairs: Vec<String> = labels
        .map(|(key, value)| {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            format!("{key}=\"{value}\"")
        })
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_grouped_by_name_and_labels_escaped() {
        let mut out = CounterSink::new("x");
        out.counter("Drops-total", &[("why", "a \"b\"\n")], 1);
        out.gauge("util", &[], 0.5);
        out.counter("drops_total", &[("why", "c")], 2);
        assert_eq!(
            out.text(),
            "# TYPE nf_drops_total counter\n\
             nf_drops_total{kind=\"x\",why=\"a \\\"b\\\"\\n\"} 1\n\
             nf_drops_total{kind=\"x\",why=\"c\"} 2\n\
             # TYPE nf_util gauge\n\
             nf_util{kind=\"x\"} 0.5\n"
        );
        assert_eq!(out.json()["util"], 0.5);
        assert_eq!(out.json()["drops_total{why=\"c\"}"], 2);
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut out = CounterSink::new("x");
        out.histogram("delay", &[("to", "a")], &[0.5, 1.0], &[1, 2, 3], 7.5);
        assert_eq!(
            out.text(),
            "# TYPE nf_delay histogram\n\
             nf_delay_bucket{kind=\"x\",to=\"a\",le=\"0.5\"} 1\n\
             nf_delay_bucket{kind=\"x\",to=\"a\",le=\"1\"} 3\n\
             nf_delay_bucket{kind=\"x\",to=\"a\",le=\"+Inf\"} 6\n\
             nf_delay_sum{kind=\"x\",to=\"a\"} 7.5\n\
             nf_delay_count{kind=\"x\",to=\"a\"} 6\n"
        );
    }

    #[test]
    fn large_counts_stay_exact() {
        let mut out = CounterSink::new("x");
        out.counter("bytes", &[], 1 << 52);
        assert_eq!(out.json()["bytes"].as_u64(), Some(1 << 52));
    }
}

//! A drawing in SVG: lines, bars, dots and words, on white.

use std::fmt::Write;

/// Width of all drawings, in units that are pixels where nothing scales them.
pub(super) const WIDTH: f64 = 760.0;
/// Of series, in order. Apart for eyes that see no red or no green, too.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#555555"];
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}.title{font-size:16px;font-weight:600}\
                     .panel{font-size:14px;font-weight:600}.small{font-size:12px;fill:#444}\
                     .grid{stroke:#e2e2e2}.axis{stroke:#888}.dots{stroke-width:6;stroke-linecap:round}.rings{fill:white;opacity:.6}polyline{fill:none;stroke-width:2}.limit{stroke:#b00020;stroke-dasharray:6 4}";

/// The colour of a series.
pub(super) fn colour(series: usize) -> &'static str {
    COLOURS.get(series % COLOURS.len()).copied().unwrap_or("#000")
}

/// Where a text stands beside its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// A coordinate, to a tenth.
struct Tenths(f64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        write!(out, "{tenths}")
    }
}

/// What was drawn so far.
#[derive(Debug, Default)]
pub(super) struct Drawing(String);

impl Drawing {
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("a string takes everything");
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(Tenths);
        self.add(format_args!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#));
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: TextAnchor, class: &str, text: &str) {
        let anchor = match anchor {
            TextAnchor::Start => "",
            TextAnchor::Middle => r#" text-anchor="middle""#,
            TextAnchor::End => r#" text-anchor="end""#,
        };
        let class = if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) };
        let (x, y, text) = (Tenths(x), Tenths(y), escaped(text));
        self.add(format_args!(r#"<text x="{x}" y="{y}"{anchor}{class}>{text}</text>"#));
    }

    pub(super) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), series: usize) {
        let [x, y, width, height] = [x, y, width, height].map(Tenths);
        let colour = colour(series);
        self.add(format_args!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>"#));
    }

    /// Until [`Drawing::end_series`], everything has the colour of this series.
    pub(super) fn begin_series(&mut self, series: usize) {
        let colour = colour(series);
        self.add(format_args!(r#"<g fill="{colour}" stroke="{colour}">"#));
    }

    pub(super) fn end_series(&mut self) {
        self.add(format_args!("</g>"));
    }

    pub(super) fn curve(&mut self, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", Tenths(*x), Tenths(*y))).collect();
        self.add(format_args!(r#"<polyline points="{}"/>"#, points.join(" ")));
    }

    /// Rings: of runs that are to be seen and do not count. One path for all, because an element for each is twice as
    /// long. An arc cannot end where it begins, so each ends a tenth before.
    pub(super) fn rings(&mut self, points: &[(f64, f64)]) {
        self.path("rings", points, |(x, y)| format!("M{} {}a3 3 0 1 1 0 .1z", Tenths(x - 3.0), Tenths(y)));
    }

    /// Small dots: lines without length, which have round ends.
    pub(super) fn dots(&mut self, points: &[(f64, f64)]) {
        self.path("dots", points, |(x, y)| format!("M{} {}h0", Tenths(x), Tenths(y)));
    }

    fn path(&mut self, class: &str, points: &[(f64, f64)], draw: impl Fn((f64, f64)) -> String) {
        if !points.is_empty() {
            let all: String = points.iter().copied().map(draw).collect();
            self.add(format_args!(r#"<path class="{class}" d="{all}"/>"#));
        }
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), radius: f64) {
        let (x, y, radius) = (Tenths(x), Tenths(y), Tenths(radius));
        self.add(format_args!(r#"<circle cx="{x}" cy="{y}" r="{radius}"/>"#));
    }

    /// The whole file. The title is for a reader who cannot see it.
    pub(super) fn finish(&self, height: f64, title: &str) -> String {
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.0
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Drawing, TextAnchor};

    #[test]
    fn a_name_cannot_end_its_element() {
        let mut drawing = Drawing::default();
        drawing.text((0.0, 1.0), TextAnchor::End, "small", "a</text><b>&");
        let svg = drawing.finish(10.0, "<t>");
        assert!(
            svg.contains(">a&lt;/text&gt;&lt;b&gt;&amp;</text>") && svg.contains("<title>&lt;t&gt;</title>"),
            "{svg}"
        );
    }
}

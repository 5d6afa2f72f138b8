//! Bars that lie: names and figures stand beside them and are read as lines.

use super::svg::{Drawing, TextAnchor, WIDTH};

const NAMES_WIDTH: f64 = 130.0;
/// For the figure at the end of the longest bar.
const FIGURES_WIDTH: f64 = 190.0;
const BAR_HEIGHT: f64 = 16.0;
const GROUP_GAP: f64 = 8.0;

/// Bars on a scale of their own.
#[derive(Debug)]
pub(super) struct BarPanel {
    pub(super) title: String,
    pub(super) groups: Vec<BarGroup>,
}

/// What is to be compared.
#[derive(Debug)]
pub(super) struct BarGroup {
    pub(super) name: String,
    pub(super) bars: Vec<LabelledBar>,
}

/// A figure, and its text.
#[derive(Debug)]
pub(super) struct LabelledBar {
    pub(super) series: usize,
    pub(super) value: f64,
    pub(super) label: String,
}

/// Draws panels below each other. The series' names stand above all of them.
pub(super) fn bar_chart(title: &str, series: &[String], panels: &[BarPanel]) -> String {
    let mut out = Drawing::default();
    out.text((16.0, 26.0), TextAnchor::Start, "title", title);
    let mut x = 16.0;
    for (number, name) in series.iter().enumerate() {
        out.bar((x, 40.0), (12.0, 12.0), number);
        out.text((x + 18.0, 51.0), TextAnchor::Start, "small", name);
        // Letters of this size are hardly wider than 7 on average.
        x += 18.0 + 7.0 * name.chars().map(|_| 1.0).sum::<f64>() + 24.0;
    }
    let mut y = 84.0;
    for panel in panels {
        y = draw_panel(&mut out, panel, y);
    }
    out.finish(y, title)
}

fn draw_panel(out: &mut Drawing, panel: &BarPanel, top: f64) -> f64 {
    out.text((16.0, top), TextAnchor::Start, "panel", &panel.title);
    let bars = || panel.groups.iter().flat_map(|group| &group.bars);
    let most = bars().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let unit = (WIDTH - NAMES_WIDTH - FIGURES_WIDTH) / most;
    let mut y = top + 14.0;
    let axis_top = y;
    for group in &panel.groups {
        let middle = y + group.bars.iter().map(|_| BAR_HEIGHT).sum::<f64>() / 2.0;
        out.text((NAMES_WIDTH - 8.0, middle + 4.0), TextAnchor::End, "", &group.name);
        for bar in &group.bars {
            // A figure that is next to nothing beside the others is to be seen, too.
            let width = (bar.value * unit).max(1.0);
            out.bar((NAMES_WIDTH, y + 1.0), (width, BAR_HEIGHT - 2.0), bar.series);
            out.text((NAMES_WIDTH + width + 6.0, y + 12.5), TextAnchor::Start, "small", &bar.label);
            y += BAR_HEIGHT;
        }
        y += GROUP_GAP;
    }
    out.line((NAMES_WIDTH, axis_top - 2.0), (NAMES_WIDTH, y - GROUP_GAP + 2.0), "axis");
    y + 28.0
}
